//! What the system allows a process.

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
