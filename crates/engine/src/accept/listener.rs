//! A listening socket, shared with the other workers.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    tcp: bool,
}

/// Clients in a row that may disconnect before they are accepted. After them other listeners get a turn.
const MAX_ABORTED: usize = 16;

impl Listener {
    /// Duplicates a listening socket, and makes it non-blocking because another worker may accept the client first. All
    /// processes that share the socket share this flag.
    pub fn from_fd(fd: BorrowedFd<'_>, tcp: bool) -> io::Result<Self> {
        let fd = fd.try_clone_to_owned()?;
        fastrack_sys::set_nonblocking(&fd)?;
        Ok(Listener { fd, tcp })
    }

    /// Whether it is a TCP socket, whose clients have addresses.
    pub fn is_tcp(&self) -> bool {
        self.tcp
    }

    /// Accepts a client; None if no client waits. Fails when descriptors or memory have run out.
    pub(super) fn accept(&self) -> io::Result<Option<(OwnedFd, Option<SocketAddr>)>> {
        for _ in 0..MAX_ABORTED {
            match fastrack_sys::accept(self.fd.as_fd(), self.tcp) {
                Ok(client) => return Ok(Some(client)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if fastrack_sys::is_clients_error(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
