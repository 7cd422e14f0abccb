//! How long a worker's requests wait at a time: whether a wait that has lasted for milliseconds is likely to be a long one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use fastrack_sys::Timer;

/// Shorter waits do not count, in microseconds: nobody can use the time.
const LEAST: u64 = 500;

/// Waits of this length are long, in microseconds: another request can use the time. Where the machine is busy, a query of one
/// millisecond takes five.
const LONG: u64 = 15_000;

/// What counts of a wait at most, in microseconds.
const MOST: u64 = 100_000;

/// A sum loses this part of itself with each wait.
const WEIGHT: u64 = 64;

/// The waits of all threads of a worker, in requests. Another thread's wait may be lost: they are many.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// How long waits have lasted, in microseconds, the later ones weighing more.
    all: AtomicU64,
    /// The same of long ones.
    long: AtomicU64,
    /// How long all of them have lasted until now, in microseconds.
    total: AtomicU64,
    /// Wakes the helper at `due`, in microseconds, when a wait may have lasted for `awaited` ones; 0 while nobody wants to know.
    timer: OnceLock<Timer>,
    awaited: AtomicU64,
    due: AtomicU64,
}

impl Waits {
    /// From now on the helper can be told of waits by this timer, which wakes it.
    pub fn tell_by(&self, timer: Timer) {
        // It is set once.
        let _ = self.timer.set(timer);
    }

    pub fn timer(&self) -> Option<&Timer> {
        self.timer.get()
    }

    /// The helper wants to be told when a wait that begins from now on has lasted for so many microseconds; 0 for not any more.
    /// Whether it will be.
    pub fn tell_after(&self, micros: u64) -> bool {
        self.awaited.store(micros, Ordering::SeqCst);
        self.timer.get().is_some()
    }

    #[cfg(test)]
    pub fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) != 0
    }

    /// A wait begins at this time, in microseconds. The timer is left alone when it fires soon enough, be it for an earlier wait
    /// that is over: to set it, and to stop it, takes longer than many a wait.
    pub fn begin(&self, now: u64) {
        if let Some(micros) = self.timer_to_set(now) {
            // It cannot fail for such times.
            let _ = self.timer.get().map(|timer| timer.set(Duration::from_micros(micros)));
        }
    }

    /// In how many microseconds the timer is to fire, unless it fires soon enough.
    fn timer_to_set(&self, now: u64) -> Option<u64> {
        let micros = self.awaited.load(Ordering::Relaxed);
        let due = self.due.load(Ordering::Relaxed);
        if micros == 0 || now < due && due <= now + micros {
            return None;
        }
        self.due.store(now + micros, Ordering::Relaxed);
        Some(micros)
    }

    /// A wait has lasted for so many microseconds.
    pub fn note(&self, micros: u64) {
        if micros < LEAST {
            return;
        }
        let micros = micros.min(MOST);
        self.total.fetch_add(micros, Ordering::Relaxed);
        add(&self.all, micros);
        add(&self.long, if micros >= LONG { micros } else { 0 });
    }

    /// How long requests have waited until now, in microseconds, in waits that [count](LEAST) and are over.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Whether most of the time that requests wait is that of long waits.
    pub fn are_long(&self) -> bool {
        self.long.load(Ordering::Relaxed) * 2 > self.all.load(Ordering::Relaxed)
    }

    /// Whether hardly any of it is.
    pub fn are_short(&self) -> bool {
        self.long.load(Ordering::Relaxed) * 8 < self.all.load(Ordering::Relaxed)
    }
}

fn add(sum: &AtomicU64, micros: u64) {
    let before = sum.load(Ordering::Relaxed);
    sum.store(before - before / WEIGHT + micros, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::patience;
    use fastrack_sys::{Events, Poller};

    #[test]
    fn the_timer_is_not_set_for_each_wait_but_sooner_where_that_is_asked_for() {
        let waits = Waits::default();
        let set = |times: &[u64]| times.iter().map(|now| waits.timer_to_set(*now)).collect::<Vec<_>>();
        assert_eq!(set(&[1_000]), [None], "nobody wants to know");
        waits.tell_after(100);
        // If each of these waits set the timer it would never fire.
        assert_eq!(set(&[1_000, 1_000, 1_099, 1_100, 1_101]), [Some(100), None, None, Some(100), None]);
        waits.tell_after(3_600);
        assert_eq!(set(&[1_150]), [None]);
        assert_eq!(set(&[1_200, 1_300]), [Some(3_600), None]);
        waits.tell_after(10);
        assert_eq!(set(&[1_400, 1_405]), [Some(10), None]);
        waits.tell_after(0);
        assert_eq!(set(&[1_500]), [None]);
    }

    #[test]
    fn a_wait_that_has_lasted_is_told_by_the_timer() {
        if !Poller::TAKES_TIMERS {
            return;
        }
        let waits = Waits::default();
        let (timer, poller) = (Timer::new().expect("a timer"), Poller::new().expect("a poller"));
        poller.watch_timer(&timer, 0).expect("watched");
        assert!(!waits.tell_after(1_000), "there is no timer");
        waits.tell_by(timer);
        assert!(waits.tell_after(1_000));
        waits.begin(5_000);
        let mut events = Events::default();
        poller.wait(&mut events, Some(patience().as_millis() as u64)).expect("polled");
        assert!(!events.is_empty());
    }

    #[test]
    fn waits_are_long_or_short_when_most_of_their_time_is_and_at_first_nobody_knows() {
        let waits = Waits::default();
        let note = |micros, times| (0..times).for_each(|_| waits.note(micros));
        assert!(!waits.are_long() && !waits.are_short());
        note(LEAST - 1, 1_000);
        assert!(!waits.are_long() && !waits.are_short());
        note(LONG, 1);
        assert!(waits.are_long() && !waits.are_short());
        // A long one among many short ones, as in a request with one slow query.
        (0..200).for_each(|number| note(if number % 20 == 0 { LONG } else { LEAST }, 1));
        assert!(waits.are_long());
        note(LONG - 1, 200);
        assert!(!waits.are_long() && waits.are_short());
        note(LONG, 20);
        assert!(!waits.are_short());
        note(u64::MAX, 1_000);
        assert!(waits.are_long());
    }
}
