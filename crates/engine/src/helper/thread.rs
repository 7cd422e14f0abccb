//! The helper's thread, and when it takes over.

use std::cell::Cell;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::JoinHandle;

use fastrack_sys::{monotonic_millis, spawn_thread, Events};

use super::slow::SlowRequests;
use super::streams::{begin_streams, StreamRounds};
use super::tick::{Tick, Work};
use crate::claim::{ActiveRequest, RequestSettings};
use crate::control::Control;
use crate::ending::Ending;
use crate::handoff::QueueHandle;
use crate::reactor::Reactor;
use crate::shared::Shared;

/// Longest wait for events while a request lasts, in milliseconds: the request's time limit may have been changed.
const MAX_EVENT_WAIT: u64 = 100;

/// Longest time between two looks that counts, in milliseconds. If more has passed, the machine has stood still.
const MAX_COUNTED_GAP: u64 = 1_000;

/// Time until a request that could not begin is tried again, in milliseconds.
const MIN_RETRY: u64 = 1;
/// The same time where nothing tells when the request may begin: with Ruby 3.1.
const RETRY_WITHOUT_GVL_EVENTS: u64 = 2;
/// Longest such time where the time of the next request is known, or the threads report it. Each look takes processor time from others.
const MAX_RETRY: u64 = 10;

/// Milliseconds until the next look at a client that has not read all of its response. The socket's buffer lasts longer, unless the client
/// reads more than 10 MB a second.
const UNSENT_WAIT: u64 = 20;

#[derive(Debug)]
pub(crate) struct Helper {
    shared: Arc<Shared>,
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Helper {
    /// Starts the thread, with all signals blocked in it. To be called after the last fork of this process's own.
    pub fn start(
        shared: Arc<Shared>,
        control: Arc<Control>,
        ending: Ending,
        settings: &RequestSettings,
    ) -> io::Result<Self> {
        let slow = SlowRequests::new(settings);
        let its = (Arc::clone(&shared), Arc::clone(&control));
        let work = move || {
            if catch_unwind(AssertUnwindSafe(|| run(&its.0, &its.1, &ending, slow))).is_err() {
                // The panic has been logged. Connections may be in any state, so the master starts another worker.
                std::process::abort();
            }
        };
        let thread = spawn_thread("fastrack helper", work)?;
        Ok(Helper { shared, control, thread: Some(thread), pid: std::process::id() })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.pid != std::process::id() {
            // A forked child has no such thread, and the timer is the parent's.
            std::mem::forget(thread);
            return;
        }
        self.control.end_helper();
        self.shared.timer().wake_helper();
        // The thread cannot have panicked: a panic ends the process.
        let _ = thread.join();
    }
}

fn run(shared: &Shared, control: &Control, ending: &Ending, slow: SlowRequests) {
    let mut events = Events::default();
    // The helper computes for microseconds, and a client may wait meanwhile. So the helper must not wait for a request that has the
    // processor.
    fastrack_sys::take_short_turns();
    let drive =
        Drive { shared, control, ending, slow, step: Cell::default(), watches_connections: Cell::default() };
    let mut tick = Tick::new(shared.baton(), drive);
    let mut rounds = StreamRounds::new(shared, control);
    loop {
        let wait = [tick.next_look(), rounds.wait()].into_iter().flatten().min();
        if shared.timer().wait(&mut events, wait).is_none() {
            // The thread of the application ends this process when it returns.
            return shared.reactor().set_lost_descriptors();
        }
        if control.is_helper_over() {
            return;
        }
        if shared.timer().is_master_gone(&events) {
            control.orphan();
            ending.limit_orphan();
        }
        tick.look();
        rounds.look();
    }
}

/// The time that the leader has been at one step.
#[derive(Clone, Copy, Default)]
struct Step {
    epoch: u64,
    seen: u64,
    millis: u64,
}

impl Step {
    /// Notes that the leader is at the step of this epoch. Returns for how many milliseconds the leader has been seen there.
    fn see(&mut self, epoch: u64, now: u64) -> u64 {
        let millis = match self.epoch == epoch {
            true => self.millis + now.saturating_sub(self.seen).min(MAX_COUNTED_GAP),
            false => 0,
        };
        *self = Step { epoch, seen: now, millis };
        millis
    }
}

/// Drives a worker's connections.
struct Drive<'a> {
    shared: &'a Shared,
    control: &'a Control,
    ending: &'a Ending,
    slow: SlowRequests,
    step: Cell<Step>,
    watches_connections: Cell<bool>,
}

