//! How the process of a worker ends in the middle of requests.
//!
//! | cause | who notices | requests in progress get | exit status |
//! |---|---|---|---|
//! | a request exceeds its time limit | the helper | 504; the other ones have time to finish | 124 |
//! | no progress between two requests | the helper | there are none | 124 |
//! | a fatal signal | the thread that crashed, in a signal handler | 502 | the signal |
//! | the application calls exit! | the thread that calls it | 502 | the application's |
//!
//! The steps are the same: the clients of requests in progress are answered (with a reset if a part of the response was sent), the
//! other connections go to other workers, the access log gets its lines, stderr gets the report, and the process ends. The
//! application's threads may hang or have crashed, so the helper does all that a signal handler may not do. Nobody learns of SIGKILL.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::sync::Arc;

use fastrack_http::Error;
use fastrack_sys::{exit_at_once, monotonic_millis, write_stderr_all, Events};

use super::shared::Shared;
use crate::baton::Driving;
use crate::control::Control;
use crate::request_state::{
    end_overdue_process, ActiveRequest, Claim, ExitStatus, LastResponse, RequestSettings, ThreadDumper,
    ENDING_TIME,
};

/// How long a thread that has crashed, or calls exit!, waits for the helper, in milliseconds: longer than that waits for the
/// reactor. If the heap is corrupt it may never finish.
const HELPER_TIME: u64 = 3_000;

/// How long to wait for the reactor, in milliseconds. A thread that has it may wait for a processor for as long as a busy
/// machine pleases; but the crashed thread may have it as well.
const REACTOR_TIME: u64 = 1_000;

/// How long threads get that have begun to send a response when another one crashes, in milliseconds.
const RESPONSE_TIME: u64 = 300;

/// How often to look whether the last requests are done, in milliseconds.
const LAST_LOOK: u64 = 10;

/// How long other requests get if they have no time limit, in milliseconds.
const PATIENCE: u64 = 60_000;

/// Time for the application's own thread dump, and for the stack frames of threads in native code, in milliseconds.
const DUMP_TIME: u64 = 600;
const FRAMES_TIME: u64 = 300;

/// How far the end of the process is. Each thread changes it by compare-and-swap only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    /// The process goes on.
    GoesOn,
    /// It goes on, and the helper has ended: its descriptors are closed.
    WithoutHelper,
    /// A thread ends it, and answers the requests in progress.
    Begun,
    /// The helper is to hand off the connections.
    Asked,
    HandedOff,
    /// The helper could not: another thread has the reactor and keeps it, or the helper has ended.
    Left,
    /// The thread that ends it has done all it can.
    Over,
}

impl Stage {
    const ALL: [Stage; 7] = [
        Stage::GoesOn,
        Stage::WithoutHelper,
        Stage::Begun,
        Stage::Asked,
        Stage::HandedOff,
        Stage::Left,
        Stage::Over,
    ];
}

/// Ends a process in the middle of requests. Belongs to the process that made it.
#[derive(Debug)]
pub struct Ending {
    shared: Arc<Shared>,
    control: Arc<Control>,
    overdue: LastResponse,
    ended: LastResponse,
    /// After how many milliseconds without progress between two requests; 0 is never.
    stuck: u64,
    /// How long the other requests of a process get that ends, in milliseconds.
    patience: u64,
    dumper: Option<Arc<dyn ThreadDumper>>,
    /// A [`Stage`].
    stage: AtomicU8,
    pid: u32,
}

/// What fatal signals run: an `Arc` that was turned into a pointer, or null.
static INSTALLED: AtomicPtr<Ending> = AtomicPtr::new(null_mut());

/// How many threads are in it.
static CRASHING: AtomicUsize = AtomicUsize::new(0);

impl Ending {
    pub(crate) fn new(shared: Arc<Shared>, control: Arc<Control>, settings: &RequestSettings) -> Self {
        Ending {
            shared,
            control,
            overdue: LastResponse::new(Error::Overdue),
            ended: LastResponse::new(Error::Ended),
            stuck: settings.stuck,
            patience: if settings.timeout == 0 { PATIENCE } else { settings.timeout },
            dumper: settings.dumper.clone(),
            stage: AtomicU8::new(Stage::GoesOn as u8),
            pid: std::process::id(),
        }
    }

    // --- the thread that ends the process

    /// Answers the requests in progress with 502 and hands off the rest, right before the process ends. Once per process.
    pub fn run(&self) {
        self.begin(ActiveRequest::take);
    }

    /// Has fatal signals do the same, until [`leave_fatal_signals`](Self::leave_fatal_signals). Only the first engine's counts until then.
    ///
    /// `ruby` is any address in the program or library whose signal handlers this is to precede. Other handlers are
    /// left alone: they may not even treat their signal as a failure.
    pub fn handle_fatal_signals(self: &Arc<Self>, ruby: *const ()) {
        let own = Arc::into_raw(Arc::clone(self)).cast_mut();
        if INSTALLED.compare_exchange(null_mut(), own, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            // SAFETY: it does only what signal-safety(7) allows.
            unsafe { fastrack_sys::run_before_fatal_signals(ruby as usize, on_fatal_signal) };
        } else {
            // SAFETY: it was made by into_raw just now, and nobody else has it.
            drop(unsafe { Arc::from_raw(own) });
        }
    }

