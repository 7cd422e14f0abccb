//! Memory that processes share.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU32;

use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};

/// Numbers that several processes read and write at the same time (mmap(2), MAP_SHARED).
#[derive(Debug)]
pub struct SharedNumbers {
    memory: NonNull<AtomicU32>,
    count: usize,
}

// SAFETY: the memory is reached through atomics only, and freed by the one owner.
unsafe impl Send for SharedNumbers {}
// SAFETY: as above.
unsafe impl Sync for SharedNumbers {}

impl SharedNumbers {
    /// Maps the first `count` numbers of a file, which must be as long as that: see [`memory_file`].
    pub fn map(file: impl AsFd, count: NonZeroUsize) -> io::Result<Self> {
        let length = count.checked_mul(NonZeroUsize::MIN.saturating_add(size_of::<AtomicU32>() - 1));
        let length = length.ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let memory = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(SharedNumbers { memory: memory.cast(), count: count.get() })
    }
}

impl std::ops::Deref for SharedNumbers {
    type Target = [AtomicU32];

    fn deref(&self) -> &[AtomicU32] {
        // SAFETY: the mapping holds `count` numbers, aligned to a page, for as long as this value lives; any
        // bytes are a value of an AtomicU32, and other processes write whole numbers.
        unsafe { slice::from_raw_parts(self.memory.as_ptr(), self.count) }
    }
}

impl Drop for SharedNumbers {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and nothing borrows from it any more. It cannot fail then.
        let _ = unsafe { munmap(self.memory.cast(), self.count * size_of::<AtomicU32>()) };
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
        let one = SharedNumbers::map(&file, count).expect("a mapping");
        let other = SharedNumbers::map(&file, count).expect("a mapping");
        drop(file);
        one[1023].fetch_or(5, Ordering::SeqCst);
        assert_eq!(other[1023].load(Ordering::SeqCst), 5);
        drop(one);
        assert_eq!(other[1023].load(Ordering::SeqCst), 5);
    }
}
