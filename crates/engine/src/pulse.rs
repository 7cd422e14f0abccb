//! How far the thread that runs the application has come, for the one that helps out.
//!
//! A number that grows with each step of that thread, and is odd unless it
//! waits for clients. Whoever sees the same odd number twice knows that the
//! application, or something else that is not the engine's, has had the thread
//! all the while. Nobody reads a clock for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::thread::Thread;

#[derive(Debug, Default)]
pub(crate) struct Pulse {
    beat: AtomicU64,
    /// Who sleeps while nobody is busy.
    helper: OnceLock<Thread>,
}

impl Pulse {
    /// Names the thread that is to be woken when there may be something to do for it.
    pub fn set_helper(&self, helper: Thread) {
        // There is one for each pulse.
        let _ = self.helper.set(helper);
    }

    /// Wakes the helper if it sleeps because nobody is busy.
    pub fn wake_helper(&self) {
        self.helper.get().into_iter().for_each(Thread::unpark);
    }

    /// The thread has stopped waiting.
    pub fn awake(&self) {
        let beat = self.beat.load(Ordering::Relaxed);
        if !is_busy(beat) {
            // Before the look at the helper's sleep that unpark takes: either it sees this, or it is woken.
            self.beat.store(beat + 1, Ordering::SeqCst);
            self.wake_helper();
        }
    }

    /// The busy thread has come one step further.
    pub fn beat(&self) {
        self.beat.store(self.beat.load(Ordering::Relaxed) + 2, Ordering::Release);
    }

    /// The thread is about to wait.
    pub fn idle(&self) {
        let beat = self.beat.load(Ordering::Relaxed);
        if is_busy(beat) {
            self.beat.store(beat + 1, Ordering::Release);
        }
    }

    pub fn read(&self) -> u64 {
        self.beat.load(Ordering::SeqCst)
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
        pulse.awake();
        let first = pulse.read();
        pulse.awake();
        assert!(is_busy(first) && pulse.read() == first);
        pulse.beat();
        assert!(is_busy(pulse.read()) && pulse.read() != first);
        pulse.idle();
        let idle = pulse.read();
        pulse.idle();
        assert!(!is_busy(idle) && pulse.read() == idle);
    }
}
