//! Wakers by a pair of sockets, and a timer that the poller keeps.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::socket::{discard_input, send};

/// A timer, for [`Poller::watch_timer`](crate::Poller::watch_timer).
#[derive(Debug)]
pub struct Timer(Arc<Alarm>);

impl Timer {
    /// Makes a stopped timer.
    pub fn new() -> io::Result<Self> {
        Ok(Timer(Arc::new(Alarm {
            start: Instant::now(),
            due: AtomicU64::new(NEVER),
            sleeps_until: AtomicU64::new(AWAKE),
            waker: Waker::new()?,
        })))
    }

    /// Lets the timer expire once, `time` from now.
    pub fn set(&self, time: Duration) -> io::Result<()> {
        self.0.set(time);
        Ok(())
    }

    /// Stops the timer.
    pub fn stop(&self) -> io::Result<()> {
        self.0.due.store(NEVER, Ordering::SeqCst);
        Ok(())
    }

    /// Its descriptors.
    pub fn raw_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        self.0.waker.raw_fds()
    }

    pub(crate) fn alarm(&self) -> &Arc<Alarm> {
        &self.0
    }
}

/// No time. Times are nanoseconds from `start`.
const NEVER: u64 = u64::MAX;

/// No thread sleeps: a thread that is about to sleep reads `due` first.
const AWAKE: u64 = 0;

/// The state that a timer shares with its poller: the time at which the timer expires, and the time at which the
/// sleeping thread will wake up.
///
/// The setter stores the first time and then reads the second; the sleeper stores the second and then reads the first.
/// So either the sleeper sees the new time, or the setter wakes it.
#[derive(Debug)]
pub(crate) struct Alarm {
    start: Instant,
    due: AtomicU64,
    sleeps_until: AtomicU64,
    waker: Waker,
}

impl Alarm {
    fn set(&self, time: Duration) {
        let due = self.nanos(Instant::now() + time);
        self.due.store(due, Ordering::SeqCst);
        if due < self.sleeps_until.load(Ordering::SeqCst) {
            self.waker.call();
        }
    }

    /// How long to sleep, at most until `end`; None for no limit.
    pub fn sleep_until(&self, end: Option<Instant>) -> Option<Duration> {
        let end = end.map_or(NEVER, |end| self.nanos(end));
        loop {
            let until = end.min(self.due.load(Ordering::SeqCst));
            self.sleeps_until.store(until, Ordering::SeqCst);
            if until <= self.due.load(Ordering::SeqCst) {
                let left = until.saturating_sub(self.nanos(Instant::now()));
                return (until != NEVER).then_some(Duration::from_nanos(left));
            }
        }
    }

    /// Called after the wait. Returns whether the timer has expired, once for each time that it was set.
    pub fn wake_up(&self) -> bool {
        self.sleeps_until.store(AWAKE, Ordering::SeqCst);
        let due = self.due.load(Ordering::SeqCst);
        due <= self.nanos(Instant::now())
            && self.due.compare_exchange(due, NEVER, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn nanos(&self, time: Instant) -> u64 {
        u64::try_from(time.saturating_duration_since(self.start).as_nanos()).unwrap_or(NEVER).min(NEVER - 1)
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

/// Wakes a poller from another thread. The descriptor is never read, so watch it edge-triggered.
#[derive(Debug)]
pub struct Waker {
    sender: UnixStream,
    receiver: UnixStream,
}

impl Waker {
    /// Makes a waker, close-on-exec.
    pub fn new() -> io::Result<Self> {
        let (sender, receiver) = UnixStream::pair()?;
        sender.set_nonblocking(true)?;
        Ok(Waker { sender, receiver })
    }

    /// Wakes the poller. Async-signal-safe.
    pub fn call(&self) {
        while send(self.sender.as_fd(), &[0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            // The socket is full. Another thread that reads at the same time makes room as well.
            let _ = discard_input(self.receiver.as_fd());
        }
    }

    /// Its descriptors.
    pub fn raw_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        [self.sender.as_raw_fd(), self.receiver.as_raw_fd()].into_iter()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}
