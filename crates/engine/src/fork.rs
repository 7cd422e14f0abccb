//! The descriptors that a forked child must let go of.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors that are looked after at most: as many as Linux allows a process, unless it is told otherwise.
const MOST: usize = 1 << 20;

const BITS: usize = u64::BITS as usize;

/// A set of descriptors that any thread may change at any time, without a lock: in a forked child
/// a lock could be held for ever, by a thread that the fork has not copied.
#[derive(Debug)]
pub(crate) struct Held(Box<[AtomicU64]>);

impl Held {
    /// A set for descriptors below `limit`.
    pub fn new(limit: usize) -> Self {
        // Zeroes that nobody touches take no memory.
        Held((0..limit.min(MOST).div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn insert(&self, fd: RawFd) {
        if let Some((word, bit)) = self.place(fd) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub fn remove(&self, fd: RawFd) {
        if let Some((word, bit)) = self.place(fd) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Takes all of them out.
    pub fn drain(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let word = word.swap(0, Ordering::Relaxed);
            (0..BITS).filter(move |bit| word & (1 << bit) != 0).map(move |bit| (index * BITS + bit) as RawFd)
        })
    }

    fn place(&self, fd: RawFd) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((self.0.get(fd / BITS)?, 1 << (fd % BITS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_inserted_and_not_removed_is_drained() {
        let held = Held::new(200);
        for fd in [-1, 0, 63, 64, 199, 255, 256, 5000] {
            held.insert(fd);
        }
        held.remove(63);
        held.remove(100);
        assert_eq!(held.drain().collect::<Vec<_>>(), [0, 64, 199, 255]);
        assert_eq!(held.drain().count(), 0);
    }
}
