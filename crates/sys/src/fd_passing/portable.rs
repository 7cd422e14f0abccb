//! Message queues by datagrams: macOS has no SOCK_SEQPACKET for unix sockets, but its datagrams are also reliable and
//! ordered.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::{fcntl_setfd, FdFlags};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{socketpair, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The size of both buffers of a queue, in bytes. The default of macOS allows only messages up to 2 KiB
/// (net.local.dgram.maxdgram).
const BUFFER_SIZE: usize = 256 * 1024;

pub fn message_queue() -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::empty(), None)?;
    for fd in [&pair.0, &pair.1] {
        fcntl_setfd(fd, FdFlags::CLOEXEC)?;
        crate::fd::set_nonblocking(fd)?;
        set_socket_send_buffer_size(fd, BUFFER_SIZE)?;
        set_socket_recv_buffer_size(fd, BUFFER_SIZE)?;
    }
    Ok(pair)
}

pub const SEND: SendFlags = SendFlags::DONTWAIT;

pub const RECEIVE: RecvFlags = RecvFlags::DONTWAIT;
