//! A socket that clients connect to, shared with the other workers.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    tcp: bool,
}

/// What a try to accept came to.
#[derive(Debug)]
pub(crate) enum Accepted {
    Client(OwnedFd, Option<SocketAddr>),
    /// Nobody is waiting.
    Nobody,
    /// The client has gone before it was accepted; there may be others.
    Gone,
    /// The process or the system has run out of something, or the socket is no listener: trying
    /// again at once would fail again.
    Failed(io::Error),
}

impl Listener {
    /// Copies a listening socket of somebody else's, and makes it non-blocking:
    /// that flag belongs to the open file, so it is set for all who share it.
    /// Whoever made the socket may have left it blocking, and a worker that lost
    /// the race for a client would then hang in accept.
    pub fn from_fd(fd: BorrowedFd<'_>, tcp: bool) -> io::Result<Self> {
        let fd = fd.try_clone_to_owned()?;
        fastrack_sys::set_nonblocking(&fd)?;
        Ok(Listener { fd, tcp })
    }

    /// Whether its connections have addresses, and so a peer to name.
    pub fn is_tcp(&self) -> bool {
        self.tcp
    }

    pub(crate) fn accept(&self) -> Accepted {
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
