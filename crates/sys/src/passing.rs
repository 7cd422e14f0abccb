//! Descriptors that one process passes to another over a unix socket (unix(7), SCM_RIGHTS).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{
    recvmsg, sendmsg, socketpair, AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag,
    SockType,
};

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
/// Fails with WouldBlock when there is none; a length of 0 without descriptors
/// means that all senders are gone.
pub fn receive_message(queue: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = nix::cmsg_space!([RawFd; MOST_PASSED]);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(queue.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just made these descriptors for this process, and nobody else has them.
            fds.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok((message.bytes, fds))
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
