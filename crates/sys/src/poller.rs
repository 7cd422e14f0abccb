//! Waiting for many descriptors: epoll(7).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token that it was added with.
    pub token: u64,
    /// The peer has sent the end of its stream, or is gone. There may still be input.
    pub ended: bool,
}

const ENDED: EpollFlags = EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLHUP).union(EpollFlags::EPOLLERR);

/// For connections: reports each arrival once.
const INPUT: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLRDHUP).union(EpollFlags::EPOLLET);

/// Room for the events of one wait.
#[derive(Debug)]
pub struct Events {
    list: [EpollEvent; Events::MOST],
    filled: usize,
}

impl Events {
    const MOST: usize = 64;

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.list[..self.filled]
            .iter()
            .map(|event| Event { token: event.data(), ended: event.events().intersects(ENDED) })
    }

    /// Forgets the events of the last wait.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// Whether the last wait returned none.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }
}

impl Default for Events {
    fn default() -> Self {
        Events { list: [EpollEvent::empty(); Events::MOST], filled: 0 }
    }
}

/// An epoll set.
#[derive(Debug)]
pub struct Poller(Epoll);

impl Poller {
    /// An empty set, close-on-exec.
    pub fn new() -> io::Result<Self> {
        Ok(Poller(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Reports `fd` as long as it is readable (level-triggered).
    pub fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(self.0.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token))?)
    }

    /// Turns the reports of a descriptor on or off that was added by [`add`](Self::add).
    pub fn set_wanted(&self, fd: impl AsFd, token: u64, wanted: bool) -> io::Result<()> {
        let flags = if wanted { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
        Ok(self.0.modify(fd, &mut EpollEvent::new(flags, token))?)
    }

    /// Reports each arrival on `fd` once (edge-triggered), and input that is already there. So a connection can stay in
    /// the set while it is served, without further system calls.
    pub fn watch(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(self.0.add(fd, EpollEvent::new(INPUT, token))?)
    }

    /// Turns reports of writability on or off for a descriptor that is watched.
    pub fn watch_output(&self, fd: impl AsFd, token: u64, wanted: bool) -> io::Result<()> {
        let flags = if wanted { INPUT | EpollFlags::EPOLLOUT } else { INPUT };
        Ok(self.0.modify(fd, &mut EpollEvent::new(flags, token))?)
    }

    /// Adds a descriptor that other processes wait for, too. The kernel wakes one or a few of them instead of all
    /// (EPOLLEXCLUSIVE).
    pub fn add_shared(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        Ok(self.0.add(fd, EpollEvent::new(flags, token))?)
    }

    /// Removes `fd`. Needed before close if a forked child may have a copy: the kernel removes a descriptor only when
    /// the last copy is closed (epoll(7)).
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(self.0.delete(fd)?)
    }

    /// Waits for events for up to `millis` milliseconds, or without a limit. A signal ends the wait without events.
    pub fn wait(&self, events: &mut Events, millis: Option<u64>) -> io::Result<()> {
        events.filled = 0;
        let timeout = match millis {
            None => EpollTimeout::NONE,
            // Callers wait again after a shorter time.
            Some(millis) => EpollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX)),
        };
        match self.0.wait(&mut events.list, timeout) {
            Ok(filled) => events.filled = filled,
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The descriptor of the set itself.
    pub fn raw_fd(&self) -> RawFd {
        self.0 .0.as_raw_fd()
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0 .0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_readable_descriptor_is_reported_until_it_is_removed() {
        let (mut near, far) = UnixStream::pair().expect("socketpair");
        let poller = Poller::new().expect("epoll");
        let mut events = Events::default();
        poller.add(&far, 7).expect("add");
        poller.wait(&mut events, Some(0)).expect("wait");
        assert_eq!(events.iter().count(), 0);
        near.write_all(b"x").expect("write");
        for _ in 0..2 {
            poller.wait(&mut events, None).expect("wait");
            assert_eq!(events.iter().collect::<Vec<_>>(), [Event { token: 7, ended: false }]);
        }
        for wanted in [false, true] {
            poller.set_wanted(&far, 7, wanted).expect("modify");
            poller.wait(&mut events, Some(0)).expect("wait");
            assert_eq!(!events.is_empty(), wanted);
        }
        poller.remove(&far).expect("remove");
        poller.wait(&mut events, Some(0)).expect("wait");
        assert_eq!(events.iter().count(), 0);
    }

    #[test]
    fn a_watched_descriptor_is_reported_once_for_each_arrival() {
        let (mut near, far) = UnixStream::pair().expect("socketpair");
        let poller = Poller::new().expect("epoll");
        let mut events = Events::default();
        let mut reported = || {
            poller.wait(&mut events, Some(0)).expect("wait");
            events.iter().collect::<Vec<_>>()
        };
        near.write_all(b"x").expect("write");
        poller.watch(&far, 7).expect("watch");
        assert_eq!(reported(), [Event { token: 7, ended: false }]);
        assert_eq!(reported(), []);
        near.write_all(b"y").expect("write");
        assert_eq!(reported(), [Event { token: 7, ended: false }]);
        poller.watch_output(&far, 7, true).expect("output");
        assert_eq!(reported(), [Event { token: 7, ended: false }]);
        poller.watch_output(&far, 7, false).expect("no output");
        drop(near);
        assert_eq!(reported(), [Event { token: 7, ended: true }]);
        assert_eq!(reported(), []);
    }
}