    /// From now on fatal signals do what they did before: the engine ends, and the process goes on. A child of it may have
    /// an engine of its own.
    pub fn leave_fatal_signals(self: &Arc<Self>) {
        let own = Arc::as_ptr(self).cast_mut();
        if INSTALLED.compare_exchange(own, null_mut(), Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        // A thread that has crashed at this moment ends the process.
        while CRASHING.load(Ordering::SeqCst) > 0 {
            fastrack_sys::sleep(1);
        }
        // SAFETY: into_raw has made it, and the exchange has taken it out of where others would find it.
        drop(unsafe { Arc::from_raw(own) });
    }

    /// What a thread does first that has crashed. Async-signal-safe.
    fn crash(&self) {
        // Other threads may go on: one that has sent a response and not come back yet is not to cost its client the connection.
        let is_alone = self.control.threads() == 1;
        self.begin(if is_alone { ActiveRequest::take } else { ActiveRequest::take_open });
    }

    /// Async-signal-safe.
    fn begin(&self, take: fn(&ActiveRequest) -> Option<Claim>) {
        if self.pid != std::process::id() {
            return;
        }
        let begins = self.go_on(Stage::GoesOn, Stage::Begun) || self.go_on(Stage::WithoutHelper, Stage::Left);
        if !begins {
            // What this thread does next ends the process: another one that has crashed is not done yet.
            return wait_for_helper(|| self.stage() == Stage::Over);
        }
        let has_others = self.control.threads() > 1;
        if has_others {
            // The process may still take seconds to end, and what another thread began meanwhile would end with it.
            self.control.set_ending();
        }
        self.answer_requests(take);
        if self.go_on(Stage::Begun, Stage::Asked) {
            self.shared.timer().wake_helper();
            wait_for_helper(|| self.stage() != Stage::Asked);
        }
        if has_others {
            // They began at that moment.
            self.answer_requests(ActiveRequest::take);
        }
        // Still asked, the helper is stuck, or is the thread that has crashed.
        if self.stage() != Stage::HandedOff {
            self.answer_unseen();
        }
        self.stage.store(Stage::Over as u8, Ordering::SeqCst);
    }

    /// Async-signal-safe.
    fn answer_requests(&self, take: fn(&ActiveRequest) -> Option<Claim>) {
        for request in self.control.all_requests() {
            if let Some(claim) = take(request) {
                request.note_ended();
                self.ended.send(request, claim);
                if claim == Claim::Open {
                    LastResponse::drain(request);
                }
            }
        }
    }

    /// Answers the clients of connections that nobody looks after any more. Async-signal-safe.
    fn answer_unseen(&self) {
        self.control.with_connections(|client, is_unsent| self.ended.send_unseen(client, is_unsent));
    }

    fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Ordering::SeqCst))]
    }

    fn go_on(&self, from: Stage, to: Stage) -> bool {
        self.stage.compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether a thread that ends the process has asked the helper.
    fn is_asked(&self) -> bool {
        !matches!(self.stage(), Stage::GoesOn | Stage::Begun)
    }
}

/// The handler of fatal signals: only what signal-safety(7) allows.
fn on_fatal_signal() {
    CRASHING.fetch_add(1, Ordering::SeqCst);
    // SAFETY: into_raw has made it, and who takes it away waits until nobody is in here.
    unsafe { INSTALLED.load(Ordering::SeqCst).as_ref() }.into_iter().for_each(Ending::crash);
    CRASHING.fetch_sub(1, Ordering::SeqCst);
}

/// Async-signal-safe if `is_done` is.
fn wait_for_helper(is_done: impl Fn() -> bool) {
    let latest = monotonic_millis() + HELPER_TIME;
    while !is_done() && monotonic_millis() < latest {
        fastrack_sys::sleep(1);
    }
}

/// What the helper does.
impl Ending {
    /// Does what another thread waits for that is about to end the process. False if there is none.
    pub(super) fn carry_out(&self) -> bool {
        if self.stage() == Stage::Asked {
            let is_done = self.shared.hand_off_all(REACTOR_TIME);
            self.await_responses();
            if self.control.threads() > 1 {
                // They also get their lines in the access log.
                self.answer_requests(ActiveRequest::take);
            }
            if is_done {
                self.shared.log_ended(&self.control, REACTOR_TIME);
            }
            self.go_on(Stage::Asked, if is_done { Stage::HandedOff } else { Stage::Left });
        }
        self.is_asked()
    }

    /// The helper ends: its descriptors are closed.
    pub(super) fn leave(&self) {
        let left = self.go_on(Stage::GoesOn, Stage::WithoutHelper) || self.go_on(Stage::Begun, Stage::Left);
        if !left {
            self.go_on(Stage::Asked, Stage::Left);
        }
    }

