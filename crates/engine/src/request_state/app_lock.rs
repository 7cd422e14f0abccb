//! When a worker begins another request beside those in progress: by how long the application's lock (Ruby's GVL) is free, as the
//! threads tell that have requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use fastrack_sys::Timer;

/// For how much longer requests must have waited than half of the time in which they used the lock, in microseconds, and what counts
/// of that.
pub(crate) const ENOUGH: u64 = 30_000;
const MOST: u64 = 60_000;

/// How the requests in progress use the lock, as of one moment. It is kept in 64 bits, so that all threads see the same.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Use {
    /// The application has told something: with Ruby 3.1 it never does.
    is_told: bool,
    /// The helper waits for the moment in which the lock has been free for long enough.
    is_awaited: bool,
    /// Requests in progress, and those among them that have the lock, or want it: as many as there are threads, fewer than 128.
    requests: u8,
    users: u8,
    /// For how much longer requests waited while the lock was free than half of the time that it was in use, in microseconds: between 0
    /// and [`MOST`].
    spare: u16,
    /// When that was so, in microseconds: the last 32 bits, which last for an hour.
    at: u32,
}

/// The bits of [`Use::is_told`] and [`Use::is_awaited`]: the highest of the two counts.
const TOLD: u64 = 1 << 7;
const AWAITED: u64 = 1 << 15;

/// A time that is earlier by less than this, in microseconds, was read by another thread before.
const DISORDER: u32 = 1_000_000;

impl Use {
    fn of(number: u64) -> Self {
        let [requests, users, low, high, time @ ..] = (number & !(TOLD | AWAITED)).to_le_bytes();
        Use {
            is_told: number & TOLD != 0,
            is_awaited: number & AWAITED != 0,
            requests,
            users,
            spare: u16::from_le_bytes([low, high]),
            at: u32::from_le_bytes(time),
        }
    }

    fn number(self) -> u64 {
        let ([low, high], [a, b, c, d]) = (self.spare.to_le_bytes(), self.at.to_le_bytes());
        let told = if self.is_told { TOLD } else { 0 };
        let awaited = if self.is_awaited { AWAITED } else { 0 };
        u64::from_le_bytes([self.requests, self.users, low, high, a, b, c, d]) | told | awaited
    }

    /// For how long it has been so, in microseconds.
    fn lasts(self, now: u64) -> u64 {
        let passed = (now as u32).wrapping_sub(self.at);
        if passed > u32::MAX - DISORDER {
            0
        } else {
            passed.into()
        }
    }

    /// The same at a later time.
    fn at(self, now: u64) -> Self {
        let (passed, before) = (self.lasts(now), u64::from(self.spare));
        let spare = match self.users {
            0 => (before + passed * u64::from(self.requests)).min(MOST),
            _ => before.saturating_sub(passed / 2),
        };
        Use { spare: spare as u16, at: now as u32, ..self }
    }

    fn change(self, requests: i8, users: i8) -> Self {
        Use {
            requests: self.requests.saturating_add_signed(requests),
            users: self.users.saturating_add_signed(users),
            ..self
        }
    }

    /// In how many microseconds there will be enough, if nobody wants the lock until then.
    fn missing(self, now: u64) -> u64 {
        let spare = ENOUGH.saturating_sub(self.at(now).spare.into());
        spare.div_ceil(u64::from(self.requests).max(1))
    }
}

/// The lock, in the requests of one worker.
#[derive(Debug, Default)]
pub(crate) struct AppLock {
    /// A [`Use`].
    used: AtomicU64,
    /// Wakes the helper at `due`, in microseconds, when the lock may have been free for long enough, while that is awaited.
    timer: OnceLock<Timer>,
    due: AtomicU64,
}

impl AppLock {
    // --- threads that have requests

    pub(super) fn tell(&self) {
        if !self.is_told() {
            self.used.fetch_or(TOLD, Ordering::Relaxed);
        }
    }

