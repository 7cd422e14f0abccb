//! Calls and flags of Linux.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::libc;
use rustix::event::PollFlags;
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType};

/// The highest backlog: the kernel limits it to net.core.somaxconn.
const MAX_BACKLOG: i32 = i32::MAX;

/// bind(2) gives the file the mode of the socket without the umask (`unix_bind_bsd` in the kernel; not in unix(7)).
pub fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let socket = File::from(socket);
    socket.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, MAX_BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

pub fn accept(listener: BorrowedFd<'_>, tcp: bool) -> io::Result<(OwnedFd, Option<SocketAddrAny>)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    if !tcp {
        return Ok((net::accept_with(listener, flags)?, None));
    }
    Ok(net::acceptfrom_with(listener, flags)?)
}

/// From TCP_INFO (tcp(7)); None for other sockets.
pub fn millis_since_data(fd: BorrowedFd<'_>) -> Option<u64> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `info`, and any bytes are a valid tcp_info.
    let info = unsafe {
        let place = info.as_mut_ptr().cast();
        if libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut length) != 0 {
            return None;
        }
        info.assume_init()
    };
    Some(info.tcpi_last_data_recv.into())
}

/// SIOCOUTQ (tcp(7)), which has the number of TIOCOUTQ.
pub fn unacknowledged(fd: BorrowedFd<'_>) -> Option<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int, and `bytes` is one that outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    (result == 0).then(|| u32::try_from(bytes).ok()).flatten()
}

/// Flags of a send without SIGPIPE.
pub const SEND: SendFlags = SendFlags::NOSIGNAL;

/// Flags of a send with more bytes to follow.
pub const MORE: SendFlags = SEND.union(SendFlags::MORE);

/// The event for the end of the peer's stream.
pub const END: PollFlags = PollFlags::RDHUP;
