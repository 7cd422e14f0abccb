//! Memory shared between processes.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64};

use nix::sys::mman::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};

mod number {
    /// The types that processes can share: atomics.
    pub trait Number {}
    impl Number for super::AtomicU32 {}
    impl Number for super::AtomicU64 {}
}

/// Atomic numbers of 32 or 64 bits that several processes read and write (mmap(2), MAP_SHARED).
#[derive(Debug)]
pub struct SharedNumbers<T: number::Number = AtomicU32> {
    // INVARIANT: points to `count` mapped numbers, which only drop unmaps.
    memory: NonNull<T>,
    count: usize,
}

// SAFETY: all access is atomic, and only the owner unmaps the memory.
unsafe impl<T: number::Number> Send for SharedNumbers<T> {}
// SAFETY: as above.
unsafe impl<T: number::Number> Sync for SharedNumbers<T> {}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

impl<T: number::Number> SharedNumbers<T> {
    /// Maps the first `count` numbers of a file, such as a [`memory_file`].
    ///
    /// # Safety
    /// The file has room for them, and is not truncated as long as it is mapped. All who map it access it atomically.
    pub unsafe fn map(file: impl AsFd, count: NonZeroUsize) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let memory = unsafe { mmap(None, Self::length(count)?, READ_WRITE, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(SharedNumbers { memory: memory.cast(), count: count.get() })
    }

    /// Zeroes that this process shares with the processes that it forks.
    pub fn for_children(count: NonZeroUsize) -> io::Result<Self> {
        // SAFETY: as above.
        let memory = unsafe { mmap_anonymous(None, Self::length(count)?, READ_WRITE, MapFlags::MAP_SHARED) }?;
        Ok(SharedNumbers { memory: memory.cast(), count: count.get() })
    }

    /// `N` of the numbers, from this one on; None if there are fewer.
    #[inline]
    pub fn chunk<const N: usize>(&self, start: usize) -> Option<&[T; N]> {
        self.get(start..)?.first_chunk()
    }

    fn length(count: NonZeroUsize) -> io::Result<NonZeroUsize> {
        let length = count.checked_mul(NonZeroUsize::MIN.saturating_add(size_of::<T>() - 1));
        Ok(length.ok_or(io::ErrorKind::InvalidInput)?)
    }
}

impl<T: number::Number> std::ops::Deref for SharedNumbers<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `count` numbers are mapped as long as this value lives, aligned to a page. Any bytes are a valid number.
        unsafe { slice::from_raw_parts(self.memory.as_ptr(), self.count) }
    }
}

impl<T: number::Number> Drop for SharedNumbers<T> {
    fn drop(&mut self) {
        // SAFETY: this value made the mapping, and nothing borrows it any more. So this cannot fail.
        let _ = unsafe { munmap(self.memory.cast(), self.count * size_of::<T>()) };
    }
}

/// An anonymous file, in memory where the system has such files, of `length` zero bytes, close-on-exec. Whoever gets the descriptor shares its contents.
pub fn memory_file(length: u64) -> io::Result<File> {
    let file = File::from(anonymous_file()?);
    file.set_len(length)?;
    Ok(file)
}

#[cfg(not(portable))]
fn anonymous_file() -> io::Result<OwnedFd> {
    use nix::sys::memfd::{memfd_create, MFdFlags};
    Ok(memfd_create(c"fastrack", MFdFlags::MFD_CLOEXEC)?)
}

/// A file without a name, in the temporary directory.
#[cfg(portable)]
fn anonymous_file() -> io::Result<OwnedFd> {
    Ok(tempfile::tempfile()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_of_a_file_are_the_same_numbers() {
        let file = memory_file(4096).expect("a file");
        let count = NonZeroUsize::new(1024).expect("not zero");
        // SAFETY: the file has room for 1024 numbers of 32 bits, and only these two mappings access it.
        let map = || unsafe { SharedNumbers::<AtomicU32>::map(&file, count) }.expect("a mapping");
        let one = map();
        let other = map();
        drop(file);
        one[1023].fetch_or(5, Ordering::SeqCst);
        assert_eq!(other[1023].load(Ordering::SeqCst), 5);
        drop(one);
        assert_eq!(other[1023].load(Ordering::SeqCst), 5);
    }
}
