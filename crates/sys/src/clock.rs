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

/// The time that all threads of this process have computed, in microseconds.
pub fn process_cpu_micros() -> u64 {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(0, micros)
}

/// The time that this thread has computed, in microseconds.
pub fn thread_cpu_micros() -> u64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(0, micros)
}

fn micros(time: nix::sys::time::TimeSpec) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
    seconds * 1_000_000 + nanos / 1000
}

/// Another thread of this process: its CPU clock, and its id.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock {
    clock: nix::libc::clockid_t,
    id: u32,
}

/// This thread's CPU clock, for other threads; None where there is none.
pub fn thread_clock() -> Option<ThreadClock> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let mut clock = 0;
        // SAFETY: it writes one number to the address, which is that of `clock`, and this thread exists.
        let result = unsafe { nix::libc::pthread_getcpuclockid(nix::libc::pthread_self(), &raw mut clock) };
        let id = u32::try_from(nix::unistd::gettid().as_raw()).ok()?;
        (result == 0).then_some(ThreadClock { clock, id })
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    None
}

// macOS has clocks of type u32.
#[allow(clippy::unnecessary_cast)]
impl ThreadClock {
    /// As a number other than 0.
    pub fn number(self) -> u64 {
        u64::from(self.id) << 32 | u64::from(self.clock as u32)
    }

    /// The clock with that number; None for 0.
    pub fn of_number(number: u64) -> Option<Self> {
        (number != 0).then_some(ThreadClock {
            clock: number as u32 as nix::libc::clockid_t,
            id: (number >> 32) as u32,
        })
    }

    /// Whether the thread would compute now if it had a processor, or does so (proc(5)).
    pub fn is_runnable(self) -> bool {
        let stat = std::fs::read(format!("/proc/self/task/{}/stat", self.id)).unwrap_or_default();
        let name_end = stat.iter().rposition(|byte| *byte == b')');
        name_end.is_some_and(|at| stat.get(at + 2) == Some(&b'R'))
    }

    /// The time that the thread has computed, in microseconds; 0 when it has ended.
    pub fn micros(self) -> u64 {
        clock_gettime(ClockId::from_raw(self.clock)).map_or(0, micros)
    }
}

#[cfg(test)]
#[cfg(any(target_os = "linux", target_os = "android"))]
mod tests {
    use super::*;
    use crate::patience::{eventually, until};

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

    #[test]
    fn the_clock_of_a_thread_shows_what_it_computes_and_not_how_long_it_sleeps() {
        let (tell, told) = std::sync::mpsc::channel();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let clock = thread_clock().expect("a clock");
            assert!(clock.is_runnable());
            tell.send(ThreadClock::of_number(clock.number()).expect("a clock")).expect("tell");
            gone.recv().expect("go");
            while clock.micros() < 20_000 {}
            tell.send(clock).expect("tell");
            gone.recv().expect_err("the end");
        });
        let clock = told.recv().expect("its clock");
        assert!(clock.micros() < 20_000);
        go.send(()).expect("go");
        let clock = told.recv().expect("its clock");
        assert!(clock.micros() >= 20_000);
        until(|| !clock.is_runnable());
        drop(go);
        thread.join().expect("the thread");
    }
}
