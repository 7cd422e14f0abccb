//! The helper's thread, and when it takes over.

use std::cell::Cell;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, MutexGuard};
use std::thread::{Builder, JoinHandle};

use fastrack_http::Error;
use fastrack_sys::{monotonic_millis, with_signals_blocked, Events};

use super::lookout::{Lookout, Work};
use super::shared::{Order, Shared};
use crate::control::Control;
use crate::handoff::Member;
use crate::reactor::Reactor;
use crate::watch::{end_overdue_process, Watchdog, ENDING_TIME};

/// The longest wait for events while a request lasts, in milliseconds: its time limit may have been changed.
const LONGEST_WAIT: u64 = 100;

/// The longest time between two looks that counts, in milliseconds: longer, and the machine has stood still.
const LONGEST_LOOK: u64 = 1_000;

/// How long until a client that could not be served is tried again, in milliseconds.
const NEXT_TRY: u64 = 1;
/// Where the threads that have requests are to be left alone.
const LATER_TRY: u64 = 2;
/// The same at most where it is known when there is room, or the threads tell: each look takes time of others.
const LATEST_TRY: u64 = 10;

/// The same while a client has not taken all that the application has passed of its response. What its socket holds lasts
/// longer, unless it takes more than 10 MB in a second.
const UNSENT_WAIT: u64 = 20;

/// How often to look whether the last requests are done, in milliseconds.
const LAST_LOOK: u64 = 10;

/// How long to wait for the reactor when the process is ending, in milliseconds. A thread that has it may wait for a processor
/// for as long as a busy machine pleases; but the crashed thread may have it as well.
const LAST_WAIT: u64 = 1_000;

/// How long threads get that have begun to send a response when another one crashes, in milliseconds.
const RESPONSE_TIME: u64 = 300;

/// In bytes.
const STACK: usize = 128 * 1024;

#[derive(Debug)]
pub(crate) struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Helper {
    /// Starts the thread, with all signals blocked in it. To be called after the last fork of this process's own.
    pub fn start(shared: Arc<Shared>, control: Arc<Control>, watchdog: Watchdog) -> io::Result<Self> {
        let its = Arc::clone(&shared);
        let work = move || {
            if catch_unwind(AssertUnwindSafe(|| run(&its, &control, &watchdog))).is_err() {
                // The message is out. Connections may be in any state: the master starts another worker.
                std::process::abort();
            }
        };
        let builder = Builder::new().name("fastrack helper".into()).stack_size(STACK);
        let thread = with_signals_blocked(|| builder.spawn(work))?;
        Ok(Helper { shared, thread: Some(thread), pid: std::process::id() })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.pid != std::process::id() {
            // A fork does not copy the thread, and the timer is the parent's.
            std::mem::forget(thread);
            return;
        }
        self.shared.order(Order::End);
        // It cannot have panicked: that ends the process.
        let _ = thread.join();
    }
}

fn run(shared: &Shared, control: &Control, watchdog: &Watchdog) {
    let mut events = Events::default();
    // It computes for microseconds, and a client may wait for them: not for a request that has the processor.
    fastrack_sys::take_short_turns();
    let drive = Drive { shared, control, watchdog, step: Cell::default(), has_others: Cell::default() };
    let mut lookout = Lookout::new(shared.timer(), shared.epoch(), drive);
    loop {
        let Some(wake) = shared.timer().wait(&mut events, lookout.next_look()) else {
            // The other thread ends this process when it is back.
            return shared.reactor().set_lost_descriptors();
        };
        if shared.is_ordered(Order::End) {
            return;
        }
        if shared.is_ordered(Order::HandOff) {
            // A thread has crashed, and the process ends as soon as this is done.
            let is_done = shared.hand_off_all(LAST_WAIT);
            await_responses(shared, control);
            if control.threads() > 1 {
                // They get their lines in the access log, too.
                watchdog.end_requests(control.all_requests());
            }
            if is_done {
                shared.log_ended(control, LAST_WAIT);
            }
            shared.carried_out(is_done);
        }
        if shared.is_ordered(Order::HandedOff) || shared.is_ordered(Order::Left) {
            return await_end(shared, &mut events);
        }
        lookout.woken(wake);
    }
}

/// A response may have left whose thread is still on its way back with the connection, which goes on elsewhere then. Threads
/// whose requests were taken do not come back.
fn await_responses(shared: &Shared, control: &Control) {
    let latest = monotonic_millis() + RESPONSE_TIME;
    let taken = || control.all_requests().iter().filter(|request| request.is_taken()).count();
    while shared.crew().serving() as usize > taken() && monotonic_millis() < latest {
        fastrack_sys::sleep(1);
    }
}

