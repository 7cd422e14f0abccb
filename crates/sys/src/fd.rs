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
/// Nobody closes the descriptor during `'fd`. If it is not open, nobody opens it, and calls with it fail with EBADF.
pub unsafe fn borrow_fd<'fd>(fd: RawFd) -> io::Result<BorrowedFd<'fd>> {
    if fd < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: it is not -1; the rest is this function's own contract.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Whether a call failed because its descriptor is closed, or is another file by now: somebody has closed what is not
/// theirs.
pub fn is_lost_fd(error: &io::Error) -> bool {
    let lost = [Errno::BADF, Errno::NOTSOCK, Errno::INVAL].map(|errno| Some(errno.raw_os_error()));
    lost.contains(&error.raw_os_error())
}

/// Writes to a descriptor (write(2)), which may block.
pub fn write_once(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::write(fd, bytes)?)
}

/// Whether it is a regular file.
pub fn is_regular(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|data| FileType::from_raw_mode(data.st_mode).is_file())
}

/// Sets O_NONBLOCK. All processes that share the open file see it.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    Ok(ioctl_fionbio(fd, true)?)
}

/// Makes a descriptor another one's copy (dup2(2)), in one step: a thread that writes meanwhile writes to the old file or to
/// the new one. It stays close-on-exec if it was.
///
/// # Safety
/// The descriptor is open, and its owner can do with that file instead.
pub unsafe fn replace_fd(fd: RawFd, with: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: it is open, as the caller promises.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    let flags = fcntl_getfd(&*place)?;
    dup2(with, &mut place)?;
    Ok(fcntl_setfd(&*place, flags)?)
}

/// Replaces descriptors by `/dev/null`: what they were is closed in this process, but their numbers stay taken, so that
/// their owners can still close them.
///
/// For a child that the application forked. Its copies of the clients' sockets would otherwise keep connections open
/// that the worker has closed.
///
/// # Safety
/// The descriptors are open, each is listed once, and their owners can do with `/dev/null` instead.
pub unsafe fn replace_with_dev_null(fds: impl IntoIterator<Item = RawFd>) -> io::Result<()> {
    let mut fds = fds.into_iter();
    let mut first = None;
    // SAFETY: it is open, as the caller promises, or about to be.
    let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    let open = || File::options().read(true).write(true).open("/dev/null");
    let null = match open() {
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
            first = fds.next();
            // Makes room. Its number is taken again by `open`, or else below.
            drop(first.map(own));
            open()?
        }
        null => null?,
    };
    for fd in first.into_iter().chain(fds) {
        // Not dropped: it still belongs to its owner.
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
