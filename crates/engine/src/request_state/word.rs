//! A number in the memory that a worker shares with the master.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread at a time writes, and others may read: plain loads and stores, no system call, no lock.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(super) struct Word(AtomicU64);

impl Word {
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    #[inline]
    pub fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    /// Sets it after all that its thread has written before.
    #[inline]
    pub fn publish(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }

    /// What was last published, and all that was written before that can be read.
    #[inline]
    pub fn published(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
