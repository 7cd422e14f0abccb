//! Memory that may not be there: under RLIMIT_AS (`ulimit -v`), or where the system does not overcommit.

use std::io;
use std::num::NonZeroUsize;

use nix::sys::mman::{mmap_anonymous, munmap, MapFlags, ProtFlags};

/// From this size on a buffer may only grow if [`SPARE`] is left afterwards, in bytes.
const LARGE: usize = 64 * 1024;

/// What large buffers leave to the application, in bytes.
const SPARE: usize = 8 * 1024 * 1024;

/// Makes room for `more` bytes in a buffer. Fails with OutOfMemory where `Vec::reserve` ends the process, and a little
/// earlier.
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
    // A `Vec` doubles its capacity at least.
    let wanted = buffer.len().saturating_add(more).max(buffer.capacity().saturating_mul(2));
    if wanted >= LARGE && !is_available(wanted.saturating_add(SPARE)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    Ok(buffer.try_reserve(more)?)
}

/// Whether this process may allocate `bytes` more, from the system or from what is free in its heap.
fn is_available(bytes: usize) -> bool {
    can_map(bytes) || free_heap() >= bytes
}

/// Looks at limits only: no page is touched.
fn can_map(bytes: usize) -> bool {
    let Some(length) = NonZeroUsize::new(bytes) else { return true };
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses, which nobody else knows of.
    let mapped = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE) };
    // SAFETY: the mapping that was just made, and that nothing refers to.
    mapped.is_ok_and(|memory| unsafe { munmap(memory, bytes) }.is_ok())
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn free_heap() -> usize {
    // SAFETY: any thread may call it at any time. Not mallinfo2(3), which glibc has from 2.33 on: this one counts to 4 GiB.
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
    fn what_cannot_be_had_is_an_error_and_the_buffer_stays_as_it_was() {
        let mut buffer = b"abc".to_vec();
        for more in [usize::MAX, usize::MAX / 4] {
            let error = reserve(&mut buffer, more).expect_err("more than there is");
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        }
        append(&mut buffer, b"def").expect("there is room");
        append(&mut buffer, &[b'x'; 2 * LARGE]).expect("there is room");
        assert_eq!((&buffer[..7], buffer.len()), (&b"abcdefx"[..], 6 + 2 * LARGE));
    }
}