/// The process ends: from here on, touch nothing. Somebody may have kept it from ending, such as a handler that jumps out
/// of a signal.
fn await_end(shared: &Shared, events: &mut Events) {
    let latest = monotonic_millis() + ENDING_TIME;
    while !shared.is_ordered(Order::End) {
        match latest.saturating_sub(monotonic_millis()) {
            0 => end_overdue_process(),
            left if shared.timer().wait(events, Some(left)).is_none() => fastrack_sys::sleep(left),
            _ => {}
        };
    }
}

/// How long the application's thread has been at one step.
#[derive(Clone, Copy, Default)]
struct Step {
    epoch: u64,
    seen: u64,
    millis: u64,
}

impl Step {
    /// It is at the step of this epoch. Returns for how many milliseconds it has been seen there.
    fn see(&mut self, epoch: u64, now: u64) -> u64 {
        let millis = match self.epoch == epoch {
            true => self.millis + now.saturating_sub(self.seen).min(LONGEST_LOOK),
            false => 0,
        };
        *self = Step { epoch, seen: now, millis };
        millis
    }
}

/// Drives a worker's connections.
struct Drive<'a> {
    shared: &'a Shared,
    control: &'a Control,
    watchdog: &'a Watchdog,
    step: Cell<Step>,
    /// There were other workers when it last drove with one thread.
    has_others: Cell<bool>,
}

impl Work for Drive<'_> {
    fn drive(&self, since: u64) -> Option<u64> {
        let epoch = self.shared.epoch();
        let driving = self.shared.drive()?;
        let mut reactor = self.shared.try_reactor()?;
        if epoch.read() != since {
            return None;
        }
        self.shared.note_long_request();
        let longest = if self.send_responses() { UNSENT_WAIT } else { LONGEST_WAIT };
        if !self.shared.crew().is_alone() {
            return Some(self.drive_for_crew(since, reactor, driving)?.min(longest));
        }
        reactor.drive(&|| epoch.read() != since, &|_| false);
        self.has_others.set(reactor.has_others());
        self.shared.timer().want_listeners(reactor.may_accept_ahead());
        let request = self.control.request();
        self.watchdog.check(request, |claim| {
            reactor.log_lost(request, claim, Error::Overdue);
            reactor.hand_off_all();
        });
        // A request has limits of its own. What comes after it begins at 0.
        let mut step = Step::default();
        if request.is_none() {
            step = self.step.get();
            let lasted = step.see(since, monotonic_millis());
            self.watchdog.check_progress(request, lasted, || reactor.hand_off_all());
        }
        self.step.set(step);
        Some(next_look(&reactor, request.deadline()).min(longest))
    }

    fn may_give(&self) -> bool {
        self.has_others.get()
    }

    fn watch(&self) {
        if self.shared.crew().is_alone() {
            return;
        }
        // Not while the application forks.
        if let Some(driving) = self.shared.drive() {
            if let Some(_reactor) = self.shared.try_reactor() {
                self.send_responses();
            }
            drop(self.watch_requests(driving));
        }
    }

    fn rest(&self) {
        self.shared.crew().waits().tell_after(0);
    }
}

impl Drive<'_> {
    /// Sends what clients have not taken of the responses to requests in progress. Whether there was any of that. The caller has the
    /// reactor, so that no connection is closed meanwhile.
    fn send_responses(&self) -> bool {
        self.control.all_requests().iter().fold(false, |any, request| request.send_unsent() | any)
    }
}

/// When the connections or the requests need another look, in milliseconds.
fn next_look(reactor: &Reactor, deadline: u64) -> u64 {
    let next = reactor.next_deadline().unwrap_or(u64::MAX).min(deadline);
    match reactor.events() {
        0 => next.saturating_sub(monotonic_millis()).clamp(1, LONGEST_WAIT),
        _ => 0,
    }
}

/// When to try again, in milliseconds, where there is no room for further requests; there may be in so many microseconds.
fn next_try(until_room: Option<u64>) -> u64 {
    until_room.map_or(LATER_TRY, |micros| micros.div_ceil(1_000).clamp(NEXT_TRY, LATEST_TRY))
}

