//! Whoever started the program ends it by closing its standard input.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

/// Waits for the end of the standard input; false when it does not come within `patience` (`None`: for
/// as long as it takes).
///
/// # Errors
/// Those of poll(2) and read(2).
pub fn ends_within(patience: Option<Duration>) -> io::Result<bool> {
    let timeout = patience.map_or(PollTimeout::NONE, |patience| {
        PollTimeout::from(u16::try_from(patience.as_micros().div_ceil(1_000)).unwrap_or(u16::MAX))
    });
    let stdin = io::stdin();
    match poll(&mut [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)], timeout) {
        Ok(0) | Err(Errno::EINTR) => Ok(false),
        Ok(_) => Ok(stdin.lock().read(&mut [0; 64])? == 0),
        Err(error) => Err(error.into()),
    }
}
