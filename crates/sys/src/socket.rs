//! Sockets: accept, receive, send, wait.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use nix::libc;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{self, sockopt, RecvFlags, Shutdown, SocketAddrUnix};

#[cfg(not(portable))]
mod linux;
#[cfg(not(portable))]
use linux as backend;

#[cfg(portable)]
mod portable;
#[cfg(portable)]
use portable as backend;

/// Listens at a new unix socket. From the first moment only its owner may connect to it, whatever the umask is.
pub fn bind_private(path: &Path) -> io::Result<UnixListener> {
    backend::bind_private(path)
}

/// Whether a process listens at this unix socket; false if this user may not connect to it. Does not wait.
pub fn is_listened_at(path: &Path) -> bool {
    let attempt = || {
        let socket = net::socket(net::AddressFamily::UNIX, net::SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        net::connect(&socket, &net::SocketAddrUnix::new(path)?)
    };
    // EAGAIN means that the backlog is full.
    matches!(attempt(), Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS))
}

/// Accepts a connection without blocking. The connection is non-blocking and close-on-exec.
///
/// For TCP this also returns the address of the client, which saves a getpeername(2). Clients of unix sockets have no
/// address. Fails with WouldBlock if the backlog is empty.
pub fn accept(listener: BorrowedFd<'_>, tcp: bool) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let (fd, peer) = backend::accept(listener, tcp)?;
    Ok((fd, peer.and_then(socket_addr)))
}

/// Converts the address of an IPv4 client of an IPv6 listener to IPv4.
fn socket_addr(peer: net::SocketAddrAny) -> Option<SocketAddr> {
    let peer = SocketAddr::try_from(peer).ok()?;
    Some(SocketAddr::new(peer.ip().to_canonical(), peer.port()))
}

/// Whether accept(2) failed because of a single client (accept(2), "Error handling"): call it again for the next
/// client.
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

// Each request calls recv and send. rustix makes the bare system call. The functions of libc are cancellation points,
// which cost four locked instructions.

/// Receives up to `most` bytes and appends them to `buffer`, without zeroing it first. Returns 0 at the end of the
/// stream. Fails with OutOfMemory if the buffer cannot grow.
pub fn recv(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    crate::memory::reserve(buffer, most)?;
    let spare = buffer.spare_capacity_mut();
    let most = most.min(spare.len());
    let (_, got) = net::recv(fd, &mut spare[..most], RecvFlags::empty())?;
    // SAFETY: the kernel has initialised the first `got` bytes of the spare capacity.
    unsafe { buffer.set_len(buffer.len() + got) };
    Ok(got)
}

/// Reads and discards up to 4 KiB of input without blocking. Returns the number of bytes.
pub fn discard_input(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes = [MaybeUninit::uninit(); 4096];
    let (_, got) = net::recv(fd, &mut bytes, RecvFlags::DONTWAIT)?;
    Ok(got)
}

/// The highest number of bytes that [`drain_input`] discards: the peer may continue to send.
const DRAIN_LIMIT: usize = 64 * 1024;

/// Discards unread input, up to 64 KiB, before a close. A close with unread input resets the connection, and the peer could
/// lose bytes that were sent to it (RFC 9112 §9.6).
pub fn drain_input(fd: BorrowedFd<'_>) {
    let mut left = DRAIN_LIMIT;
    while left > 0 {
        match discard_input(fd) {
            Ok(got) if got > 0 => left = left.saturating_sub(got),
            _ => return,
        }
    }
}

/// Sends as many bytes as the socket accepts at once (send(2)). Fails if the peer is gone, without SIGPIPE.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(net::send(fd, bytes, backend::SEND)?)
}

/// Sends as [`send`] does. For bytes with more to follow at once (MSG_MORE, send(2)): an incomplete TCP packet waits
/// for the next send, or for 200 milliseconds.
pub fn send_more(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(net::send(fd, bytes, backend::MORE)?)
}

/// Sends as much of the slices as the socket accepts at once (sendmsg(2)), without SIGPIPE, which writev(2) would
/// raise.
pub fn writev(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(net::sendmsg(fd, slices, &mut net::SendAncillaryBuffer::default(), backend::SEND)?)
}

