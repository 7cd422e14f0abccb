//! A listening socket, shared with the other workers.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    tcp: bool,
}

/// What accept came to.
#[derive(Debug)]
pub(super) enum Accepted {
    Client(OwnedFd, Option<SocketAddr>),
    Nobody,
    /// The client disconnected before it was accepted; there may be others.
    Gone,
    /// Out of descriptors or memory, or not a listener: trying again at once would fail again.
    Failed(io::Error),
}

impl Listener {
    /// Duplicates a listening socket and makes it non-blocking: a worker that loses the race for a client would hang in
    /// accept otherwise. The flag belongs to the open file, so it is set for all processes that share it.
    pub fn from_fd(fd: RawFd, tcp: bool) -> io::Result<Self> {
        let fd = fastrack_sys::duplicate(fd)?;
        fastrack_sys::set_nonblocking(&fd)?;
        Ok(Listener { fd, tcp })
    }

    /// Whether it is a TCP socket, whose clients have addresses.
    pub fn is_tcp(&self) -> bool {
        self.tcp
    }

    pub(super) fn accept(&self) -> Accepted {
        match fastrack_sys::accept(self.fd.as_fd(), self.tcp) {
            Ok((fd, peer)) => Accepted::Client(fd, peer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accepted::Nobody,
            Err(error) if fastrack_sys::is_clients_error(&error) => Accepted::Gone,
            Err(error) => Accepted::Failed(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
