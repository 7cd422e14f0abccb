//! The application's threads: which of them leads, and whether another request may begin. Threads without a request and without the lead
//! sleep.
//!
//! While requests are in progress the helper drives the connections. It wakes a sleeping thread when a request is ready, and all threads
//! that have requests wait.

use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use fastrack_sys::{Events, Poller, Timer, Waker};

use super::baton::{Threads, MAIN};
use super::{Activity, GvlUsage, Room};
use crate::clock::{Clock, SystemClock};
use crate::sync::Arc;

/// Time from one request to the next where the application reports no GVL events (Ruby 3.1), in microseconds. The next request begins if
/// the threads of all others sleep at that moment.
const WAIT_WITHOUT_GVL_EVENTS: u64 = 3_000;

#[derive(Debug)]
struct Sleeper {
    waker: Waker,
    /// The poller of a sleeping thread. The poller has the waker alone, and a sleeping thread need not read the waker.
    poller: Poller,
}

#[derive(Debug)]
pub(crate) struct AppThreads<C = SystemClock> {
    /// A place to sleep for each seat. Empty with a single thread, which leads whenever it runs the engine, and never sleeps.
    sleepers: Box<[Sleeper]>,
    /// Activities by the numbers of threads. Each is made when its thread needs it.
    activities: Box<[OnceLock<Arc<Activity>>]>,
    room: Room,
    clock: C,
    gvl_usage: Arc<GvlUsage>,
}

/// The next act of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Lead,
    Sleep,
    /// The thread returns from the engine.
    Leave,
}

impl AppThreads {
    pub fn new(room: Room) -> io::Result<Self> {
        Self::with(room, SystemClock)
    }
}

impl<C: Clock> AppThreads<C> {
    fn with(room: Room, clock: C) -> io::Result<Self> {
        let sleeper = |_| {
            let (waker, poller) = (Waker::new()?, Poller::new()?);
            poller.watch(&waker, 0)?;
            Ok(Sleeper { waker, poller })
        };
        let seats = if room.is_for_one() { 0 } else { room.seats() };
        let sleepers = (0..seats).map(sleeper).collect::<io::Result<_>>()?;
        let activities = (0..room.threads()).map(|_| OnceLock::new()).collect();
        Ok(AppThreads { sleepers, activities, room, clock, gvl_usage: Arc::default() })
    }

    /// Whether there is a single thread.
    pub fn is_alone(&self) -> bool {
        self.sleepers.is_empty()
    }

