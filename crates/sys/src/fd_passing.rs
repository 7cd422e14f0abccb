//! Passes descriptors to other processes over a unix socket (unix(7), SCM_RIGHTS).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    recv, recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage,
};

#[cfg(not(portable))]
mod linux;
#[cfg(not(portable))]
use linux as backend;

#[cfg(portable)]
mod portable;
#[cfg(portable)]
use portable as backend;

/// The highest number of descriptors in one message.
pub const MAX_PASSED_FDS: usize = 3;

/// The highest number of descriptors that the kernel takes at once (SCM_MAX_FD).
const MOST_FDS: usize = 253;

/// Makes a message queue: its sender and its receiver. Messages arrive whole and in order, each at one of the reading
/// processes. Both ends are non-blocking and close-on-exec.
pub fn message_queue() -> io::Result<(OwnedFd, OwnedFd)> {
    backend::message_queue()
}

/// Sends one message with at most [`MAX_PASSED_FDS`] descriptors. The receiver gets copies.
///
/// Fails with WouldBlock if the queue is full, and with ETOOMANYREFS if too many descriptors are in flight.
pub fn send_message(queue: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_PASSED_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    match sendmsg(queue, &[IoSlice::new(bytes)], &mut control, backend::SEND) {
        // The error of macOS for a full queue.
        Err(Errno::NOBUFS) => Err(io::ErrorKind::WouldBlock.into()),
        result => Ok(result.map(drop)?),
    }
}

/// Receives one message into `buffer`. Returns its length, and its descriptors, close-on-exec.
///
/// Fails with WouldBlock if the queue is empty. A length of 0 without descriptors means that all senders are closed, on
/// systems that report it. Fails with EMFILE if this process has no room for all descriptors, and loses the message and
/// its descriptors: check [`has_free_fds`](crate::has_free_fds) first.
pub fn receive_message(queue: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_PASSED_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(queue, &mut [IoSliceMut::new(buffer)], &mut control, backend::RECEIVE)?;
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // Dropping the buffer closes the descriptors that have arrived.
        return Err(crate::fd_limit::too_many_open_files());
    }
    Ok((received.bytes, rights(&mut control)?))
}

/// Reads bytes of a stream, and waits for them. Returns their number, and the descriptors that came with them, close-on-exec. The kernel
/// leaves those out for which this process has no room. 0 bytes: the stream has ended.
pub fn receive_bytes(stream: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = backend::RECEIVE.difference(RecvFlags::DONTWAIT);
    let received = loop {
        match recvmsg(stream, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Err(Errno::INTR) => {}
            result => break result?,
        }
    };
    Ok((received.bytes, rights(&mut control)?))
}

/// Whether the descriptor is no socket.
pub fn is_no_socket(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOTSOCK.raw_os_error())
}

fn rights(control: &mut RecvAncillaryBuffer<'_>) -> io::Result<Vec<OwnedFd>> {
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds: Vec<OwnedFd> = rights.flatten().collect();
    #[cfg(portable)]
    fds.iter().try_for_each(|fd| rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC))?;
    Ok(fds)
}

/// Copies the start of the next message into `buffer`, and leaves the message in the queue. Returns the number of
/// bytes.
///
/// Fails with WouldBlock if the queue is empty.
pub fn peek_message(queue: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // Without room for descriptors the kernel makes no copies of them.
    let (peeked, _) = recv(queue, buffer, RecvFlags::DONTWAIT | RecvFlags::PEEK)?;
    Ok(peeked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_passed_connection_works_at_the_receiver() {
        let (sender, receiver) = message_queue().expect("a queue");
        let (mut client, server) = UnixStream::pair().expect("a pair");
        client.write_all(b"unread").expect("write");
        send_message(sender.as_fd(), b"first", &[server.as_fd()]).expect("send");
        send_message(sender.as_fd(), b"second", &[]).expect("send");
        drop(server);
        let mut buffer = [0; 16];
        assert_eq!(peek_message(receiver.as_fd(), &mut buffer[..3]).expect("peek"), 3);
        assert_eq!(&buffer[..3], b"fir");
        let (length, mut fds) = receive_message(receiver.as_fd(), &mut buffer).expect("receive");
        assert_eq!(&buffer[..length], b"first");
        let mut server = UnixStream::from(fds.pop().expect("a descriptor"));
        let mut bytes = [0; 6];
        server.read_exact(&mut bytes).expect("read");
        assert_eq!(&bytes, b"unread");
        assert_eq!(receive_message(receiver.as_fd(), &mut buffer).expect("receive").0, 6);
        for none in [
            peek_message(receiver.as_fd(), &mut buffer).map(drop),
            receive_message(receiver.as_fd(), &mut buffer).map(drop),
        ] {
            assert_eq!(none.expect_err("empty").kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn a_full_queue_would_block() {
        let (sender, _receiver) = message_queue().expect("a queue");
        let full = (0..100_000).find_map(|_| send_message(sender.as_fd(), &[0; 4096], &[]).err());
        assert_eq!(full.expect("an end").kind(), io::ErrorKind::WouldBlock);
    }
}
