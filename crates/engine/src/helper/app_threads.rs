//! The application's threads: one leads, which is to run the engine; the others answer requests, or sleep.
//!
//! The leader answers the request that it finds itself, and gives up the lead for that time. Whoever is done first leads
//! again. Meanwhile the helper looks after the connections, and wakes a thread that sleeps when there is something for it
//! and all those that have requests wait.
//!
//! INVARIANT: while threads may lead and none does, some thread has a request, or has been summoned: it will lead.

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, PoisonError};

use fastrack_sys::{Events, Poller, Timer, Waker};

use crate::clock::{Clock, SystemClock};
use crate::request_state::{Activity, AppLock};
use crate::sync::{Mutex, MutexGuard};

/// The thread that decides when the engine stops: the one that runs it first.
pub(crate) const MAIN: usize = 0;

/// Where the application tells nothing of its lock (Ruby 3.1), in microseconds: after so long a request begins beside others whose
/// threads all sleep at that moment.
const UNTOLD: u64 = 3_000;

#[derive(Debug)]
struct Place {
    waker: Waker,
    /// Of the waker only, so that it need not be read.
    poller: Poller,
    activity: Arc<Activity>,
}

#[derive(Debug)]
pub(crate) struct AppThreads<C = SystemClock> {
    /// Empty with one thread: that always leads.
    places: Box<[Place]>,
    state: Mutex<State>,
    clock: C,
    app_lock: Arc<AppLock>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether threads may take the lead.
    open: bool,
    /// Threads other than the main one return.
    over: bool,
    led: bool,
    /// The threads that are running the engine.
    entered: u64,
    /// Those that have requests.
    serving: u64,
    /// The last to fall asleep is the first to be woken: its memory is in the caches.
    sleepers: Vec<usize>,
    /// The thread that was woken to lead, until it does.
    summoned: Option<usize>,
    /// When a request was last begun, in microseconds.
    began: u64,
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Lead,
    Sleep,
    /// Return from the engine.
    Leave,
}

impl AppThreads {
    pub fn new(threads: usize) -> io::Result<Self> {
        Self::with(threads, SystemClock)
    }
}

impl<C: Clock> AppThreads<C> {
    fn with(threads: usize, clock: C) -> io::Result<Self> {
        let app_lock = Arc::new(AppLock::default());
        let place = |_| {
            let (waker, poller) = (Waker::new()?, Poller::new()?);
            poller.watch(&waker, 0)?;
            let activity = Arc::new(Activity::new(Arc::clone(&app_lock)));
            Ok(Place { waker, poller, activity })
        };
        let places = (0..if threads > 1 { threads } else { 0 }).map(place).collect::<io::Result<_>>()?;
        Ok(AppThreads { places, state: Mutex::default(), clock, app_lock })
    }

    /// Whether there is one thread only. Then nothing else here is used.
    pub fn is_alone(&self) -> bool {
        self.places.is_empty()
    }

