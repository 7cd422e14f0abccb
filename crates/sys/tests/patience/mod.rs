//! How long tests wait. The tests of all crates include this file by `#[path]`.

// No crate uses all functions.
#![allow(dead_code)]

use std::time::{Duration, Instant};

/// The timeout of a wait, which matters only if a test fails: 20 s, times the environment variable TEST_PATIENCE.
pub fn patience() -> Duration {
    let factor = std::env::var("TEST_PATIENCE").map_or(1.0, |text| text.parse().expect("a number"));
    Duration::from_secs(20).mul_f64(factor)
}

/// Waits until `look` returns a value.
#[track_caller]
pub fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < patience(), "it takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until `is_so` is true.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    eventually(|| is_so().then_some(()));
}
