//! What the system allows a process.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::libc;
use nix::sys::resource::{getrlimit, Resource};

/// How many descriptors this process may have open (RLIMIT_NOFILE, the soft limit).
pub fn descriptors() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// How many this process could be allowed without more rights (RLIMIT_NOFILE, the hard limit).
pub fn most_descriptors() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, hard)| hard.max(soft));
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Whether this process can open three more descriptors, if no other thread of it is quicker.
pub fn has_room() -> bool {
    // The kernel gives the lowest number that is free (open(2)): while the highest ones are, there is room. One call,
    // where to try it takes six.
    let limit = RawFd::try_from(descriptors()).unwrap_or(RawFd::MAX);
    let mut last =
        [1, 2, 3].map(|back| libc::pollfd { fd: limit.saturating_sub(back), events: 0, revents: 0 });
    // SAFETY: three entries, which outlive the call; poll(2) reports those that are not open as such (POLLNVAL), and
    // passes over negative ones.
    unsafe { libc::poll(last.as_mut_ptr(), last.len() as _, 0) };
    last.iter().all(|entry| entry.revents & libc::POLLNVAL != 0) || can_open(last.len())
}

/// Why nothing can be opened where there is no room (EMFILE).
pub fn no_descriptor() -> io::Error {
    io::Error::from_raw_os_error(libc::EMFILE)
}

fn can_open(count: usize) -> bool {
    let Ok(null) = File::open("/dev/null") else { return false };
    let others = (1..count).map(|_| crate::fd::duplicate(null.as_fd().as_raw_fd()));
    others.collect::<Result<Vec<_>, _>>().is_ok()
}
