//! How the requests of a worker use the application's lock (Ruby's GVL). Idle time of the lock earns a credit. Use of the lock spends the
//! credit. A worker begins another request beside those in progress when the credit is large enough.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use fastrack_sys::Timer;

/// Credit that another request needs, in microseconds. See [`Usage::idle_credit`].
pub(crate) const CREDIT_NEEDED: u64 = 30_000;
/// Largest credit, in microseconds.
const CREDIT_CAP: u64 = 60_000;

/// The use of the lock at one moment. The value fits into 64 bits, so that all threads see the same.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Usage {
    /// Whether the application reports GVL events. Ruby 3.1 has none.
    reports_gvl_events: bool,
    /// Whether the helper waits for enough credit.
    is_awaited: bool,
    /// Requests in progress. Streams do not count.
    requests: u8,
    /// Requests and streams that have or want the lock.
    users: u16,
    /// Time that requests have waited while the lock was free, less half of the time that the lock was in use, in microseconds: 0 to
    /// [`CREDIT_CAP`].
    idle_credit: u16,
    /// Time of this state, in microseconds, as far as [`TIME_BITS`] hold it. They last for 4 minutes.
    at: u32,
}

/// Where each number begins in the 64 bits: 7 bits of requests, 11 of users, 16 of the credit, and the time.
const USERS: u32 = 7;
const CREDIT: u32 = USERS + 11;
const TIME: u32 = CREDIT + 16;
const TIME_BITS: u32 = 28;
const LATEST: u32 = (1 << TIME_BITS) - 1;

/// The bits of [`Usage::reports_gvl_events`] and [`Usage::is_awaited`].
const REPORTS: u64 = 1 << 62;
const AWAITED: u64 = 1 << 63;

/// Longest step back in time, in microseconds: another thread may have read the clock before this one.
const MAX_STEP_BACK: u32 = 1_000_000;

impl Usage {
    fn of(number: u64) -> Self {
        let bits = |from: u32, to: u32| (number >> from) & ((1 << (to - from)) - 1);
        Usage {
            reports_gvl_events: number & REPORTS != 0,
            is_awaited: number & AWAITED != 0,
            requests: bits(0, USERS) as u8,
            users: bits(USERS, CREDIT) as u16,
            idle_credit: bits(CREDIT, TIME) as u16,
            at: bits(TIME, TIME + TIME_BITS) as u32,
        }
    }

    fn number(self) -> u64 {
        let reports = if self.reports_gvl_events { REPORTS } else { 0 };
        let awaited = if self.is_awaited { AWAITED } else { 0 };
        let Usage { requests, users, idle_credit, at, .. } = self;
        u64::from(requests)
            | u64::from(users) << USERS
            | u64::from(idle_credit) << CREDIT
            | u64::from(at) << TIME
            | reports
            | awaited
    }

    /// How long this state has lasted, in microseconds.
    fn lasts(self, now: u64) -> u64 {
        let passed = (now as u32).wrapping_sub(self.at) & LATEST;
        if passed > LATEST - MAX_STEP_BACK {
            0
        } else {
            passed.into()
        }
    }

    /// The same use at a later time.
    fn at(self, now: u64) -> Self {
        let (passed, before) = (self.lasts(now), u64::from(self.idle_credit));
        let idle_credit = match self.users {
            0 => (before + passed * u64::from(self.requests)).min(CREDIT_CAP),
            _ => before.saturating_sub(passed / 2),
        };
        Usage { idle_credit: idle_credit as u16, at: now as u32 & LATEST, ..self }
    }

    fn change(self, requests: i8, users: i8) -> Self {
        Usage {
            requests: self.requests.saturating_add_signed(requests),
            users: self.users.saturating_add_signed(users.into()),
            ..self
        }
    }

    /// Time until the credit is large enough, in microseconds, if no request wants the lock until then.
    fn micros_missing(self, now: u64) -> u64 {
        let idle_credit = CREDIT_NEEDED.saturating_sub(self.at(now).idle_credit.into());
        idle_credit.div_ceil(u64::from(self.requests).max(1))
    }
}

/// The use of the lock by the requests of one worker.
#[derive(Debug, Default)]
pub(crate) struct GvlUsage {
    /// A [`Usage`].
    used: AtomicU64,
    /// Wakes the helper at `due`, in microseconds, when the credit may be large enough. The timer is set only while the helper waits for
    /// the credit.
    timer: OnceLock<Timer>,
    due: AtomicU64,
}

impl GvlUsage {
    // --- threads that have requests

    pub(super) fn note_reports(&self) {
        if !self.reports_gvl_events() {
            self.used.fetch_or(REPORTS, Ordering::Relaxed);
        }
    }