    /// The descriptors that a forked child inherits.
    pub fn inherited_fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        let places = self.places.iter();
        let fds = places.flat_map(|place| place.waker.raw_fds().chain(place.poller.inherited_fds()));
        fds.chain(self.app_lock.timer().into_iter().flat_map(Timer::raw_fds))
    }

    pub fn app_lock(&self) -> &AppLock {
        &self.app_lock
    }

    pub fn activity(&self, thread: usize) -> &Arc<Activity> {
        &self.places[thread].activity
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- the application's threads

    /// A thread other than the main one begins to run the engine. None if there are enough.
    pub fn enter(&self) -> Option<usize> {
        let mut state = self.state();
        let thread = (1..self.places.len()).find(|thread| state.entered & 1 << thread == 0)?;
        state.entered |= 1 << thread;
        Some(thread)
    }

    /// The main thread lets all threads lead.
    pub fn open(&self) {
        self.state().open = true;
    }

    /// Nobody takes the lead any more, and the main thread goes on once no thread has a request.
    ///
    /// `leads` says that the caller does so; what belongs to the lead is back in its place.
    pub fn close(&self, leads: bool) {
        let mut state = self.state();
        state.open = false;
        state.led &= !leads;
        self.places[MAIN].waker.call();
    }

    /// The leader stops leading, and comes back as one that sleeps. What belongs to the lead is back in its place.
    pub fn give_up(&self) {
        let mut state = self.state();
        state.led = false;
        self.tell_main(&state);
    }

    /// Wakes the main thread if it may go on.
    fn tell_main(&self, state: &State) {
        if state.is_quiet() {
            self.places[MAIN].waker.call();
        }
    }

    /// From now on threads other than the main one return from the engine instead of sleeping.
    pub fn dismiss(&self) {
        let mut state = self.state();
        state.over = true;
        for thread in std::mem::take(&mut state.sleepers) {
            self.places[thread].waker.call();
        }
    }

    /// What a thread does that has just begun, or was woken.
    pub fn next_turn(&self, thread: usize) -> Turn {
        let mut state = self.state();
        state.sleepers.retain(|sleeper| *sleeper != thread);
        if state.summoned == Some(thread) {
            state.summoned = None;
        }
        if if thread == MAIN { state.is_quiet() } else { state.over } {
            return Turn::Leave;
        }
        if state.lead() {
            return Turn::Lead;
        }
        state.sleepers.push(thread);
        Turn::Sleep
    }

    /// The leader has a request. What belongs to the lead is back in its place.
    pub fn begin_request(&self, thread: usize) {
        let mut state = self.state();
        state.began = self.clock.micros();
        self.places[thread].activity.begin_request(&self.clock);
        state.serving |= 1 << thread;
        state.led = false;
    }

    /// The thread has answered its request. Returns whether it leads from now on, and then whether it may begin another request.
    /// It may not while that would be in the way of the requests of others.
    pub fn end_request(&self, thread: usize) -> Option<bool> {
        self.places[thread].activity.end_request(&self.clock);
        let mut state = self.state();
        state.serving &= !(1 << thread);
        if !state.lead() {
            self.tell_main(&state);
            return None;
        }
        let is_in_the_way = match self.app_lock.is_told() {
            _ if state.serving == 0 => false,
            true => !self.app_lock.is_spare(self.clock.micros()),
            false => self.is_any_runnable(&state),
        };
        Some(!is_in_the_way)
    }

    fn is_any_runnable(&self, state: &State) -> bool {
        let mut serving = (0..self.places.len()).filter(|thread| state.serving & 1 << thread != 0);
        serving.any(|thread| self.activity(thread).is_runnable())
    }

    /// Whether no other thread has a request: then the leader waits for clients itself.
    pub fn is_idle(&self) -> bool {
        self.state().serving == 0
    }

    /// There is nothing to do while others have requests: the leader goes to sleep. What belongs to the lead is back in
    /// its place. False if the others are done by now.
    pub fn rest(&self, thread: usize) -> bool {
        let state = self.state();
        if state.open && state.serving == 0 {
            return false;
        }
        self.lay_down(state, thread);
        true
    }

    /// The process ends, and nobody is to lead: the leader goes to sleep instead. What belongs to the lead is in its place.
    pub fn retire(&self, thread: usize) {
        self.lay_down(self.state(), thread);
    }

    fn lay_down(&self, mut state: MutexGuard<'_, State>, thread: usize) {
        state.led = false;
        state.sleepers.push(thread);
        self.tell_main(&state);
    }

    /// The thread returns from the engine, though there may be something to do. What belongs to the lead is back in its
    /// place if it `leads`.
    pub fn leave(&self, thread: usize, leads: bool) {
        let mut state = self.state();
        state.sleepers.retain(|sleeper| *sleeper != thread);
        state.led &= !leads;
        state.entered &= !(1 << thread);
        let was_summoned = state.summoned == Some(thread);
        if was_summoned {
            state.summoned = None;
        }
        if !state.led && (state.serving == 0 || was_summoned) {
            self.summon_one(&mut state);
        }
        self.tell_main(&state);
    }

    /// Sleeps until it is woken, or a signal comes.
    pub fn sleep(&self, thread: usize, events: &mut Events, millis: Option<u64>) {
        if self.places[thread].poller.wait(events, millis).is_err() {
            // This should not happen. If it does, do not spin.
            fastrack_sys::sleep(1);
        }
    }

    // --- the helper

    /// How many threads have requests.
    pub fn serving(&self) -> u32 {
        self.state().serving.count_ones()
    }

    /// Whether another thread may have a request. There is one that sleeps, and the request would not be in the way of those in
    /// progress.
    pub fn admits_another(&self) -> bool {
        let state = self.state();
        let is_free = state.is_lead_free() && !state.sleepers.is_empty();
        is_free
            && match self.app_lock.is_told() {
                _ if state.serving == 0 => true,
                true => self.app_lock.time_until_enough(self.clock.micros()) == Some(0),
                false => self.clock.micros() >= state.began + UNTOLD && !self.is_any_runnable(&state),
            }
    }

    /// How long it takes until [another request](Self::admits_another) may begin, in microseconds. Without end while a request
    /// uses the application's lock: the helper is told when that has been free for long enough. None where nothing is known.
    pub fn time_until_admission(&self) -> Option<u64> {
        let is_told = self.app_lock.set_awaited(true);
        is_told.then(|| self.app_lock.time_until_enough(self.clock.micros()).unwrap_or(u64::MAX))
    }

    /// Wakes a thread, which leads then, unless one does by now. Returns whether one will come.
    pub fn summon(&self) -> bool {
        let mut state = self.state();
        !state.is_lead_free() || self.summon_one(&mut state)
    }

    fn summon_one(&self, state: &mut State) -> bool {
        let sleeper = if state.open { state.sleepers.pop() } else { None };
        if let Some(thread) = sleeper {
            state.summoned = sleeper;
            self.places[thread].waker.call();
        }
        sleeper.is_some()
    }
}

impl State {
    fn lead(&mut self) -> bool {
        let leads = self.open && !self.led;
        if leads {
            self.led = true;
        }
        leads
    }

    /// Whether no thread may lead, and none is at anything.
    fn is_quiet(&self) -> bool {
        !self.open && !self.led && self.serving == 0
    }

    fn is_lead_free(&self) -> bool {
        self.open && !self.led && self.summoned.is_none()
    }
}

#[cfg(test)]
#[path = "app_threads/tests.rs"]
mod tests;
