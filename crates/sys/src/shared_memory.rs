//! Memory that processes share.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64};

use nix::sys::mman::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};

mod number {
    /// What processes may share.
    pub trait Number {}
    impl Number for super::AtomicU32 {}
    impl Number for super::AtomicU64 {}
}

/// Numbers that several processes read and write at the same time (mmap(2), MAP_SHARED): 32 or 64 bits wide.
#[derive(Debug)]
pub struct SharedNumbers<T: number::Number = AtomicU32> {
    // INVARIANT: `count` numbers, mapped by this value's maker and unmapped by its drop.
    memory: NonNull<T>,
    count: usize,
}

// SAFETY: the memory is reached through atomics only, and freed by the one owner.
unsafe impl<T: number::Number> Send for SharedNumbers<T> {}
// SAFETY: as above.
unsafe impl<T: number::Number> Sync for SharedNumbers<T> {}

const BOTH: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

impl<T: number::Number> SharedNumbers<T> {
    /// Maps the first `count` numbers of a file, which must be as long as that: see [`memory_file`].
    pub fn map(file: impl AsFd, count: NonZeroUsize) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let memory = unsafe { mmap(None, Self::length(count)?, BOTH, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(SharedNumbers { memory: memory.cast(), count: count.get() })
    }

    /// Zeroes that this process shares with those that it forks from now on, and with nobody else.
    pub fn for_children(count: NonZeroUsize) -> io::Result<Self> {
        // SAFETY: as above.
        let memory = unsafe { mmap_anonymous(None, Self::length(count)?, BOTH, MapFlags::MAP_SHARED) }?;
        Ok(SharedNumbers { memory: memory.cast(), count: count.get() })
    }

    fn length(count: NonZeroUsize) -> io::Result<NonZeroUsize> {
        let length = count.checked_mul(NonZeroUsize::MIN.saturating_add(size_of::<T>() - 1));
        Ok(length.ok_or(io::ErrorKind::InvalidInput)?)
    }
}

impl<T: number::Number> std::ops::Deref for SharedNumbers<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `count` numbers, aligned to a page, for as long as this value lives; any
        // bytes are a value of an atomic number, and other processes write whole numbers.
        unsafe { slice::from_raw_parts(self.memory.as_ptr(), self.count) }
    }
}

impl<T: number::Number> Drop for SharedNumbers<T> {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was made for this value, and nothing borrows from it any more. It cannot
        // fail then.
        let _ = unsafe { munmap(self.memory.cast(), self.count * size_of::<T>()) };
    }
}

/// A file in memory of `length` zero bytes, without a name and close-on-exec: what is in it can be shared with
/// whoever gets the descriptor.
pub fn memory_file(length: u64) -> io::Result<File> {
    let file = File::from(nameless()?);
    file.set_len(length)?;
    Ok(file)
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn nameless() -> io::Result<OwnedFd> {
    use nix::sys::memfd::{memfd_create, MFdFlags};
    Ok(memfd_create(c"fastrack", MFdFlags::MFD_CLOEXEC)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn nameless() -> io::Result<OwnedFd> {
    let path = std::env::temp_dir().join(format!("fastrack-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_of_a_file_are_the_same_numbers() {
        let file = memory_file(4096).expect("a file");
        let count = NonZeroUsize::new(1024).expect("not zero");
        let one = SharedNumbers::<AtomicU32>::map(&file, count).expect("a mapping");
        let other = SharedNumbers::<AtomicU32>::map(&file, count).expect("a mapping");
        drop(file);
        one[1023].fetch_or(5, Ordering::SeqCst);
        assert_eq!(other[1023].load(Ordering::SeqCst), 5);
        drop(one);
        assert_eq!(other[1023].load(Ordering::SeqCst), 5);
    }
}
