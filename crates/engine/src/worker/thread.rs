//! One thread of the application while it runs the engine: it leads, answers requests, or sleeps.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use fastrack_sys::Events;

use super::{Engine, LockedReactor};
use crate::admission::{AppThreads, Orders, Turn, MAIN};
use crate::app::{App, Flow};
use crate::conn::{InFlight, LentBuffer};
use crate::reactor::{Action, Finish, Reactor};
use crate::settings::SHORTAGE_PAUSE;
use crate::shared::Shared;

/// Time of one wait for the end of the process, in a thread whose request was seized, in milliseconds.
const END_POLL_TIME: u64 = 1_000;

/// Time that the access log's last lines get, in milliseconds.
const LAST_LOG_TIME: u64 = 1_000;

pub(super) struct AppThread<'e> {
    pub engine: &'e Engine,
    pub number: usize,
    /// The thread's seat; None while the thread has a stream.
    pub seat: usize,
    pub in_flight: InFlight,
    /// Whether the application wants this thread back.
    pub recalled: bool,
    /// Whether the thread has answered a request, and another one now would be in the way of those in progress.
    pub gives_way: bool,
    /// Whether the thread's stream is over, and there are enough other threads.
    pub is_spare: bool,
    /// Why the first thread returns, if it decides that itself.
    finish: Option<Finish>,
    pub events: Events,
}

impl Engine {
    /// Serves until stopped, or until `limit` requests have been answered. Only for the first thread of the application, which decides when
    /// the others [serve](Self::serve), too.
    pub fn run(&self, app: &mut impl App, limit: Option<u64>) -> Finish {
        if self.control.is_closed() {
            return Finish::Closed;
        }
        fastrack_sys::note_application_thread();
        let mut reactor = self.shared.reactor();
        reactor.lead.begin_run(limit);
        reactor.threads.is_open = true;
        let app_threads = self.shared.app_threads();
        if app_threads.spares_main() {
            app_threads.summon(&mut reactor.threads);
        }
        drop(reactor);
        self.shared.set_busy();
        let has_times = self.share_times(MAIN);
        if has_times || !app_threads.is_alone() {
            app_threads.activity(MAIN).begin();
            app.begin(MAIN, app_threads.activity(MAIN));
        }
        let finish = AppThread::new(self, MAIN, MAIN).run(app);
        if !self.control.is_closed() {
            let mut reactor = self.shared.reactor();
            if finish == Finish::Lost && !app_threads.is_alone() {
                // The requests of other threads may have left connections since.
                reactor.hand_off_all();
            }
            reactor.flush_log(LAST_LOG_TIME);
            // At_exit hooks may run for a long time, and no look at these lines comes after this one.
            reactor.publish();
            let lines = reactor.take_warnings();
            self.shared.set_waiting(reactor);
            lines.iter().for_each(|line| app.warn(line));
        }
        finish
    }

    /// Serves in another thread while the first one runs the engine. Returns when the threads are [dismissed](Self::dismiss_threads), after
    /// a stream when there are enough other threads, or with [`Finish::Broken`] when the application wants this thread back.
    pub fn serve(&self, app: &mut impl App) -> Finish {
        if self.control.is_closed() {
            return Finish::Closed;
        }
        let app_threads = self.shared.app_threads();
        let entered = self.shared.reactor().threads.enter();
        let Some((seat, number)) = entered else { return Finish::Dismissed };
        let activity = Arc::clone(app_threads.activity(number));
        self.share_times(number);
        activity.begin();
        app.begin(number, &activity);
        let finish = catch_unwind(AssertUnwindSafe(|| AppThread::new(self, seat, number).run(app)));
        // The thread may have had the lead, or the reactor. The panic has been logged, and the master starts another worker.
        let finish = finish.unwrap_or_else(|_| std::process::abort());
        activity.end();
        finish
    }

    /// Lets the thread with this number report its GVL events, if its requests are timed. Returns whether they are.
    fn share_times(&self, number: usize) -> bool {
        let times = self.control.request_of(number).times();
        times.into_iter().for_each(|times| self.shared.app_threads().activity(number).share_times(times));
        times.is_some()
    }

    /// Whether no other thread has a request.
    pub fn is_alone(&self) -> bool {
        self.shared.baton().serving() < 2
    }

    /// Makes all threads return that [serve](Self::serve). They have no requests.
    pub fn dismiss_threads(&self) {
        if !self.control.is_closed() && !self.shared.app_threads().is_alone() {
            self.shared.app_threads().dismiss(&mut self.shared.reactor().threads);
        }
    }
}

