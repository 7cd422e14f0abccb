//! When a worker begins another request beside those in progress: by how long the application's lock (Ruby's GVL) is free, as the
//! threads tell that have requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use fastrack_sys::Timer;

/// For how much longer the lock must have been free than in use, in microseconds.
pub(crate) const ENOUGH: u64 = 4_000;

/// How the requests in progress use the lock, as of one moment. It is kept in 64 bits, so that all threads see the same.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Use {
    /// Threads that have the lock in a request, or want it.
    users: u8,
    /// For how much longer the lock was free than in use, in microseconds: [`ENOUGH`] at most.
    spare: u16,
    /// When that was so, in microseconds: the last 40 bits, which last for 12 days.
    at: u64,
}

const TIME: u64 = (1 << 40) - 1;

impl Use {
    fn of(number: u64) -> Self {
        Use { users: number as u8, spare: (number >> 8) as u16, at: number >> 24 }
    }

    fn number(self) -> u64 {
        self.at << 24 | u64::from(self.spare) << 8 | u64::from(self.users)
    }

    /// The same at a later time. That may seem to be earlier: another thread has read its clock before.
    fn at(self, now: u64) -> Self {
        let passed = now.wrapping_sub(self.at) & TIME;
        if passed > TIME / 2 {
            return self;
        }
        let before = u64::from(self.spare);
        let spare = match self.users {
            0 => (before + passed).min(ENOUGH),
            _ => before.saturating_sub(passed),
        };
        Use { spare: spare as u16, at: now & TIME, ..self }
    }

    /// In how many microseconds there will be enough, if nobody wants the lock meanwhile.
    fn missing(self) -> u64 {
        ENOUGH - u64::from(self.spare)
    }
}

/// The lock, in the requests of one worker.
#[derive(Debug, Default)]
pub(crate) struct AppLock {
    /// A [`Use`].
    used: AtomicU64,
    /// The application has told something: with Ruby 3.1 it never does.
    is_told: AtomicBool,
    /// Wakes the helper at `due`, in microseconds, when the lock may have been free for long enough, while it is `awaited`.
    timer: OnceLock<Timer>,
    is_awaited: AtomicBool,
    due: AtomicU64,
}

impl AppLock {
    // --- threads that have requests

    pub(super) fn tell(&self) {
        if !self.is_told.load(Ordering::Relaxed) {
            self.is_told.store(true, Ordering::Relaxed);
        }
    }

    /// One more thread has the lock, or wants it, at this time, in microseconds.
    pub(super) fn want(&self, now: u64) {
        self.change(|used| Use { users: used.users.saturating_add(1), ..used.at(now) });
    }

