//! Timers by timerfd_create(2), wakers by eventfd(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};

/// A timer, for [`Poller::watch_timer`](crate::Poller::watch_timer).
#[derive(Debug)]
pub struct Timer(TimerFd);

impl Timer {
    /// Makes a stopped timer, close-on-exec.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Timer(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?))
    }

    /// Lets the timer expire once, `time` from now.
    pub fn set(&self, time: Duration) -> io::Result<()> {
        let once = Expiration::OneShot(TimeSpec::from_duration(time));
        Ok(self.0.set(once, TimerSetTimeFlags::empty())?)
    }

    /// Stops the timer.
    pub fn stop(&self) -> io::Result<()> {
        Ok(self.0.unset()?)
    }

    /// Its descriptors.
    pub fn raw_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        std::iter::once(self.0.as_fd().as_raw_fd())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wakes a poller from another thread. The descriptor is never read, so watch it edge-triggered.
#[derive(Debug)]
pub struct Waker(EventFd);

impl Waker {
    /// Makes a waker, close-on-exec.
    pub fn new() -> io::Result<Self> {
        Ok(Waker(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    /// Wakes the poller, with one system call. Async-signal-safe.
    pub fn call(&self) {
        // This fails only if the counter is full, and then the descriptor is readable already.
        let _ = self.0.write(1);
    }

    /// Its descriptors.
    pub fn raw_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        std::iter::once(self.0.as_fd().as_raw_fd())
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
