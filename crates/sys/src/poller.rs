//! Waits for many descriptors: epoll(7), or kqueue(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use crate::wakeup::Timer;

mod event;
pub use event::Event;

#[cfg(not(portable))]
mod linux;
#[cfg(not(portable))]
use linux as backend;

#[cfg(portable)]
mod portable;
#[cfg(portable)]
use portable as backend;

/// Room for the events of one wait.
#[derive(Debug, Default)]
pub struct Events(backend::Events);

impl Events {
    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.0.iter()
    }

    /// Forgets the events of the last wait.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the last wait returned no event.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A set of descriptors to wait for. Only one thread may wait at a time; other threads may change the set during a
/// wait.
#[derive(Debug)]
pub struct Poller(backend::Poller);

impl Poller {
    /// Whether a forked child inherits the set. A set of kqueue(2) is not inherited, and its number may be another file
    /// in the child.
    pub const IS_INHERITED: bool = cfg!(target_os = "linux");

    /// Whether a set can have more than one [timer](Self::watch_timer).
    pub const TAKES_TIMERS: bool = cfg!(not(portable));

    /// Makes an empty set, close-on-exec.
    pub fn new() -> io::Result<Self> {
        Ok(Poller(backend::Poller::new()?))
    }

    /// Reports `fd` as long as it is readable (level-triggered).
    pub fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        self.0.add(fd.as_fd(), token)
    }

    /// Turns the reports of a descriptor from [`add`](Self::add) on or off.
    pub fn set_wanted(&self, fd: impl AsFd, token: u64, wanted: bool) -> io::Result<()> {
        self.0.set_wanted(fd.as_fd(), token, wanted)
    }

    /// Reports each arrival on `fd` once (edge-triggered), and input that has already arrived. So a connection can stay
    /// in the set while it is served, without further system calls.
    pub fn watch(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        self.0.watch(fd.as_fd(), token)
    }

    /// Reports when a timer expires. A timer can be in only one set, and a set can have one timer unless
    /// [`TAKES_TIMERS`](Self::TAKES_TIMERS).
    pub fn watch_timer(&self, timer: &Timer, token: u64) -> io::Result<()> {
        self.0.watch_timer(timer, token)
    }

    /// Turns reports of writability on or off for a descriptor that is watched.
    pub fn watch_output(&self, fd: impl AsFd, token: u64, wanted: bool) -> io::Result<()> {
        self.0.watch_output(fd.as_fd(), token, wanted)
    }

    /// Adds a descriptor that other processes wait for too. On Linux the kernel wakes one or a few of the processes
    /// instead of all (EPOLLEXCLUSIVE).
    pub fn add_shared(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        self.0.add_shared(fd.as_fd(), token)
    }

    /// Removes `fd`. Needed before a close if a forked child may have a copy: the kernel removes a descriptor only with
    /// its last copy (epoll(7)).
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        self.0.remove(fd.as_fd())
    }

    /// Waits for events for up to `millis` milliseconds, or without a limit. A signal ends the wait without events.
    pub fn wait(&self, events: &mut Events, millis: Option<u64>) -> io::Result<()> {
        self.0.wait(&mut events.0, millis)
    }

    /// The descriptor of the set itself, which is readable while there are events.
    pub fn raw_fd(&self) -> RawFd {
        self.0.raw_fd()
    }

    /// All descriptors that a forked child inherits.
    pub fn inherited_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        self.0.raw_fds().filter(|_| Self::IS_INHERITED)
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::is_readable;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_readable_descriptor_is_reported_until_it_is_removed() {
        let (mut near, far) = UnixStream::pair().expect("socketpair");
        let poller = Poller::new().expect("a poller");
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
        let poller = Poller::new().expect("a poller");
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

    #[test]
    fn a_set_is_readable_while_a_descriptor_in_it_is_however_often_that_was_reported() {
        let (mut near, far) = UnixStream::pair().expect("socketpair");
        let (inner, outer) = (Poller::new().expect("a poller"), Poller::new().expect("a poller"));
        let mut events = Events::default();
        inner.add(&far, 7).expect("add");
        outer.add(&inner, 8).expect("add");
        assert!(!is_readable(inner.as_fd()));
        near.write_all(b"x").expect("write");
        for _ in 0..2 {
            inner.wait(&mut events, Some(0)).expect("wait");
            assert!(!events.is_empty() && is_readable(inner.as_fd()));
            outer.wait(&mut events, Some(0)).expect("wait");
            assert_eq!(events.iter().collect::<Vec<_>>(), [Event { token: 8, ended: false }]);
        }
        (&far).read_exact(&mut [0]).expect("read");
        assert!(!is_readable(inner.as_fd()));
        outer.wait(&mut events, Some(0)).expect("wait");
        assert!(events.is_empty());
    }

    #[test]
    fn a_set_can_be_changed_while_a_thread_waits() {
        let (mut near, far) = UnixStream::pair().expect("socketpair");
        let poller = Poller::new().expect("a poller");
        near.write_all(b"x").expect("write");
        poller.add(&far, 7).expect("add");
        poller.set_wanted(&far, 7, false).expect("unwanted");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut events = Events::default();
                while events.is_empty() {
                    poller.wait(&mut events, Some(10_000)).expect("wait");
                }
                events.iter().map(|event| event.token).collect::<Vec<_>>()
            });
            poller.set_wanted(&far, 7, true).expect("wanted");
            assert_eq!(waiting.join().expect("no panic"), [7]);
        });
    }
}
