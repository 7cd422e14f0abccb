//! What BSD's sockets have.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::event::PollFlags;
use rustix::io::{fcntl_setfd, FdFlags};
use rustix::net::{self, SendFlags, SocketAddrAny};

/// The mode comes a moment later.
pub fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Between the calls, a fork of another thread's can inherit the descriptor.
pub fn accept(listener: BorrowedFd<'_>, _tcp: bool) -> io::Result<(OwnedFd, Option<SocketAddrAny>)> {
    let (fd, peer) = net::acceptfrom(listener)?;
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    crate::fd::set_nonblocking(&fd)?;
    // It fails if the client is gone already.
    #[cfg(target_vendor = "apple")]
    let _ = net::sockopt::set_socket_nosigpipe(&fd, true);
    Ok((fd, peer))
}

/// Nobody tells.
pub fn millis_since_data(_fd: BorrowedFd<'_>) -> Option<u64> {
    None
}

/// The socket raises no SIGPIPE where it was told so; elsewhere Ruby has a handler for it.
pub const SEND: SendFlags = SendFlags::empty();

pub const MORE: SendFlags = SEND;

/// The peer sends nothing more: macOS' poll(2) says POLLHUP then.
#[cfg(not(target_os = "linux"))]
pub const END: PollFlags = PollFlags::HUP;
#[cfg(target_os = "linux")]
pub const END: PollFlags = PollFlags::RDHUP;
