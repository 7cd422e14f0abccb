//! How long the garbage collector runs, in requests and between them.

use std::sync::atomic::{AtomicU64, Ordering};

use rb_sys::*;

use fastrack_engine::GcTime;

use crate::ruby::protect;

/// What is known of this process's garbage collector. All of it needs the GVL; the atomics are for the compiler.
pub(crate) struct GcClock;

/// How many collections there had been at the last look.
static LAST_COUNT: AtomicU64 = AtomicU64::new(0);
/// The time that they had taken, in nanoseconds.
static LAST_TOTAL_TIME: AtomicU64 = AtomicU64::new(0);
/// How many threads have requests.
static BUSY_THREADS: AtomicU64 = AtomicU64::new(0);

impl GcClock {
    /// A thread is about to call the app. Returns the time since the last look.
    #[inline]
    pub fn begin_request() -> GcTime {
        let requests = BUSY_THREADS.load(Ordering::Relaxed);
        BUSY_THREADS.store(requests + 1, Ordering::Relaxed);
        Self::look(requests > 0)
    }

    /// A thread is done with a request. Returns the time since the last look.
    #[inline]
    pub fn end_request() -> GcTime {
        BUSY_THREADS.store(BUSY_THREADS.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
        Self::look(true)
    }

    /// The next request is the first again: its engine is another one, maybe in a child of this process.
    pub fn forget() {
        LAST_COUNT.store(0, Ordering::Relaxed);
    }

    /// Asking Ruby for the time costs a method call, asking for the number of collections next to nothing.
    #[inline]
    fn look(in_request: bool) -> GcTime {
        // SAFETY: it reads a number of the VM's.
        let count = unsafe { rb_gc_count() } as u64;
        if count == LAST_COUNT.load(Ordering::Relaxed) {
            return GcTime::default();
        }
        let nanos = ask(count);
        if in_request {
            GcTime { in_requests: nanos, outside: 0 }
        } else {
            GcTime { in_requests: 0, outside: nanos }
        }
    }
}

#[cold]
fn ask(count: u64) -> u64 {
    let is_first = LAST_COUNT.swap(count, Ordering::Relaxed) == 0;
    // SAFETY: under protect, and owning nothing.
    let asked = protect(|| unsafe { rb_num2ull(rb_funcall(rb_mGC, rb_intern(c"total_time".as_ptr()), 0)) });
    let Ok(time) = asked else { return 0 };
    let before = LAST_TOTAL_TIME.swap(time, Ordering::Relaxed);
    // What was collected before the first request, and before the fork, does not count.
    if is_first {
        0
    } else {
        time.saturating_sub(before)
    }
}
