//! Memory shared between processes.

use std::ffi::c_void;
use std::fmt;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use nix::sys::mman::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};

/// What processes can share.
///
/// # Safety
/// The type consists of atomic numbers only: of fields and arrays of them, `repr(C)` or `repr(transparent)` all the way down. So any
/// bytes are a value of it, and nobody changes it but by atomic operations.
pub unsafe trait Shareable: Sync {}

/// A value that several processes read and write (mmap(2), MAP_SHARED), or a part of one.
pub struct SharedMemory<T> {
    // INVARIANT: is in the mapping.
    value: NonNull<T>,
    mapping: Arc<Mapping>,
}

struct Mapping {
    // INVARIANT: this number of bytes is mapped there, and only drop unmaps them.
    memory: NonNull<c_void>,
    length: NonZeroUsize,
}

// SAFETY: the memory is no thread's own, and only the last owner unmaps it.
unsafe impl Send for Mapping {}
// SAFETY: it gives no access to the memory.
unsafe impl Sync for Mapping {}
// SAFETY: it is a shared reference, which other threads may have as well if T is Sync.
unsafe impl<T: Sync> Send for SharedMemory<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for SharedMemory<T> {}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

impl<T: Shareable> SharedMemory<T> {
    const SIZE: NonZeroUsize = NonZeroUsize::new(size_of::<T>()).expect("it has no size");

    /// Maps the beginning of a file, such as a [`memory_file`]. Fails with InvalidInput if the file is too short.
    ///
    /// # Safety
    /// The file is not truncated as long as it is mapped. All who map it access it atomically.
    pub unsafe fn of_file(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() < Self::SIZE.get() as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: a new mapping, at an address that the kernel chooses.
        Ok(Self::at(unsafe { mmap(None, Self::SIZE, READ_WRITE, MapFlags::MAP_SHARED, file, 0) }?))
    }

    /// Zeroes that this process shares with the processes that it forks.
    pub fn for_children() -> io::Result<Self> {
        // SAFETY: as above.
        Ok(Self::at(unsafe { mmap_anonymous(None, Self::SIZE, READ_WRITE, MapFlags::MAP_SHARED) }?))
    }

    fn at(memory: NonNull<c_void>) -> Self {
        // The least page that there is.
        const { assert!(align_of::<T>() <= 4096, "a mapping is aligned to a page") };
        SharedMemory { value: memory.cast(), mapping: Arc::new(Mapping { memory, length: Self::SIZE }) }
    }
}

impl<T> SharedMemory<T> {
    /// A part of it, such as a field. The memory stays mapped as long as any part is there.
    pub fn part<U>(&self, part: impl FnOnce(&T) -> &U) -> SharedMemory<U> {
        SharedMemory { value: NonNull::from(part(self)), mapping: Arc::clone(&self.mapping) }
    }
}

impl<T> Deref for SharedMemory<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the mapping is there as long as this is, and aligned to a page. Any bytes are a T, as Shareable promises: this is one,
        // or a part that a reference to one has led to, and which lives as long.
        unsafe { self.value.as_ref() }
    }
}

impl<T> Clone for SharedMemory<T> {
    fn clone(&self) -> Self {
        self.part(|whole| whole)
    }
}

impl<T> fmt::Debug for SharedMemory<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SharedMemory").field(&self.value).finish()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value stands for the mapping, and nothing borrows that any more. So this cannot fail.
        let _ = unsafe { munmap(self.memory, self.length.get()) };
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
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Numbers([AtomicU32; 1024]);

    // SAFETY: they are atomic.
    unsafe impl Shareable for Numbers {}

    #[test]
    fn two_mappings_of_a_file_are_the_same_numbers() {
        let file = memory_file(4096).expect("a file");
        // SAFETY: nobody truncates the file, and only these two mappings access it.
        let map = || unsafe { SharedMemory::<Numbers>::of_file(&file) }.expect("a mapping");
        let one = map();
        let last = map().part(|numbers| &numbers.0[1023]);
        one.0[1023].fetch_or(5, Ordering::SeqCst);
        assert_eq!(last.load(Ordering::SeqCst), 5);
        drop(one);
        let copy = last.clone();
        drop(last);
        assert_eq!(copy.load(Ordering::SeqCst), 5);
    }

    #[test]
    fn a_file_that_is_too_short_is_refused() {
        let file = memory_file(4095).expect("a file");
        // SAFETY: as above.
        let error = unsafe { SharedMemory::<Numbers>::of_file(&file) }.expect_err("too short");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
