//! How long requests wait, to how long they compute.

use std::sync::PoisonError;

use crate::clock::Clock;
use crate::sync::Mutex;

/// The least time between two looks at the process's clock, in microseconds.
const WINDOW: u64 = 30_000;

/// For how long requests must have computed or waited since the last one, in microseconds: else that says nothing.
const LEAST: u64 = 10_000;

/// Requests that wait for less than this part of the time for which they compute hardly wait. Of two of them at a time each
/// would mostly wait for the other.
const PART: u64 = 4;

/// How many windows count.
const WINDOWS: u64 = 8;

/// What counts of a window at most, in microseconds: nobody may have asked for hours.
const MOST: u64 = 200_000;

/// Measures as long as somebody asks.
#[derive(Debug, Default)]
pub(super) struct WaitShare {
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    /// When the window began, in microseconds; 0 before the first.
    start: u64,
    /// What the clock and the counter showed then.
    cpu_time: u64,
    total: u64,
    /// What requests have computed and waited in the windows before, the later ones weighing more.
    computed: u64,
    waited: u64,
}

impl WaitShare {
    /// Whether the share is small, where requests have waited for `total` microseconds until now. False before anything is known.
    pub fn is_small(&self, total: u64, clock: &impl Clock) -> bool {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock.micros();
        if now.saturating_sub(sums.start) >= WINDOW {
            sums.look(now, clock.cpu_micros(), total);
        }
        sums.are_small()
    }
}

impl Sums {
    fn look(&mut self, now: u64, cpu_time: u64, total: u64) {
        let computed = cpu_time.saturating_sub(self.cpu_time);
        let waited = total.saturating_sub(self.total);
        let is_first = self.start == 0;
        if is_first || computed + waited >= LEAST {
            (self.start, self.cpu_time, self.total) = (now, cpu_time, total);
            if !is_first {
                let [computed, waited] =
                    [computed, waited].map(|time| time / (1 + (computed + waited) / MOST));
                self.computed = self.computed - self.computed / WINDOWS + computed;
                self.waited = self.waited - self.waited / WINDOWS + waited;
            }
        }
    }

    fn are_small(&self) -> bool {
        self.waited * PART < self.computed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::tests::HandClock;

    /// Whether the share is small after windows in each of which requests compute and wait for so many milliseconds.
    fn after(windows: &[(u64, u64)]) -> bool {
        let mut sums = Sums::default();
        let (mut now, mut cpu_time, mut total) = (1_000, 5_000, 90_000);
        sums.look(now, cpu_time, total);
        for (computed, waited) in windows {
            now += WINDOW;
            cpu_time += computed * 1_000;
            total += waited * 1_000;
            sums.look(now, cpu_time, total);
        }
        sums.are_small()
    }

    #[test]
    fn requests_hardly_wait_that_wait_for_less_than_a_quarter_of_what_they_compute() {
        assert_eq!([after(&[]), after(&[(28, 2)]), after(&[(24, 6)])], [false, true, false]);
    }

    #[test]
    fn one_window_is_not_enough_and_the_later_ones_weigh_more() {
        assert!(after(&[&[(28, 2); 20][..], &[(20, 12)]].concat()));
        assert!(!after(&[&[(28, 2); 20][..], &[(20, 12); 20]].concat()));
        assert!(after(&[&[(20, 12); 20][..], &[(28, 2); 20]].concat()));
    }

    #[test]
    fn a_window_goes_on_in_which_little_happens_and_a_long_wait_counts_at_once() {
        assert!(!after(&[(6, 3)]) && !after(&[(6, 3), (6, 0)]) && after(&[(6, 3), (7, 0)]));
        assert!(after(&[&[(28, 2); 20][..], &[(0, 9)]].concat()));
        assert!(!after(&[&[(28, 2); 20][..], &[(0, 100)]].concat()));
    }

    #[test]
    fn a_window_counts_no_more_for_being_long() {
        assert!(!after(&[&[(3_600_000, 36_000)][..], &[(20, 12); 20]].concat()));
        assert!(after(&[(3_600_000, 36_000)]));
    }

    #[test]
    fn it_is_looked_at_again_after_a_while_only() {
        let (share, clock) = (WaitShare::default(), HandClock::new());
        assert!(!share.is_small(0, &clock));
        clock.compute(WINDOW - 1);
        assert!(!share.is_small(0, &clock));
        clock.compute(1);
        assert!(share.is_small(0, &clock));
        // The window has just begun.
        clock.wait(WINDOW - 1);
        assert!(share.is_small(1_000_000, &clock));
        clock.wait(1);
        assert!(!share.is_small(1_000_000, &clock));
    }
}
