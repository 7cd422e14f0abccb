//! Accepting from several listeners in turn.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

#[derive(Debug)]
pub(crate) struct Client {
    pub fd: OwnedFd,
    pub peer: Option<SocketAddr>,
    /// The index of the listener.
    pub listener: usize,
}

/// The listener that is tried first, so that a busy listener does not starve the others.
#[derive(Debug, Default)]
pub(super) struct Turns {
    next: usize,
}

impl Turns {
    /// Accepts a client by `accept`, which gets the index of each of `count` listeners until it returns a client.
    pub fn accept(
        &mut self,
        count: usize,
        mut accept: impl FnMut(usize) -> io::Result<Option<(OwnedFd, Option<SocketAddr>)>>,
    ) -> io::Result<Option<Client>> {
        for step in 0..count {
            let listener = (self.next + step) % count;
            if let Some((fd, peer)) = accept(listener)? {
                self.next = (listener + 1) % count;
                return Ok(Some(Client { fd, peer, listener }));
            }
        }
        Ok(None)
    }
}