    /// One less does.
    pub(super) fn give_up(&self, now: u64) {
        let used = self.change(|used| Use { users: used.users.saturating_sub(1), ..used.at(now) });
        if used.users == 0 && self.is_awaited.load(Ordering::SeqCst) {
            self.wake_helper_in(now, used.missing());
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

    /// Returns what it is then.
    fn change(&self, change: impl Fn(Use) -> Use) -> Use {
        let mut before = self.used.load(Ordering::SeqCst);
        loop {
            let used = change(Use::of(before));
            match self.used.compare_exchange_weak(before, used.number(), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return used,
                Err(other) => before = other,
            }
        }
    }

    // --- who begins requests, and the helper

    /// Whether the application tells how its threads use the lock.
    pub fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    /// Whether no request has the lock, or wants it.
    pub fn is_free(&self) -> bool {
        Use::of(self.used.load(Ordering::SeqCst)).users == 0
    }

    /// In how many microseconds the lock will have been free for long enough: 0 if it has been; None while a request has it, or
    /// wants it.
    pub fn time_until_enough(&self, now: u64) -> Option<u64> {
        let used = Use::of(self.used.load(Ordering::SeqCst)).at(now);
        (used.users == 0).then(|| used.missing())
    }

    /// A request is about to begin while there is none: the time until now does not count.
    pub fn begin(&self, now: u64) {
        self.change(|used| Use { at: now & TIME, ..used });
    }

    /// One more is to begin beside others. The next one takes as long again.
    pub fn use_up(&self, now: u64) {
        self.change(|used| Use { spare: 0, ..used.at(now) });
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
        self.is_awaited.store(is_awaited, Ordering::SeqCst);
        self.is_told() && self.timer.get().is_some()
    }

    #[cfg(test)]
    pub fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::patience;
    use fastrack_sys::{Events, Poller};

    /// How much longer the lock was free than in use after these times, in microseconds, in which so many threads use it.
    fn spare_after(times: &[(u8, u64)]) -> u64 {
        let mut used = Use { users: 0, spare: 0, at: 7_000 };
        for (users, micros) in times {
            used = Use { users: *users, ..used }.at(used.at + micros);
        }
        used.spare.into()
    }

    #[test]
    fn time_in_which_the_lock_is_free_counts_and_what_it_is_in_use_is_subtracted() {
        assert_eq!([spare_after(&[]), spare_after(&[(0, 400)]), spare_after(&[(1, 400)])], [0, 400, 0]);
        assert_eq!(spare_after(&[(0, 400), (2, 300), (0, 50)]), 150);
        // What was used before does not count for ever, nor does what was free.
        assert_eq!(spare_after(&[(1, 60_000_000), (0, 900)]), 900);
        assert_eq!(spare_after(&[(0, 60_000_000)]), ENOUGH);
        assert_eq!(spare_after(&[(0, 60_000_000), (1, ENOUGH)]), 0);
        // A page with short queries, and requests that wait for a cache.
        assert!(spare_after(&[(1, 1_300), (0, 700)].repeat(100)) < ENOUGH);
        assert_eq!(spare_after(&[(1, 200), (0, 300)].repeat(100)), ENOUGH);
    }

    #[test]
    fn all_of_it_is_kept_in_one_number() {
        for used in [
            Use { users: 0, spare: 0, at: 0 },
            Use { users: 63, spare: ENOUGH as u16, at: TIME },
            Use { users: u8::MAX, spare: u16::MAX, at: 7 },
        ] {
            assert_eq!(Use::of(used.number()), used);
        }
        // The clock goes on beyond 40 bits, and may be read before another thread's.
        let used = Use { users: 0, spare: 100, at: TIME };
        assert_eq!(used.at(TIME + 101), Use { users: 0, spare: 201, at: 100 });
        assert_eq!(used.at(TIME - 1), used);
    }

    #[test]
    fn the_lock_is_free_while_no_thread_has_or_wants_it() {
        let lock = AppLock::default();
        lock.begin(7_000);
        lock.want(7_000);
        lock.want(7_100);
        lock.give_up(7_200);
        assert_eq!((lock.is_free(), lock.time_until_enough(60_000)), (false, None));
        lock.give_up(9_000);
        assert_eq!((lock.is_free(), lock.time_until_enough(9_400)), (true, Some(ENOUGH - 400)));
        assert_eq!(lock.time_until_enough(9_000 + ENOUGH), Some(0));
        lock.use_up(9_000 + ENOUGH);
        assert_eq!(lock.time_until_enough(9_001 + ENOUGH), Some(ENOUGH - 1));
        // While there is no request nobody counts.
        lock.begin(60_000);
        assert_eq!(lock.time_until_enough(60_001), Some(ENOUGH - 1));
    }

    /// When a lock that is awaited, or not, sets its timer, where threads give it up at these times after a time of use.
    fn set_at(is_awaited: bool, times: &[u64]) -> Vec<u64> {
        let lock = AppLock::default();
        lock.set_awaited(is_awaited);
        let mut due = Vec::new();
        for now in times {
            lock.use_up(*now);
            lock.want(*now);
            lock.give_up(*now);
            due.push(lock.due.load(Ordering::Relaxed));
        }
        due.dedup();
        due
    }

    #[test]
    fn the_timer_is_set_only_where_that_is_asked_for_and_not_for_each_wait() {
        assert_eq!(set_at(false, &[10_000]), [0]);
        // If each of these waits set the timer it would never fire.
        assert_eq!(set_at(true, &[10_000, 10_400, 9_999 + ENOUGH]), [10_000 + ENOUGH]);
        assert_eq!(
            set_at(true, &[10_000, 10_000 + ENOUGH, 10_001 + ENOUGH]),
            [10_000 + ENOUGH, 10_000 + 2 * ENOUGH]
        );
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
        (0..2).for_each(|_| lock.want(5_000));
        lock.give_up(5_000);
        assert!(!is_due(0));
        lock.give_up(5_000);
        assert!(is_due(patience().as_millis() as u64));
    }
}
