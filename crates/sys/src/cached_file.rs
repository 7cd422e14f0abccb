//! Files without waiting for the disk, as far as the kernel has them in memory.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::linkless::open_without_links;

/// Opens a file as [`open_without_links`] does, if the kernel knows each part of the path. Fails with WouldBlock if the disk has to be asked.
///
/// Linux before 5.12 and other systems cannot tell: there it may wait.
pub fn open_cached(path: &Path) -> io::Result<File> {
    #[cfg(not(portable))]
    {
        use crate::linkless::FILE;
        use rustix::fs::{openat2, Mode, ResolveFlags, CWD};
        use rustix::io::Errno;

        match openat2(CWD, path, FILE, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::CACHED) {
            // Without the flag, without the call, and in containers whose list of system calls is old.
            Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => {}
            result => return Ok(result?.into()),
        }
    }
    open_without_links(path)
}

/// Reads into the spare room of `buffer`, as many bytes as the kernel has in memory. Returns their number, 0 at the end of the file. Fails with
/// WouldBlock if the disk has to be asked, or if the file system cannot tell (overlayfs cannot).
///
/// Other systems than Linux cannot tell: there it may wait.
pub fn read_cached(file: &File, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
    #[cfg(all(not(portable), target_pointer_width = "64"))]
    match read_now(file, buffer, offset) {
        Err(error) if is_unsupported(&error) && !is_tmpfs(file) => {
            return Err(io::ErrorKind::WouldBlock.into())
        }
        Err(error) if is_unsupported(&error) => {}
        result => return result,
    }
    Ok(rustix::io::retry_on_intr(|| rustix::io::pread(file, rustix::buffer::spare_capacity(buffer), offset))?)
}

/// Calls preadv2(2) with RWF_NOWAIT. Not by rustix, which takes buffers that have been written before.
#[cfg(all(not(portable), target_pointer_width = "64"))]
fn read_now(file: &File, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
    use nix::libc;
    use std::os::fd::AsRawFd;

    let spare = buffer.spare_capacity_mut();
    let part = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() };
    let (number, high) = (libc::SYS_preadv2, 0);
    // SAFETY: the kernel writes at most `iov_len` bytes, into the spare room, which the Vec owns.
    let got = unsafe { libc::syscall(number, file.as_raw_fd(), &part, 1, offset, high, libc::RWF_NOWAIT) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written these bytes.
    unsafe { buffer.set_len(buffer.len() + got) };
    Ok(got)
}

#[cfg(all(not(portable), target_pointer_width = "64"))]
fn is_unsupported(error: &io::Error) -> bool {
    use nix::libc;
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM))
}

/// Whether all of the file is in memory, by its file system.
#[cfg(all(not(portable), target_pointer_width = "64"))]
fn is_tmpfs(file: &File) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type == TMPFS as _)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_that_was_just_written_is_opened_and_read_without_the_disk_or_would_block() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("a path");
        fs::write(root.join("file"), "0123456789").expect("a file");
        let file = open_cached(&root.join("file")).expect("a file");
        let mut buffer = Vec::with_capacity(8);
        match read_cached(&file, &mut buffer, 4) {
            Ok(count) => assert_eq!((count, &buffer[..]), (6, &b"456789"[..])),
            // A file system that cannot tell.
            Err(error) => assert_eq!((error.kind(), buffer.len()), (io::ErrorKind::WouldBlock, 0)),
        }
        buffer.clear();
        assert!(matches!(read_cached(&file, &mut buffer, 10), Ok(0) | Err(_)));
    }

    #[test]
    fn a_file_that_is_not_there_is_missing_and_a_link_is_not_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("a path");
        fs::write(root.join("file"), "text").expect("a file");
        symlink("file", root.join("link")).expect("a link");
        let missing = open_cached(&root.join("none")).expect_err("no file");
        assert!(matches!(missing.kind(), io::ErrorKind::NotFound | io::ErrorKind::WouldBlock), "{missing}");
        open_cached(&root.join("link")).expect_err("a link");
    }
}