impl Work for Drive<'_> {
    fn drive(&self, since: u64) -> Option<u64> {
        let Drive { shared, control, .. } = self;
        let driving = shared.baton().drive()?;
        let mut reactor = shared.try_reactor()?;
        if shared.baton().epoch() != since {
            return None;
        }
        reactor.note_long_request();
        if reactor.is_orphan_accepting() {
            shared.watch_no_listeners();
            reactor.end_accepting();
        }
        let until_stream = self.begin_streams(&mut reactor);
        let longest = if self.send_responses() { UNSENT_WAIT } else { MAX_EVENT_WAIT };
        let longest = match shared.app_threads().is_alone() {
            true => self.drive_for_thread(since, &mut reactor),
            false => self.drive_for_threads(since, &mut reactor),
        }
        .min(longest)
        .min(until_stream);
        let deadline = control.all_requests().map(|request| request.deadline()).min();
        let next = next_look(&reactor, deadline.unwrap_or(u64::MAX)).min(longest);
        drop(reactor);
        self.slow.look(control);
        let _driving = self.ending.end_overdue(driving);
        let mut step = Step::default();
        // A request has limits of its own. The time of any other step begins at 0.
        let is_none = |request: &Arc<ActiveRequest>| request.is_none() || request.is_stream();
        if shared.baton().serving() == 0 && control.all_requests().all(is_none) {
            step = self.step.get();
            self.ending.end_stuck(step.see(since, monotonic_millis()));
        }
        self.step.set(step);
        Some(next)
    }

    fn watch(&self) {
        if self.shared.app_threads().is_alone() {
            return;
        }
        // The helper does not drive while the application forks.
        if let Some(driving) = self.shared.baton().drive() {
            if let Some(mut reactor) = self.shared.try_reactor() {
                self.begin_streams(&mut reactor);
                self.send_responses();
            }
            self.slow.look(self.control);
            drop(self.ending.end_overdue(driving));
        }
    }

    fn rest(&self) {
        self.watch_connections(false);
        self.shared.timer().watch_listeners(false);
        self.shared.app_threads().gvl_usage().set_awaited(false);
    }
}

impl Drive<'_> {
    fn watch_connections(&self, is_wanted: bool) {
        if self.watches_connections.replace(is_wanted) != is_wanted {
            self.shared.timer().watch_connections(is_wanted);
        }
    }
}

/// Each method returns the longest time until the next look, in milliseconds.
impl Drive<'_> {
    /// For a worker with one thread of the application.
    fn drive_for_thread(&self, since: u64, reactor: &mut Reactor) -> u64 {
        reactor.drive(&|| self.shared.baton().epoch() != since, &|_| false);
        self.watch_connections(true);
        self.shared.timer().watch_listeners(reactor.may_accept_for_others());
        MAX_EVENT_WAIT
    }

    /// For a worker with several threads, when no thread leads, or the leader makes no progress. Wakes a thread if there is work for it.
    fn drive_for_threads(&self, since: u64, reactor: &mut Reactor) -> u64 {
        let Drive { shared, control, .. } = self;
        let app_threads = shared.app_threads();
        let admits_another = app_threads.admits_another(&reactor.threads);
        let is_first_choice = |reactor: &Reactor| {
            admits_another && !reactor.queue_handle().is_some_and(QueueHandle::is_another_idle)
        };
        let is_back = || shared.baton().epoch() != since || shared.baton().is_anybody_returning();
        reactor.drive(&is_back, &is_first_choice);
        // A thread with the lead would see new clients and the shared queue.
        let is_anybody_there = reactor.has_ready() || control.is_noticed() || control.is_anybody_waiting();
        if is_anybody_there && (control.is_noticed() || is_first_choice(reactor)) {
            app_threads.summon(&mut reactor.threads);
        }
        self.watch_connections(!is_anybody_there);
        if !is_anybody_there || admits_another {
            app_threads.gvl_usage().set_awaited(false);
        }
        match (is_anybody_there, admits_another) {
            (false, _) => MAX_EVENT_WAIT,
            (true, false) => retry_time(app_threads.time_until_admission()),
            (true, true) => MIN_RETRY,
        }
    }

    /// Makes streams of responses. Returns the time until the next look, in milliseconds.
    fn begin_streams(&self, reactor: &mut Reactor) -> u64 {
        begin_streams(self.shared, self.control, reactor)
    }

    /// Sends the buffered parts of responses that clients have not taken yet. Returns whether there were any. The caller has the reactor,
    /// so that no connection is closed meanwhile.
    fn send_responses(&self) -> bool {
        let requests = self.control.all_requests().filter(|request| !request.is_stream());
        requests.fold(false, |any, request| request.flush_lent() | any)
    }
}

/// Time until the connections or the requests need another look, in milliseconds.
fn next_look(reactor: &Reactor, deadline: u64) -> u64 {
    let next = reactor.next_deadline().unwrap_or(u64::MAX).min(deadline);
    match reactor.events() {
        0 => next.saturating_sub(monotonic_millis()).clamp(1, MAX_EVENT_WAIT),
        _ => 0,
    }
}

/// Time until the next try to begin another request, in milliseconds. The request may begin after `until_admission` microseconds.
fn retry_time(until_admission: Option<u64>) -> u64 {
    until_admission
        .map_or(RETRY_WITHOUT_GVL_EVENTS, |micros| micros.div_ceil(1_000).clamp(MIN_RETRY, MAX_RETRY))
}

#[cfg(test)]
mod tests;
