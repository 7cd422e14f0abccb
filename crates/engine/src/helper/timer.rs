//! When the helper is woken.
//!
//! The application's thread sets a timer when it gets something to do, unless it is set already, and stops it when
//! it has nothing to do: a helper that is not needed is not woken. If many short requests come one after the other
//! the helper keeps the timer itself and lets it fire ever less often, so that the application's thread need not
//! touch it. While one request lasts the helper also watches the connections, until the application's thread makes
//! progress and stops that.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use fastrack_sys::{Events, Poller, Timer, Waker};

use super::epoch::{is_busy, Epoch};
use super::listening::{Listening, Source};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};

/// What takes longer than this wakes the helper.
pub(super) const SOON: Duration = Duration::from_millis(1);

/// The timer is stopped so often in a row, then it may fire, so that the helper sees whether it had better keep the
/// timer: setting and stopping it for each request costs more than a look now and then.
const STOPS: u32 = 8;

const CONNECTIONS: u64 = 0;
const TIMER: u64 = 1;
const WAKER: u64 = 2;
const BESIDE: u64 = 3;

/// The helper's timer. Tests have one that they let fire by hand.
pub(crate) trait Alarm {
    /// Has it fire once, `time` from now.
    fn set(&self, time: Duration);
    fn stop(&self);
}

// They cannot fail for the times used here. At worst, the helper is woken for nothing.
impl Alarm for Timer {
    fn set(&self, time: Duration) {
        let _ = Timer::set(self, time);
    }

    fn stop(&self) {
        let _ = Timer::stop(self);
    }
}

/// The timer is not set: the application's thread sets it when it gets something to do.
const OFF: u8 = 0;
/// Set when the application's thread woke up, or for what it does between two requests.
const WOKEN: u8 = 1;
/// Set for what that thread does, which began soon after it woke up.
const SET: u8 = 2;
/// The helper keeps it.
const KEPT: u8 = 3;

#[derive(Debug)]
pub(crate) struct HelperTimer<A = Timer> {
    timer: A,
    waker: Waker,
    /// The timer, the waker and, while they are watched, the connections.
    poller: Poller,
    connections: OwnedFd,
    /// None where the connections' poller has the listeners.
    listening: Option<Listening>,
    state: AtomicU8,
    since: AtomicU64,
    watches_connections: AtomicBool,
    /// How often the timer was stopped since it last fired.
    stops: AtomicU32,
}

/// What has woken the helper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wake {
    Timer,
    Event,
    /// The time that it was to wait is over.
    Timeout,
}

impl HelperTimer {
    /// `connections` is a descriptor of their poller, `listeners` are watched beside it while that is
    /// [wanted](Self::want_listeners).
    pub fn new<S: Source + 'static>(connections: OwnedFd, listeners: Vec<Arc<S>>) -> io::Result<Self> {
        let (timer, poller) = (Timer::new()?, Poller::new()?);
        poller.watch_timer(&timer, TIMER)?;
        let listening = (!listeners.is_empty()).then(|| Listening::new(listeners));
        Self::of(timer, poller, connections, listening)
    }

    /// The descriptors that a forked child inherits.
    pub fn inherited_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        self.timer.raw_fds().chain(self.waker.raw_fds()).chain(self.poller.inherited_fds())
    }
}

impl<A: Alarm> HelperTimer<A> {
    /// `poller` watches the timer.
    fn of(timer: A, poller: Poller, connections: OwnedFd, listening: Option<Listening>) -> io::Result<Self> {
        let waker = Waker::new()?;
        poller.watch(&waker, WAKER)?;
        poller.add(&connections, CONNECTIONS)?;
        poller.set_wanted(&connections, CONNECTIONS, false)?;
        Ok(HelperTimer {
            timer,
            waker,
            poller,
            connections,
            listening,
            state: AtomicU8::new(OFF),
            since: AtomicU64::new(0),
            watches_connections: AtomicBool::new(false),
            stops: AtomicU32::new(0),
        })
    }

    /// Another timer is to wake the helper, as connections do: while something lasts.
    pub fn watch_beside(&self, timer: &Timer) -> io::Result<()> {
        self.poller.watch_timer(timer, BESIDE)
    }

    /// Wakes the helper, now or when it waits next. One system call; async-signal-safe.
    pub(super) fn wake_helper(&self) {
        self.waker.call();
    }

    // --- the application's thread

    /// The thread has woken up and is busy from this epoch on, which must have been stored before: either the
    /// helper sees that, or this sees that the helper has gone to sleep.
    pub(super) fn woken(&self, epoch: u64) {
        if self.state.load(Ordering::SeqCst) == OFF {
            self.set(WOKEN, epoch);
        }
    }

    /// Something that may last begins in this epoch. For a request, a timer set when the thread woke up will do.
    pub(super) fn begin(&self, epoch: u64, is_request: bool) {
        self.stop_watching();
        match self.state.load(Ordering::Relaxed) {
            OFF => {
                self.set(if is_request { SET } else { WOKEN }, epoch);
            }
            WOKEN if is_request => {
                self.since.store(epoch, Ordering::Relaxed);
                self.change(WOKEN, SET);
            }
            _ => {}
        }
    }

