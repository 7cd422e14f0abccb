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

use super::listening::{Listening, Source};
use crate::admission::{is_busy, Baton};
use crate::sync::{AtomicU64, Ordering};

/// What takes longer than this wakes the helper.
pub(super) const SOON: Duration = Duration::from_millis(1);

/// The timer is stopped this often in a row, then it may fire, so that the helper sees whether it had better keep the
/// timer: setting and stopping it for each request costs more than a look now and then.
const STOPS: u8 = 8;

/// What the helper's poller watches: each has its number as its token.
#[repr(u64)]
pub(super) enum Watched {
    Connections,
    Timer,
    Waker,
    /// Another [timer](HelperTimer::watch_beside).
    Beside,
    /// The first listener; the others follow.
    Listener,
}

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

/// Who has set the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Who {
    /// Nobody: the application's thread sets it when it gets something to do.
    Nobody,
    /// Nobody, and the helper watches the connections until that thread makes progress.
    Watching,
    /// The application's thread when it woke up, or for what it does between two requests.
    Woken,
    /// The application's thread, for what it does, which began soon after it woke up.
    Set,
    /// The helper keeps it.
    Kept,
}

/// The timer's state. Both threads change it, so it is kept in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    who: Who,
    /// How often the timer was stopped since it last fired.
    stops: u8,
    /// The epoch for which the application's thread has set it.
    since: u64,
}

impl State {
    fn of(number: u64) -> Self {
        let who = match number & 0xf {
            0 => Who::Nobody,
            1 => Who::Watching,
            2 => Who::Woken,
            3 => Who::Set,
            _ => Who::Kept,
        };
        State { who, stops: (number >> 4) as u8 & 0xf, since: number >> 8 }
    }

    fn number(self) -> u64 {
        self.since << 8 | u64::from(self.stops) << 4 | self.who as u64
    }
}

