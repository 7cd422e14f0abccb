//! Linux's flags.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::libc;
use rustix::event::PollFlags;
use rustix::net::{self, SendFlags, SocketAddrAny, SocketFlags};

pub fn accept(listener: BorrowedFd<'_>, tcp: bool) -> io::Result<(OwnedFd, Option<SocketAddrAny>)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    if !tcp {
        return Ok((net::accept_with(listener, flags)?, None));
    }
    Ok(net::acceptfrom_with(listener, flags)?)
}

/// From TCP_INFO (tcp(7)). None for a socket that is not TCP's.
pub fn millis_since_data(fd: BorrowedFd<'_>) -> Option<u64> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has room for them; any bytes are a valid tcp_info.
    let info = unsafe {
        let place = info.as_mut_ptr().cast();
        if libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut length) != 0 {
            return None;
        }
        info.assume_init()
    };
    Some(info.tcpi_last_data_recv.into())
}

/// No SIGPIPE.
pub const SEND: SendFlags = SendFlags::NOSIGNAL;

/// For bytes that others follow.
pub const MORE: SendFlags = SEND.union(SendFlags::MORE);

/// The peer sends nothing more.
pub const END: PollFlags = PollFlags::RDHUP;
