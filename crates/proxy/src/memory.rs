//! Memory: what encoders and responses may take, and what goes back to the system.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::compress::Coding;
use crate::shares::{Part, Share, Shares};

/// Bytes that all encoders of the process may take.
const ENCODERS: usize = 16 * 1024 * 1024;

/// Bytes that an encoder takes at most, and for each byte of a short body.
const ENCODER: usize = 512 * 1024;
const BROTLI_ENCODER: usize = 1024 * 1024;
const GZIP_ENCODER: usize = 288 * 1024;
const LEAST_ENCODER: usize = 64 * 1024;
const PER_BYTE: u64 = 4;

/// Bytes of responses that may wait for clients of HTTP/2, beyond the first ones of each.
const RESPONSES: usize = 8 * 1024 * 1024;

/// Requests and clients that have left before memory goes back, and the time from one time to the next: it stops the other threads for
/// milliseconds.
const LEFT: usize = 64;
const TRIM_PAUSE: Duration = Duration::from_secs(10);

static ENCODER_SHARES: LazyLock<Arc<Shares>> = LazyLock::new(|| Shares::new(ENCODERS));
static RESPONSE_SHARES: LazyLock<Arc<Shares>> = LazyLock::new(|| Shares::new(RESPONSES));

/// Memory for the encoder of a body of this length; None: the client with this share holds too much of it, and the body stays as it is.
pub fn for_encoder(share: &Arc<Share>, coding: Coding, length: Option<u64>) -> Option<Part> {
    let most = match coding {
        Coding::Zstd => ENCODER,
        Coding::Brotli => BROTLI_ENCODER,
        Coding::Gzip => GZIP_ENCODER,
    };
    let needed = length.and_then(|length| usize::try_from(length.saturating_mul(PER_BYTE)).ok());
    let amount = needed.map_or(most, |needed| needed.saturating_add(LEAST_ENCODER).min(most));
    ENCODER_SHARES.try_take(share, amount)
}

/// Memory for so many more bytes of a response; None: the client with this share holds too much of it.
pub fn for_response(share: &Arc<Share>, amount: usize) -> Option<Part> {
    RESPONSE_SHARES.try_take(share, amount)
}

/// Gives free memory back to the system when load has gone: the allocator keeps it.
#[derive(Debug)]
pub struct Trim {
    peak: usize,
    last: Instant,
    /// Whether the last requests may have left a moment after the memory went back.
    again: bool,
}

impl Trim {
    /// Nothing to give back yet.
    pub fn new() -> Self {
        Trim { peak: 0, last: Instant::now(), again: false }
    }

    /// Looks at how many requests and clients there are, and were at most since the last look.
    pub fn look(&mut self, load: usize, most: usize) {
        let is_due = self.is_due(load, most);
        if is_due || self.again && self.last.elapsed() >= TRIM_PAUSE {
            fastrack_sys::trim_heap();
            *self = Trim { peak: load, last: Instant::now(), again: is_due };
        }
    }

    fn is_due(&mut self, load: usize, most: usize) -> bool {
        self.peak = self.peak.max(most).max(load);
        let left = self.peak - load;
        left >= LEFT && left >= self.peak / 2 && self.last.elapsed() >= TRIM_PAUSE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn memory_goes_back_when_half_of_the_load_has_gone() {
        let mut trim = Trim::new();
        tokio::time::advance(TRIM_PAUSE).await;
        assert!(!trim.is_due(1, 10));
        assert!(!trim.is_due(600, 1000));
        assert!(trim.is_due(500, 600));
        trim.look(500, 600);
        assert!(!trim.is_due(1, 500), "it has gone back a moment ago");
        tokio::time::advance(TRIM_PAUSE).await;
        assert!(trim.is_due(1, 1));
        trim.look(1, 1);
        assert!(trim.again);
        tokio::time::advance(TRIM_PAUSE).await;
        trim.look(1, 1);
        assert!(!trim.again, "what the last requests have left has gone back, too");
    }
}
