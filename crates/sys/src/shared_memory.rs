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

use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};

/// A type that processes can share.
///
/// # Safety
/// The type must consist of atomic numbers only, in fields and arrays that are `repr(C)` or
/// `repr(transparent)` throughout. So any bytes are a valid value, and all changes are atomic operations.
pub unsafe trait Shareable: Sync {}

/// A value, or a part of a value, that several processes read and write (mmap(2), MAP_SHARED).
pub struct SharedMemory<T> {
    // INVARIANT: points into the mapping.
    value: NonNull<T>,
    mapping: Arc<Mapping>,
}

struct Mapping {
    // INVARIANT: `length` bytes are mapped at `memory`, and only drop unmaps them.
    memory: NonNull<c_void>,
    length: NonZeroUsize,
}

// SAFETY: the memory belongs to no thread, and only the last owner unmaps it.
unsafe impl Send for Mapping {}
// SAFETY: a shared Mapping gives no access to the memory.
unsafe impl Sync for Mapping {}
// SAFETY: this acts as a shared reference to T, which may move to other threads if T is Sync.
unsafe impl<T: Sync> Send for SharedMemory<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for SharedMemory<T> {}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

impl<T: Shareable> SharedMemory<T> {
    const SIZE: NonZeroUsize = NonZeroUsize::new(size_of::<T>()).expect("the type has no size");

    /// Maps the beginning of a file, such as a [`memory_file`]. Fails with InvalidInput if the file is too short.
    ///
    /// # Safety
    /// The file must not be truncated while it is mapped, and all processes that map it must access it atomically.
    pub unsafe fn of_file(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() < Self::SIZE.get() as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: a new mapping, at an address that the kernel chooses.
        Ok(Self::at(unsafe { mmap(None, Self::SIZE, READ_WRITE, MapFlags::MAP_SHARED, file, 0) }?))
    }

    fn at(memory: NonNull<c_void>) -> Self {
        // No system has smaller pages.
        const { assert!(align_of::<T>() <= 4096, "a mapping is aligned to a page") };
        SharedMemory { value: memory.cast(), mapping: Arc::new(Mapping { memory, length: Self::SIZE }) }
    }
}

impl<T> SharedMemory<T> {
    /// Returns a part of the value, such as a field. The memory stays mapped until the last part is dropped.
    pub fn part<U>(&self, part: impl FnOnce(&T) -> &U) -> SharedMemory<U> {
        SharedMemory { value: NonNull::from(part(self)), mapping: Arc::clone(&self.mapping) }
    }
}

impl<T> Deref for SharedMemory<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `mapping` keeps the memory mapped, and a mapping is aligned to a page. `value` points to a Shareable
        // type, for which any bytes are valid, or to a part of one that `part` has borrowed.
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
        // SAFETY: the last owner of the mapping drops it, so nothing borrows the memory. For a valid mapping this
        // cannot fail.
        let _ = unsafe { munmap(self.memory, self.length.get()) };
    }
}

/// Makes an anonymous file of `length` zero bytes, close-on-exec: in memory on systems that have such files. Processes
/// that receive the descriptor share the contents.
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

/// Makes a file without a name in the temporary directory.
#[cfg(portable)]
fn anonymous_file() -> io::Result<OwnedFd> {
    Ok(tempfile::tempfile()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Numbers([AtomicU32; 1024]);

    // SAFETY: all numbers are atomic.
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
