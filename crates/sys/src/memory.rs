//! Allocation that can fail: under RLIMIT_AS (`ulimit -v`), or if the system does not overcommit.

use std::io;
use std::num::NonZeroUsize;

use nix::sys::mman::{mmap_anonymous, munmap, MapFlags, ProtFlags};

/// From this size on a buffer grows only if [`SPARE_MEMORY`] is left, in bytes.
const LARGE_BUFFER: usize = 64 * 1024;

/// Memory that large buffers leave to the application, in bytes.
const SPARE_MEMORY: usize = 8 * 1024 * 1024;

/// Makes room for `more` bytes in a buffer. Fails with OutOfMemory, before `Vec::reserve` would end the process.
#[inline]
pub fn reserve(buffer: &mut Vec<u8>, more: usize) -> io::Result<()> {
    if buffer.capacity() - buffer.len() >= more {
        return Ok(());
    }
    grow(buffer, more)
}

/// Appends bytes to a buffer. Fails as [`reserve`] does.
pub fn append(buffer: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    reserve(buffer, bytes.len())?;
    buffer.extend_from_slice(bytes);
    Ok(())
}

#[cold]
fn grow(buffer: &mut Vec<u8>, more: usize) -> io::Result<()> {
    // A `Vec` at least doubles its capacity.
    let wanted = buffer.len().saturating_add(more).max(buffer.capacity().saturating_mul(2));
    if wanted >= LARGE_BUFFER && !is_available(wanted.saturating_add(SPARE_MEMORY)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    Ok(buffer.try_reserve(more)?)
}

/// Whether this process can allocate `bytes` more, from the system or from the free part of its heap.
fn is_available(bytes: usize) -> bool {
    can_map(bytes) || free_heap() >= bytes
}

/// Whether a mapping of this size is allowed. No page is touched.
fn can_map(bytes: usize) -> bool {
    let Some(length) = NonZeroUsize::new(bytes) else { return true };
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: this is a new mapping, at an address that the kernel chooses.
    let mapped = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE) };
    // SAFETY: the mapping was just made, and nothing refers to it.
    mapped.is_ok_and(|memory| unsafe { munmap(memory, bytes) }.is_ok())
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn free_heap() -> usize {
    // mallinfo2(3) needs glibc 2.33. This call counts modulo 4 GiB.
    // SAFETY: any thread may call mallinfo(3) at any time.
    unsafe { nix::libc::mallinfo() }.fordblks as u32 as usize
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn free_heap() -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_reservation_is_an_error_and_keeps_the_buffer() {
        let mut buffer = b"abc".to_vec();
        for more in [usize::MAX, usize::MAX / 4] {
            let error = reserve(&mut buffer, more).expect_err("more memory than there is");
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        }
        append(&mut buffer, b"def").expect("there is room");
        append(&mut buffer, &[b'x'; 2 * LARGE_BUFFER]).expect("there is room");
        assert_eq!((&buffer[..7], buffer.len()), (&b"abcdefx"[..], 6 + 2 * LARGE_BUFFER));
    }
}
