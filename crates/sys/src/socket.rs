//! Sockets: accept, receive, send, wait.

use std::io::{self, IoSlice};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::libc;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{setsockopt, shutdown, sockopt, Shutdown};
use rustix::net::{RecvFlags, SendFlags};

/// Accepts a connection without blocking: non-blocking, close-on-exec.
///
/// For TCP the peer's address comes with it, which saves a getpeername(2);
/// a unix socket has none worth asking for. Fails with WouldBlock when nobody
/// is waiting.
pub fn accept(listener: BorrowedFd<'_>, tcp: bool) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    if !tcp {
        return Ok((accept_raw(listener, std::ptr::null_mut(), std::ptr::null_mut())?, None));
    }
    // SAFETY: sockaddr_storage is plain data for which all zeroes is a value (AF_UNSPEC).
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut len = mem::size_of_val(&storage) as libc::socklen_t;
    let fd = accept_raw(listener, (&raw mut storage).cast(), &mut len)?;
    Ok((fd, socket_addr(&storage)))
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn accept_raw(
    listener: BorrowedFd<'_>,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> io::Result<OwnedFd> {
    // SAFETY: addr and len are both null, or point to a sockaddr_storage and its size,
    // which outlive the call.
    let fd =
        unsafe { libc::accept4(listener.as_raw_fd(), addr, len, libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) };
    owned(fd)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn accept_raw(
    listener: BorrowedFd<'_>,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> io::Result<OwnedFd> {
    // SAFETY: as above. Between the two calls a fork could inherit the descriptor;
    // without accept4(2) that cannot be helped.
    let fd = owned(unsafe { libc::accept(listener.as_raw_fd(), addr, len) })?;
    nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    crate::fd::set_nonblocking(&fd)?;
    Ok(fd)
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn socket_addr(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that this is a sockaddr_in, and the storage is as large and as aligned.
            let addr = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(addr.sin_addr.s_addr));
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(addr.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that this is a sockaddr_in6, and the storage is as large and as aligned.
            let addr = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(addr.sin6_addr.s6_addr).to_canonical();
            Some(SocketAddr::new(ip, u16::from_be(addr.sin6_port)))
        }
        _ => None,
    }
}

/// Whether accept(2) failed for a reason of the one client that it would have
/// returned (accept(2), "Error handling"): the next try is about another one.
pub fn is_clients_error(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EINTR
                | libc::ECONNABORTED
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EPERM
        )
    )
}

/// Receives at most `most` bytes and appends them to `buffer`; 0 is the end.
///
/// Reads into spare capacity: a buffer that is reused is never cleared first.
pub fn recv(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    buffer.reserve(most);
    let spare = buffer.spare_capacity_mut();
    let most = most.min(spare.len());
    // By rustix, as in `send`: these two are made for each request, and libc has code around them that lets other
    // threads cancel the call, with four locked instructions.
    let (_, got) = rustix::net::recv(fd, &mut spare[..most], RecvFlags::empty())?;
    // SAFETY: the kernel has initialised the first `got` bytes of the spare capacity.
    unsafe { buffer.set_len(buffer.len() + got) };
    Ok(got)
}

/// Throws away what there is to be read, up to some kilobytes, without waiting: how much it was. For signal handlers, too.
pub fn discard(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes = [0_u8; 4096];
    // SAFETY: the kernel writes at most as many bytes as the array has.
    let got =
        unsafe { libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Sends what the socket takes at once of the bytes (send(2)). A peer that is gone is an error only, never a SIGPIPE.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    #[cfg(not(target_vendor = "apple"))]
    let flags = SendFlags::NOSIGNAL;
    #[cfg(target_vendor = "apple")]
    let flags = SendFlags::empty();
    Ok(rustix::net::send(fd, bytes, flags)?)
}

/// Sends what the socket takes at once of the slices (writev(2)).
pub fn writev(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(nix::sys::uio::writev(fd, slices)?)
}

/// Says that nothing more will be sent, while the peer may still send.
pub fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(shutdown(fd.as_raw_fd(), Shutdown::Write)?)
}

/// Says that nothing more will be sent or read, whoever else has a copy of the descriptor.
pub fn shutdown_both(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(shutdown(fd.as_raw_fd(), Shutdown::Both)?)
}

/// Makes the coming close a reset, so that the peer cannot take a cut-off
/// response for a whole one. Without effect on a unix socket.
pub fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    Ok(setsockopt(&fd, sockopt::Linger, &linger)?)
}

/// Waits until `fd` can be read, at most `millis` milliseconds; false when
/// the time is over, or a signal came.
pub fn wait_readable(fd: BorrowedFd<'_>, millis: u64) -> io::Result<bool> {
    wait(fd, PollFlags::POLLIN, millis)
}

/// Waits until `fd` takes more, at most `millis` milliseconds; false when the
/// time is over, or a signal came.
pub fn wait_writable(fd: BorrowedFd<'_>, millis: u64) -> io::Result<bool> {
    wait(fd, PollFlags::POLLOUT, millis)
}

fn wait(fd: BorrowedFd<'_>, what: PollFlags, millis: u64) -> io::Result<bool> {
    let timeout = PollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX));
    match poll(&mut [PollFd::new(fd, what)], timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(nix::Error::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Does nothing for `millis` milliseconds, or until a signal comes.
pub fn pause(millis: u64) {
    // The only outcomes are that time passed and that a signal came.
    let _ = poll(&mut [], PollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX)));
}

