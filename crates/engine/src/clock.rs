//! The clocks of a worker: the system's, and one for tests.

use fastrack_sys::monotonic_micros;

pub(crate) trait Clock {
    /// The time of the monotonic clock, in microseconds.
    fn micros(&self) -> u64 {
        monotonic_micros()
    }
}

#[derive(Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {}

#[cfg(test)]
pub(crate) mod tests {
    use super::Clock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A clock that a test moves by hand.
    #[derive(Debug)]
    pub struct HandClock {
        micros: AtomicU64,
    }

    impl HandClock {
        /// Does not start at 0, because 0 means "no time" in several fields.
        pub fn new() -> Self {
            HandClock { micros: 7_000_000.into() }
        }

        /// Moves the clock forward by a number of microseconds.
        pub fn wait(&self, micros: u64) {
            self.micros.fetch_add(micros, Ordering::Relaxed);
        }
    }

    impl Clock for HandClock {
        fn micros(&self) -> u64 {
            self.micros.load(Ordering::Relaxed)
        }
    }
}
