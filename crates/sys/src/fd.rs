//! File descriptors.

use std::fs::File;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::FileType;
use rustix::io::{dup2, fcntl_getfd, fcntl_setfd, ioctl_fionbio, Errno, FdFlags};

/// Borrows a descriptor by its number. Fails with EBADF for a negative number.
///
/// # Safety
/// The descriptor must not be closed during `'fd`. A number that is not open must stay unused; calls with it
/// fail with EBADF.
pub unsafe fn borrow_fd<'fd>(fd: RawFd) -> io::Result<BorrowedFd<'fd>> {
    if fd < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: the number is not -1. The caller promises the rest.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// A copy of a descriptor with this number, which the process was started with. Fails with EBADF if there is none.
pub fn inherited_fd(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the borrow ends with the copy. A number that is not open makes dup fail, and nothing is closed here.
    unsafe { borrow_fd(fd) }?.try_clone_to_owned()
}

/// Whether a call failed because its descriptor is closed or belongs to another file: other code has closed a
/// descriptor that it does not own.
pub fn is_lost_fd(error: &io::Error) -> bool {
    let lost = [Errno::BADF, Errno::NOTSOCK, Errno::INVAL].map(|errno| Some(errno.raw_os_error()));
    lost.contains(&error.raw_os_error())
}

/// Writes to a descriptor (write(2)), which may block.
pub fn write_once(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::write(fd, bytes)?)
}

/// Whether the descriptor is that of a regular file.
pub fn is_regular(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|data| FileType::from_raw_mode(data.st_mode).is_file())
}

/// The inode of a socket: it tells the socket from those that had the descriptor's number before. None if the descriptor is no socket's.
pub fn socket_inode(fd: BorrowedFd<'_>) -> Option<u64> {
    let data = rustix::fs::fstat(fd).ok()?;
    FileType::from_raw_mode(data.st_mode).is_socket().then_some(data.st_ino)
}

/// Sets O_NONBLOCK, for all processes that share the open file.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    Ok(ioctl_fionbio(fd, true)?)
}

/// Replaces the file of a descriptor by that of another one (dup2(2)), in one step: another thread that writes at the
/// same time writes to the old file or the new one. The close-on-exec flag is kept.
///
/// # Safety
/// The descriptor must be open, and its owner must accept the other file.
pub unsafe fn replace_fd(fd: RawFd, with: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the caller promises that the descriptor is open.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    let flags = fcntl_getfd(&*place)?;
    dup2(with, &mut place)?;
    Ok(fcntl_setfd(&*place, flags)?)
}

/// Replaces descriptors by `/dev/null`. This closes their files in this process, but the numbers stay in use, so that
/// their owners can still close them.
///
/// For a child that the application forked: otherwise its copies of sockets would keep connections open after the
/// worker has closed them.
///
/// # Safety
/// The descriptors must be open, each listed once, and their owners must accept `/dev/null`.
pub unsafe fn replace_with_dev_null(fds: impl IntoIterator<Item = RawFd>) -> io::Result<()> {
    let mut fds = fds.into_iter();
    let mut first = None;
    // SAFETY: the caller promises that the descriptor is open, or `open` is about to reuse its number.
    let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    let open = || File::options().read(true).write(true).open("/dev/null");
    let null = match open() {
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
            first = fds.next();
            // Frees a descriptor for /dev/null. Its number is reused by `open`, or by dup2 below.
            drop(first.map(own));
            open()?
        }
        null => null?,
    };
    for fd in first.into_iter().chain(fds) {
        // Not dropped, because the descriptor still belongs to its owner.
        let mut place = ManuallyDrop::new(own(fd));
        if dup2(&null, &mut place).is_ok() {
            fcntl_setfd(&*place, FdFlags::CLOEXEC)?;
        }
    }
    if first == Some(null.as_raw_fd()) {
        mem::forget(null);
    }
    Ok(())
}
