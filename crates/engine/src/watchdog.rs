//! The end of a worker whose request has taken too long.
//!
//! The helper does all of it, because the application's thread may sleep, spin
//! or hang in native code: the client is answered, the other clients go to
//! other workers, the log gets what the threads are at, and the process ends.

use std::os::fd::{BorrowedFd, RawFd};

use fastrack_http::{error_response, DateCache, Error};
use fastrack_sys::{
    borrow_fd, discard_input, epoch_seconds, exit_at_once, monotonic_millis, send, write_stderr_within,
};

use crate::reactor::Reactor;
use crate::watch::{Claim, Watch};

/// The status of a worker that has ended because of a request that took too long: that of timeout(1).
pub const EXIT_STATUS: i32 = 124;

/// How long the application's threads get to say what they are at, in milliseconds, and how long for where they are
/// in native code: a second together.
const TO_TESTIFY: u64 = 600;
const TO_POINT_OUT: u64 = 300;

/// How long a log that takes nothing is waited for, in milliseconds.
const FOR_LOG: u64 = 200;

/// What is read of a client's further requests before the end, in bytes.
const DRAINED: usize = 64 * 1024;

/// Ends the process if the request that the application is at, on `client`, is overdue. The helper's.
pub(crate) fn look(watch: &Watch, client: RawFd, reactor: &mut Reactor) {
    let now = monotonic_millis();
    let Some(claim) = watch.take_overdue(now) else { return };
    let mut response = Vec::new();
    let mut date = DateCache::default();
    error_response(Error::Overdue, date.at(epoch_seconds()), !watch.is_head_request(), &mut response);
    // SAFETY: the application's thread can finish nothing any more: until the end, the descriptor stays what it is.
    let client = unsafe { borrow_fd(client) }.ok();
    client.into_iter().for_each(|client| part(client, claim, &response));
    reactor.evacuate();
    report(watch, now);
    if claim == Claim::Open {
        client.into_iter().for_each(drain);
    }
    exit_at_once(EXIT_STATUS);
}

/// What the client gets: an answer if it has none, or else a sign that what it has is not all. For signal handlers, too.
pub(crate) fn part(client: BorrowedFd<'_>, claim: Claim, answer: &[u8]) {
    match claim {
        Claim::Begun => {
            // If it fails the close is an orderly one, which is all that can be had then.
            let _ = fastrack_sys::reset_on_close(client);
            return;
        }
        Claim::Open => {
            // It fits into any socket's buffer; a client that takes nothing gets nothing.
            let _ = send(client, answer);
        }
        Claim::None | Claim::Answered | Claim::Taken => {}
    }
    // It fails for a client that is gone.
    let _ = fastrack_sys::shutdown_write(client);
}

/// A close with something unread would have the client's system throw away the answer. For signal handlers, too.
pub(crate) fn drain(client: BorrowedFd<'_>) {
    let mut left = DRAINED;
    while left > 0 {
        match discard_input(client) {
            Ok(got) if got > 0 => left = left.saturating_sub(got),
            _ => return,
        }
    }
}

fn report(watch: &Watch, now: u64) {
    let pid = std::process::id();
    let request = watch.describe(now);
    let Some(dumper) = &watch.dumper else {
        let line = format!("fastrack: {request}: this worker ends (worker {pid})\n");
        return write_stderr_within(line.as_bytes(), FOR_LOG);
    };
    let testimony = dumper.dump(TO_TESTIFY);
    let threads = testimony
        .as_deref()
        .unwrap_or("Ruby does not get to tell what its threads are at; where they are:\n");
    let text = format!("fastrack: {request}: this worker ends (worker {pid})\n{threads}");
    write_stderr_within(text.as_bytes(), FOR_LOG);
    if testimony.is_none() {
        dumper.dump_frames(TO_POINT_OUT);
    }
}
