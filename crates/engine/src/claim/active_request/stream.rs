//! The response as a stream: its head has left, and the application has more of its body to come.
//!
//! The application's thread says that [more follows](ActiveRequest::set_follows). When that has lasted, the helper makes it a stream, by one
//! compare-and-swap on the claim. From then on the request is in a slot of its own, and the seat is free for another thread.

use std::sync::atomic::Ordering;

use fastrack_sys::{is_connection_lost, is_peer_gone};

use super::{ActiveRequest, Claim, ALLOWED, FOLLOWS, IO_BOUND, SEIZED, STOPPED, STREAM};
use crate::scoreboard::NEVER;

/// How long after its head a response becomes a stream, in milliseconds. Those of an application that computes its body are over by then,
/// mostly, and so many streams can begin on each thread in a second: 100.
pub(crate) const STREAM_AFTER: u64 = 10;

/// How long a stream has after its time limit, in milliseconds. Then its worker ends, as after the limit of a request.
const TIME_TO_END: u64 = 10_000;

/// Why a stream is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The client is gone.
    ClientGone,
    /// The stream's time limit is over.
    Timeout,
    /// The stream's worker was replaced, and ends. The client is there, and connects again.
    Retired,
}

impl ActiveRequest {
    // --- the application's thread

    /// The head has left at this time, and the body has no known end. `is_upgrade`: the connection is not HTTP's any more.
    pub fn set_follows(&self, now: u64, is_upgrade: bool) {
        self.follows.store(now, Ordering::Relaxed);
        self.is_upgrade.store(is_upgrade, Ordering::Relaxed);
        let claim = self.claim.fetch_or(FOLLOWS, Ordering::AcqRel);
        if claim & (STREAM | ALLOWED) == STREAM {
            // It was marked before, and had the time limit of a request until now.
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

    /// The application says that the request mostly waits: it is to hold no seat, though its head has not left. It keeps its time limit.
    pub fn set_io_bound(&self) {
        self.claim.fetch_or(IO_BOUND, Ordering::AcqRel);
    }

    // --- the helper, with the reactor's lock

    /// Makes the response a stream if that is due at the time `now`. Whether it did. None if it may become due.
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

    /// Why the stream is to end at this time; None if it goes on, or the response is no stream. Where the connection is HTTP's, a client that
    /// sends no more counts as gone.
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