    /// A response may have left whose thread is still on its way back with the connection, which goes on elsewhere then. Threads
    /// whose requests were taken do not come back.
    fn await_responses(&self) {
        let latest = monotonic_millis() + RESPONSE_TIME;
        while self.is_anybody_serving() && monotonic_millis() < latest {
            fastrack_sys::sleep(1);
        }
    }

    fn is_anybody_serving(&self) -> bool {
        let taken = self.control.all_requests().iter().filter(|request| request.is_taken()).count();
        self.shared.baton().serving() > taken
    }

    /// The process ends: from here on, touch nothing. Somebody may have kept it from ending, such as a handler that jumps out
    /// of a signal.
    pub(super) fn await_end(&self, events: &mut Events) {
        let latest = monotonic_millis() + ENDING_TIME;
        while !self.control.is_helper_over() {
            match latest.saturating_sub(monotonic_millis()) {
                0 => end_overdue_process(),
                left if self.shared.timer().wait(events, Some(left)).is_none() => fastrack_sys::sleep(left),
                _ => {}
            };
        }
    }

    /// If a request is overdue its client is answered at once, and no thread takes another one. The process ends when the
    /// other requests are done, or overdue as well. Until then these may fork, for which they need `driving`.
    pub(super) fn end_overdue<'a>(&'a self, driving: Driving<'a>) -> Driving<'a> {
        if !self.answer_overdue(false) {
            return driving;
        }
        drop(driving);
        let latest = monotonic_millis().saturating_add(self.patience);
        // A thread that has begun a request at the last moment may not be counted yet.
        let is_any_left = || self.control.all_requests().iter().any(|request| request.is_takeable());
        while is_any_left() || self.is_anybody_serving() {
            fastrack_sys::sleep(LAST_LOOK);
            // Another thread has crashed meanwhile, or calls exit!: the process ends by that, with its own report and status.
            if let Some(driving) = self.is_asked().then(|| self.shared.baton().drive()).flatten() {
                return driving;
            }
            let is_over = monotonic_millis() >= latest;
            let driving = self.shared.baton().drive();
            if driving.is_none() && !is_over {
                continue;
            }
            self.answer_overdue(is_over);
            self.shared.hand_off_all(REACTOR_TIME);
            if is_over {
                break;
            }
        }
        self.hand_off();
        let taken = self.control.all_requests().iter().filter(|request| request.is_taken());
        taken.for_each(|request| request.set_ending(true));
        exit_at_once(ExitStatus::RequestTimeout as i32)
    }

    /// Answers the requests that are overdue, or all. Whether there were any.
    fn answer_overdue(&self, all: bool) -> bool {
        let now = monotonic_millis();
        let take = |request| self.take_overdue(request, now, all).map(|claim| (request, claim));
        let overdue: Vec<_> = self.control.all_requests().iter().map(Arc::as_ref).filter_map(take).collect();
        if !overdue.is_empty() {
            self.control.set_ending();
            if let Some(mut reactor) = self.shared.reactor_within(REACTOR_TIME) {
                overdue.iter().for_each(|(request, claim)| reactor.log_lost(request, *claim, Error::Overdue));
                reactor.hand_off_all();
            }
        }
        for (request, claim) in &overdue {
            self.report(&request.describe(now));
            if *claim == Claim::Open {
                LastResponse::drain(request);
            }
            request.set_ending(false);
        }
        !overdue.is_empty()
    }

    /// Answers the client of a request that is overdue, or of any; says how far the response was.
    fn take_overdue(&self, request: &ActiveRequest, now: u64, any: bool) -> Option<Claim> {
        let claim = if any { request.take() } else { request.take_overdue(now) }?;
        self.overdue.send(request, claim);
        if claim == Claim::Begun {
            // The descriptor stays open until the process ends.
            request.with_client(|client| drop(fastrack_sys::reset_now(client)));
        }
        Some(claim)
    }

    /// Ends the process if it has done the same thing between two requests for `millis` milliseconds, which is too long: another thread keeps the
    /// application's lock, for example, or a signal handler never returns.
    pub(super) fn end_stuck(&self, millis: u64) {
        if self.stuck != 0 && millis >= self.stuck {
            self.hand_off();
            self.report(&format!("stuck between two requests for {:.1} s", millis as f64 / 1000.0));
            exit_at_once(ExitStatus::RequestTimeout as i32);
        }
    }

    /// Where the connections are not to be had, their clients get what they can get.
    fn hand_off(&self) {
        if !self.shared.hand_off_all(REACTOR_TIME) {
            self.answer_unseen();
        }
    }

    fn report(&self, what: &str) {
        let line = format!("fastrack: {what}: this worker ends (worker {})\n", std::process::id());
        let Some(dumper) = &self.dumper else { return write_stderr_all(line.as_bytes()) };
        let dump = dumper.dump(DUMP_TIME);
        let threads =
            dump.as_deref().unwrap_or("Ruby does not get to tell what its threads are at; where they are:\n");
        write_stderr_all(format!("{line}{threads}").as_bytes());
        if dump.is_none() {
            dumper.dump_frames(FRAMES_TIME);
        }
    }
}

#[cfg(test)]
mod tests;
