//! Linux's flags.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::net::{self, SendFlags, SocketAddrAny, SocketFlags};

pub fn accept(listener: BorrowedFd<'_>, tcp: bool) -> io::Result<(OwnedFd, Option<SocketAddrAny>)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    if !tcp {
        return Ok((net::accept_with(listener, flags)?, None));
    }
    Ok(net::acceptfrom_with(listener, flags)?)
}

/// No SIGPIPE.
pub const SEND: SendFlags = SendFlags::NOSIGNAL;

/// For bytes that others follow.
pub const MORE: SendFlags = SEND.union(SendFlags::MORE);

/// The peer sends nothing more.
pub const END: PollFlags = PollFlags::RDHUP;
