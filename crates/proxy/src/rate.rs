//! How many clients a second may begin a TLS handshake, which costs a processor more than a hundred requests. HAProxy calls it maxsslrate.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// A bucket of a second's places, for all threads.
#[derive(Debug)]
pub struct Rate {
    began: Instant,
    /// When the bucket is full again, in nanoseconds after `began`.
    full_at: AtomicU64,
}

impl Rate {
    /// A full bucket.
    pub fn new() -> Self {
        Rate { began: Instant::now(), full_at: AtomicU64::new(0) }
    }

    /// Takes a place. Returns how long to wait for it.
    pub fn take(&self, per_second: u32) -> Duration {
        let now = self.began.elapsed().as_nanos() as u64;
        let after = |full_at: u64| full_at.max(now) + SECOND / u64::from(per_second.max(1));
        let before = self.full_at.fetch_update(Relaxed, Relaxed, |full_at| Some(after(full_at)));
        let full_at = after(before.unwrap_or_else(|unchanged| unchanged));
        Duration::from_nanos(full_at.saturating_sub(now + SECOND))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_has_its_places_at_once_and_then_one_after_the_other() {
        let rate = Rate::new();
        let ms = Duration::from_millis;
        let waits = || (0..3).map(|_| rate.take(4)).collect::<Vec<_>>();
        assert_eq!(waits(), [ms(0), ms(0), ms(0)]);
        assert_eq!(waits(), [ms(0), ms(250), ms(500)]);
        tokio::time::advance(ms(500)).await;
        assert_eq!(waits(), [ms(250), ms(500), ms(750)]);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(waits(), [ms(0), ms(0), ms(0)]);
    }
}
