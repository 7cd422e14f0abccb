//! When the helper is woken.
//!
//! The application's thread sets a timer when it has something to do, unless it is set already, and stops it when it has
//! nothing to do any more: a helper that is not needed is not woken. Where one short request comes after the other, with
//! pauses between them or without, the helper keeps the timer itself, and lets it go off ever less often; the application's thread then has nothing to do
//! with it. While one request lasts the helper waits for the connections as well, until that thread has come further
//! and takes them out again.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::time::Duration;

use fastrack_sys::{Events, Poller, Timer, Waker};

use crate::pulse::{is_busy, Pulse};

/// How long something lasts at least that the helper is woken for.
pub(crate) const SOON: Duration = Duration::from_millis(1);

/// So often in a row the timer is stopped. Then it may go off, so that the helper sees whether there is so much to do
/// that it had better keep the timer: to set and to stop it for each request costs more than to look now and then.
const STOPS: u32 = 8;

const CONNECTIONS: u64 = 0;
const TIMER: u64 = 1;
const WAKER: u64 = 2;

/// Nobody has set the timer: whoever does something next does so.
const OFF: u8 = 0;
/// It was set when the application's thread had been woken.
const WOKEN: u8 = 1;
/// It was set for what that thread does, or that has begun soon after it was woken.
const SET: u8 = 2;
/// The helper keeps it.
const KEPT: u8 = 3;

#[derive(Debug)]
pub(crate) struct Alarm {
    timer: Timer,
    waker: Waker,
    /// The timer, the waker and, while they are followed, the connections.
    poller: Poller,
    connections: OwnedFd,
    state: AtomicU8,
    /// The beat at which what the timer was set for had begun.
    since: AtomicU64,
    following: AtomicBool,
    /// How often the timer was stopped since it last went off.
    stops: AtomicU32,
}

impl Alarm {
    /// `connections` is the set of them.
    pub fn new(connections: OwnedFd) -> io::Result<Self> {
        let (timer, waker, poller) = (Timer::new()?, Waker::new()?, Poller::new()?);
        poller.watch(&timer, TIMER)?;
        poller.watch(&waker, WAKER)?;
        poller.add(&connections, CONNECTIONS)?;
        poller.set_wanted(&connections, CONNECTIONS, false)?;
        Ok(Alarm {
            timer,
            waker,
            poller,
            connections,
            state: AtomicU8::new(OFF),
            since: AtomicU64::new(0),
            following: AtomicBool::new(false),
            stops: AtomicU32::new(0),
        })
    }

    /// What a forked child must not use.
    pub fn raw_fds(&self) -> [RawFd; 3] {
        [self.timer.raw_fd(), self.waker.raw_fd(), self.poller.raw_fd()]
    }

    /// Wakes the helper, now or when it waits next. One system call: for signal handlers, too.
    pub fn call(&self) {
        self.waker.call();
    }

    // --- the application's thread

    /// That thread has been woken, and is busy from this beat on. After the beat was stored: either the helper sees
    /// that, or its word here that it has gone to sleep.
    pub fn wake(&self, beat: u64) {
        if self.state.load(Ordering::SeqCst) == OFF {
            self.set(WOKEN, beat);
        }
    }

    /// At this beat begins what may last: a request, if `is_request`, for which a timer will do that was set when that
    /// thread was woken for it.
    pub fn begin(&self, beat: u64, is_request: bool) {
        self.leave();
        match self.state.load(Ordering::Relaxed) {
            OFF => self.set(if is_request { SET } else { WOKEN }, beat),
            WOKEN if is_request => {
                self.since.store(beat, Ordering::Relaxed);
                self.change(WOKEN, SET);
            }
            _ => {}
        }
    }

    /// That thread has nothing to do.
    pub fn rest(&self) {
        self.leave();
        let state = self.state.load(Ordering::Relaxed);
        if !matches!(state, WOKEN | SET) {
            return;
        }
        let stops = self.stops.load(Ordering::Relaxed);
        if stops < STOPS && self.change(state, OFF) {
            self.stops.store(stops + 1, Ordering::Relaxed);
            // It cannot fail. At worst, the helper is woken for nothing.
            let _ = self.timer.stop();
            // The helper may have taken it over in between: it would wait for a timer that nobody sets.
            if self.state.load(Ordering::SeqCst) == KEPT {
                self.go_off_in(SOON);
            }
        }
    }

