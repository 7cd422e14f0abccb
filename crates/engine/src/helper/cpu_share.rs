//! How much of one processor this process takes.

use std::sync::PoisonError;

use crate::clock::Clock;
use crate::sync::Mutex;

/// For how long to measure, in microseconds.
const WINDOW: u64 = 30_000;

/// A process that takes less than this part of a processor waits most of the time.
const PART: u64 = 4;

/// Measures again and again, from one request's beginning to the next one's.
#[derive(Debug, Default)]
pub(super) struct CpuShare {
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    /// When the latest request had begun.
    begun: u64,
    start: u64,
    /// The process's CPU time then, in microseconds.
    cpu_time: u64,
    was_low: bool,
}

impl CpuShare {
    /// Whether the share was low in the last whole window since `begun`, which is when the latest request had begun.
    pub fn is_low(&self, begun: u64, clock: &impl Clock) -> bool {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock.micros();
        if window.begun != begun {
            *window = Window { begun, start: now, cpu_time: clock.cpu_micros(), was_low: false };
            return false;
        }
        let time = now.saturating_sub(window.start);
        if time >= WINDOW {
            let cpu_time = clock.cpu_micros();
            let was_low = cpu_time.saturating_sub(window.cpu_time) * PART < time;
            *window = Window { begun, start: now, cpu_time, was_low };
        }
        window.was_low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::tests::HandClock;

    #[test]
    fn the_share_is_low_after_a_window_in_which_the_process_took_less_than_a_quarter_of_a_processor() {
        let (share, clock) = (CpuShare::default(), HandClock::new());
        let after = |computed, time| {
            clock.compute(computed);
            clock.wait(time - computed);
            share.is_low(1, &clock)
        };
        assert!(!after(0, 0) && !after(0, WINDOW - 1) && after(0, 1));
        assert!(!after(WINDOW / PART, WINDOW) && after(WINDOW / PART - 1, WINDOW));
        // What it computes counts when the window is over.
        assert!(after(WINDOW / 2, WINDOW - 1) && !after(0, 1));
        assert!(after(0, 10 * WINDOW));
        // Another request has begun: that has not been measured.
        assert!(!share.is_low(2, &clock));
    }
}