/// Whether `fd` can be read right now; false also for a descriptor that is not open.
pub fn is_readable(fd: RawFd) -> bool {
    is_now(fd, libc::POLLIN)
}

/// Whether the peer of `fd` is gone, or sends nothing more, whatever there may be left to read; false also for a
/// descriptor that is not open.
pub fn has_ended(fd: RawFd) -> bool {
    is_now(fd, SENDS_NOTHING | LEFT)
}

/// Whether the peer of `fd` is gone. TCP does not tell this from a peer that only sends nothing more (shutdown(2)),
/// which so counts as gone; unix sockets do (POLLHUP, poll(2)).
pub fn has_left(fd: RawFd) -> bool {
    has_ended(fd) && (is_now(fd, LEFT) || !is_unix(fd))
}

const LEFT: libc::c_short = libc::POLLHUP | libc::POLLERR;
#[cfg(any(target_os = "linux", target_os = "android"))]
const SENDS_NOTHING: libc::c_short = libc::POLLRDHUP;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const SENDS_NOTHING: libc::c_short = 0;

/// Whether `fd` is a unix socket.
fn is_unix(fd: RawFd) -> bool {
    let address = nix::sys::socket::getsockname::<nix::sys::socket::SockaddrStorage>(fd);
    address.is_ok_and(|address| address.as_unix_addr().is_some())
}

/// Whether any of `what` is the case with `fd`. (nix knows no POLLRDHUP.)
fn is_now(fd: RawFd, what: libc::c_short) -> bool {
    let mut entry = libc::pollfd { fd, events: what, revents: 0 };
    // SAFETY: one entry, which outlives the call; poll(2) passes over a negative descriptor and reports one that is
    // not open as such (POLLNVAL).
    let ready = unsafe { libc::poll(&mut entry, 1, 0) };
    ready > 0 && entry.revents & what != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn accept_gives_the_peers_address_or_would_block() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(host).expect("bind");
            crate::fd::set_nonblocking(&listener).expect("nonblocking");
            let nobody = accept(listener.as_fd(), true).expect_err("nobody is waiting");
            assert_eq!(nobody.kind(), io::ErrorKind::WouldBlock);
            let client = TcpStream::connect(listener.local_addr().expect("addr")).expect("connect");
            wait_readable(listener.as_fd(), 5000).expect("wait");
            let (_, peer) = accept(listener.as_fd(), true).expect("accept");
            assert_eq!(peer, client.local_addr().ok());
        }
    }

    #[test]
    fn received_bytes_are_appended_up_to_the_limit() {
        let (mut near, far) = UnixStream::pair().expect("socketpair");
        near.write_all(b"hello").expect("write");
        let mut buffer = b"> ".to_vec();
        assert_eq!(recv(far.as_fd(), &mut buffer, 4).expect("recv"), 4);
        assert_eq!(buffer, b"> hell");
        drop(near);
        assert_eq!(recv(far.as_fd(), &mut buffer, 4).expect("recv"), 1);
        assert_eq!(recv(far.as_fd(), &mut buffer, 4).expect("recv"), 0);
    }

    #[test]
    fn sent_bytes_arrive_and_a_peer_that_is_gone_is_an_error() {
        let (near, mut far) = UnixStream::pair().expect("socketpair");
        assert_eq!(send(near.as_fd(), b"abc").expect("send"), 3);
        let mut bytes = [0; 3];
        far.read_exact(&mut bytes).expect("read");
        assert_eq!(&bytes, b"abc");
        drop(far);
        let error = send(near.as_fd(), b"abc").expect_err("nobody is there");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn slices_are_written_in_order() {
        let (near, mut far) = UnixStream::pair().expect("socketpair");
        let sent = writev(near.as_fd(), &[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"c")]);
        assert_eq!(sent.expect("writev"), 3);
        shutdown_write(near.as_fd()).expect("shutdown");
        let mut text = String::new();
        far.read_to_string(&mut text).expect("read");
        assert_eq!(text, "abc");
    }

    #[test]
    fn a_peer_that_only_sends_nothing_more_has_left_as_far_as_tcp_can_tell() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let client = TcpStream::connect(listener.local_addr().expect("addr")).expect("connect");
        let (server, _) = listener.accept().expect("accept");
        let (near, far) = UnixStream::pair().expect("socketpair");
        let states = || [server.as_raw_fd(), far.as_raw_fd()].map(|fd| (has_ended(fd), has_left(fd)));
        assert_eq!(states(), [(false, false), (false, false)]);
        client.shutdown(std::net::Shutdown::Write).expect("shutdown");
        near.shutdown(std::net::Shutdown::Write).expect("shutdown");
        wait_readable(server.as_fd(), 5000).expect("wait");
        assert_eq!(states(), [(true, true), (true, false)]);
        drop((client, near));
        assert_eq!(states(), [(true, true), (true, true)]);
        assert_eq!((has_ended(-1), has_left(-1)), (false, false));
    }

    #[test]
    fn a_reset_is_seen_as_an_error_not_as_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut client = TcpStream::connect(listener.local_addr().expect("addr")).expect("connect");
        let (server, _) = listener.accept().expect("accept");
        reset_on_close(server.as_fd()).expect("linger");
        drop(server);
        let error = client.read(&mut [0; 1]).expect_err("a reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