/// With several threads of the application.
impl Drive<'_> {
    /// Nobody leads, or the leader makes no progress. Wakes a thread if there is something for it.
    fn drive_for_crew(
        &self,
        since: u64,
        mut reactor: MutexGuard<'_, Reactor>,
        driving: MutexGuard<'_, ()>,
    ) -> Option<u64> {
        let Drive { shared, control, .. } = self;
        let crew = shared.crew();
        let room = crew.room();
        let is_first_choice =
            |reactor: &Reactor| room > 0 && !reactor.member().is_some_and(Member::is_another_idle);
        let is_back = || shared.epoch().read() != since || shared.is_anybody_returning();
        reactor.drive(&is_back, &is_first_choice);
        // What the thread that leads would see: clients, the shared queue.
        let is_anybody_there = reactor.has_ready() || control.is_noticed() || control.is_anybody_waiting();
        if is_anybody_there && (control.is_noticed() || is_first_choice(&reactor)) {
            crew.summon(reactor.waiting_requests().min(room));
        }
        let deadline = control.all_requests().iter().map(|request| request.deadline()).min();
        let next = next_look(&reactor, deadline.unwrap_or(u64::MAX));
        let is_stuck = crew.serving() == 0;
        drop(reactor);
        let _driving = self.watch_requests(driving);
        let mut step = Step::default();
        if is_stuck {
            step = self.step.get();
            let lasted = step.see(since, monotonic_millis());
            self.watchdog.check_progress(control.request(), lasted, || self.hand_off_or_answer());
        }
        self.step.set(step);
        shared.timer().watch_on(!is_anybody_there);
        if !is_anybody_there || room > 0 {
            crew.waits().tell_after(0);
        }
        Some(match (is_anybody_there, room) {
            (false, _) => next,
            (true, 0) => next.min(next_try(crew.time_until_room())),
            (true, _) => next.min(NEXT_TRY),
        })
    }

    /// If a request is overdue its client is answered at once, and no thread takes another one. The process ends when the
    /// other requests are done, or overdue as well. Until then these may fork.
    fn watch_requests<'a>(&'a self, driving: MutexGuard<'a, ()>) -> MutexGuard<'a, ()> {
        if !self.answer(false) {
            return driving;
        }
        drop(driving);
        let Drive { shared, control, watchdog, .. } = self;
        let latest = monotonic_millis().saturating_add(watchdog.patience());
        let taken = || control.all_requests().iter().filter(|request| request.is_taken());
        // A thread that has begun a request at the last moment may not be counted yet.
        let is_any_left = || control.all_requests().iter().any(|request| request.is_takeable());
        while is_any_left() || shared.crew().serving() as usize > taken().count() {
            fastrack_sys::sleep(LAST_LOOK);
            // Another thread has crashed meanwhile, or calls exit!: the process ends by that, with its own report and status.
            let ends_otherwise =
                [Order::HandOff, Order::HandedOff, Order::Left].map(|order| shared.is_ordered(order));
            if let Some(driving) = ends_otherwise.contains(&true).then(|| shared.drive()).flatten() {
                return driving;
            }
            let is_over = monotonic_millis() >= latest;
            let driving = shared.drive();
            if driving.is_none() && !is_over {
                continue;
            }
            self.answer(is_over);
            shared.hand_off_all(LAST_WAIT);
            if is_over {
                break;
            }
        }
        self.hand_off_or_answer();
        taken().for_each(|request| request.set_ending(true));
        watchdog.end_process()
    }

    /// The process ends now. Where the connections are not to be had, their clients get what they can get.
    fn hand_off_or_answer(&self) {
        if !self.shared.hand_off_all(LAST_WAIT) {
            self.control.with_connections(|client, is_unsent| self.watchdog.answer_unseen(client, is_unsent));
        }
    }

    /// Answers the requests that are overdue, or all. Whether there were any.
    fn answer(&self, all: bool) -> bool {
        let now = monotonic_millis();
        let Drive { shared, control, watchdog, .. } = self;
        let take = |request| watchdog.take_beside(request, now, all).map(|claim| (request, claim));
        let overdue: Vec<_> = control.all_requests().iter().map(Arc::as_ref).filter_map(take).collect();
        if !overdue.is_empty() {
            control.set_ending();
            if let Some(mut reactor) = shared.reactor_within(LAST_WAIT) {
                overdue.iter().for_each(|(request, claim)| reactor.log_lost(request, *claim, Error::Overdue));
                reactor.hand_off_all();
            }
        }
        for (request, claim) in &overdue {
            watchdog.tell(request, *claim, now);
            request.set_ending(false);
        }
        !overdue.is_empty()
    }
}

#[cfg(test)]
mod tests;
