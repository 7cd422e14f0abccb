//! Clocks that need no system call.

use nix::time::{clock_getres, clock_gettime, ClockId};

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

/// Milliseconds since 1970, as exact as the clock for seconds.
pub fn epoch_millis() -> u64 {
    clock_gettime(WALL).map_or(0, micros) / 1000
}

/// Microseconds since 1970, by the exact clock.
pub fn epoch_micros() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, micros)
}

/// Milliseconds on the monotonic clock, for deadlines.
pub fn monotonic_millis() -> u64 {
    let Ok(now) = clock_gettime(STEADY) else { return 0 };
    // Neither is ever negative; less than 10^9 nanoseconds fit into 32 bits.
    (now.tv_sec() as u64).wrapping_mul(1000).wrapping_add(u64::from(now.tv_nsec() as u32 / 1_000_000))
}

/// How far [`monotonic_millis`] goes on at a time, in milliseconds: at least 1. With most kernels of Linux it is 1 or 4.
pub fn tick_millis() -> u32 {
    clock_getres(STEADY).map_or(1, |tick| u32::try_from(micros(tick).div_ceil(1000)).unwrap_or(1).max(1))
}

/// Microseconds on the monotonic clock.
pub fn monotonic_micros() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, micros)
}

fn micros(time: nix::sys::time::TimeSpec) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
    seconds * 1_000_000 + nanos / 1000
}

#[cfg(test)]
#[cfg(any(target_os = "linux", target_os = "android"))]
mod tests {
    use super::*;
    use crate::patience::eventually;

    #[test]
    fn the_clock_for_deadlines_goes_on_by_a_tick() {
        let mut last = monotonic_millis();
        let mut step = || loop {
            let now = monotonic_millis();
            if now != last {
                return now - std::mem::replace(&mut last, now);
            }
        };
        let tick = u64::from(tick_millis());
        // The first is not a whole one.
        step();
        for _ in 0..19 {
            // Whoever has no processor misses some. Milliseconds are cut off.
            eventually(|| {
                Some(step()).filter(|millis| *millis <= tick).inspect(|it| assert!(it + 1 >= tick))
            });
        }
    }
}
