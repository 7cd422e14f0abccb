//! How the process of a worker ends.
//!
//! | cause | who notices | requests in progress | exit status |
//! |---|---|---|---|
//! | stopped, recycled, or `exit` in the application | the leader | are answered | 0, or that of `exit` |
//! | a request exceeds its time limit | the helper: [`Ending::end_overdue`] | 504 for the overdue one, time for the others | 124 |
//! | no progress between two requests (`WorkerTimeout`) | the helper: [`Ending::end_stuck`] | there are none | 124 |
//! | the application has closed the engine's descriptors | the leader or the helper: `Finish::Lost` | are answered | 1 |
//! | the master is gone | the leader or the helper: `Control::orphan` | are answered within `GracefulTimeout` | 0 |
//! | the master is gone, or the channel to it, before the worker is ready | a Ruby thread: `OrphanGuard` | there are none | 1 |
//! | the boot fails | `Worker#live` | there are none | 1 |
//! | hooks at the end, or an orphan, exceed `GracefulTimeout` | a thread: `end_within` | are cut | 124 |
//! | the helper, or the thread that writes files, panics | that thread: abort(3) in `helper/thread.rs`, `conn/disk.rs` | are cut | SIGABRT |
//! | a thread of the application panics in the engine | that thread: abort(3) in `worker/thread.rs` | are cut | SIGABRT |
//! | a crash, `exit!` or `exec` | nobody | are cut | the signal, or the application's |
//! | 2 s after `RequestTimeout`, `WorkerBootTimeout` or `GracefulTimeout` | the master: `WorkerTimeout` in lib/fastrack/master | are cut | SIGKILL |
//! | stopped by a signal or a debugger for longer than `WorkerTimeout` | the master, likewise | are cut | SIGKILL |
//! | a quick shutdown, or the server's stop exceeds `GracefulTimeout` | the master: `Shutdown` | are cut | SIGKILL |
//!
//! A worker that ends in good order passes its connections to other workers and runs at_exit hooks. Then `QuickExit` exits before Ruby
//! frees its objects one by one. Limits of memory (`MaxMemory`) recycle a worker. The master names cut requests from the scoreboard.
//!
//! This file has the two ends that the helper makes. The helper answers the clients of overdue requests, passes the other connections
//! to other workers, writes the lines of the access log, prints where the threads are, and ends the process.

mod last_response;

use std::sync::Arc;
use std::time::Duration;

use fastrack_sys::{drain_input, end_within, exit_at_once, monotonic_millis, write_stderr_all};

use crate::admission::Driving;
use crate::claim::{ActiveRequest, Claim, RequestSettings, ThreadDumper};
use crate::control::Control;
use crate::settings::OrphanSettings;
use crate::shared::Shared;
use last_response::answer_overdue;

/// The exit status of a worker that exceeds a time limit: that of timeout(1).
pub const TIMEOUT_STATUS: i32 = 124;

/// Longest wait for the reactor, in milliseconds. The thread that has the reactor may itself wait for a processor.
const REACTOR_TIME: u64 = 1_000;

/// Interval of checks whether the last requests are done, in milliseconds.
const OTHERS_LOOK_INTERVAL: u64 = 10;

/// Time that the other requests get if requests have no time limit, in milliseconds.
const TIME_FOR_OTHERS: u64 = 60_000;

/// Time for the application's own thread dump, and for the stack frames of threads in native code, in milliseconds.
const DUMP_TIME: u64 = 600;
const FRAMES_TIME: u64 = 300;

/// Ends a process whose application does not go on.
#[derive(Debug)]
pub(crate) struct Ending {
    shared: Arc<Shared>,
    control: Arc<Control>,
    /// Milliseconds without progress between two requests after which the process ends. 0 is never.
    stuck: u64,
    /// Time that the other requests get after an overdue one, in milliseconds.
    time_for_others: u64,
    orphan: Option<OrphanSettings>,
    dumper: Option<Arc<dyn ThreadDumper>>,
}

impl Ending {
    pub fn new(
        shared: Arc<Shared>,
        control: Arc<Control>,
        settings: &RequestSettings,
        orphan: Option<OrphanSettings>,
    ) -> Self {
        Ending {
            shared,
            control,
            stuck: settings.stuck,
            time_for_others: if settings.timeout == 0 { TIME_FOR_OTHERS } else { settings.timeout },
            orphan,
            dumper: settings.dumper.clone(),
        }
    }