    pub(super) fn idle(&self) {
        self.stop_watching();
        let state = self.state.load(Ordering::Relaxed);
        if !matches!(state, WOKEN | SET) {
            return;
        }
        let stops = self.stops.load(Ordering::Relaxed);
        if stops < STOPS && self.change(state, OFF) {
            self.stops.store(stops + 1, Ordering::Relaxed);
            self.timer.stop();
            // The helper may have taken the timer in between: it would wait for one that nobody sets.
            if self.state.load(Ordering::SeqCst) == KEPT {
                self.fire_in(SOON);
            }
        }
    }

    fn set(&self, state: u8, epoch: u64) {
        self.since.store(epoch, Ordering::Relaxed);
        self.state.store(state, Ordering::Release);
        self.fire_in(SOON);
    }

    // --- the helper

    /// Waits until the helper is woken, the timer fires, a watched connection has an event, or so many milliseconds
    /// are over. None if the application has closed the poller.
    pub(super) fn wait(&self, events: &mut Events, millis: Option<u64>) -> Option<Wake> {
        match self.poller.wait(events, millis) {
            Ok(()) if events.iter().any(|event| event.token == TIMER) => Some(Wake::Timer),
            Ok(()) => Some(if events.is_empty() { Wake::Timeout } else { Wake::Event }),
            Err(error) if fastrack_sys::is_lost_fd(&error) => None,
            Err(_) => {
                // This should not happen. If it does, lose no request and do not spin.
                fastrack_sys::sleep(1);
                Some(Wake::Timer)
            }
        }
    }

    /// The timer has fired: from now on the helper keeps it. Returns the epoch from which to count: `before` if the
    /// helper kept it already, None if it was stopped at the last moment.
    pub(super) fn take(&self, before: u64) -> Option<u64> {
        let state = self.state.load(Ordering::Acquire);
        self.stops.store(0, Ordering::Relaxed);
        match state {
            OFF => None,
            KEPT => Some(before),
            _ => {
                let since = self.since.load(Ordering::Relaxed);
                // The first may fail because the thread changes WOKEN to SET at this moment.
                (self.change(state, KEPT) || self.change(SET, KEPT)).then_some(since)
            }
        }
    }

    pub(super) fn fire_in(&self, time: Duration) {
        self.timer.set(time);
    }

    /// Leaves the timer to the application's thread; false if that has become busy meanwhile.
    pub(super) fn leave(&self, epoch: &Epoch) -> bool {
        self.state.store(OFF, Ordering::SeqCst);
        !(is_busy(epoch.read()) && self.change(OFF, KEPT))
    }

    /// The application's thread has been busy with one thing since the epoch `since`: watches the connections, and
    /// leaves the timer to that thread for when it makes progress. False if it has done so by now.
    pub(super) fn watch_connections(&self, epoch: &Epoch, since: u64) -> bool {
        self.state.store(OFF, Ordering::SeqCst);
        if !self.watches_connections.swap(true, Ordering::SeqCst) {
            // It cannot fail; and if it did there would be the next look.
            let _ = self.poller.set_wanted(&self.connections, CONNECTIONS, true);
            self.update_listening();
        }
        if epoch.read() == since {
            return true;
        }
        self.ignore_connections();
        // Unless that thread has set it by now.
        self.change(OFF, KEPT);
        false
    }

    /// Takes the timer if the application's thread is busy without one: it did not know yet that it was left the
    /// timer, or has not begun anything since. Otherwise what it does next could last without the helper noticing.
    pub(super) fn take_if_missing(&self, epoch: u64) -> bool {
        is_busy(epoch) && self.change(OFF, KEPT)
    }

    /// Watches the connections again, or not, while the same thing lasts: after [`watch_connections`](Self::watch_connections).
    /// Ignored, they have something that nobody can take now.
    pub(super) fn watch_on(&self, wanted: bool) {
        if self.watches_connections.swap(wanted, Ordering::SeqCst) != wanted {
            // As in `watch_connections`.
            let _ = self.poller.set_wanted(&self.connections, CONNECTIONS, wanted);
        }
    }

    /// Watches the listeners together with the connections from now on, or no more.
    pub(super) fn want_listeners(&self, wanted: bool) {
        if let Some(listening) = &self.listening {
            listening.set_wanted(wanted, &self.poller, &|| self.watches_connections.load(Ordering::SeqCst));
        }
    }

    // --- both

    fn update_listening(&self) {
        if let Some(listening) = &self.listening {
            listening.update(&self.poller, &|| self.watches_connections.load(Ordering::SeqCst));
        }
    }

    /// Lets go of the listeners, which are about to be closed.
    pub(super) fn close_listeners(&self) {
        if let Some(listening) = &self.listening {
            listening.close(&self.poller);
        }
    }

    pub(super) fn stop_watching(&self) {
        if self.watches_connections.load(Ordering::Relaxed) {
            self.ignore_connections();
        }
    }

    fn ignore_connections(&self) {
        self.watches_connections.store(false, Ordering::SeqCst);
        // As in `watch_connections`.
        let _ = self.poller.set_wanted(&self.connections, CONNECTIONS, false);
        self.update_listening();
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

// Said because the model has this file, too.
#[cfg(test)]
#[path = "timer/tests.rs"]
pub(super) mod tests;
