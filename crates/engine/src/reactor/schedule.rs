//! When each source of work gets a turn: by numbers of requests, and by the times at which requests began. No clock is asked.

use crate::conn::Connection;

/// Clients accepted in a row before the connections' poller is asked, if there are connections and none has an event.
pub(super) const ACCEPTS_BESIDE_IDLE: u32 = 16;

/// Clients accepted in a row before that, if there are no connections, or some have events. Bench: `bench/run --workload
/// hello-tcp,newcomer`.
pub(super) const ACCEPTS_PER_POLL: u32 = 64;

/// Requests of kept clients served before the listeners are polled again. Bench: `bench/run --workload keepalive,newcomer`.
pub(super) const KEPT_PER_POLL: u32 = 64;

/// Milliseconds after which the listeners are polled whenever no request is ready. Short requests reach [`KEPT_PER_POLL`] first, which
/// costs them next to nothing. Long requests can afford 0.2 microseconds each time.
const LISTENERS_POLL_INTERVAL: u64 = 1;

/// Requests served from one connection given to an idle worker to the next. Giving costs as much as half a short request. So this number
/// limits how fast connections spread over the workers, and what two workers pay that give to each other. Bench: `bench/run --workload
/// keepalive`.
pub(super) const REQUESTS_PER_GIVING: u32 = 128;

/// Milliseconds from one given connection to the next, if requests are longer and fewer.
pub(super) const GIVING_INTERVAL: u64 = 4;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Clients accepted in a row since the poller of the connections was asked.
    accepted: u32,
    /// Requests of kept clients served since the listeners were last polled.
    kept: u32,
    /// Requests served since a connection was last given to an idle worker.
    since_given: u32,
    /// The time at which the last request began, in milliseconds. The next two fields are copies of earlier such times.
    last_began: u64,
    /// `last_began` when a connection was last given to an idle worker.
    last_given: u64,
    /// `last_began` when the listeners were last polled.
    last_poll: u64,
    /// Whether the worker has waited for clients since the listeners were last polled.
    has_waited: bool,
    /// Whether requests are so long that ready ones wait in the shared queue: see [`Self::is_sharing_due`].
    pub(super) shares: bool,
    /// A ready request, to be served next.
    pub(super) next: Option<Box<Connection>>,
    /// Whether the poller has reported the shared queue.
    pub(super) queue_announced: bool,
}

impl Schedule {
    /// A request begins at this time.
    pub(super) fn count_request(&mut self, now: u64) {
        self.last_began = now;
        self.since_given = self.since_given.saturating_add(1);
    }

    /// A client gets its turn to be accepted, unless `most` clients had theirs since the last poll.
    pub(super) fn may_accept(&self, most: u32) -> bool {
        self.accepted < most
    }

    pub(super) fn count_accepted(&mut self) {
        self.accepted += 1;
    }

    pub(super) fn count_kept(&mut self) {
        self.kept += 1;
    }

    /// Whether kept clients have used up their turns.
    pub(super) fn is_kept_budget_spent(&self) -> bool {
        self.kept >= KEPT_PER_POLL
    }

    /// A request has lasted so long that new clients come first.
    pub(super) fn spend_kept_budget(&mut self) {
        self.kept = KEPT_PER_POLL;
    }

    /// The worker waits for clients.
    pub(super) fn note_wait(&mut self) {
        self.has_waited = true;
    }

    /// Whether requests since the last poll of the listeners have taken a millisecond each, or more. Then the ready requests of all workers
    /// are to wait in the shared queue, in one order, at a cost of some 15 microseconds each. Few requests tell nothing of their length if
    /// the worker has waited. Bench: `bench/run --workload newcomer` (the tail of kept clients).
    pub(super) fn is_sharing_due(&self) -> bool {
        let millis = self.last_began.saturating_sub(self.last_poll);
        !self.has_waited && self.kept > 0 && u64::from(self.kept) <= millis
    }

    /// A poll begins. Returns whether the listeners are polled, too: if that is due, or the poll `is_urgent`.
    ///
    /// INVARIANT: `kept` is reset only when the listeners are polled. Otherwise fewer than [`KEPT_PER_POLL`] busy clients would keep new
    /// ones in the backlog as long as they are busy.
    pub(super) fn begin_poll(&mut self, is_urgent: bool) -> bool {
        let is_sharing_due = self.is_sharing_due();
        self.accepted = 0;
        let is_time = self.kept > 0 && self.last_began >= self.last_poll + LISTENERS_POLL_INTERVAL;
        let polls_listeners = is_urgent || is_time || self.is_kept_budget_spent();
        if polls_listeners {
            (self.kept, self.last_poll, self.has_waited) = (0, self.last_began, false);
            self.shares = is_sharing_due;
        }
        polls_listeners
    }

    /// Whether a connection may be given to an idle worker.
    pub(super) fn may_give(&self) -> bool {
        self.since_given >= REQUESTS_PER_GIVING || self.last_began >= self.last_given + GIVING_INTERVAL
    }

    pub(super) fn note_given(&mut self) {
        (self.since_given, self.last_given) = (0, self.last_began);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_gives_again_after_many_requests_or_some_time() {
        let mut schedule = Schedule::default();
        schedule.count_request(1_000);
        schedule.note_given();
        schedule.count_request(1_000 + GIVING_INTERVAL - 1);
        assert!(!schedule.may_give());
        schedule.count_request(1_000 + GIVING_INTERVAL);
        assert!(schedule.may_give());
        schedule.note_given();
        (1..REQUESTS_PER_GIVING).for_each(|_| schedule.count_request(1_000 + GIVING_INTERVAL));
        assert!(!schedule.may_give());
        schedule.count_request(1_000 + GIVING_INTERVAL);
        assert!(schedule.may_give());
    }

    #[test]
    fn requests_are_shared_where_they_take_a_millisecond_each_and_the_worker_has_not_waited() {
        let after = |requests: u32, millis: u64, waits: bool| {
            let mut schedule = Schedule::default();
            schedule.count_request(1_000);
            schedule.count_kept();
            schedule.begin_poll(true);
            if waits {
                schedule.note_wait();
            }
            (0..requests).for_each(|_| schedule.count_kept());
            schedule.count_request(1_000 + millis);
            let is_due = schedule.is_sharing_due();
            assert_eq!((schedule.begin_poll(true), schedule.shares), (true, is_due));
            is_due
        };
        assert_eq!([after(0, 4, false), after(1, 4, false), after(4, 4, false)], [false, true, true]);
        assert_eq!([after(5, 4, false), after(1, 0, false), after(1, 4, true)], [false; 3]);
    }

    #[test]
    fn the_listeners_are_polled_after_many_requests_of_kept_clients_or_some_time() {
        let mut schedule = Schedule::default();
        let mut after = |requests: u32, now, is_urgent| {
            (0..requests).for_each(|_| schedule.count_kept());
            schedule.count_request(now);
            schedule.begin_poll(is_urgent)
        };
        assert_eq!([after(1, 1_000, false), after(KEPT_PER_POLL - 1, 1_000, false)], [true, false]);
        assert_eq!([after(1, 1_000, false), after(1, 1_000, false)], [true, false]);
        assert_eq!([after(0, 1_000 + LISTENERS_POLL_INTERVAL, false), after(0, 2_000, false)], [true, false]);
        assert!(after(0, 2_000, true));
    }
}
