//! Clocks that need no system call.

use nix::time::{clock_gettime, ClockId};

// Linux updates the coarse clocks every tick (1 to 10 ms), which is exact enough for Date fields and timeouts.
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

/// Milliseconds since 1970, by the coarse clock.
pub fn epoch_millis() -> u64 {
    clock_gettime(WALL).map_or(0, micros) / 1000
}

/// Microseconds since 1970, by the exact clock.
pub fn epoch_micros() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, micros)
}

/// Milliseconds on the monotonic clock, by the coarse clock: for deadlines.
pub fn monotonic_millis() -> u64 {
    let Ok(now) = clock_gettime(STEADY) else { return 0 };
    // Both numbers are never negative, and less than 10^9 nanoseconds fit into 32 bits.
    (now.tv_sec() as u64).wrapping_mul(1000).wrapping_add(u64::from(now.tv_nsec() as u32 / 1_000_000))
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
    use nix::time::clock_getres;

    use super::*;
    use crate::patience::eventually;

    #[test]
    fn the_clock_for_deadlines_advances_by_a_tick() {
        let mut last = monotonic_millis();
        let mut step = || loop {
            let now = monotonic_millis();
            if now != last {
                return now - std::mem::replace(&mut last, now);
            }
        };
        // 1 or 4 ms with most kernels.
        let tick = micros(clock_getres(STEADY).expect("a clock")).div_ceil(1000).max(1);
        // The first step is shorter than a tick.
        step();
        for _ in 0..19 {
            // A thread without a processor misses ticks, and milliseconds are rounded down.
            eventually(|| {
                Some(step()).filter(|millis| *millis <= tick).inspect(|it| assert!(it + 1 >= tick))
            });
        }
    }
}