    /// At this time, in microseconds, the number of requests in progress changes, and that of threads which have or want the lock.
    pub(super) fn change(&self, now: u64, requests: i8, users: i8) {
        let mut before = self.used.load(Ordering::SeqCst);
        let used = loop {
            let used = Use::of(before).at(now).change(requests, users);
            match self.used.compare_exchange_weak(before, used.number(), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => break used,
                Err(other) => before = other,
            }
        };
        if used.users == 0 && used.requests > 0 && used.is_awaited {
            self.wake_helper_in(now, used.missing(now));
        }
    }

    /// The timer is left alone when it fires soon enough, be it for an earlier wait that is over: to set it, and to stop it,
    /// takes longer than many a wait.
    fn wake_helper_in(&self, now: u64, micros: u64) {
        let due = self.due.load(Ordering::Relaxed);
        if !(now < due && due <= now + micros) {
            self.due.store(now + micros, Ordering::Relaxed);
            // It cannot fail for such times.
            let _ = self.timer.get().map(|timer| timer.set(Duration::from_micros(micros.max(1))));
        }
    }

    // --- who begins requests, and the helper

    /// Whether the application tells how its threads use the lock.
    pub fn is_told(&self) -> bool {
        self.used(Ordering::Relaxed).is_told
    }

    /// Whether no request uses the lock, and they have waited for long enough: a thread that has answered one may begin another.
    pub fn is_spare(&self, now: u64) -> bool {
        let used = self.used(Ordering::SeqCst);
        used.users == 0 && u64::from(used.at(now).spare) >= ENOUGH
    }

    /// In how many microseconds one more request may be in progress: 0 if one may now; None while the lock is in use.
    pub fn time_until_enough(&self, now: u64) -> Option<u64> {
        let used = self.used(Ordering::SeqCst);
        (used.users == 0).then(|| used.missing(now))
    }

    /// From now on the helper can be told by this timer, which wakes it.
    pub fn tell_by(&self, timer: Timer) {
        // It is set once.
        let _ = self.timer.set(timer);
    }

    pub fn timer(&self) -> Option<&Timer> {
        self.timer.get()
    }

    /// The helper wants to be told when the lock, in use now, has been free for long enough, or not any more. Whether it will be.
    pub fn set_awaited(&self, is_awaited: bool) -> bool {
        let before = match is_awaited {
            true => self.used.fetch_or(AWAITED, Ordering::SeqCst),
            false => self.used.fetch_and(!AWAITED, Ordering::SeqCst),
        };
        Use::of(before).is_told && self.timer.get().is_some()
    }