/// The time since the last data of a TCP client arrived, in milliseconds, as exact as the kernel's tick; None if the
/// system does not report it.
pub fn millis_since_data(fd: BorrowedFd<'_>) -> Option<u64> {
    backend::millis_since_data(fd)
}

/// Bytes that were sent and that the peer's system has not acknowledged; None if the system does not report them.
pub fn unacknowledged(fd: BorrowedFd<'_>) -> Option<u32> {
    backend::unacknowledged(fd)
}

/// Sends the end of the stream. The peer may continue to send.
pub fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::shutdown(fd, Shutdown::Write)?)
}

/// Ends the connection in both directions, even if other processes have copies of the descriptor.
pub fn shutdown_both(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::shutdown(fd, Shutdown::Both)?)
}

/// Makes close(2) send a reset, which tells the client that the response is cut. No effect on unix sockets.
pub fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(fd, Some(Duration::ZERO))?)
}

/// Undoes [`reset_on_close`].
pub fn no_reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(fd, None)?)
}

/// Ends the connection now but keeps the descriptor open. A TCP connection is reset (connect(2) with AF_UNSPEC).
pub fn reset_now(fd: BorrowedFd<'_>) -> io::Result<()> {
    if net::connect_unspec(fd).is_ok() {
        return Ok(());
    }
    shutdown_both(fd)
}

/// Waits up to `millis` milliseconds until `fd` is readable. Returns false after the timeout or a signal.
pub fn wait_readable(fd: BorrowedFd<'_>, millis: u64) -> io::Result<bool> {
    wait(fd, PollFlags::IN, millis)
}

/// Waits up to `millis` milliseconds until `fd` is writable. Returns false after the timeout or a signal.
pub fn wait_writable(fd: BorrowedFd<'_>, millis: u64) -> io::Result<bool> {
    wait(fd, PollFlags::OUT, millis)
}

