//! How many descriptors this process may have.

use std::io;

use nix::sys::resource::{getrlimit, setrlimit, Resource};

/// What the program needs besides its connections.
const OTHERS: usize = 32;

/// Raises the limit as far as it may be raised without privileges, see getrlimit(2).
///
/// Returns how many of `wanted` connections can be open at once.
///
/// # Errors
/// Those of getrlimit(2) and setrlimit(2).
pub fn allow(wanted: usize) -> io::Result<usize> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    let most = usize::try_from(hard).unwrap_or(usize::MAX).saturating_sub(OTHERS);
    Ok(wanted.min(most))
}