    fn set(&self, state: u8, beat: u64) {
        self.since.store(beat, Ordering::Relaxed);
        self.state.store(state, Ordering::Release);
        self.go_off_in(SOON);
    }

    // --- the helper

    /// Waits until it is called, the timer goes off, something is to be done for connections that are followed, or so
    /// many milliseconds are over; whether it was the timer.
    pub fn wait(&self, events: &mut Events, millis: Option<u64>) -> bool {
        if self.poller.wait(events, millis).is_err() {
            // That is not to happen; no request is to be lost for it, nor a core to be burnt.
            fastrack_sys::sleep(1);
            return true;
        }
        events.iter().any(|event| event.token == TIMER)
    }

    /// The timer has gone off: it is the helper's from now on. The beat from which to count, where it was not before;
    /// None where it was stopped at the last moment.
    pub fn take(&self, before: u64) -> Option<u64> {
        let state = self.state.load(Ordering::Acquire);
        self.stops.store(0, Ordering::Relaxed);
        match state {
            OFF => None,
            KEPT => Some(before),
            _ => {
                let since = self.since.load(Ordering::Relaxed);
                // It fails where that thread changes it in this moment: to what is gone off just as well.
                (self.change(state, KEPT) || self.change(SET, KEPT)).then_some(since)
            }
        }
    }

    /// Has the timer go off again.
    pub fn go_off_in(&self, time: Duration) {
        // It cannot fail for any time that is used here.
        let _ = self.timer.set(time);
    }

    /// The helper sleeps until that thread sets the timer; false when it has something to do in this moment.
    pub fn sleep(&self, pulse: &Pulse) -> bool {
        self.state.store(OFF, Ordering::SeqCst);
        !(is_busy(pulse.read()) && self.change(OFF, KEPT))
    }

    /// What that thread is at since this beat lasts: the connections are followed, and the timer is that thread's again,
    /// when it comes further. False when it has done so by now.
    pub fn follow(&self, pulse: &Pulse, beat: u64) -> bool {
        self.state.store(OFF, Ordering::SeqCst);
        if !self.following.swap(true, Ordering::SeqCst) {
            // It cannot fail; and if it did there would be the next look.
            let _ = self.poller.set_wanted(&self.connections, CONNECTIONS, true);
        }
        if pulse.read() == beat {
            return true;
        }
        self.follow_none();
        // Unless that thread has set it by now.
        self.change(OFF, KEPT);
        false
    }

    /// Whether that thread is busy without a timer, which is the helper's from now on: it has not begun anything since the
    /// helper has left it the timer, or had not seen that yet when it did. Without this, what it then is at would last
    /// unseen; with it, for as long as the helper waits at most.
    pub fn is_missing(&self, beat: u64) -> bool {
        is_busy(beat) && self.change(OFF, KEPT)
    }

    // --- both

    /// The helper is not to be woken by connections any more.
    pub fn leave(&self) {
        if self.following.load(Ordering::Relaxed) {
            self.follow_none();
        }
    }