    /// Limits the time of this process, because the dead master cannot.
    pub fn limit_orphan(&self) {
        let Some(orphan) = &self.orphan else { return };
        if let Err(error) =
            end_within(Duration::from_millis(orphan.time), TIMEOUT_STATUS, orphan.line.clone())
        {
            let line = format!("fastrack: a worker without a master ends without a limit: {error}\n");
            write_stderr_all(line.as_bytes());
        }
    }

    /// Answers the client of an overdue request at once. From then on no thread takes another request, and the process ends when the other
    /// requests are done or overdue as well. The application may fork meanwhile: `driving` is dropped for that.
    pub fn end_overdue<'a>(&self, driving: Driving<'a>) -> Driving<'a> {
        if !self.answer_overdue(false) {
            return driving;
        }
        drop(driving);
        let latest = monotonic_millis().saturating_add(self.time_for_others);
        // A thread that has begun a request at the last moment may not be counted yet. Streams do not count, because they may never end.
        let is_any_left =
            || self.control.all_requests().any(|request| request.is_seizable() && !request.is_stream());
        while is_any_left() || self.is_anybody_serving() {
            fastrack_sys::sleep(OTHERS_LOOK_INTERVAL);
            let is_over = monotonic_millis() >= latest;
            let driving = self.shared.baton().drive();
            if driving.is_none() && !is_over {
                continue;
            }
            self.answer_overdue(is_over);
            self.hand_off();
            if is_over {
                break;
            }
        }
        self.cut_streams();
        self.hand_off();
        let seized = self.control.all_requests().filter(|request| request.is_seized());
        seized.for_each(|request| request.set_ending(true));
        exit_at_once(TIMEOUT_STATUS)
    }

    /// Whether a thread has a request that the helper has not seized.
    fn is_anybody_serving(&self) -> bool {
        let seized = |request: &&Arc<ActiveRequest>| request.is_seized() && !request.is_stream();
        let seized = self.control.all_requests().filter(seized).count();
        self.shared.baton().serving() > seized
    }

    /// Answers the overdue requests, or all requests. Returns whether there were any.
    fn answer_overdue(&self, all: bool) -> bool {
        let now = monotonic_millis();
        let seize = |request: &ActiveRequest| if all { request.seize() } else { request.seize_overdue(now) };
        let requests = self.control.all_requests();
        let overdue: Vec<_> =
            requests.filter_map(|request| seize(request).map(|claim| (request, claim))).collect();
        if overdue.is_empty() {
            return false;
        }
        overdue.iter().for_each(|(request, claim)| answer_overdue(request, *claim));
        self.control.set_ending();
        if let Some(mut reactor) = self.shared.reactor_within(REACTOR_TIME) {
            overdue.iter().for_each(|(request, claim)| reactor.log_overdue(request, *claim));
            reactor.hand_off_all();
        }
        for (request, claim) in &overdue {
            self.report(&request.describe(now));
            if *claim == Claim::Open {
                request.with_client(drain_input);
            }
            request.set_ending(false);
        }
        true
    }

    /// The remaining streams end with the process. Their clients and the access log see that.
    fn cut_streams(&self) {
        let streams = self.control.all_requests().filter(|request| request.is_stream());
        let cut: Vec<_> = streams.filter_map(|request| Some((request, request.seize()?))).collect();
        cut.iter().for_each(|(request, claim)| answer_overdue(request, *claim));
        if let Some(mut reactor) = self.shared.reactor_within(REACTOR_TIME) {
            cut.iter().for_each(|(request, claim)| reactor.log_overdue(request, *claim));
        }
    }

    /// Ends the process if it has made no progress between two requests for too long: for `millis` milliseconds. For example, another
    /// thread keeps Ruby's lock, or a signal handler never returns.
    pub fn end_stuck(&self, millis: u64) {
        if self.stuck != 0 && millis >= self.stuck {
            self.hand_off();
            self.report(&format!("stuck between two requests for {:.1} s", millis as f64 / 1000.0));
            exit_at_once(TIMEOUT_STATUS);
        }
    }

    /// Passes the connections to other workers. If a thread keeps the reactor, the connections end with the process.
    fn hand_off(&self) {
        self.shared.hand_off_all(REACTOR_TIME);
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
