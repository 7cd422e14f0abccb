//! Descriptors that one process passes to another over a unix socket (unix(7), SCM_RIGHTS).

use std::io::{self, IoSlice};
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::libc;
use nix::sys::socket::{sendmsg, socketpair, AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType};

/// Descriptors in one message, at most.
pub const MOST_PASSED: usize = 3;

/// Both ends of a queue of messages: what is written to the one is read from the other, by whoever comes first,
/// whole and in order (SOCK_SEQPACKET). Neither end blocks.
pub fn message_queue() -> io::Result<(OwnedFd, OwnedFd)> {
    // macOS has no SOCK_SEQPACKET for unix sockets; its datagrams keep their order, too.
    let kind = if cfg!(target_os = "macos") { SockType::Datagram } else { SockType::SeqPacket };
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    let pair = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    let pair = {
        let pair = socketpair(AddressFamily::Unix, kind, None, SockFlag::empty())?;
        for fd in [&pair.0, &pair.1] {
            nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
            crate::fd::set_nonblocking(fd)?;
        }
        pair
    };
    Ok(pair)
}

/// Sends one message with at most [`MOST_PASSED`] descriptors, which stay the sender's as well.
///
/// Fails with WouldBlock when the queue is full, and with ETOOMANYREFS when too
/// many descriptors are under way.
pub fn send_message(queue: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut raw: [RawFd; MOST_PASSED] = [-1; MOST_PASSED];
    for (place, fd) in raw.iter_mut().zip(fds) {
        *place = fd.as_raw_fd();
    }
    let rights = [ControlMessage::ScmRights(&raw[..fds.len().min(MOST_PASSED)])];
    let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(queue.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None)?;
    Ok(())
}

/// Receives one message into `buffer`: its length, and its descriptors, close-on-exec.
///
/// Fails with WouldBlock when there is none; a length of 0 without descriptors means that all senders are gone. Fails
/// with EMFILE when this process could not take all descriptors: then the message is lost, and with it what no other
/// process has a copy of. Ask [`has_room`](crate::has_room) before.
pub fn receive_message(queue: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control { bytes: [0; CONTROL] };
    // SAFETY: all zeroes are a msghdr that points to nothing.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = CONTROL as _;
    // SAFETY: the header points to one slice and to so much memory for descriptors, which both outlive the call.
    let length = unsafe { libc::recvmsg(queue.as_raw_fd(), &raw mut header, FLAGS) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled the header in, and the memory that it points to is still there.
    let fds = unsafe { received(&header) };
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    for fd in &fds {
        nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    }
    if header.msg_flags & libc::MSG_CTRUNC != 0 {
        // Those that have come are closed: nix, which is not used here, would leave them open.
        return Err(crate::fd_limit::no_descriptor());
    }
    Ok((length, fds))
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
const FLAGS: i32 = libc::MSG_DONTWAIT;

// SAFETY: CMSG_SPACE only computes.
const CONTROL: usize = unsafe { libc::CMSG_SPACE((MOST_PASSED * size_of::<RawFd>()) as u32) } as usize;

/// Memory for one control message, aligned as its header has to be (cmsg(3)).
#[repr(C)]
union Control {
    bytes: [u8; CONTROL],
    _header: libc::cmsghdr,
}

/// The descriptors that came with a message.
///
/// # Safety
/// recvmsg(2) has filled the header in, and nobody has taken its descriptors yet.
unsafe fn received(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: as this function's; the macros of cmsg(3) stay within what the kernel has written.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(part) = message.as_ref() {
            if (part.cmsg_level, part.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let end = (&raw const *part).cast::<u8>().wrapping_add(part.cmsg_len as _);
                let size = end.addr() - libc::CMSG_DATA(part).addr();
                let first = libc::CMSG_DATA(part).cast::<RawFd>();
                // The kernel has just made these descriptors for this process, and nobody else has them.
                fds.extend(
                    (0..size / size_of::<RawFd>())
                        .map(|index| OwnedFd::from_raw_fd(first.add(index).read_unaligned())),
                );
            }
            message = libc::CMSG_NXTHDR(header, part);
        }
    }
    fds
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_connection_goes_on_where_it_was_passed_to() {
        let (sender, receiver) = message_queue().expect("a queue");
        let (mut client, server) = UnixStream::pair().expect("a pair");
        client.write_all(b"unread").expect("write");
        send_message(sender.as_fd(), b"first", &[server.as_fd()]).expect("send");
        send_message(sender.as_fd(), b"second", &[]).expect("send");
        drop(server);
        let mut buffer = [0; 16];
        let (length, mut fds) = receive_message(receiver.as_fd(), &mut buffer).expect("receive");
        assert_eq!(&buffer[..length], b"first");
        let mut server = UnixStream::from(fds.pop().expect("a descriptor"));
        let mut bytes = [0; 6];
        server.read_exact(&mut bytes).expect("read");
        assert_eq!(&bytes, b"unread");
        assert_eq!(receive_message(receiver.as_fd(), &mut buffer).expect("receive").0, 6);
        let none = receive_message(receiver.as_fd(), &mut buffer).expect_err("empty");
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_full_queue_would_block() {
        let (sender, _receiver) = message_queue().expect("a queue");
        let full = (0..100_000).find_map(|_| send_message(sender.as_fd(), &[0; 4096], &[]).err());
        assert_eq!(full.expect("an end").kind(), io::ErrorKind::WouldBlock);
    }
}
