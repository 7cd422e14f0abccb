//! This process: its threads, its end, and a word on stderr that nothing can hold up.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use nix::libc;

use crate::socket::wait_writable;

/// Ends this process at once, with no destructor and no handler of exits (_exit(2)).
pub fn exit_at_once(status: i32) -> ! {
    // SAFETY: it takes any status, and does not return.
    unsafe { libc::_exit(status) }
}

/// Whether there is a process with this pid; one that is another user's is there, too (kill(2)).
pub fn is_running(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) != Err(nix::errno::Errno::ESRCH)
}

/// Does something with a descriptor that somebody else owns; None when the number can be none.
pub fn with_descriptor<T>(fd: RawFd, work: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
    // SAFETY: it is not -1, the one value that BorrowedFd may not hold; if it is not open, the calls fail.
    (fd >= 0).then(|| work(unsafe { BorrowedFd::borrow_raw(fd) }))
}

/// Writes to stderr, past all buffers and locks: other threads may hold them. A reader that is gone, or takes nothing
/// for `millis` milliseconds in a row, loses what is left.
pub fn say(text: &[u8], millis: u64) {
    // What a pipe with room takes without blocking (PIPE_BUF, pipe(7)).
    const AT_ONCE: usize = 4096;
    let stderr = io::stderr();
    for piece in text.chunks(AT_ONCE) {
        if !wait_writable(stderr.as_fd(), millis).unwrap_or(false)
            || write(libc::STDERR_FILENO, piece).is_err()
        {
            return;
        }
    }
}

/// Writes to a descriptor (write(2)). For signal handlers, too.
pub fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer is valid for the length; the kernel says so if the descriptor is none.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}
