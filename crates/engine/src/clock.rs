//! The clocks by which a worker decides. Tests have one that they set by hand.

use fastrack_sys::monotonic_micros;

pub(crate) trait Clock {
    /// What time it is, in microseconds.
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

    /// Stands still until it is set on.
    #[derive(Debug)]
    pub struct HandClock {
        micros: AtomicU64,
    }

    impl HandClock {
        /// Another time than 0, which stands for none here and there.
        pub fn new() -> Self {
            HandClock { micros: 7_000_000.into() }
        }

        /// So much time goes by, in microseconds.
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
