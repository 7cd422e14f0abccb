//! Noticing that the parent died while this process is too busy to look.

use std::io;

use nix::sys::signal::Signal;

/// Asks for `signal` when the parent dies (prctl(2), PR_SET_PDEATHSIG).
///
/// Elsewhere than on Linux this does nothing: there a worker notices at its
/// next wait, by the pipe whose other end the master holds.
#[cfg(target_os = "linux")]
pub fn signal_on_parent_death(signal: Signal) -> io::Result<()> {
    Ok(nix::sys::prctl::set_pdeathsig(signal)?)
}

/// Does nothing here; see the Linux version.
#[cfg(not(target_os = "linux"))]
pub fn signal_on_parent_death(_signal: Signal) -> io::Result<()> {
    Ok(())
}
