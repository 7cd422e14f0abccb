//! The time of garbage collection, in requests and between requests.

use std::sync::atomic::{AtomicU64, Ordering};

use rb_sys::*;

use fastrack_engine::GcTime;

use crate::ruby::protect;

/// Measures the time of this process's garbage collector. All functions need the GVL; the atomics are for the compiler.
pub(crate) struct GcClock;

/// Number of collections at the last reading.
static LAST_COUNT: AtomicU64 = AtomicU64::new(0);
/// Total time of collections at the last reading, in nanoseconds.
static LAST_TOTAL_TIME: AtomicU64 = AtomicU64::new(0);
/// Number of threads with a request.
static BUSY_THREADS: AtomicU64 = AtomicU64::new(0);

impl GcClock {
    /// To be called before a thread calls the app. Returns the time of collections since the last reading.
    #[inline]
    pub fn begin_request() -> GcTime {
        let requests = BUSY_THREADS.load(Ordering::Relaxed);
        BUSY_THREADS.store(requests + 1, Ordering::Relaxed);
        Self::read(requests > 0)
    }

    /// To be called when a thread is done with a request. Returns the time of collections since the last reading.
    #[inline]
    pub fn end_request() -> GcTime {
        BUSY_THREADS.store(BUSY_THREADS.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
        Self::read(true)
    }

    /// Resets the clock for the first request of the next engine, maybe in a child of this process.
    pub fn forget() {
        LAST_COUNT.store(0, Ordering::Relaxed);
    }

    /// Reads the time only if the number of collections has changed: the time costs a method call, the number almost nothing.
    #[inline]
    fn read(in_request: bool) -> GcTime {
        // SAFETY: rb_gc_count reads a number of the VM.
        let count = unsafe { rb_gc_count() } as u64;
        if count == LAST_COUNT.load(Ordering::Relaxed) {
            return GcTime::default();
        }
        let nanos = time_since_last(count);
        if in_request {
            GcTime { in_requests: nanos, outside: 0 }
        } else {
            GcTime { in_requests: 0, outside: nanos }
        }
    }
}

/// The time of collections since the last reading, in nanoseconds.
#[cold]
fn time_since_last(count: u64) -> u64 {
    let is_first = LAST_COUNT.swap(count, Ordering::Relaxed) == 0;
    // SAFETY: under protect, and owning nothing.
    let total_time =
        protect(|| unsafe { rb_num2ull(rb_funcall(rb_mGC, rb_intern(c"total_time".as_ptr()), 0)) });
    let Ok(time) = total_time else { return 0 };
    let before = LAST_TOTAL_TIME.swap(time, Ordering::Relaxed);
    // Collections before the first request, and before the fork, do not count.
    if is_first {
        0
    } else {
        time.saturating_sub(before)
    }
}
