//! Connections that the kernel could not watch (ENOMEM, ENOSPC: epoll_ctl(2)). They stay parked, and the kernel is asked again.

use std::io;

use fastrack_sys::monotonic_millis;

use crate::settings::SHORTAGE_PAUSE;

#[derive(Debug, Default)]
pub(super) struct WatchRetry {
    keys: Vec<usize>,
    /// The time of the next try, in milliseconds of the monotonic clock.
    next_try: u64,
    /// The reason why the last connection could not be watched, until the reason is logged.
    error: Option<io::Error>,
}

impl WatchRetry {
    pub fn add(&mut self, key: usize, error: io::Error) {
        self.add_again(key);
        self.error = Some(error);
    }

    /// Another try for this connection has failed.
    pub fn add_again(&mut self, key: usize) {
        self.keys.push(key);
        self.next_try = monotonic_millis() + SHORTAGE_PAUSE;
    }

    /// Takes the keys of the connections to try again now.
    pub fn take_due(&mut self) -> Vec<usize> {
        if self.keys.is_empty() || monotonic_millis() < self.next_try {
            return Vec::new();
        }
        std::mem::take(&mut self.keys)
    }

    /// The time of the next try, in milliseconds of the monotonic clock; None if all connections are watched.
    pub fn next_try(&self) -> Option<u64> {
        (!self.keys.is_empty()).then_some(self.next_try)
    }

    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }
}
