//! Reading from, and waiting for, one connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{recv, MsgFlags};

/// What one recv(2) brought.
pub enum Received {
    /// So many bytes (never 0).
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The client has closed or reset the connection.
    End,
}

/// Reads once, without blocking, into `buffer`.
///
/// # Errors
/// Any error of recv(2) that is not the client's doing.
pub fn receive(connection: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    match recv(connection.as_fd().as_raw_fd(), buffer, MsgFlags::empty()) {
        Ok(0) | Err(Errno::ECONNRESET) => Ok(Received::End),
        Ok(bytes) => Ok(Received::Bytes(bytes)),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(Received::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// Blocks until one of `events` happens on `connection`.
///
/// # Errors
/// Those of poll(2), except EINTR, after which the caller tries its syscall again anyway.
pub fn wait(connection: impl AsFd, events: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(connection.as_fd(), events)], PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A buffer that takes a request of `request_bytes` in one recv(2): a server that must check sizes
/// reads in smaller pieces, the limit never does. 16 KB are enough for any head.
pub fn buffer(request_bytes: usize) -> Vec<u8> {
    vec![0; request_bytes.max(16 * 1024)]
}
