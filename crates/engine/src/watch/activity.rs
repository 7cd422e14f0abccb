//! Whether a thread of the application computes or waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use fastrack_sys::{thread_clock, ThreadClock};

use super::waits::Waits;
use crate::clock::{Clock, SystemClock};

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
        self.set_waiting_by(&SystemClock, waits);
    }

    pub(crate) fn set_waiting_by(&self, clock: &impl Clock, waits: bool) {
        let said = self.said.load(Ordering::Relaxed);
        let began = self.began_to_wait.load(Ordering::Relaxed);
        if began != 0 && waits != (said & 1 == 1) {
            let now = clock.micros();
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
    pub(crate) fn waited(&self, clock: &impl Clock) -> Option<u64> {
        self.waits_for(clock).filter(|waited| !self.is_said() || *waited >= SHORTEST)
    }

    /// The same, however short.
    pub(crate) fn waits_for(&self, clock: &impl Clock) -> Option<u64> {
        let said = self.said.load(Ordering::Acquire);
        let thread = ThreadClock::of_number(self.clock.load(Ordering::Acquire));
        match (said, thread) {
            (0, None) => None,
            (0, Some(thread)) => {
                self.hardly_computed(clock.micros(), || thread.micros(), || thread.is_runnable())
            }
            _ if said & 1 == 1 => self.waited_as_said(clock),
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

    fn waited_as_said(&self, clock: &impl Clock) -> Option<u64> {
        let began = self.began_to_wait.load(Ordering::Relaxed);
        (began > IN_REQUEST).then(|| clock.micros().saturating_sub(began))
    }

    /// Asks for the thread's CPU time, and whether it wants a processor, only where it takes that.
    fn hardly_computed(
        &self,
        now: u64,
        cpu_micros: impl FnOnce() -> u64,
        is_runnable: impl FnOnce() -> bool,
    ) -> Option<u64> {
        let looked = self.looked.load(Ordering::Relaxed);
        let time = now.saturating_sub(looked);
        let since = self.since.load(Ordering::Relaxed);
        if time < LEAST {
            return (since != 0).then(|| now.saturating_sub(since));
        }
        self.looked.store(now, Ordering::Relaxed);
        let used = cpu_micros();
        if looked == 0 {
            self.cpu_time.store(used, Ordering::Relaxed);
            return None;
        }
        let is_little = used.saturating_sub(self.cpu_time.swap(used, Ordering::Relaxed)) * PART < time;
        // Or others had the processors.
        if !is_little || is_runnable() {
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
    use crate::clock::tests::HandClock;
    use crate::patience::until;

    #[test]
    fn a_thread_waits_if_it_has_said_so_and_nothing_since() {
        let (activity, clock) = (Activity::default(), HandClock::new());
        activity.begin_request();
        assert_eq!(activity.waited(&clock), None);
        for _ in 0..2 {
            activity.set_waiting_by(&clock, false);
            activity.set_waiting_by(&clock, true);
            clock.wait(SHORTEST - 1);
            assert_eq!((activity.waited(&clock), activity.waits_for(&clock)), (None, Some(SHORTEST - 1)));
            clock.wait(1);
            assert_eq!(activity.waited(&clock), Some(SHORTEST));
            clock.wait(4_000);
            // Said once more.
            activity.set_waiting_by(&clock, true);
            assert_eq!(activity.waited(&clock), Some(SHORTEST + 4_000));
        }
        activity.end_request();
        assert_eq!(activity.waited(&clock), None);
        activity.begin_request();
        activity.set_waiting_by(&clock, false);
        clock.wait(4_000);
        assert_eq!([activity.waited(&clock), activity.waited(&clock)], [None, None]);
    }

    #[test]
    fn waits_count_in_requests_only() {
        let (waits, clock) = (Arc::new(Waits::default()), HandClock::new());
        let activity = Activity::new(Arc::clone(&waits));
        let total_after = |micros| {
            activity.set_waiting_by(&clock, true);
            clock.wait(micros);
            activity.set_waiting_by(&clock, false);
            waits.total()
        };
        assert_eq!(total_after(16_000), 0);
        activity.begin_request();
        assert_eq!([total_after(16_000), total_after(700)], [16_000, 16_700]);
        activity.end_request();
        assert_eq!(total_after(4_000), 16_700);
    }

    #[test]
    fn else_a_thread_waits_from_the_first_of_looks_in_a_row_between_which_it_hardly_computes() {
        let activity = Activity::default();
        activity.begin_request();
        let look = |now, computed, is_runnable| activity.hardly_computed(now, || computed, || is_runnable);
        assert_eq!(look(10_000, 500, false), None, "nothing is known of before");
        assert_eq!(look(10_000 + LEAST - 1, 900, false), None, "too soon to tell");
        // Less than an eighth of the time.
        assert_eq!(look(12_000, 749, false), Some(2_000));
        assert_eq!(look(12_100, 850, false), Some(2_100), "not looked at again so soon");
        assert_eq!(look(14_000, 749 + 249, false), Some(4_000));
        assert_eq!(look(16_000, 998 + 250, false), None, "it computes");
        assert_eq!(look(16_100, 998 + 250, false), None);
        assert_eq!(look(18_000, 1_248, false), Some(2_000));
        assert_eq!(look(20_000, 1_248, true), None, "others had the processors");
        assert_eq!(look(22_000, 1_248, false), Some(2_000));
        activity.begin_request();
        assert_eq!(look(24_000, 1_248, false), None);
    }

    #[test]
    fn its_clock_is_that_of_the_thread() {
        let activity = Activity::default();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let waits = || activity.waited(&SystemClock).is_some();
        std::thread::scope(|scope| {
            let (activity, go) = (&activity, go);
            scope.spawn(move || {
                activity.begin();
                let _ = gone.recv();
                while gone.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {}
            });
            until(waits);
            go.send(()).expect("it waits");
            until(|| !waits());
            until(|| activity.is_runnable());
            // It wants a processor all the time, whether it has one or not.
            for _ in 0..5 {
                fastrack_sys::sleep(2);
                assert!(!waits());
            }
        });
        assert!(!activity.is_said());
        activity.end();
        assert_eq!(activity.waited(&SystemClock), None);
    }
}
