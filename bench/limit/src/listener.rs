//! The listening socket that all workers share.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;

use nix::errno::Errno;
use nix::libc::{self, c_int};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{accept4, listen, setsockopt, sockopt, Backlog, SetSockOpt, SockFlag};

use crate::options::{Address, Options};

/// TCP_DEFER_ACCEPT, tcp(7): for how many seconds a connection may be held back until its first
/// bytes have come. (nix has no name for it.)
#[derive(Clone, Copy)]
struct TcpDeferAccept;

impl SetSockOpt for TcpDeferAccept {
    type Val = c_int;

    fn set<F: AsFd>(&self, socket: &F, seconds: &c_int) -> nix::Result<()> {
        // SAFETY: the pointer and the length are those of one c_int, which outlives the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_DEFER_ACCEPT,
                std::ptr::from_ref(seconds).cast(),
                size_of::<c_int>() as libc::socklen_t,
            )
        };
        Errno::result(result).map(drop)
    }
}

/// An open, non-blocking listener.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    tcp: bool,
}

impl Listener {
    /// Binds and listens.
    ///
    /// # Errors
    /// Those of bind(2) and listen(2): the address is in use, the path cannot be written.
    pub fn open(options: &Options) -> io::Result<Self> {
        let listener = match &options.address {
            Address::Tcp(address) => Self::tcp(TcpListener::bind(address)?)?,
            Address::Unix(path) => Self::unix(UnixListener::bind(path)?)?,
        };
        // The standard library listens with a backlog of its own; a second listen(2) changes it.
        listen(&listener.fd, Backlog::new(options.backlog)?)?;
        Ok(listener)
    }

    fn tcp(socket: TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        setsockopt(&socket, TcpDeferAccept, &1)?;
        Ok(Self { fd: socket.into(), tcp: true })
    }

    fn unix(socket: UnixListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { fd: socket.into(), tcp: false })
    }

    /// The next connection, ready to read, or `None` when nobody waits (or whoever waited left).
    ///
    /// # Errors
    /// Any other error of accept4(2) or setsockopt(2).
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = match accept4(self.fd.as_raw_fd(), flags) {
            // SAFETY: accept4 has just made this descriptor; nothing else owns it.
            Ok(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNABORTED) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if self.tcp {
            setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
        }
        Ok(Some(fd))
    }

    /// An epoll set with this listener in it, under the key 0 (never a connection's descriptor).
    ///
    /// EPOLLEXCLUSIVE wakes one idle worker for a connection where poll(2) would wake all of them.
    ///
    /// # Errors
    /// Those of epoll_create1(2) and epoll_ctl(2).
    pub fn epoll(&self) -> io::Result<Epoll> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let readable = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        epoll.add(&self.fd, EpollEvent::new(readable, 0))?;
        Ok(epoll)
    }
}
