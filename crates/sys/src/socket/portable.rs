//! Calls and flags of BSD sockets.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::event::PollFlags;
use rustix::io::{fcntl_setfd, FdFlags};
use rustix::net::{self, SendFlags, SocketAddrAny};

/// The mode is set a moment after bind(2).
pub fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A fork of another thread between these calls inherits the descriptor.
pub fn accept(listener: BorrowedFd<'_>, _tcp: bool) -> io::Result<(OwnedFd, Option<SocketAddrAny>)> {
    let (fd, peer) = net::acceptfrom(listener)?;
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    crate::fd::set_nonblocking(&fd)?;
    // This fails if the client is gone already.
    #[cfg(target_vendor = "apple")]
    let _ = net::sockopt::set_socket_nosigpipe(&fd, true);
    Ok((fd, peer))
}

/// Not reported by these systems.
pub fn millis_since_data(_fd: BorrowedFd<'_>) -> Option<u64> {
    None
}

/// Not reported by these systems in the same way.
pub fn unacknowledged(_fd: BorrowedFd<'_>) -> Option<u32> {
    None
}

/// No flag against SIGPIPE: macOS has an option of the socket, elsewhere Ruby handles the signal.
pub const SEND: SendFlags = SendFlags::empty();

pub const MORE: SendFlags = SEND;

/// The event for the end of the peer's stream: POLLHUP on macOS.
#[cfg(not(target_os = "linux"))]
pub const END: PollFlags = PollFlags::HUP;
#[cfg(target_os = "linux")]
pub const END: PollFlags = PollFlags::RDHUP;
