//! Limits of descriptors and of the size of files.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;

use nix::libc;
use rustix::process::{getrlimit, Resource};

/// The number of descriptors that this process may have open: the soft limit RLIMIT_NOFILE.
pub fn fd_limit() -> usize {
    to_usize(getrlimit(Resource::Nofile).current)
}

/// The highest value of [`fd_limit`] that this process may set: the hard limit RLIMIT_NOFILE.
pub fn max_fd_limit() -> usize {
    to_usize(getrlimit(Resource::Nofile).maximum)
}

/// The longest file that this process may write, in bytes: the soft limit RLIMIT_FSIZE.
pub fn file_size_limit() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

fn to_usize(limit: Option<u64>) -> usize {
    limit.and_then(|limit| limit.try_into().ok()).unwrap_or(usize::MAX)
}

/// Whether this process has room for three more descriptors, unless another thread opens files first. Says nothing
/// about the limit of the system, because a received descriptor is no new open file.
pub fn has_free_fds() -> bool {
    // The kernel assigns the lowest free number (open(2)), so there is room while the highest numbers are free. This
    // check takes one system call; opening and closing three files takes six.
    let limit = RawFd::try_from(fd_limit()).unwrap_or(RawFd::MAX);
    let mut last =
        [1, 2, 3].map(|back| libc::pollfd { fd: limit.saturating_sub(back), events: 0, revents: 0 });
    // SAFETY: the array outlives the call. poll(2) reports numbers that are not open (POLLNVAL).
    unsafe { libc::poll(last.as_mut_ptr(), last.len() as _, 0) };
    last.iter().all(|entry| entry.revents & libc::POLLNVAL != 0) || can_open(last.len())
}

/// The error for a process without free descriptors (EMFILE).
pub fn too_many_open_files() -> io::Error {
    rustix::io::Errno::MFILE.into()
}

/// Whether a call failed because this process has no free descriptor (EMFILE).
pub fn is_out_of_fds(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

/// Whether a call failed for a temporary shortage of the system or of this user: of memory, open files, or epoll
/// watches.
pub fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::ENFILE | libc::ENOBUFS | libc::ENOSPC))
}

fn can_open(count: usize) -> bool {
    let files: io::Result<Vec<_>> = (0..count).map(|_| File::open("/dev/null")).collect();
    !files.is_err_and(|error| is_out_of_fds(&error))
}
