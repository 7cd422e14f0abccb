//! What wakes a thread from [`Poller::wait`](crate::Poller::wait): a timer, or another thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};

/// A timer (timerfd_create(2)). It is readable from when it expires until it is set again.
#[derive(Debug)]
pub struct Timer(TimerFd);

impl Timer {
    /// A stopped timer, close-on-exec.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Timer(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?))
    }

    /// Lets it expire once, `time` from now.
    pub fn set(&self, time: Duration) -> io::Result<()> {
        let once = Expiration::OneShot(TimeSpec::from_duration(time));
        Ok(self.0.set(once, TimerSetTimeFlags::empty())?)
    }

    /// Stops it.
    pub fn stop(&self) -> io::Result<()> {
        Ok(self.0.unset()?)
    }

    /// The descriptor.
    pub fn raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wakes a poller from another thread (eventfd(2)). Nobody reads the descriptor: watch it edge-triggered.
#[derive(Debug)]
pub struct Waker(EventFd);

impl Waker {
    /// A new one, close-on-exec.
    pub fn new() -> io::Result<Self> {
        Ok(Waker(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    /// Wakes the poller, with one system call. Async-signal-safe.
    pub fn call(&self) {
        // It fails only if the counter is full, and then it is readable already.
        let _ = self.0.write(1);
    }

    /// The descriptor.
    pub fn raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Events, Poller};
    use std::time::Instant;

    #[test]
    fn a_timer_goes_off_once_when_its_time_has_come_and_not_when_it_was_stopped() {
        let (poller, timer) = (Poller::new().expect("epoll"), Timer::new().expect("timerfd"));
        poller.watch(&timer, 1).expect("watch");
        let mut events = Events::default();
        for _ in 0..2 {
            let start = Instant::now();
            timer.set(Duration::from_millis(20)).expect("set");
            poller.wait(&mut events, Some(10_000)).expect("wait");
            assert!(!events.is_empty() && start.elapsed() >= Duration::from_millis(20));
            poller.wait(&mut events, Some(0)).expect("wait");
            assert!(events.is_empty());
        }
        timer.set(Duration::from_millis(1)).expect("set");
        timer.stop().expect("stop");
        poller.wait(&mut events, Some(20)).expect("wait");
        assert!(events.is_empty());
    }

    #[test]
    fn a_waker_that_was_called_wakes_once_be_it_before_the_wait() {
        let (poller, waker) = (Poller::new().expect("epoll"), Waker::new().expect("eventfd"));
        poller.watch(&waker, 1).expect("watch");
        let mut events = Events::default();
        for calls in [0, 1, 0, 2, 0] {
            (0..calls).for_each(|_| waker.call());
            poller.wait(&mut events, Some(0)).expect("wait");
            assert_eq!(events.iter().count(), calls.min(1));
        }
    }
}
