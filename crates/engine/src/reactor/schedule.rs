//! When each of those who wait gets a turn: numbers of requests, and when they began. No clock is asked.

use crate::conn::Connection;

/// After this long the listeners are polled whenever no request is ready, in milliseconds. Short requests come to
/// the 64 above first, which costs them next to nothing; long ones can afford 0.2 microseconds each time.
pub(super) const LOOK_INTERVAL: u64 = 1;

/// Requests from one connection given to an idle worker to the next. Giving costs as much as half a short request,
/// so this limits both how fast connections spread over the workers and what two workers pay that give to and fro. Longer
/// requests can afford it more often: after as many milliseconds as this.
pub(super) const GIVE_INTERVAL: u32 = 128;
pub(super) const GIVE_TIME: u64 = 4;

/// What the schedule goes by.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Clients accepted in a row without a look at the poller.
    pub(super) accepted: u32,
    /// Requests of kept-alive connections served since the listeners were last polled.
    pub(super) kept: u32,
    /// Requests served since a connection was last given to an idle worker.
    pub(super) since_given: u32,
    /// When that was, in milliseconds.
    pub(super) last_given: u64,
    /// When the last request began, and when the last one had begun when the listeners were polled, in milliseconds.
    pub(super) last_began: u64,
    pub(super) last_look: u64,
    /// A ready request, to be served next.
    pub(super) first: Option<Box<Connection>>,
    /// The poller has reported the shared queue.
    pub(super) queue_announced: bool,
}

impl Schedule {
    pub(super) fn new() -> Self {
        Schedule {
            accepted: 0,
            kept: 0,
            since_given: 0,
            last_given: 0,
            last_began: 0,
            last_look: 0,
            first: None,
            queue_announced: false,
        }
    }

    /// A request begins at this time.
    pub(super) fn count_request(&mut self, now: u64) {
        self.last_began = now;
        self.since_given = self.since_given.saturating_add(1);
    }

    /// Whether the listeners are to be polled again, going by when requests began: no clock is asked.
    pub(super) fn is_look_due(&self) -> bool {
        self.last_began >= self.last_look + LOOK_INTERVAL
    }

    pub(super) fn may_give(&self) -> bool {
        self.since_given >= GIVE_INTERVAL || self.last_began >= self.last_given + GIVE_TIME
    }
}
