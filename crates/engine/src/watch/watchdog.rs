//! Ends a worker whose request has exceeded its time limit, or which is stuck between two requests.
//!
//! The helper does all of it, because the application's thread may sleep, spin or hang in native code: it answers the
//! client, hands the other connections to other workers, logs a thread dump and ends the process.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fastrack_http::Error;
use fastrack_sys::{exit_at_once, monotonic_millis, write_stderr_within};

use super::active_request::{ActiveRequest, Claim};
use super::last_response::LastResponse;
use super::settings::{ThreadDumper, WatchSettings};

/// Exit status of a worker whose request exceeded its time limit: that of timeout(1).
pub const EXIT_STATUS: i32 = 124;

/// Time for the application's own thread dump, and for the stack frames of threads in native code, in milliseconds.
const DUMP_TIME: u64 = 600;
const FRAMES_TIME: u64 = 300;

/// The [patience](Watchdog::patience) where requests have no time limit, in milliseconds.
const PATIENCE: u64 = 60_000;

/// How long to wait for a log that takes nothing, in milliseconds.
const LOG_TIME: u64 = 200;

#[derive(Debug)]
pub(crate) struct Watchdog {
    response: LastResponse,
    /// For clients whose requests nobody has seen.
    rest: LastResponse,
    stuck: u64,
    patience: u64,
    dumper: Option<Arc<dyn ThreadDumper>>,
}

impl Watchdog {
    pub fn new(settings: &WatchSettings) -> Self {
        let dumper = settings.dumper.clone();
        let patience = if settings.timeout == 0 { PATIENCE } else { settings.timeout };
        let (response, rest) = (LastResponse::new(Error::Overdue), LastResponse::new(Error::Ended));
        Watchdog { response, rest, stuck: settings.stuck, patience, dumper }
    }

    /// Ends the process if the request is overdue, after `hand_off` has passed on the other connections.
    pub fn check(&self, request: &ActiveRequest, hand_off: impl FnOnce(Claim)) {
        let now = monotonic_millis();
        let Some(claim) = self.take(request, now) else { return };
        hand_off(claim);
        self.tell(request, claim, now);
        self.end_process();
    }

    /// How long the other requests of a process get that ends, if they have no limits of their own, in milliseconds.
    pub fn patience(&self) -> u64 {
        self.patience
    }

    /// Answers the client of a request that is overdue, or of any if the process `ends_now`, while the process goes on; says
    /// how far the response was.
    pub fn take_beside(&self, request: &ActiveRequest, now: u64, ends_now: bool) -> Option<Claim> {
        let claim = if ends_now { request.take() } else { request.take_overdue(now) }?;
        self.response.send(request, claim);
        if claim == Claim::Begun {
            // The descriptor stays open until the process ends.
            request.with_client(|client| drop(fastrack_sys::reset_now(client)));
        }
        Some(claim)
    }

    /// Answers the client of a request that is overdue; says how far the response was.
    fn take(&self, request: &ActiveRequest, now: u64) -> Option<Claim> {
        let claim = request.take_overdue(now)?;
        self.response.send(request, claim);
        Some(claim)
    }

    /// The process ends in the middle of these requests, by a crash.
    pub fn end_requests(&self, requests: &[Arc<ActiveRequest>]) {
        for request in requests {
            if let Some(claim) = request.take() {
                request.note_ended(claim);
                self.rest.send(request, claim);
                if claim == Claim::Open {
                    LastResponse::drain(request);
                }
            }
        }
    }

    /// Answers the client of a connection that cannot be passed on.
    pub fn answer_unseen(&self, client: BorrowedFd<'_>, is_unsent: bool) {
        self.rest.send_unseen(client, is_unsent);
    }

    /// Logs a request that was [taken](Self::take).
    pub fn tell(&self, request: &ActiveRequest, claim: Claim, now: u64) {
        self.report(&request.describe(now));
        if claim == Claim::Open {
            LastResponse::drain(request);
        }
    }

    pub fn end_process(&self) -> ! {
        exit_at_once(EXIT_STATUS)
    }

    /// Ends the process if it has done the same thing for so many milliseconds and that is no request: another thread
    /// keeps the application's lock, for example, or a signal handler never returns.
    pub fn check_progress(&self, request: &ActiveRequest, millis: u64, hand_off: impl FnOnce()) {
        if self.stuck != 0 && millis >= self.stuck && request.is_none() {
            hand_off();
            self.report(&format!("stuck between two requests for {:.1} s", millis as f64 / 1000.0));
            exit_at_once(EXIT_STATUS);
        }
    }

    fn report(&self, request: &str) {
        let line = format!("fastrack: {request}: this worker ends (worker {})\n", std::process::id());
        let Some(dumper) = &self.dumper else { return write_stderr_within(line.as_bytes(), LOG_TIME) };
        let dump = dumper.dump(DUMP_TIME);
        let threads =
            dump.as_deref().unwrap_or("Ruby does not get to tell what its threads are at; where they are:\n");
        write_stderr_within(format!("{line}{threads}").as_bytes(), LOG_TIME);
        if dump.is_none() {
            dumper.dump_frames(FRAMES_TIME);
        }
    }
}