    /// Changes the number of requests in progress, and of requests that have or want the lock, at the time `now` in microseconds.
    pub(super) fn change(&self, now: u64, requests: i8, users: i8) {
        let mut before = self.used.load(Ordering::SeqCst);
        let used = loop {
            let used = Usage::of(before).at(now).change(requests, users);
            match self.used.compare_exchange_weak(before, used.number(), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => break used,
                Err(other) => before = other,
            }
        };
        if used.users == 0 && used.requests > 0 && used.is_awaited {
            self.wake_helper_in(now, used.micros_missing(now));
        }
    }

    /// Sets the timer, unless the timer fires soon enough. Nobody stops the timer of an earlier wait, because a system call takes longer
    /// than many waits.
    fn wake_helper_in(&self, now: u64, micros: u64) {
        let due = self.due.load(Ordering::Relaxed);
        if !(now < due && due <= now + micros) {
            self.due.store(now + micros, Ordering::Relaxed);
            // Setting the timer cannot fail for such times.
            let _ = self.timer.get().map(|timer| timer.set(Duration::from_micros(micros.max(1))));
        }
    }

    // --- the leader and the helper

    /// Whether the application reports how its threads use the lock.
    pub fn reports_gvl_events(&self) -> bool {
        self.used(Ordering::Relaxed).reports_gvl_events
    }

    /// Whether no request uses the lock, and the credit is large enough.
    pub fn has_credit(&self, now: u64) -> bool {
        let used = self.used(Ordering::SeqCst);
        used.users == 0 && u64::from(used.at(now).idle_credit) >= CREDIT_NEEDED
    }

    /// Time until another request may begin, in microseconds. 0 if it may begin now. None while the lock is in use.
    pub fn time_until_credit(&self, now: u64) -> Option<u64> {
        let used = self.used(Ordering::SeqCst);
        (used.users == 0).then(|| used.micros_missing(now))
    }

    /// From now on this timer wakes the helper.
    pub fn wake_by(&self, timer: Timer) {
        // The timer is set once.
        let _ = self.timer.set(timer);
    }

    pub fn timer(&self) -> Option<&Timer> {
        self.timer.get()
    }

    /// Says whether the helper is to be woken when the credit is large enough. Returns whether the helper will be woken.
    pub fn set_awaited(&self, is_awaited: bool) -> bool {
        let before = match is_awaited {
            true => self.used.fetch_or(AWAITED, Ordering::SeqCst),
            false => self.used.fetch_and(!AWAITED, Ordering::SeqCst),
        };
        Usage::of(before).reports_gvl_events && self.timer.get().is_some()
    }

    fn used(&self, order: Ordering) -> Usage {
        Usage::of(self.used.load(order))
    }

