//! How long tests wait. All crates' tests have this file, by `#[path]`.

// None of them uses all of it.
#![allow(dead_code)]

use std::time::{Duration, Instant};

/// For what should come at once: matters only where a test fails. 20 s, times the environment variable TEST_PATIENCE.
pub fn patience() -> Duration {
    let factor = std::env::var("TEST_PATIENCE").map_or(1.0, |text| text.parse().expect("a number"));
    Duration::from_secs(20).mul_f64(factor)
}

/// Waits until `look` finds something.
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

/// Waits until it is so.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    eventually(|| is_so().then_some(()));
}
