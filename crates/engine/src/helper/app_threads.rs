//! The application's threads: when one is woken to lead, and whether another request may begin. Those that have nothing to do sleep.
//!
//! While requests are in progress the helper looks after the connections, and wakes a thread that sleeps when there is something for
//! it and all those that have requests wait.

use std::io;
use std::os::fd::RawFd;

use fastrack_sys::{Events, Poller, Timer, Waker};

use crate::baton::{Threads, MAIN};
use crate::clock::{Clock, SystemClock};
use crate::request_state::{Activity, AppLock};
use crate::sync::Arc;

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
    /// Empty with one thread: that leads whenever it is here, and never sleeps.
    places: Box<[Place]>,
    clock: C,
    app_lock: Arc<AppLock>,
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
        Ok(AppThreads { places, clock, app_lock })
    }

    /// Whether there is one thread only.
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

    // --- the application's threads, all of which have the reactor's lock

    /// A thread other than the main one begins to run the engine. None if there are enough.
    pub fn enter(&self, threads: &mut Threads) -> Option<usize> {
        threads.enter(self.places.len())
    }

    /// Nobody takes the lead any more, and the main thread goes on once no thread has a request.
    pub fn close(&self, threads: &mut Threads, thread: usize) {
        threads.is_open = false;
        threads.let_go(thread);
        self.wake(MAIN);
    }

    /// The leader stops leading, and comes back as one that sleeps.
    pub fn give_up(&self, threads: &mut Threads, thread: usize) {
        threads.let_go(thread);
        self.tell_main(threads);
    }

    /// Wakes the main thread if it may go on.
    fn tell_main(&self, threads: &Threads) {
        if threads.is_quiet() {
            self.wake(MAIN);
        }
    }

    fn wake(&self, thread: usize) {
        self.places.get(thread).into_iter().for_each(|place| place.waker.call());
    }

    /// From now on threads other than the main one return from the engine instead of sleeping.
    pub fn dismiss(&self, threads: &mut Threads) {
        threads.is_over = true;
        threads.take_sleepers().into_iter().for_each(|thread| self.wake(thread));
    }

    /// What a thread does that has just begun, or was woken.
    pub fn next_turn(&self, threads: &mut Threads, thread: usize) -> Turn {
        threads.wake_up(thread);
        threads.arrive(thread);
        if if thread == MAIN { threads.is_quiet() } else { threads.is_over } {
            return Turn::Leave;
        }
        if threads.lead(thread) {
            return Turn::Lead;
        }
        threads.fall_asleep(thread);
        Turn::Sleep
    }

    /// The leader has a request.
    pub fn begin_request(&self, threads: &mut Threads, thread: usize) {
        threads.began = self.clock.micros();
        self.places[thread].activity.begin_request(&self.clock);
        threads.begin_request();
    }

    /// The thread has answered its request. Returns whether it leads from now on, and then whether it may begin another request.
    /// It may not while that would be in the way of the requests of others.
    pub fn end_request(&self, threads: &mut Threads, thread: usize) -> Option<bool> {
        self.places[thread].activity.end_request(&self.clock);
        threads.end_request();
        if !threads.lead(thread) {
            self.tell_main(threads);
            return None;
        }
        let is_in_the_way = match self.app_lock.is_told() {
            _ if threads.is_idle() => false,
            true => !self.app_lock.is_spare(self.clock.micros()),
            false => self.is_any_runnable(),
        };
        Some(!is_in_the_way)
    }

    /// Whether a thread that has a request would compute if it had a processor.
    fn is_any_runnable(&self) -> bool {
        self.places.iter().any(|place| place.activity.is_in_request() && place.activity.is_runnable())
    }

    /// There is nothing to do while others have requests: the leader goes to sleep. False if the others are done by now.
    pub fn rest(&self, threads: &mut Threads, thread: usize) -> bool {
        let rests = !(threads.is_open && threads.is_idle());
        if rests {
            self.retire(threads, thread);
        }
        rests
    }

    /// The leader goes to sleep.
    pub fn retire(&self, threads: &mut Threads, thread: usize) {
        threads.let_go(thread);
        threads.fall_asleep(thread);
        self.tell_main(threads);
    }

    /// The thread returns from the engine, though there may be something to do.
    pub fn leave(&self, threads: &mut Threads, thread: usize) {
        if threads.leave(thread) {
            self.summon_one(threads);
        }
        self.tell_main(threads);
    }

    /// Sleeps until it is woken, a signal comes, or so many milliseconds are over. Without the lock. A thread that is alone is woken by
    /// nobody, and waits for the end of its process.
    pub fn sleep(&self, thread: usize, events: &mut Events, millis: Option<u64>) {
        let slept = self.places.get(thread).is_some_and(|place| place.poller.wait(events, millis).is_ok());
        if !slept {
            fastrack_sys::sleep(millis.unwrap_or(1));
        }
    }

    // --- the helper

    /// Whether another thread may have a request. There is one that sleeps, and the request would not be in the way of those in
    /// progress.
    pub fn admits_another(&self, threads: &Threads) -> bool {
        let is_free = threads.is_lead_free() && threads.is_anybody_asleep();
        is_free
            && match self.app_lock.is_told() {
                _ if threads.is_idle() => true,
                true => self.app_lock.time_until_enough(self.clock.micros()) == Some(0),
                false => self.clock.micros() >= threads.began + UNTOLD && !self.is_any_runnable(),
            }
    }

    /// How long it takes until [another request](Self::admits_another) may begin, in microseconds. Without end while a request
    /// uses the application's lock: the helper is told when that has been free for long enough. None where nothing is known.
    pub fn time_until_admission(&self) -> Option<u64> {
        let is_told = self.app_lock.set_awaited(true);
        is_told.then(|| self.app_lock.time_until_enough(self.clock.micros()).unwrap_or(u64::MAX))
    }

    /// Wakes a thread, which leads then, unless one does by now. Returns whether one will come.
    pub fn summon(&self, threads: &mut Threads) -> bool {
        !threads.is_lead_free() || self.summon_one(threads)
    }

    fn summon_one(&self, threads: &mut Threads) -> bool {
        let summoned = threads.summon();
        summoned.into_iter().for_each(|thread| self.wake(thread));
        summoned.is_some()
    }
}

#[cfg(test)]
#[path = "app_threads/tests.rs"]
mod tests;
