//! How the time of a thread's requests is divided.
//!
//! The thread of the application writes the times, at the beginning and the end of its request and at the events of Ruby's GVL. Any
//! thread reads them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering::Relaxed};

use fastrack_access_log::{GvlTimings, Timings};

use crate::clock::Clock;

/// What a thread of the application has to do with Ruby's GVL from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GvlEvent {
    /// The thread has the GVL.
    Resumed = 0,
    /// The thread waits for the GVL.
    Ready = 1,
    /// The thread has released the GVL.
    Suspended = 2,
}

/// The times of a thread's current or last request, in microseconds of the monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// When the request began; 0 before the thread's first request.
    began: AtomicU64,
    /// When the application was done; 0 before.
    ended: AtomicU64,
    queue: AtomicU64,
    upload: AtomicU64,
    /// How long the thread has waited for its client.
    send: AtomicU64,
    /// Whether the application reports GVL events.
    has_events: AtomicBool,
    /// The last [`GvlEvent`], and when that was.
    gvl: AtomicU8,
    since: AtomicU64,
    /// The time from each `Ready` to the next event, and from each `Suspended`.
    ready: AtomicU64,
    suspended: AtomicU64,
}

impl Times {
    // --- the application's thread

    /// The application reports GVL events from now on.
    pub fn note_events(&self) {
        self.has_events.store(true, Relaxed);
    }

    /// A request begins that has waited for `queue` microseconds, and whose body took `upload`. The thread has the GVL.
    #[inline]
    pub fn begin(&self, now: u64, queue: u64, upload: u64) {
        self.queue.store(queue, Relaxed);
        self.upload.store(upload, Relaxed);
        self.since.store(now, Relaxed);
        self.gvl.store(GvlEvent::Resumed as u8, Relaxed);
        for time in [&self.send, &self.ready, &self.suspended, &self.ended] {
            time.store(0, Relaxed);
        }
        self.began.store(now, Relaxed);
    }

    /// The application is done.
    #[inline]
    pub fn end(&self, now: u64) -> Timings {
        self.ended.store(now, Relaxed);
        self.read(now)
    }

    /// Takes no lock and no memory: Ruby calls this with or without the GVL.
    pub fn note(&self, event: GvlEvent, clock: &impl Clock) {
        if !self.is_in_request() {
            return;
        }
        let now = clock.micros();
        let time = match self.gvl.swap(event as u8, Relaxed) {
            READY => Some(&self.ready),
            SUSPENDED => Some(&self.suspended),
            _ => None,
        };
        let since = self.since.swap(now, Relaxed);
        if let Some(time) = time {
            add(time, now.saturating_sub(since));
        }
    }

    /// The thread has waited for its client.
    pub fn add_send(&self, micros: u64) {
        add(&self.send, micros);
    }

    // --- any thread

    fn is_in_request(&self) -> bool {
        self.began.load(Relaxed) != 0 && self.ended.load(Relaxed) == 0
    }

    /// What the thread had to do with the GVL last. None before the first event of an application that reports events.
    pub fn gvl(&self) -> Option<GvlEvent> {
        let last = match self.gvl.load(Relaxed) {
            READY => GvlEvent::Ready,
            SUSPENDED => GvlEvent::Suspended,
            _ => GvlEvent::Resumed,
        };
        self.has_events.load(Relaxed).then_some(last)
    }

    /// The times at `now`, or when the request ended. None before the thread's first request.
    pub fn at(&self, now: u64) -> Option<Timings> {
        let end = match self.ended.load(Relaxed) {
            0 => now,
            ended => ended,
        };
        (self.began.load(Relaxed) != 0).then(|| self.read(end))
    }

    #[inline]
    fn read(&self, end: u64) -> Timings {
        let send = self.send.load(Relaxed);
        let app = end.saturating_sub(self.began.load(Relaxed)).saturating_sub(send);
        let gvl = self.has_events.load(Relaxed).then(|| self.gvl_timings(end, app, send));
        Timings { queue: self.queue.load(Relaxed), upload: self.upload.load(Relaxed), app, gvl, send }
    }

    /// The three parts are `app` together. A thread has no GVL while it waits for its client.
    fn gvl_timings(&self, end: u64, app: u64, send: u64) -> GvlTimings {
        let (mut wait, mut off) = (self.ready.load(Relaxed), self.suspended.load(Relaxed));
        let lasts = end.saturating_sub(self.since.load(Relaxed));
        match self.gvl.load(Relaxed) {
            READY => wait += lasts,
            SUSPENDED => off += lasts,
            _ => {}
        }
        let wait = wait.min(app);
        let off = off.saturating_sub(send).min(app - wait);
        GvlTimings { wait, running: app - wait - off, off }
    }
}

const READY: u8 = GvlEvent::Ready as u8;
const SUSPENDED: u8 = GvlEvent::Suspended as u8;

/// Only one thread at a time adds.
fn add(time: &AtomicU64, more: u64) {
    time.store(time.load(Relaxed).saturating_add(more), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::tests::HandClock;

    #[test]
    fn the_parts_of_a_request_add_up_to_its_time() {
        let (times, clock) = (Times::default(), HandClock::new());
        assert_eq!(times.at(clock.micros()), None);
        times.note(GvlEvent::Suspended, &clock);
        times.note_events();
        times.begin(clock.micros(), 30, 40);
        for (micros, event) in [
            (100, GvlEvent::Suspended),
            (1_000, GvlEvent::Ready),
            (10_000, GvlEvent::Resumed),
            (100_000, GvlEvent::Suspended),
        ] {
            clock.wait(micros);
            times.note(event, &clock);
        }
        // The thread has no GVL while it waits for its client.
        clock.wait(1_000_000);
        times.add_send(999_990);
        times.note(GvlEvent::Ready, &clock);
        let gvl = GvlTimings { wait: 10_000, running: 100_100, off: 1_010 };
        let expected = Timings { queue: 30, upload: 40, app: 111_110, gvl: Some(gvl), send: 999_990 };
        assert_eq!(times.at(clock.micros()), Some(expected));
        clock.wait(5);
        let gvl = GvlTimings { wait: 10_005, ..gvl };
        let ended = times.end(clock.micros());
        assert_eq!(ended, Timings { app: 111_115, gvl: Some(gvl), ..expected });
        // The end is the end, whatever comes later.
        clock.wait(1_000);
        times.note(GvlEvent::Resumed, &clock);
        assert_eq!(times.at(clock.micros()), Some(ended));
    }

    #[test]
    fn each_request_begins_anew_and_without_events_nothing_is_said_of_the_gvl() {
        let (times, clock) = (Times::default(), HandClock::new());
        times.begin(clock.micros(), 0, 0);
        clock.wait(100);
        times.add_send(60);
        times.end(clock.micros());
        clock.wait(100);
        times.begin(clock.micros(), 1, 2);
        clock.wait(7);
        let expected = Timings { queue: 1, upload: 2, app: 7, gvl: None, send: 0 };
        assert_eq!(times.end(clock.micros()), expected);
    }
}