#[derive(Debug)]
pub(crate) struct HelperTimer<A = Timer> {
    timer: A,
    waker: Waker,
    /// The timer, the waker and, while they are watched, the connections.
    poller: Poller,
    connections: OwnedFd,
    /// None where the connections' poller has the listeners.
    listening: Option<Listening>,
    /// A [`State`].
    state: AtomicU64,
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
        poller.watch_timer(&timer, Watched::Timer as u64)?;
        let listening = (!listeners.is_empty()).then(|| Listening::new(listeners, Watched::Listener as u64));
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
        poller.watch(&waker, Watched::Waker as u64)?;
        poller.add(&connections, Watched::Connections as u64)?;
        poller.set_wanted(&connections, Watched::Connections as u64, false)?;
        Ok(HelperTimer { timer, waker, poller, connections, listening, state: AtomicU64::new(0) })
    }

    /// Another timer is to wake the helper, as connections do: while something lasts.
    pub fn watch_beside(&self, timer: &Timer) -> io::Result<()> {
        self.poller.watch_timer(timer, Watched::Beside as u64)
    }

    /// Wakes the helper, now or when it waits next. One system call; async-signal-safe.
    pub(super) fn wake_helper(&self) {
        self.waker.call();
    }

    // --- the application's thread

    /// The thread has woken up and is busy from this epoch on, which must have been stored before: either the
    /// helper sees that, or this sees that the helper has gone to sleep.
    pub(super) fn woken(&self, epoch: u64) {
        let state = self.state(Ordering::SeqCst);
        if state.who == Who::Nobody {
            self.set(State { who: Who::Woken, since: epoch, ..state });
        }
    }

    /// Something that may last begins in this epoch. For a request, a timer set when the thread woke up will do.
    #[inline]
    pub(super) fn begin(&self, epoch: u64, is_request: bool) {
        let state = self.state(Ordering::Relaxed);
        let next = State { who: if is_request { Who::Set } else { Who::Woken }, since: epoch, ..state };
        match state.who {
            Who::Nobody => self.set(next),
            Who::Watching => {
                self.set(next);
                self.ignore_connections();
            }
            Who::Woken if is_request => {
                self.change(state, next);
            }
            _ => {}
        }
    }

    pub(super) fn idle(&self) {
        self.stop_watching();
        let state = self.state(Ordering::Relaxed);
        let is_own = matches!(state.who, Who::Woken | Who::Set) && state.stops < STOPS;
        if is_own && self.change(state, State { who: Who::Nobody, stops: state.stops + 1, ..state }) {
            self.timer.stop();
            // The helper may have taken the timer in between: it would wait for one that nobody sets.
            if self.state(Ordering::SeqCst).who == Who::Kept {
                self.fire_in(SOON);
            }
        }
    }

    fn set(&self, state: State) {
        self.state.store(state.number(), Ordering::Release);
        self.fire_in(SOON);
    }

    // --- the helper

    /// Waits until the helper is woken, the timer fires, a watched connection has an event, or this many milliseconds
    /// are over. None if the application has closed the poller.
    pub(super) fn wait(&self, events: &mut Events, millis: Option<u64>) -> Option<Wake> {
        match self.poller.wait(events, millis) {
            Ok(()) if events.iter().any(|event| event.token == Watched::Timer as u64) => Some(Wake::Timer),
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
        loop {
            let state = self.state(Ordering::Acquire);
            let since = match state.who {
                Who::Nobody | Who::Watching => None,
                Who::Kept => Some(before),
                Who::Woken | Who::Set => Some(state.since),
            };
            let who = if since.is_some() { Who::Kept } else { state.who };
            // It fails where the application's thread changes the state at this moment.
            if self.change(state, State { who, stops: 0, ..state }) {
                return since;
            }
        }
    }

    pub(super) fn fire_in(&self, time: Duration) {
        self.timer.set(time);
    }

    /// Leaves the timer to the application's thread; false if that has become busy meanwhile.
    pub(super) fn leave(&self, baton: &Baton) -> bool {
        self.give(Who::Nobody);
        !(is_busy(baton.epoch()) && self.pass(Who::Nobody, Who::Kept))
    }

    /// The application's thread has been busy with one thing since the epoch `since`: watches the connections, and
    /// leaves the timer to that thread for when it makes progress. False if it has done so by now.
    pub(super) fn watch_connections(&self, baton: &Baton, since: u64) -> bool {
        self.give(Who::Watching);
        // It cannot fail; and if it did there would be the next look.
        let _ = self.poller.set_wanted(&self.connections, Watched::Connections as u64, true);
        self.update_listening();
        if baton.epoch() == since {
            return true;
        }
        // Unless that thread has set the timer by now.
        self.pass(Who::Watching, Who::Kept);
        self.ignore_connections();
        false
    }

    /// Takes the timer if the application's thread is busy without one: it did not know yet that it was left the
    /// timer, or has not begun anything since. Otherwise what it does next could last without the helper noticing.
    pub(super) fn take_if_missing(&self, epoch: u64) -> bool {
        is_busy(epoch) && self.pass(Who::Nobody, Who::Kept)
    }

    /// Watches the connections again, or not, while the same thing lasts: after [`watch_connections`](Self::watch_connections).
    /// Ignored, they have something that nobody can take now.
    pub(super) fn watch_on(&self, wanted: bool) {
        let (from, to) = if wanted { (Who::Nobody, Who::Watching) } else { (Who::Watching, Who::Nobody) };
        if self.pass(from, to) {
            // As in `watch_connections`.
            let _ = self.poller.set_wanted(&self.connections, Watched::Connections as u64, wanted);
        }
    }

    /// Watches the listeners together with the connections from now on, or no more.
    pub(super) fn want_listeners(&self, wanted: bool) {
        if let Some(listening) = &self.listening {
            listening.set_wanted(wanted, &self.poller, &|| self.is_watching());
        }
    }

    // --- both

    fn update_listening(&self) {
        if let Some(listening) = &self.listening {
            listening.update(&self.poller, &|| self.is_watching());
        }
    }

    /// Lets go of the listeners, which are about to be closed.
    pub(super) fn close_listeners(&self) {
        if let Some(listening) = &self.listening {
            listening.close(&self.poller);
        }
    }

    pub(super) fn stop_watching(&self) {
        if self.state(Ordering::Relaxed).who == Who::Watching && self.pass(Who::Watching, Who::Nobody) {
            self.ignore_connections();
        }
    }

    /// To be called once the state says so: the last of both threads here knows how it ends.
    fn ignore_connections(&self) {
        // As in `watch_connections`.
        let _ = self.poller.set_wanted(&self.connections, Watched::Connections as u64, false);
        self.update_listening();
    }

    fn is_watching(&self) -> bool {
        self.state(Ordering::SeqCst).who == Who::Watching
    }

    fn state(&self, order: Ordering) -> State {
        State::of(self.state.load(order))
    }

    /// The helper has the timer, and gives it away.
    fn give(&self, who: Who) {
        self.state.store(State { who, stops: 0, since: 0 }.number(), Ordering::SeqCst);
    }

    fn pass(&self, from: Who, to: Who) -> bool {
        let pass = |number| {
            let state = State::of(number);
            (state.who == from).then_some(State { who: to, ..state }.number())
        };
        self.state.fetch_update(Ordering::SeqCst, Ordering::Relaxed, pass).is_ok()
    }

    fn change(&self, from: State, to: State) -> bool {
        let (from, to) = (from.number(), to.number());
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

// The model compiles this file by its path, where the tests would be looked for in another folder.
#[cfg(test)]
#[path = "timer/tests.rs"]
pub(super) mod tests;
