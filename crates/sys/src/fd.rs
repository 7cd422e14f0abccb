//! File descriptors.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::libc;

/// A copy of a descriptor that somebody else owns, close-on-exec.
///
/// Fails with EBADF when `fd` is not open.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: fd is not -1, the one value that BorrowedFd may not hold; the borrow
    // ends with this call, and try_clone_to_owned asks the kernel whether it is open.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

/// Sets O_NONBLOCK, which belongs to the open file and so to all who share it.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd.as_fd(), FcntlArg::F_GETFL)?);
    if !flags.contains(OFlag::O_NONBLOCK) {
        fcntl(fd.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    }
    Ok(())
}

/// Puts `/dev/null` in the place of descriptors, which lets go of what they
/// were while their numbers stay taken: whoever owns them may still close them.
///
/// For a child that an application forked: its copies of clients' sockets
/// would otherwise keep connections open that the worker has closed.
pub fn neutralise(fds: impl IntoIterator<Item = RawFd>) -> io::Result<()> {
    let mut fds = fds.into_iter();
    let open = || File::options().read(true).write(true).open("/dev/null");
    let (null, first) = match open() {
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
            // The first of them makes room: its number is taken again before anybody else can have it, for a forked
            // child has this thread only.
            let Some(first) = fds.next() else { return Err(error) };
            // SAFETY: close takes any number; who owns this one goes on owning a descriptor of that number, from the
            // next line or the loop on.
            unsafe { libc::close(first) };
            (open()?, Some(first))
        }
        null => (null?, None),
    };
    for fd in first.into_iter().chain(fds) {
        // SAFETY: dup2 takes any number; it replaces the descriptor in one step, and
        // the owner of `fd` goes on owning a descriptor of that number.
        let done = unsafe { libc::dup2(null.as_raw_fd(), fd) };
        if done >= 0 {
            // SAFETY: fd has just been opened by dup2.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            fcntl(fd, FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
        }
    }
    if first == Some(null.as_raw_fd()) {
        // The owner's.
        let _ = null.into_raw_fd();
    }
    Ok(())
}