    #[cfg(test)]
    pub fn is_awaited(&self) -> bool {
        self.used(Ordering::Relaxed).is_awaited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::patience;
    use crate::scoreboard::{MAX_STREAMS, MAX_THREADS};
    use fastrack_sys::{Events, Poller};

    /// The credit after these times, in microseconds: by how much the requests' waiting exceeds half of their use of the lock. Each time
    /// has the number of requests, and the number of those that use the lock.
    fn credit_after(times: &[(u8, u16, u64)]) -> u64 {
        let mut used = Usage { at: 7_000, ..Usage::default() };
        let mut now = 7_000;
        for (requests, users, micros) in times {
            now += micros;
            used = Usage { requests: *requests, users: *users, ..used }.at(now);
        }
        used.idle_credit.into()
    }

    #[test]
    fn what_requests_wait_counts_and_what_they_use_the_lock_is_subtracted() {
        assert_eq!(
            [credit_after(&[(0, 0, 400)]), credit_after(&[(1, 0, 400)]), credit_after(&[(1, 1, 400)])],
            [0, 400, 0]
        );
        assert_eq!(credit_after(&[(1, 0, 400), (2, 2, 300), (2, 0, 50)]), 350);
        // The credit has an upper and a lower limit, so a long time counts in part.
        assert_eq!(credit_after(&[(1, 1, 60_000_000), (1, 0, 900)]), 900);
        assert_eq!(credit_after(&[(1, 0, 60_000_000), (1, 1, 2 * CREDIT_CAP - 2)]), 1);
    }

    #[test]
    fn it_is_enough_where_requests_wait_for_longer_than_half_of_what_they_compute() {
        let is_enough = |times: &[(u8, u16, u64)]| credit_after(&times.repeat(100)) >= CREDIT_NEEDED;
        // First a page with short queries, alone and beside another page. Then the same page where other processes have the processors.
        // Then a page with a long query.
        assert!(!is_enough(&[(1, 1, 1_500), (1, 0, 500)]) && !is_enough(&[(2, 2, 1_700), (2, 0, 300)]));
        assert!(!is_enough(&[(1, 1, 40_000), (1, 0, 15_000)]));
        assert!(is_enough(&[(1, 1, 13_000), (1, 0, 24_000)]) && is_enough(&[(3, 2, 650), (3, 0, 350)]));
        // Requests that wait for a cache.
        assert!(is_enough(&[(1, 1, 200), (1, 0, 600)]));
    }

    #[test]
    fn all_of_it_is_kept_in_one_number() {
        for used in [
            Usage { requests: 1, is_awaited: true, ..Usage::default() },
            Usage {
                reports_gvl_events: true,
                is_awaited: false,
                requests: MAX_THREADS as u8,
                users: (MAX_THREADS + MAX_STREAMS) as u16,
                idle_credit: CREDIT_CAP as u16,
                at: LATEST,
            },
        ] {
            assert_eq!(Usage::of(used.number()), used);
        }
        // The clock exceeds these bits, and one thread may read it before another thread does.
        let used = Usage { requests: 1, idle_credit: 100, at: LATEST, ..Usage::default() };
        assert_eq!(used.at((1 << TIME_BITS) + 100), Usage { idle_credit: 201, at: 100, ..used });
        assert_eq!(used.at((1 << TIME_BITS) - 2).idle_credit, 100);
    }

    #[test]
    fn a_request_may_begin_when_all_wait_and_have_done_so_for_long_enough() {
        let lock = GvlUsage::default();
        lock.change(7_000, 1, 1);
        lock.change(7_100, 1, 1);
        lock.change(7_200, 0, -1);
        assert_eq!((lock.has_credit(90_000), lock.time_until_credit(90_000)), (false, None));
        lock.change(10_000, 0, -1);
        // Two requests wait, so the credit grows twice as fast.
        assert_eq!(lock.time_until_credit(10_400), Some(CREDIT_NEEDED / 2 - 400));
        let now = 10_000 + CREDIT_NEEDED / 2;
        assert_eq!(
            (lock.has_credit(now - 1), lock.has_credit(now), lock.time_until_credit(now)),
            (false, true, Some(0))
        );
        lock.change(90_000, 0, 1);
        lock.change(91_000, 0, -1);
        assert_eq!((lock.has_credit(91_000), lock.time_until_credit(91_000)), (true, Some(0)));
    }

    /// The times for which the lock has set the helper's timer, one for each time at which a request began to wait. `is_awaited`: the
    /// helper waits for the credit.
    fn set_at(is_awaited: bool, times: &[u64]) -> Vec<u64> {
        let lock = GvlUsage::default();
        let set = |now: &u64| {
            let used = Usage { is_awaited, requests: 1, users: 1, at: *now as u32, ..Usage::default() };
            lock.used.store(used.number(), Ordering::SeqCst);
            lock.change(*now, 0, -1);
            lock.due.load(Ordering::Relaxed)
        };
        let mut due: Vec<_> = times.iter().map(set).collect();
        due.dedup();
        due
    }

    #[test]
    fn the_timer_is_set_only_where_that_is_asked_for_and_not_for_each_wait() {
        assert_eq!(set_at(false, &[10_000]), [0]);
        // The timer would never fire if each of these waits set it anew.
        assert_eq!(set_at(true, &[10_000, 10_400, 9_999 + CREDIT_NEEDED]), [10_000 + CREDIT_NEEDED]);
        let (first, second) = (10_000 + CREDIT_NEEDED, 10_000 + 2 * CREDIT_NEEDED);
        assert_eq!(set_at(true, &[10_000, first, first + 1]), [first, second]);
    }

    #[test]
    fn it_is_set_sooner_where_less_is_missing() {
        let lock = GvlUsage::default();
        lock.set_awaited(true);
        lock.wake_helper_in(10_000, 3_000);
        lock.wake_helper_in(10_000, 500);
        assert_eq!(lock.due.load(Ordering::Relaxed), 10_500);
    }

    #[test]
    fn when_nobody_wants_the_lock_any_more_the_timer_tells() {
        if !Poller::TAKES_TIMERS {
            return;
        }
        let lock = GvlUsage::default();
        let (timer, poller) = (Timer::new().expect("a timer"), Poller::new().expect("a poller"));
        poller.watch_timer(&timer, 0).expect("watched");
        assert!(!lock.set_awaited(true), "there is no timer");
        lock.wake_by(timer);
        assert!(!lock.set_awaited(true), "the application tells nothing");
        lock.note_reports();
        assert!(lock.set_awaited(true));
        let mut events = Events::default();
        let mut is_due = |millis| {
            poller.wait(&mut events, Some(millis)).expect("polled");
            !events.is_empty()
        };
        lock.change(5_000, 2, 2);
        lock.change(5_000, 0, -1);
        assert!(!is_due(0));
        lock.change(5_000, 0, -1);
        assert!(is_due(patience().as_millis() as u64));
    }
}
