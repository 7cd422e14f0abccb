//! Polling by epoll(7).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::event::{Event, MAX_EVENTS};
use crate::wakeup::Timer;

const ENDED: EpollFlags = EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLHUP).union(EpollFlags::EPOLLERR);

/// The events of a connection: each arrival is reported once.
const INPUT: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLRDHUP).union(EpollFlags::EPOLLET);

#[derive(Debug)]
pub struct Events {
    list: [EpollEvent; MAX_EVENTS],
    filled: usize,
}

impl Events {
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.list[..self.filled]
            .iter()
            .map(|event| Event { token: event.data(), ended: event.events().intersects(ENDED) })
    }

    pub fn clear(&mut self) {
        self.filled = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }
}

impl Default for Events {
    fn default() -> Self {
        Events { list: [EpollEvent::empty(); MAX_EVENTS], filled: 0 }
    }
}

#[derive(Debug)]
pub struct Poller(Epoll);

impl Poller {
    pub fn new() -> io::Result<Self> {
        Ok(Poller(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        Ok(self.0.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token))?)
    }

    pub fn set_wanted(&self, fd: BorrowedFd<'_>, token: u64, wanted: bool) -> io::Result<()> {
        let flags = if wanted { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
        Ok(self.0.modify(fd, &mut EpollEvent::new(flags, token))?)
    }

    pub fn watch(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        Ok(self.0.add(fd, EpollEvent::new(INPUT, token))?)
    }

    pub fn watch_timer(&self, timer: &Timer, token: u64) -> io::Result<()> {
        self.watch(timer.as_fd(), token)
    }

    pub fn watch_output(&self, fd: BorrowedFd<'_>, token: u64, wanted: bool) -> io::Result<()> {
        let flags = if wanted { INPUT | EpollFlags::EPOLLOUT } else { INPUT };
        Ok(self.0.modify(fd, &mut EpollEvent::new(flags, token))?)
    }

    pub fn add_shared(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        Ok(self.0.add(fd, EpollEvent::new(flags, token))?)
    }

    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.0.delete(fd)?)
    }

    pub fn wait(&self, events: &mut Events, millis: Option<u64>) -> io::Result<()> {
        events.filled = 0;
        let timeout = match millis {
            None => EpollTimeout::NONE,
            // A shorter timeout is allowed, because callers wait again.
            Some(millis) => EpollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX)),
        };
        match self.0.wait(&mut events.list, timeout) {
            Ok(filled) => events.filled = filled,
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub fn raw_fd(&self) -> RawFd {
        self.0 .0.as_raw_fd()
    }

    pub fn raw_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        std::iter::once(self.raw_fd())
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0 .0.as_fd()
    }
}
