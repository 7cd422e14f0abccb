//! The response as a stream: the head has left, and more of the body is to come.
//!
//! The application's thread says that [more follows](ActiveRequest::set_follows). A while later the helper makes the response a stream, by
//! one compare-and-swap on the claim. From then on the request has a slot of its own, and the seat is free for another thread.

use std::sync::atomic::Ordering;

use fastrack_sys::{is_connection_lost, is_peer_gone};

use super::{ActiveRequest, Claim, ALLOWED, FOLLOWS, IO_BOUND, SEIZED, STOPPED, STREAM};
use crate::scoreboard::NEVER;

/// Time from a response's head until the response becomes a stream, in milliseconds. A body that the application computes is mostly over by
/// then. So each thread can begin 100 streams a second.
pub(crate) const STREAM_AFTER: u64 = 10;

/// Time that a stream has to end after its time limit, in milliseconds. Then the worker ends, as after the limit of a request.
const TIME_TO_END: u64 = 10_000;

/// Why a stream is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The client is gone.
    ClientGone,
    /// The stream's time limit is over.
    Timeout,
    /// The stream's worker was replaced, and ends. The client is still there, and connects again.
    Retired,
}

impl ActiveRequest {
    // --- the application's thread

    /// The head has left at this time, and the body has no known end. `is_upgrade`: the connection has switched to another protocol.
    pub fn set_follows(&self, now: u64, is_upgrade: bool) {
        self.follows.store(now, Ordering::Relaxed);
        self.is_upgrade.store(is_upgrade, Ordering::Relaxed);
        let claim = self.claim.fetch_or(FOLLOWS, Ordering::AcqRel);
        if claim & (STREAM | ALLOWED) == STREAM {
            // The response was marked as a stream before its head had left. Until now it had the time limit of a request.
            self.limit_stream(now);
        }
    }

    fn limit_stream(&self, now: u64) {
        let ends = match self.seats.stream_timeout {
            0 => NEVER,
            timeout => now + timeout,
        };
        self.stream_ends.store(ends, Ordering::Relaxed);
        self.own_slot.deadline.set(ends.saturating_add(TIME_TO_END));
    }

    // --- any thread of the application

    /// The application says that the request mostly waits. The request is to hold no seat, even before its head has left. It keeps its time
    /// limit.
    pub fn set_io_bound(&self) {
        self.claim.fetch_or(IO_BOUND, Ordering::AcqRel);
    }

    // --- the helper, with the reactor's lock

    /// Makes the response a stream if that is due at `now`. Returns whether it did; None if the response may become a stream later.
    pub fn begin_stream(&self, now: u64) -> Option<bool> {
        let claim = self.claim.load(Ordering::Acquire);
        let (is_io_bound, follows) = (claim & IO_BOUND != 0, claim & FOLLOWS != 0);
        let may = match Claim::of(claim) {
            Claim::Open => is_io_bound,
            Claim::Begun => is_io_bound || follows,
            Claim::None | Claim::Complete => false,
        };
        if !may || claim & (SEIZED | STREAM) != 0 {
            return Some(false);
        }
        let is_due = is_io_bound || now >= self.follows.load(Ordering::Relaxed) + STREAM_AFTER;
        if claim & STOPPED != 0 || !is_due {
            return None;
        }
        self.is_retired.store(false, Ordering::Relaxed);
        let seat = self.slot_of(claim);
        self.own_slot.copy_request(seat);
        if follows && claim & ALLOWED == 0 {
            self.limit_stream(now);
        } else {
            self.stream_ends.store(NEVER, Ordering::Relaxed);
            self.own_slot.deadline.set(seat.deadline.get());
        }
        let changed =
            self.claim.compare_exchange(claim, claim | STREAM, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if changed {
            seat.end_request();
        }
        changed.then_some(true)
    }

    // --- any thread

    /// Ends a stream because its worker ends. Returns false if the response is no stream, or was told before.
    pub fn end_stream(&self) -> bool {
        self.is_stream() && !self.is_none() && !self.is_retired.swap(true, Ordering::Relaxed)
    }

    // --- any thread that keeps the connection from being closed

    /// Why the stream is to end at this time. None if the stream goes on, or the response is no stream. A client of HTTP that has shut down
    /// its sending side counts as gone.
    pub fn stream_end(&self, now: u64) -> Option<StreamEnd> {
        if !self.is_stream() || self.is_none() {
            return None;
        }
        let mut end = self.is_retired.load(Ordering::Relaxed).then_some(StreamEnd::Retired);
        if now >= self.stream_ends.load(Ordering::Relaxed) {
            end = Some(StreamEnd::Timeout);
        }
        self.with_client(|client| {
            let is_gone = match self.is_upgrade.load(Ordering::Relaxed) {
                true => is_connection_lost(client),
                false => is_peer_gone(client),
            };
            if is_gone {
                end = Some(StreamEnd::ClientGone);
            }
        });
        end
    }

    /// When the response became a stream, in milliseconds of the monotonic clock; None if it is none.
    pub fn began_stream(&self) -> Option<u64> {
        let claim = self.claim.load(Ordering::Acquire);
        (claim & (STREAM | FOLLOWS) == STREAM | FOLLOWS)
            .then(|| self.follows.load(Ordering::Relaxed) + STREAM_AFTER)
    }

    /// Whether the response is a stream, or was one until the thread's next request.
    pub fn is_stream(&self) -> bool {
        self.claim.load(Ordering::Acquire) & STREAM != 0
    }
}
