//! Whether a thread of the application computes or waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use fastrack_sys::{monotonic_micros, thread_clock, ThreadClock};

use super::waits::Waits;

/// A thread that has computed for less than this part of the time waits.
const PART: u64 = 8;

/// Shorter waits do not count, in microseconds: the thread would come back just when another one has begun to compute.
pub(crate) const SHORTEST: u64 = 1_000;

/// The least time between two looks at a thread's clock, in microseconds.
const LEAST: u64 = 500;

const IN_REQUEST: u64 = 1;

/// What a thread of the application is doing, as the application says, or else as its CPU clock tells.
#[derive(Debug, Default)]
pub struct Activity {
    /// 0 until the application has said something. Then it grows with all that the application says, by 4, and tells
    /// whether the thread waits by its lowest bit.
    said: AtomicU64,
    /// The thread's CPU clock, as a number; 0 for none.
    clock: AtomicU64,
    /// What it showed at the last look, and when that was, in microseconds.
    cpu_time: AtomicU64,
    looked: AtomicU64,
    /// The first of the looks in a row that have seen the thread wait, in microseconds.
    since: AtomicU64,
    /// When the application said last that the thread begins or ends to wait, in microseconds; 0 outside of requests, and
    /// [`IN_REQUEST`] until it says something in one.
    began_to_wait: AtomicU64,
    waits: Arc<Waits>,
}

impl Activity {
    /// Of a thread whose waits are among these.
    pub(crate) fn new(waits: Arc<Waits>) -> Self {
        Activity { waits, ..Activity::default() }
    }

    /// The thread begins or ends to wait. From that thread only; any code may run it that may store a number and set a timer.
    /// Async-signal-safe.
    pub fn set_waiting(&self, waits: bool) {
        let said = self.said.load(Ordering::Relaxed);
        let began = self.began_to_wait.load(Ordering::Relaxed);
        if began != 0 && waits != (said & 1 == 1) {
            let now = monotonic_micros();
            self.began_to_wait.store(now, Ordering::Relaxed);
            match waits {
                true => self.waits.begin(now),
                false => self.waits.note(now.saturating_sub(began)),
            }
        }
        // Who sees this sees when the wait began.
        self.said.store((said + 4) & !1 | u64::from(waits), Ordering::Release);
    }

    /// This is the activity of the current thread.
    pub(crate) fn begin(&self) {
        self.clock.store(thread_clock().map_or(0, ThreadClock::number), Ordering::Release);
    }

    /// The thread ends.
    pub(crate) fn end(&self) {
        self.clock.store(0, Ordering::Release);
        self.said.store(0, Ordering::Release);
    }

    /// For how long the thread has waited, in microseconds, if that [counts](SHORTEST): where its CPU clock tells, as far as looks
    /// have seen it. None if it computes, or did so since the last look.
    pub(crate) fn waited(&self) -> Option<u64> {
        self.waits_for().filter(|waited| !self.is_said() || *waited >= SHORTEST)
    }

    /// The same, however short.
    pub(crate) fn waits_for(&self) -> Option<u64> {
        let said = self.said.load(Ordering::Acquire);
        let clock = ThreadClock::of_number(self.clock.load(Ordering::Acquire));
        match (said, clock) {
            (0, None) => None,
            (0, Some(clock)) => self.hardly_computed(clock),
            _ if said & 1 == 1 => self.waited_as_said(),
            _ => None,
        }
    }

    /// Whether the application says when the thread waits.
    pub(crate) fn is_said(&self) -> bool {
        self.said.load(Ordering::Relaxed) != 0
    }

    /// Whether the thread would compute now if it had a processor, or does so. False where the system does not tell.
    pub(crate) fn is_runnable(&self) -> bool {
        ThreadClock::of_number(self.clock.load(Ordering::Acquire)).is_some_and(ThreadClock::is_runnable)
    }

    /// The thread begins a request: what it did before does not count.
    pub(crate) fn begin_request(&self) {
        self.looked.store(0, Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
        self.began_to_wait.store(IN_REQUEST, Ordering::Relaxed);
    }

    /// The thread has answered it.
    pub(crate) fn end_request(&self) {
        self.began_to_wait.store(0, Ordering::Relaxed);
    }

    fn waited_as_said(&self) -> Option<u64> {
        let began = self.began_to_wait.load(Ordering::Relaxed);
        (began > IN_REQUEST).then(|| monotonic_micros().saturating_sub(began))
    }

    fn hardly_computed(&self, clock: ThreadClock) -> Option<u64> {
        let now = monotonic_micros();
        let looked = self.looked.load(Ordering::Relaxed);
        let time = now.saturating_sub(looked);
        let since = self.since.load(Ordering::Relaxed);
        if time < LEAST {
            return (since != 0).then(|| now.saturating_sub(since));
        }
        self.looked.store(now, Ordering::Relaxed);
        let used = clock.micros();
        if looked == 0 {
            self.cpu_time.store(used, Ordering::Relaxed);
            return None;
        }
        let is_little = used.saturating_sub(self.cpu_time.swap(used, Ordering::Relaxed)) * PART < time;
        // Or others had the processors.
        if !is_little || clock.is_runnable() {
            self.since.store(0, Ordering::Relaxed);
            return None;
        }
        let since = if since == 0 { looked.max(1) } else { since };
        self.since.store(since, Ordering::Relaxed);
        Some(now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_waits_if_it_has_said_so_and_nothing_since() {
        let activity = Activity::default();
        activity.begin_request();
        assert!(activity.waited().is_none());
        for _ in 0..2 {
            activity.set_waiting(false);
            activity.set_waiting(true);
            for millis in [2, 6] {
                fastrack_sys::sleep(4);
                assert!(activity.waited().is_some_and(|waited| waited >= millis * 1000), "{millis}");
            }
        }
        activity.end_request();
        assert!(activity.waited().is_none());
        activity.begin_request();
        activity.set_waiting(false);
        assert!(activity.waited().is_none() && activity.waited().is_none());
    }

    #[test]
    fn waits_count_in_requests_only() {
        let waits = Arc::new(Waits::default());
        let activity = Activity::new(Arc::clone(&waits));
        let wait = |times, millis| {
            (0..times).for_each(|_| {
                activity.set_waiting(true);
                fastrack_sys::sleep(millis);
                activity.set_waiting(false);
            });
        };
        wait(20, 16);
        assert!(!waits.are_long());
        activity.begin_request();
        wait(20, 16);
        assert!(waits.are_long());
        activity.end_request();
        wait(20, 4);
        assert!(waits.are_long());
    }

    #[test]
    fn else_its_clock_tells() {
        let activity = Activity::default();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let sees = |expected: bool| {
            let start = std::time::Instant::now();
            while activity.waited().is_some() != expected {
                assert!(start.elapsed().as_secs() < 20);
                fastrack_sys::sleep(2);
            }
        };
        std::thread::scope(|scope| {
            let (activity, is_over) = (&activity, &is_over);
            scope.spawn(move || {
                activity.begin();
                gone.recv().expect("go");
                while !is_over.load(Ordering::Relaxed) {}
            });
            sees(true);
            fastrack_sys::sleep(4);
            assert!(activity.waited().is_some_and(|waited| waited >= 4_000));
            go.send(()).expect("it waits");
            sees(false);
            // It wants a processor all the time, whether it has one or not.
            fastrack_sys::sleep(20);
            assert!((0..5).all(|_| {
                fastrack_sys::sleep(2);
                activity.waited().is_none()
            }));
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