fn wait(fd: BorrowedFd<'_>, events: PollFlags, millis: u64) -> io::Result<bool> {
    match poll(&mut [PollFd::from_borrowed_fd(fd, events)], Some(&timeout(millis))) {
        Err(Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

/// Sleeps for `millis` milliseconds, or until a signal arrives.
pub fn sleep(millis: u64) {
    // This fails only with EINTR.
    let _ = poll(&mut [], Some(&timeout(millis)));
}

/// Limits the timeout to an i32 for poll(2), because not every system has ppoll(2).
fn timeout(millis: u64) -> Timespec {
    Timespec::try_from(Duration::from_millis(millis.min(i32::MAX as u64))).unwrap_or_default()
}

/// Whether `fd` is readable now.
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    has(fd, PollFlags::IN)
}

/// Whether the peer is gone, or has sent the end of its stream. Input may still be unread.
pub fn has_peer_closed(fd: BorrowedFd<'_>) -> bool {
    has(fd, backend::END | GONE)
}

/// The end of the path of the socket by which the server's own proxy asks the workers (lib/fastrack/proxy.rb).
const PROXY_SOCKET: &[u8] = b".proxy";

/// Whether the peer is gone. The end of a TCP peer's stream (shutdown(2)) also counts, because TCP cannot tell both
/// apart. Unix sockets can (POLLHUP, poll(2)). The proxy passes the end of a TCP client's stream on.
pub fn is_peer_gone(fd: BorrowedFd<'_>) -> bool {
    has_peer_closed(fd) && (has(fd, GONE) || !tells_ends_apart(fd))
}

/// Whether the peer may have shut down its sending side only: on a unix socket that is not the proxy's.
fn tells_ends_apart(fd: BorrowedFd<'_>) -> bool {
    let name = net::getsockname(fd).ok().and_then(|name| SocketAddrUnix::try_from(name).ok());
    name.is_some_and(|name| !name.path().is_some_and(|path| path.to_bytes().ends_with(PROXY_SOCKET)))
}

/// Whether the connection has ended in both directions, or failed.
pub fn is_connection_lost(fd: BorrowedFd<'_>) -> bool {
    has(fd, GONE)
}

const GONE: PollFlags = PollFlags::HUP.union(PollFlags::ERR);

/// Whether any of the events is pending; false for a descriptor that is not open.
fn has(fd: BorrowedFd<'_>, events: PollFlags) -> bool {
    let mut entry = [PollFd::from_borrowed_fd(fd, events)];
    poll(&mut entry, Some(&timeout(0))).is_ok() && entry[0].revents().intersects(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::patience;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn accept_returns_the_address_of_the_peer_or_would_block() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(host).expect("bind");
            crate::fd::set_nonblocking(&listener).expect("nonblocking");
            let nobody = accept(listener.as_fd(), true).expect_err("nobody is waiting");
            assert_eq!(nobody.kind(), io::ErrorKind::WouldBlock);
            let client = TcpStream::connect(listener.local_addr().expect("addr")).expect("connect");
            wait_readable(listener.as_fd(), patience().as_millis() as u64).expect("wait");
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
    fn a_tcp_peer_that_has_shut_down_its_sending_side_counts_as_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let client = TcpStream::connect(listener.local_addr().expect("addr")).expect("connect");
        let (server, _) = listener.accept().expect("accept");
        let (near, far) = UnixStream::pair().expect("socketpair");
        let states = || [server.as_fd(), far.as_fd()].map(|fd| (has_peer_closed(fd), is_peer_gone(fd)));
        assert_eq!(states(), [(false, false), (false, false)]);
        client.shutdown(std::net::Shutdown::Write).expect("shutdown");
        near.shutdown(std::net::Shutdown::Write).expect("shutdown");
        wait_readable(server.as_fd(), patience().as_millis() as u64).expect("wait");
        assert_eq!(states(), [(true, true), (true, false)]);
        drop((client, near));
        assert_eq!(states(), [(true, true), (true, true)]);
    }

    #[test]
    fn a_reset_is_seen_as_an_error_not_as_the_end_unless_it_was_undone() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        for is_undone in [false, true] {
            let mut client = TcpStream::connect(listener.local_addr().expect("addr")).expect("connect");
            let (server, _) = listener.accept().expect("accept");
            reset_on_close(server.as_fd()).expect("linger");
            if is_undone {
                no_reset_on_close(server.as_fd()).expect("no linger");
            }
            drop(server);
            let end = client.read(&mut [0; 1]).map_err(|error| error.kind());
            assert_eq!(end, if is_undone { Ok(0) } else { Err(io::ErrorKind::ConnectionReset) });
        }
    }

    #[cfg(not(portable))]
    #[test]
    fn unacknowledged_bytes_are_those_that_the_peer_has_no_room_for() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut client = TcpStream::connect(listener.local_addr().expect("addr")).expect("connect");
        let (mut server, _) = listener.accept().expect("accept");
        crate::fd::set_nonblocking(&server).expect("nonblocking");
        let mut sent = 0;
        while let Ok(count) = server.write(&[0; 65_536]) {
            sent += count;
        }
        let before = unacknowledged(server.as_fd()).expect("a number");
        assert!(before > 0 && before as usize <= sent, "{before} of {sent}");
        client.read_exact(&mut vec![0; sent]).expect("read");
        let began = std::time::Instant::now();
        while unacknowledged(server.as_fd()) != Some(0) && began.elapsed() < patience() {
            sleep(1);
        }
        assert_eq!(unacknowledged(server.as_fd()), Some(0));
    }

    #[cfg(not(portable))]
    #[test]
    fn only_its_owner_may_connect_to_a_private_socket() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("fastrack-private-{}", std::process::id()));
        assert!(!is_listened_at(&path));
        let listener = bind_private(&path).expect("a listener");
        assert!(is_listened_at(&path));
        let mode = std::fs::metadata(&path).expect("its file").permissions().mode();
        std::fs::remove_file(&path).expect("its end");
        assert_eq!(mode & 0o077, 0);
        drop(listener);
    }
}