impl<'e> AppThread<'e> {
    fn new(engine: &'e Engine, seat: usize, number: usize) -> Self {
        let request = Arc::clone(engine.control.request_of(number));
        request.set_seat(seat);
        request.set_thread();
        let lent_buffer = Arc::clone(engine.lent_buffers[number].get_or_init(|| LentBuffer::of(&request)));
        AppThread {
            engine,
            number,
            seat,
            in_flight: InFlight::new(request, lent_buffer, engine.spooling.clone()),
            recalled: false,
            gives_way: false,
            is_spare: false,
            finish: None,
            events: Events::default(),
        }
    }

    pub fn shared(&self) -> &'e Shared {
        &self.engine.shared
    }

    pub fn app_threads(&self) -> &'e AppThreads {
        self.engine.shared.app_threads()
    }

    fn run(&mut self, app: &mut impl App) -> Finish {
        loop {
            let reactor = match self.wait_for_lead(app) {
                Ok(reactor) => reactor,
                Err(finish) => return finish,
            };
            if let Some(finish) = self.lead(reactor, app) {
                return finish;
            }
        }
    }

    /// Locks the reactor. None in a forked child: a thread that was not copied may have the lock.
    #[inline(always)]
    pub fn lock(&self) -> Option<LockedReactor<'e>> {
        (!self.engine.control.is_closed()).then(|| self.shared().reactor())
    }

    /// As [`lock`](Self::lock), also without the lead.
    #[inline(always)]
    pub fn lock_after_request(&self, leads: bool) -> Option<LockedReactor<'e>> {
        if self.engine.control.is_closed() {
            return None;
        }
        let shared = self.shared();
        if !leads {
            return Some(shared.reactor_at_once());
        }
        Some(shared.reactor())
    }

    /// Calls the application with the reactor unlocked. None in a forked child.
    pub fn unlocked(
        &mut self,
        reactor: LockedReactor<'e>,
        call: impl FnOnce() -> Flow,
    ) -> Option<LockedReactor<'e>> {
        drop(reactor);
        let flow = call();
        self.note(flow);
        self.lock()
    }

    pub fn note(&mut self, flow: Flow) {
        self.recalled |= flow == Flow::Break;
    }

    /// Sleeps until this thread is to lead, or to return.
    fn wait_for_lead(&mut self, app: &mut impl App) -> Result<LockedReactor<'e>, Finish> {
        let app_threads = self.app_threads();
        // The lead may have ended before this thread could take it.
        self.gives_way = false;
        if self.is_spare {
            return Err(if self.recalled { Finish::Broken } else { Finish::Dismissed });
        }
        loop {
            let mut reactor = self.lock().ok_or(Finish::Closed)?;
            if std::mem::take(&mut self.recalled) {
                if self.number != MAIN {
                    app_threads.exit_engine(&mut reactor.threads, self.seat);
                    return Err(Finish::Broken);
                }
                // The main thread closes the engine once, although the application keeps asking.
                if self.finish.is_none() {
                    self.close(&mut reactor);
                }
            }
            match app_threads.next_turn(&mut reactor.threads, self.seat) {
                Turn::Lead if self.engine.control.is_ending() => {
                    app_threads.sleep_leader(&mut reactor.threads, self.seat);
                }
                Turn::Lead => return Ok(reactor),
                Turn::Leave if self.number == MAIN => return Err(self.finish(&reactor)),
                Turn::Leave => return Err(Finish::Dismissed),
                Turn::Sleep => {}
            }
            if self.number == MAIN {
                let orders = reactor.threads.streams.take_orders();
                if !orders.are_none() {
                    drop(reactor);
                    self.follow(&orders, app);
                    continue;
                }
            }
            drop(reactor);
            self.sleep(app, None);
        }
    }

    /// Starts threads, and interrupts threads whose streams are to end. If a thread cannot be started, the helper orders it again.
    fn follow(&mut self, orders: &Orders, app: &mut impl App) {
        for _ in 0..orders.start {
            if !app.start_thread() {
                self.shared().reactor().threads.streams.settle_start();
            }
        }
        orders.interrupt.iter().for_each(|thread| app.interrupt(*thread));
        let flow = app.check();
        self.note(flow);
    }

    fn sleep(&mut self, app: &mut impl App, millis: Option<u64>) {
        let (app_threads, seat, events) = (self.engine.shared.app_threads(), self.seat, &mut self.events);
        let flow = app.block(&mut || app_threads.sleep(seat, events, millis));
        self.note(flow);
    }

    /// The helper has seized this thread's request, because the process ends.
    pub fn await_end(&mut self, app: &mut impl App) {
        while !self.recalled {
            self.sleep(app, Some(END_POLL_TIME));
        }
    }

    /// Leads: does one action after the other. Returns when this thread no longer leads; with a reason if it is not to lead again.
    ///
    /// Functions that end the loop are marked as cold. Otherwise the compiler takes the loop for a short one, and inlines few functions.
    fn lead(&mut self, mut reactor: LockedReactor<'e>, app: &mut impl App) -> Option<Finish> {
        let shared = self.shared();
        loop {
            if self.recalled | !reactor.threads.is_open | self.engine.control.is_ending() {
                return self.stop_leading(reactor);
            }
            if reactor.is_stop_due() {
                shared.watch_no_listeners();
                reactor.end_accepting();
            }
            let action = match reactor.finished() {
                Some(finish) => return self.finish_leading(reactor, finish),
                None if self.gives_way => {
                    reactor = self.give_way(reactor, app)?;
                    continue;
                }
                None => reactor.next_action(),
            };
            if let Action::Wait = action {
                shared.baton().step();
            } else {
                shared.begin();
            }
            // These functions return None in a forked child, where a thread that was not copied may have the reactor's lock.
            let after = match action {
                Action::Serve(connection) => {
                    reactor = self.serve(reactor, connection, app)?;
                    continue;
                }
                Action::AwaitRequest(connection) => self.await_request(reactor, connection, app),
                Action::Continue => self.unlocked(reactor, || app.check()),
                Action::Log(lines) => {
                    let lacks_memory = reactor.take_memory_shortage();
                    self.unlocked(reactor, || log(app, &lines, lacks_memory))
                }
                Action::Pause => {
                    let mut pause = || fastrack_sys::sleep(SHORTAGE_PAUSE);
                    self.unlocked(reactor, || app.block(&mut pause))
                }
                Action::Wait if reactor.threads.is_idle() => self.wait(reactor, app),
                Action::Wait => {
                    reactor = self.rest(reactor, app)?;
                    continue;
                }
            };
            let Some(after) = after else { return Some(Finish::Closed) };
            reactor = after;
        }
    }

    /// The helper looks after the connections, and wakes a thread once the next request is in nobody's way.
    #[cold]
    fn give_way(&mut self, mut reactor: LockedReactor<'e>, app: &mut impl App) -> Option<LockedReactor<'e>> {
        self.gives_way = false;
        reactor.queue_next();
        self.rest(reactor, app)
    }

    /// There is nothing to do while other threads have requests. This thread keeps the lead if they have none any more.
    #[cold]
    fn rest(&mut self, mut reactor: LockedReactor<'e>, app: &mut impl App) -> Option<LockedReactor<'e>> {
        // From now on the helper looks after the connections.
        self.shared().begin();
        if !self.app_threads().sleep_while_others_serve(&mut reactor.threads, self.seat) {
            return Some(reactor);
        }
        drop(reactor);
        self.sleep(app, None);
        None
    }

    /// All threads stop for some reason. The first thread returns with the reason.
    #[cold]
    fn finish_leading(&mut self, mut reactor: LockedReactor<'e>, finish: Finish) -> Option<Finish> {
        reactor.lead.finish = Some(finish);
        self.app_threads().close(&mut reactor.threads, self.seat);
        None
    }

    /// This thread is to return, or the lead is over.
    #[cold]
    fn stop_leading(&mut self, mut reactor: LockedReactor<'e>) -> Option<Finish> {
        reactor.queue_next();
        match (self.number, self.recalled) {
            (_, false) => self.app_threads().step_down(&mut reactor.threads, self.seat),
            (MAIN, true) => self.close(&mut reactor),
            (_, true) => {
                self.app_threads().exit_engine(&mut reactor.threads, self.seat);
                return Some(Finish::Broken);
            }
        }
        None
    }

    /// The first thread is to return. No thread takes another request, and this thread waits for requests in progress.
    fn close(&mut self, reactor: &mut LockedReactor<'e>) {
        self.recalled = false;
        self.finish = Some(Finish::Broken);
        self.app_threads().close(&mut reactor.threads, self.seat);
        self.engine.control.notify();
    }

    /// Why the first thread returns.
    fn finish(&mut self, reactor: &Reactor) -> Finish {
        self.finish.take().or(reactor.lead.finish).unwrap_or(Finish::Broken)
    }
}

#[cold]
fn log(app: &mut impl App, lines: &[String], lacks_memory: bool) -> Flow {
    lines.iter().for_each(|line| app.warn(line));
    if lacks_memory {
        app.free_memory()
    } else {
        app.check()
    }
}

#[cfg(test)]
mod tests;