    fn used(&self, order: Ordering) -> Use {
        Use::of(self.used.load(order))
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
    use crate::request_state::MAX_THREADS;
    use fastrack_sys::{Events, Poller};

    /// How much longer requests waited than they used the lock after these times, in microseconds, with these numbers of requests, and
    /// of requests that use it.
    fn spare_after(times: &[(u8, u8, u64)]) -> u64 {
        let mut used = Use { at: 7_000, ..Use::default() };
        let mut now = 7_000;
        for (requests, users, micros) in times {
            now += micros;
            used = Use { requests: *requests, users: *users, ..used }.at(now);
        }
        used.spare.into()
    }

    #[test]
    fn what_requests_wait_counts_and_what_they_use_the_lock_is_subtracted() {
        assert_eq!(
            [spare_after(&[(0, 0, 400)]), spare_after(&[(1, 0, 400)]), spare_after(&[(1, 1, 400)])],
            [0, 400, 0]
        );
        assert_eq!(spare_after(&[(1, 0, 400), (2, 2, 300), (2, 0, 50)]), 350);
        // Neither counts for ever.
        assert_eq!(spare_after(&[(1, 1, 60_000_000), (1, 0, 900)]), 900);
        assert_eq!(spare_after(&[(1, 0, 60_000_000), (1, 1, 2 * MOST - 2)]), 1);
    }

    #[test]
    fn it_is_enough_where_requests_wait_for_longer_than_half_of_what_they_compute() {
        let is_enough = |times: &[(u8, u8, u64)]| spare_after(&times.repeat(100)) >= ENOUGH;
        // A page with short queries, alone and beside another one, and where other processes have the processors; one with a long query.
        assert!(!is_enough(&[(1, 1, 1_500), (1, 0, 500)]) && !is_enough(&[(2, 2, 1_700), (2, 0, 300)]));
        assert!(!is_enough(&[(1, 1, 40_000), (1, 0, 15_000)]));
        assert!(is_enough(&[(1, 1, 13_000), (1, 0, 24_000)]) && is_enough(&[(3, 2, 650), (3, 0, 350)]));
        // Requests that wait for a cache.
        assert!(is_enough(&[(1, 1, 200), (1, 0, 600)]));
    }

    #[test]
    fn all_of_it_is_kept_in_one_number() {
        for used in [
            Use { requests: 1, is_awaited: true, ..Use::default() },
            Use {
                is_told: true,
                is_awaited: false,
                requests: MAX_THREADS as u8,
                users: 63,
                spare: MOST as u16,
                at: u32::MAX,
            },
        ] {
            assert_eq!(Use::of(used.number()), used);
        }
        // The clock goes on beyond 32 bits, and may be read before another thread's.
        let used = Use { requests: 1, spare: 100, at: u32::MAX, ..Use::default() };
        assert_eq!(used.at((1 << 32) + 100), Use { spare: 201, at: 100, ..used });
        assert_eq!(used.at((1 << 32) - 2).spare, 100);
    }

    #[test]
    fn a_request_may_begin_when_all_wait_and_have_done_so_for_long_enough() {
        let lock = AppLock::default();
        lock.change(7_000, 1, 1);
        lock.change(7_100, 1, 1);
        lock.change(7_200, 0, -1);
        assert_eq!((lock.is_spare(90_000), lock.time_until_enough(90_000)), (false, None));
        lock.change(10_000, 0, -1);
        // There are two of them.
        assert_eq!(lock.time_until_enough(10_400), Some(ENOUGH / 2 - 400));
        let now = 10_000 + ENOUGH / 2;
        assert_eq!(
            (lock.is_spare(now - 1), lock.is_spare(now), lock.time_until_enough(now)),
            (false, true, Some(0))
        );
        lock.change(90_000, 0, 1);
        lock.change(91_000, 0, -1);
        assert_eq!((lock.is_spare(91_000), lock.time_until_enough(91_000)), (true, Some(0)));
    }

    /// When a lock that is awaited, or not, has set its timer to wake the helper, after a request has waited from these times on.
    fn set_at(is_awaited: bool, times: &[u64]) -> Vec<u64> {
        let lock = AppLock::default();
        let set = |now: &u64| {
            let used = Use { is_awaited, requests: 1, users: 1, at: *now as u32, ..Use::default() };
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
        // If each of these waits set the timer it would never fire.
        assert_eq!(set_at(true, &[10_000, 10_400, 9_999 + ENOUGH]), [10_000 + ENOUGH]);
        let (first, second) = (10_000 + ENOUGH, 10_000 + 2 * ENOUGH);
        assert_eq!(set_at(true, &[10_000, first, first + 1]), [first, second]);
    }

    #[test]
    fn it_is_set_sooner_where_less_is_missing() {
        let lock = AppLock::default();
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
        let lock = AppLock::default();
        let (timer, poller) = (Timer::new().expect("a timer"), Poller::new().expect("a poller"));
        poller.watch_timer(&timer, 0).expect("watched");
        assert!(!lock.set_awaited(true), "there is no timer");
        lock.tell_by(timer);
        assert!(!lock.set_awaited(true), "the application tells nothing");
        lock.tell();
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