    /// The descriptors that a forked child inherits.
    pub fn inherited_fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        let sleepers = self.sleepers.iter();
        let fds = sleepers.flat_map(|sleeper| sleeper.waker.raw_fds().chain(sleeper.poller.inherited_fds()));
        fds.chain(self.gvl_usage.timer().into_iter().flat_map(Timer::raw_fds))
    }

    pub fn gvl_usage(&self) -> &GvlUsage {
        &self.gvl_usage
    }

    /// The activity of the thread with this number.
    pub fn activity(&self, number: usize) -> &Arc<Activity> {
        self.activities[number].get_or_init(|| Arc::new(Activity::new(Arc::clone(&self.gvl_usage))))
    }

    /// Whether the main thread answers no requests: see [`Room`].
    pub fn spares_main(&self) -> bool {
        self.room.streams() > 0
    }

    // --- threads of the application, with the reactor's lock

    /// No thread takes the lead any more. The main thread goes on once no thread has a request.
    pub fn close(&self, threads: &mut Threads, thread: usize) {
        threads.is_open = false;
        threads.release_lead(thread);
        self.wake(MAIN);
    }

    /// The leader releases the lead, and asks for its [next turn](Self::next_turn).
    pub fn step_down(&self, threads: &mut Threads, thread: usize) {
        threads.release_lead(thread);
        self.wake_main_if_quiet(threads);
    }

    /// Wakes the main thread if no thread has a request, and none leads or may lead.
    fn wake_main_if_quiet(&self, threads: &Threads) {
        if threads.is_quiet() {
            self.wake(MAIN);
        }
    }

    fn wake(&self, thread: usize) {
        self.sleepers.get(thread).into_iter().for_each(|sleeper| sleeper.waker.call());
    }

    /// From now on threads other than the main one return from the engine instead of sleeping.
    pub fn dismiss(&self, threads: &mut Threads) {
        threads.is_over = true;
        threads.take_sleepers().into_iter().for_each(|thread| self.wake(thread));
    }

    /// The next turn of a thread that has just begun, or was woken.
    pub fn next_turn(&self, threads: &mut Threads, thread: usize) -> Turn {
        threads.wake_up(thread);
        threads.arrive(thread);
        if if thread == MAIN { threads.is_quiet() } else { threads.is_over } {
            return Turn::Leave;
        }
        if thread == MAIN && self.spares_main() {
            return Turn::Sleep;
        }
        if threads.lead(thread) {
            return Turn::Lead;
        }
        threads.fall_asleep(thread);
        Turn::Sleep
    }

    /// The leader begins a request.
    pub fn begin_request(&self, threads: &mut Threads, number: usize) {
        threads.began = self.clock.micros();
        self.activity(number).begin_request(&self.clock);
        threads.begin_request();
    }

    /// The thread in this seat has answered its request. Returns None if another thread leads. Otherwise this thread leads, and the result
    /// says whether another request may begin without being in the way of the requests in progress.
    pub fn end_request(&self, threads: &mut Threads, thread: usize, number: usize) -> Option<bool> {
        self.activity(number).end_request(&self.clock);
        threads.end_request();
        if !threads.lead(thread) {
            self.wake_main_if_quiet(threads);
            return None;
        }
        let is_in_the_way = match self.gvl_usage.reports_gvl_events() {
            _ if threads.is_idle() => false,
            true => !self.gvl_usage.has_credit(self.clock.micros()),
            false => self.is_any_runnable(),
        };
        Some(!is_in_the_way)
    }

    /// Whether a thread with a request computes, or waits for a processor. Threads with streams are not checked, because each check is a
    /// system call.
    fn is_any_runnable(&self) -> bool {
        let mut activities = self.activities.iter().filter_map(OnceLock::get);
        activities.any(|activity| activity.is_in_request() && !activity.is_stream() && activity.is_runnable())
    }

    /// Called by a leader that has nothing to do while other threads have requests: the leader goes to sleep. Returns false if the requests
    /// are done by now.
    pub fn sleep_while_others_serve(&self, threads: &mut Threads, thread: usize) -> bool {
        let sleeps = !(threads.is_open && threads.is_idle());
        if sleeps {
            self.sleep_leader(threads, thread);
        }
        sleeps
    }

    /// The leader releases the lead, and goes to sleep.
    pub fn sleep_leader(&self, threads: &mut Threads, thread: usize) {
        threads.release_lead(thread);
        threads.fall_asleep(thread);
        self.wake_main_if_quiet(threads);
    }

    /// The thread returns from the engine, even if there are requests.
    pub fn exit_engine(&self, threads: &mut Threads, thread: usize) {
        if threads.exit_engine(thread) {
            self.summon_one(threads);
        }
        self.wake_main_if_quiet(threads);
    }

    /// Sleeps until the thread is woken, a signal comes, or `millis` milliseconds are over. Needs no lock. Nobody wakes a single thread,
    /// which waits here for the end of the process.
    pub fn sleep(&self, thread: usize, events: &mut Events, millis: Option<u64>) {
        let slept =
            self.sleepers.get(thread).is_some_and(|sleeper| sleeper.poller.wait(events, millis).is_ok());
        if !slept {
            fastrack_sys::sleep(millis.unwrap_or(1));
        }
    }

    // --- streams

    /// The request of the thread in this seat becomes a stream. Another thread takes its place.
    pub fn begin_stream(&self, threads: &mut Threads, thread: usize, number: usize) {
        self.activity(number).begin_stream(&self.clock);
        threads.begin_stream(thread);
        self.order_missing(threads);
        if threads.is_lead_free() && threads.is_idle() {
            self.summon_one(threads);
        }
    }

    /// The thread has ended its stream. Returns the seat that the thread gets; None if the thread is to leave.
    pub fn end_stream(&self, threads: &mut Threads, number: usize) -> Option<usize> {
        self.activity(number).end_request(&self.clock);
        threads.end_stream(number)
    }

    /// Has the main thread start the threads that are missing.
    pub fn order_missing(&self, threads: &mut Threads) {
        let missing = threads.missing();
        if missing > 0 && threads.is_open {
            threads.streams.order_threads(missing);
            self.wake(MAIN);
        }
    }

    /// Has the main thread interrupt the threads with these numbers, whose streams are to end.
    pub fn interrupt(&self, threads: &mut Threads, numbers: Vec<usize>) {
        if !numbers.is_empty() {
            threads.streams.order_interrupts(numbers);
            self.wake(MAIN);
        }
    }

    // --- the helper

    /// Whether a sleeping thread may begin another request without being in the way of the requests in progress.
    pub fn admits_another(&self, threads: &Threads) -> bool {
        let is_free = threads.is_lead_free() && threads.is_anybody_asleep() && threads.has_room();
        is_free
            && match self.gvl_usage.reports_gvl_events() {
                _ if threads.is_idle() => true,
                true => self.gvl_usage.time_until_credit(self.clock.micros()) == Some(0),
                false => {
                    self.clock.micros() >= threads.began + WAIT_WITHOUT_GVL_EVENTS && !self.is_any_runnable()
                }
            }
    }

    /// Time until [another request](Self::admits_another) may begin, in microseconds. `u64::MAX` while a request uses the application's
    /// lock: a timer wakes the helper later. None where the application reports no GVL events.
    pub fn time_until_admission(&self) -> Option<u64> {
        let will_wake = self.gvl_usage.set_awaited(true);
        will_wake.then(|| self.gvl_usage.time_until_credit(self.clock.micros()).unwrap_or(u64::MAX))
    }

    /// Wakes a thread to lead, unless one leads by now. Returns whether a thread leads or will lead.
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
