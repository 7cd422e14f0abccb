//! Clocks that need no system call.

use nix::time::{clock_gettime, ClockId};

// Linux updates the coarse clocks every tick (1 to 10 ms). That is exact enough for a Date and for timeouts.
#[cfg(not(portable))]
const WALL: ClockId = ClockId::CLOCK_REALTIME_COARSE;
#[cfg(not(portable))]
const STEADY: ClockId = ClockId::CLOCK_MONOTONIC_COARSE;
#[cfg(portable)]
const WALL: ClockId = ClockId::CLOCK_REALTIME;
#[cfg(portable)]
const STEADY: ClockId = ClockId::CLOCK_MONOTONIC;

/// Seconds since 1970; 0 if the clock is set before then.
pub fn epoch_seconds() -> u64 {
    clock_gettime(WALL).ok().and_then(|now| u64::try_from(now.tv_sec()).ok()).unwrap_or(0)
}

/// Milliseconds on the monotonic clock, for deadlines.
pub fn monotonic_millis() -> u64 {
    let Ok(now) = clock_gettime(STEADY) else { return 0 };
    let seconds = u64::try_from(now.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec()).unwrap_or(0);
    seconds * 1000 + nanos / 1_000_000
}
