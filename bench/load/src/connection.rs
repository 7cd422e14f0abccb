//! One TCP connection that never blocks.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{
    connect, recv, send, setsockopt, socket, sockopt, AddressFamily, MsgFlags, SockFlag, SockType,
    SockaddrStorage,
};

/// Bytes, which the kernel doubles and for which it has a minimum of its own, see socket(7).
const RECEIVE_BUFFER: usize = 4096;
/// Bytes of TCP in an Ethernet frame.
const SEGMENT: u32 = 1460;

/// What one recv(2) brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes (never 0).
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The server has closed the connection.
    End,
}

/// An open connection, or one that is being made.
#[derive(Debug)]
pub struct Connection(OwnedFd);

impl Connection {
    /// Begins to connect. Until that is done, [`Connection::send`] sends nothing.
    ///
    /// `reads_little` bounds what the kernels take for a client that does not read. It does so with SO_RCVBUF
    /// for the client's own, and with TCP_MAXSEG for the server's: a send buffer grows with the size of a
    /// segment, which is 64 KB on the loopback interface, and would be 3 MB. Both must be set before the
    /// connection is made, see tcp(7).
    ///
    /// # Errors
    /// Those of socket(2), setsockopt(2) and connect(2), without EINPROGRESS.
    pub fn open(address: SocketAddr, reads_little: bool) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = socket(family, SockType::Stream, flags, None)?;
        setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
        if reads_little {
            setsockopt(&fd, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
            setsockopt(&fd, sockopt::TcpMaxSeg, &SEGMENT)?;
        }
        match connect(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
            Ok(()) | Err(Errno::EINPROGRESS) => Ok(Self(fd)),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until one of `events` happens, or an error; false when neither does in so many milliseconds.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn wait(&self, events: PollFlags, milliseconds: u16) -> io::Result<bool> {
        let ready = poll(&mut [PollFd::new(self.0.as_fd(), events)], PollTimeout::from(milliseconds))?;
        Ok(ready > 0)
    }

    /// Sends what the socket takes; 0 bytes when it takes none yet.
    ///
    /// # Errors
    /// Those of connect(2) and send(2).
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match send(self.0.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) => Ok(sent),
            // ENOTCONN: the connection is still being made.
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOTCONN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads once. A connection that was reset is at its end.
    ///
    /// # Errors
    /// Those of connect(2) and recv(2).
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        match recv(self.0.as_raw_fd(), buffer, MsgFlags::empty()) {
            Ok(0) | Err(Errno::ECONNRESET) => Ok(Received::End),
            Ok(bytes) => Ok(Received::Bytes(bytes)),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOTCONN) => Ok(Received::Nothing),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
