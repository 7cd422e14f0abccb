//! The descriptors that a forked child must close.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Highest number of descriptors in a set: Linux's default limit per process (fs.nr_open). The bitmap takes 128 KiB.
const MAX_FDS: usize = 1 << 20;

/// A bitmap of descriptors without a lock: in a forked child, a lock that another thread held stays locked for ever.
#[derive(Debug)]
pub(crate) struct InheritedFds(Box<[AtomicU64]>);

impl InheritedFds {
    pub fn new(limit: usize) -> Self {
        InheritedFds((0..limit.min(MAX_FDS).div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn insert(&self, fd: RawFd) {
        if let Some((word, bit)) = self.find(fd) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub fn remove(&self, fd: RawFd) {
        if let Some((word, bit)) = self.find(fd) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| in_word(index, word.load(Ordering::Relaxed)))
    }

    pub fn drain(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| in_word(index, word.swap(0, Ordering::Relaxed)))
    }

    fn find(&self, fd: RawFd) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((self.0.get(fd / 64)?, 1 << (fd % 64)))
    }
}

fn in_word(index: usize, word: u64) -> impl Iterator<Item = RawFd> {
    (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| (index * 64 + bit) as RawFd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_that_were_inserted_and_not_removed_are_drained() {
        let fds = InheritedFds::new(200);
        for fd in [-1, 0, 63, 64, 199, 255, 256, 5000] {
            fds.insert(fd);
        }
        fds.remove(63);
        fds.remove(100);
        assert_eq!(fds.iter().collect::<Vec<_>>(), [0, 64, 199, 255]);
        assert_eq!(fds.drain().collect::<Vec<_>>(), [0, 64, 199, 255]);
        assert_eq!(fds.drain().count(), 0);
    }
}
