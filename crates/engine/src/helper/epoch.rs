//! How far the thread that runs the application has come, for the one that helps out.
//!
//! A number that grows with each step of that thread, and is odd unless it
//! waits for clients. Whoever sees the same odd number twice knows that the
//! application, or something else that is not the engine's, has had the thread
//! all the while. Nobody reads a clock for it.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Pulse(AtomicU64);

impl Pulse {
    /// The thread has stopped waiting: the beat, unless it was known before.
    pub fn awake(&self) -> Option<u64> {
        let beat = self.0.load(Ordering::Relaxed);
        if is_busy(beat) {
            return None;
        }
        self.0.store(beat + 1, Ordering::SeqCst);
        Some(beat + 1)
    }

    /// The busy thread has come one step further.
    pub fn beat(&self) -> u64 {
        let beat = self.0.load(Ordering::Relaxed) + 2;
        self.0.store(beat, Ordering::Release);
        beat
    }

    /// The thread is about to wait.
    pub fn idle(&self) {
        let beat = self.0.load(Ordering::Relaxed);
        if is_busy(beat) {
            self.0.store(beat + 1, Ordering::Release);
        }
    }

    pub fn read(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) fn is_busy(beat: u64) -> bool {
    beat % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_pulse_is_odd_and_changes_with_each_step() {
        let pulse = Pulse::default();
        assert!(!is_busy(pulse.read()));
        let first = pulse.awake().expect("it was idle");
        assert_eq!(pulse.awake(), None);
        assert!(is_busy(first) && pulse.read() == first);
        let second = pulse.beat();
        assert!(is_busy(second) && second != first && pulse.read() == second);
        pulse.idle();
        let idle = pulse.read();
        pulse.idle();
        assert!(!is_busy(idle) && pulse.read() == idle);
    }
}