    fn follow_none(&self) {
        self.following.store(false, Ordering::Relaxed);
        // As in `follow`.
        let _ = self.poller.set_wanted(&self.connections, CONNECTIONS, false);
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// Longer than any alarm that is set here.
    const LATE: Option<u64> = Some(200);

    /// An alarm, a pulse, and what makes the connections ready.
    fn alarm() -> (Alarm, Pulse, UnixStream) {
        let (near, far) = UnixStream::pair().expect("a pair");
        (Alarm::new(far.into()).expect("an alarm"), Pulse::default(), near)
    }

    /// Whether the timer goes off.
    fn goes_off(alarm: &Alarm) -> bool {
        alarm.wait(&mut Events::default(), LATE)
    }

    /// The application's thread is woken, and has a request.
    fn begin(alarm: &Alarm, pulse: &Pulse) -> u64 {
        alarm.wake(pulse.awake().expect("it was idle"));
        // Whatever else there is comes first.
        alarm.begin(pulse.beat(), false);
        let beat = pulse.beat();
        alarm.begin(beat, true);
        beat
    }

    fn rest(alarm: &Alarm, pulse: &Pulse) {
        pulse.idle();
        alarm.rest();
    }

    #[test]
    fn what_is_short_wakes_nobody_and_what_is_not_does_and_says_since_when() {
        let (alarm, pulse, _near) = alarm();
        begin(&alarm, &pulse);
        rest(&alarm, &pulse);
        assert!(!goes_off(&alarm) && alarm.take(0).is_none());
        let beat = begin(&alarm, &pulse);
        assert!(goes_off(&alarm));
        assert_eq!(alarm.take(0), Some(beat));
        // From here on it counts for itself.
        assert_eq!(alarm.take(7), Some(7));
    }

    #[test]
    fn much_that_is_short_is_shown_to_the_helper() {
        let (alarm, pulse, _near) = alarm();
        for _ in 0..3 * STOPS {
            begin(&alarm, &pulse);
            rest(&alarm, &pulse);
        }
        assert!(goes_off(&alarm) && alarm.take(0).is_some());
        assert!(alarm.sleep(&pulse));
        begin(&alarm, &pulse);
        rest(&alarm, &pulse);
        assert!(!goes_off(&alarm));
    }

    #[test]
    fn waking_up_may_last_too() {
        let (alarm, pulse, _near) = alarm();
        let beat = pulse.awake().expect("it was idle");
        alarm.wake(beat);
        assert!(goes_off(&alarm));
        assert_eq!(alarm.take(0), Some(beat));
    }

    #[test]
    fn a_timer_that_the_helper_keeps_is_not_set_by_others() {
        let (alarm, pulse, _near) = alarm();
        begin(&alarm, &pulse);
        assert!(goes_off(&alarm) && alarm.take(0).is_some());
        rest(&alarm, &pulse);
        begin(&alarm, &pulse);
        assert!(!goes_off(&alarm));
        alarm.go_off_in(SOON);
        rest(&alarm, &pulse);
        assert!(goes_off(&alarm));
    }

    #[test]
    fn the_helper_sleeps_only_while_nothing_is_done() {
        let (alarm, pulse, _near) = alarm();
        begin(&alarm, &pulse);
        assert!(goes_off(&alarm) && alarm.take(0).is_some());
        assert!(!alarm.sleep(&pulse) && alarm.take(3) == Some(3));
        rest(&alarm, &pulse);
        assert!(alarm.sleep(&pulse) && alarm.take(3).is_none());
        begin(&alarm, &pulse);
        assert!(goes_off(&alarm));
    }

    #[test]
    fn connections_wake_the_helper_from_when_something_lasts_until_it_is_over() {
        let (alarm, pulse, mut near) = alarm();
        near.write_all(b"ready").expect("write");
        let mut events = Events::default();
        let mut gone_off = false;
        let mut is_woken = |millis| {
            gone_off |= alarm.wait(&mut events, Some(millis));
            events.iter().any(|event| event.token == CONNECTIONS)
        };
        assert!(!is_woken(0));
        let beat = begin(&alarm, &pulse);
        assert!(!is_woken(200) && alarm.take(0) == Some(beat));
        assert!(alarm.follow(&pulse, beat) && is_woken(0));
        // The next thing has a timer of its own.
        let beat = pulse.beat();
        alarm.begin(beat, true);
        assert!(!is_woken(200) && alarm.take(0) == Some(beat));
        assert!(alarm.follow(&pulse, beat) && is_woken(0));
        rest(&alarm, &pulse);
        assert!(!is_woken(200) && gone_off);
    }

    #[test]
    fn what_was_over_in_that_moment_is_not_followed_and_what_came_then_is_not_missed() {
        let (alarm, pulse, mut near) = alarm();
        near.write_all(b"ready").expect("write");
        let beat = begin(&alarm, &pulse);
        assert!(goes_off(&alarm) && alarm.take(0).is_some());
        let next = pulse.beat();
        assert!(!alarm.follow(&pulse, beat));
        alarm.wait(&mut Events::default(), Some(0));
        assert_eq!(alarm.take(next), Some(next));
        // As if that thread had gone on without seeing that it has to set the timer.
        assert!(alarm.follow(&pulse, next));
        let last = pulse.beat();
        assert!(alarm.is_missing(last) && alarm.take(last) == Some(last));
        assert!(!alarm.is_missing(last));
    }
}
