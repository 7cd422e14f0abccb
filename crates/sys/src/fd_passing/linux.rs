//! Message queues by SOCK_SEQPACKET.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{socketpair, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

pub fn message_queue() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

pub const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

pub const RECEIVE: RecvFlags = RecvFlags::DONTWAIT.union(RecvFlags::CMSG_CLOEXEC);
