//! How the helper sees whether the application's thread makes progress, without a clock.
//!
//! A number that grows with each step of that thread. It is odd while the thread is busy and even while it waits
//! for clients. If the helper reads the same odd number twice, the thread has been in one call of the application,
//! or something else outside the engine, all the time.

use crate::sync::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Epoch(AtomicU64);

impl Epoch {
    pub(super) fn set_busy(&self) -> Option<u64> {
        let epoch = self.0.load(Ordering::Relaxed);
        if is_busy(epoch) {
            return None;
        }
        self.0.store(epoch + 1, Ordering::SeqCst);
        Some(epoch + 1)
    }

    /// The busy thread makes a step.
    pub fn advance(&self) -> u64 {
        let epoch = self.0.load(Ordering::Relaxed) + 2;
        self.0.store(epoch, Ordering::Release);
        epoch
    }

    pub(super) fn set_idle(&self) {
        let epoch = self.0.load(Ordering::Relaxed);
        if is_busy(epoch) {
            self.0.store(epoch + 1, Ordering::Release);
        }
    }

    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(super) fn is_busy(epoch: u64) -> bool {
    epoch % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_epoch_is_odd_and_changes_with_each_step() {
        let epoch = Epoch::default();
        assert!(!is_busy(epoch.read()));
        let first = epoch.set_busy().expect("it was idle");
        assert_eq!(epoch.set_busy(), None);
        assert!(is_busy(first) && epoch.read() == first);
        let second = epoch.advance();
        assert!(is_busy(second) && second != first && epoch.read() == second);
        epoch.set_idle();
        let idle = epoch.read();
        epoch.set_idle();
        assert!(!is_busy(idle) && epoch.read() == idle);
    }
}
