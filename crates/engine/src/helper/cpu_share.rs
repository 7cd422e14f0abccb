//! How much of one processor this process takes.

use std::sync::PoisonError;

use fastrack_sys::{monotonic_micros, process_cpu_micros};

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
    pub fn is_low(&self, begun: u64) -> bool {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic_micros();
        if window.begun != begun {
            *window = Window { begun, start: now, cpu_time: process_cpu_micros(), was_low: false };
            return false;
        }
        let time = now.saturating_sub(window.start);
        if time >= WINDOW {
            let cpu_time = process_cpu_micros();
            let was_low = cpu_time.saturating_sub(window.cpu_time) * PART < time;
            *window = Window { begun, start: now, cpu_time, was_low };
        }
        window.was_low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_low_once_the_process_has_slept_and_not_while_it_computes() {
        let share = CpuShare::default();
        assert!(!share.is_low(1));
        fastrack_sys::sleep(WINDOW / 1000 + 1);
        // Other tests may compute meanwhile.
        let mut tries = 0..200;
        while !share.is_low(1) {
            assert!(tries.next().is_some());
            fastrack_sys::sleep(WINDOW / 1000 + 1);
        }
        assert!(!share.is_low(2));
        let start = monotonic_micros();
        let before = process_cpu_micros();
        while process_cpu_micros() - before < WINDOW {}
        if monotonic_micros() - start < PART * WINDOW {
            assert!(!share.is_low(2));
        }
    }
}
