//! One thread of the application while it runs the engine: leads, answers requests, sleeps.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, PoisonError};

use fastrack_sys::Events;

use super::run::EXHAUSTION_PAUSE;
use super::schedule::Action;
use super::{Driver, Engine, Finish, LockedReactor};
use crate::app::{App, Flow};
use crate::conn::InFlight;
use crate::helper::{AppThreads, Shared, Turn, MAIN};

/// How long a thread whose request another one has taken waits at a time for the end of the process, in milliseconds.
const END_LOOK: u64 = 1_000;

/// How long the access log's last lines are waited for, in milliseconds.
const LOG_TIME: u64 = 1_000;

/// What a thread has that leads.
pub(super) struct Lead<'e> {
    pub driver: Box<Driver>,
    pub reactor: LockedReactor<'e>,
}

pub(super) struct AppThread<'e> {
    pub engine: &'e Engine,
    pub number: usize,
    pub in_flight: InFlight,
    /// The application wants this thread back.
    pub recalled: bool,
    /// It has answered a request, and another one now would be in the way of those in progress.
    pub gives_way: bool,
    /// Why the first thread returns, if it says so itself.
    finish: Option<Finish>,
    events: Events,
}

impl Engine {
    /// Serves until stopped, or until `limit` requests have been answered. For the first thread of the application only,
    /// which decides when the others [serve](Self::serve), too.
    pub fn run(&self, app: &mut impl App, limit: Option<u64>) -> Finish {
        if self.control.is_closed() {
            return Finish::Closed;
        }
        fastrack_sys::note_application_thread();
        if let Some(driver) = self.driver().as_mut() {
            driver.left = limit;
            driver.finish = None;
            driver.recalled = false;
        }
        self.shared.set_busy();
        let app_threads = self.shared.app_threads();
        if !app_threads.is_alone() {
            self.control.set_lead_over(false);
            app_threads.open();
            app_threads.activity(MAIN).begin();
            app.begin(MAIN, app_threads.activity(MAIN));
        }
        let finish = AppThread::new(self, MAIN).run(app);
        if !self.control.is_closed() {
            let mut reactor = self.shared.reactor();
            if finish == Finish::Lost && !app_threads.is_alone() {
                // What the requests of other threads have left since.
                reactor.hand_off_all();
            }
            reactor.flush_log(LOG_TIME);
            // The process may go on for long without a look at them: at_exit hooks.
            reactor.publish();
            let lines = reactor.take_warnings();
            self.shared.set_waiting(reactor);
            lines.iter().for_each(|line| app.warn(line));
        }
        finish
    }

    /// Serves, in another thread, while the first one runs the engine. Returns when the threads are
    /// [dismissed](Self::dismiss_threads), or with [`Finish::Broken`] when the application wants this thread back.
    pub fn serve(&self, app: &mut impl App) -> Finish {
        if self.control.is_closed() {
            return Finish::Closed;
        }
        let app_threads = self.shared.app_threads();
        let Some(number) = app_threads.enter() else { return Finish::Dismissed };
        let activity = Arc::clone(app_threads.activity(number));
        activity.begin();
        app.begin(number, &activity);
        let finish = catch_unwind(AssertUnwindSafe(|| AppThread::new(self, number).run(app)));
        // It may have had the lead, or the reactor. The message is out, and the master starts another worker.
        let finish = finish.unwrap_or_else(|_| std::process::abort());
        activity.end();
        finish
    }

    /// Whether no thread but perhaps the current one has a request.
    pub fn is_alone(&self) -> bool {
        self.shared.app_threads().is_alone() || self.shared.app_threads().serving() < 2
    }

    /// Has all threads return that [serve](Self::serve): they have no requests.
    pub fn dismiss_threads(&self) {
        if !self.control.is_closed() && !self.shared.app_threads().is_alone() {
            self.shared.app_threads().dismiss();
        }
    }

    /// Puts what belongs to the lead back in its place.
    pub(super) fn put_back(&self, driver: Box<Driver>) {
        *self.driver() = Some(driver);
    }

    fn driver(&self) -> std::sync::MutexGuard<'_, Option<Box<Driver>>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'e> AppThread<'e> {
    fn new(engine: &'e Engine, number: usize) -> Self {
        let request = Arc::clone(&engine.control.all_requests()[number]);
        AppThread {
            engine,
            number,
            in_flight: InFlight::new(request, engine.spooling.clone()),
            recalled: false,
            gives_way: false,
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
            let lead = match self.wait_for_lead(app) {
                Ok(lead) => lead,
                Err(finish) => return finish,
            };
            if let Some(finish) = self.lead(lead, app) {
                return finish;
            }
        }
    }

    /// Takes what belongs to the lead. None in a forked child.
    pub fn take_lead(&self) -> Option<Lead<'e>> {
        let reactor = self.lock()?;
        let driver = self.engine.driver().take()?;
        Some(Lead { driver, reactor })
    }

    pub fn put_back(&self, driver: Box<Driver>) {
        self.engine.put_back(driver);
    }

    /// Locks the reactor. None in a forked child, where a thread that was not copied may have it locked.
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

    /// Sleeps until this thread is to lead, or to return.
    fn wait_for_lead(&mut self, app: &mut impl App) -> Result<Lead<'e>, Finish> {
        let (app_threads, control) = (self.app_threads(), &self.engine.control);
        // The lead may have been over before it could.
        self.gives_way = false;
        loop {
            if control.is_closed() {
                return Err(Finish::Closed);
            }
            if app_threads.is_alone() {
                return self.take_lead().ok_or(Finish::Closed);
            }
            if std::mem::take(&mut self.recalled) {
                if self.number != MAIN {
                    app_threads.leave(self.number, false);
                    return Err(Finish::Broken);
                }
                // Once: the application goes on to want it back.
                if self.finish.is_none() {
                    self.close(false);
                }
            }
            match app_threads.next_turn(self.number) {
                Turn::Lead if control.is_ending() => app_threads.retire(self.number),
                Turn::Lead => return self.take_lead().ok_or(Finish::Closed),
                Turn::Leave if self.number == MAIN => return Err(self.finish()),
                Turn::Leave => return Err(Finish::Dismissed),
                Turn::Sleep => {}
            }
            self.sleep(app, None);
        }
    }

    fn sleep(&mut self, app: &mut impl App, millis: Option<u64>) {
        let (app_threads, number, events) = (self.engine.shared.app_threads(), self.number, &mut self.events);
        let flow = app.block(&mut || app_threads.sleep(number, events, millis));
        self.recalled |= flow == Flow::Break;
    }

    /// Another thread has taken this one's request, because the process ends.
    pub fn await_end(&mut self, app: &mut impl App) {
        while !self.recalled {
            self.sleep(app, Some(END_LOOK));
        }
    }

    /// Does one thing after the other. What ends that is marked as cold: the compiler would take the loop for a short one, and
    /// inline little. Returns when this thread leads no more; if that is for good, with the reason.
    fn lead(&mut self, lead: Lead<'e>, app: &mut impl App) -> Option<Finish> {
        let shared = self.shared();
        let Lead { mut driver, mut reactor } = lead;
        loop {
            if driver.recalled | self.engine.control.is_lead_over() {
                return self.stop_leading(driver, reactor);
            }
            let action = match driver.finished(&mut reactor) {
                Some(finish) => return self.finish_leading(driver, reactor, finish),
                None if self.gives_way => {
                    let lead = self.give_way(driver, reactor, app)?;
                    (driver, reactor) = (lead.driver, lead.reactor);
                    continue;
                }
                None => driver.next_action(&mut reactor),
            };
            if let Action::Wait = action {
                shared.epoch().advance();
            } else {
                shared.begin(matches!(action, Action::Serve(_)));
            }
            // These return None in a forked child, where a thread that was not copied may have the reactor locked.
            let after = match action {
                Action::Serve(connection) => {
                    let lead = self.serve(Lead { driver, reactor }, connection, app)?;
                    (driver, reactor) = (lead.driver, lead.reactor);
                    continue;
                }
                Action::AwaitRequest(connection) => driver.await_request(shared, reactor, connection, app),
                Action::Continue => driver.unlocked(shared, reactor, || app.check()),
                Action::Log(lines) => {
                    let lacks_memory = reactor.take_memory_shortage();
                    driver.unlocked(shared, reactor, || log(app, &lines, lacks_memory))
                }
                Action::Pause => {
                    let mut pause = || fastrack_sys::sleep(EXHAUSTION_PAUSE);
                    driver.unlocked(shared, reactor, || app.block(&mut pause))
                }
                Action::Wait if self.may_wait() => driver.wait(shared, reactor, app),
                Action::Wait => match self.rest(driver, reactor, app) {
                    Some(lead) => {
                        (driver, reactor) = (lead.driver, lead.reactor);
                        continue;
                    }
                    None => return None,
                },
            };
            match after {
                Some(after) => reactor = after,
                None => return self.leave_closed(driver),
            }
        }
    }

    /// This is a forked child.
    #[cold]
    fn leave_closed(&self, driver: Box<Driver>) -> Option<Finish> {
        self.put_back(driver);
        Some(Finish::Closed)
    }

    fn may_wait(&self) -> bool {
        self.app_threads().is_alone() || self.app_threads().is_idle()
    }

    /// The helper looks after the connections, and wakes a thread once the next request is in nobody's way.
    #[cold]
    fn give_way(
        &mut self,
        mut driver: Box<Driver>,
        mut reactor: LockedReactor<'e>,
        app: &mut impl App,
    ) -> Option<Lead<'e>> {
        self.gives_way = false;
        driver.put_off(&mut reactor);
        self.rest(driver, reactor, app)
    }

    /// There is nothing to do while other threads have requests. Leads on if they have not any more.
    #[cold]
    fn rest(
        &mut self,
        driver: Box<Driver>,
        reactor: LockedReactor<'e>,
        app: &mut impl App,
    ) -> Option<Lead<'e>> {
        // From now on the helper looks after the connections.
        self.shared().begin(false);
        drop(reactor);
        self.put_back(driver);
        if !self.app_threads().rest(self.number) {
            return self.take_lead();
        }
        self.sleep(app, None);
        None
    }

    /// There is a reason for which all threads stop. With several of them the first one returns with it.
    #[cold]
    fn finish_leading(
        &mut self,
        mut driver: Box<Driver>,
        reactor: LockedReactor<'e>,
        finish: Finish,
    ) -> Option<Finish> {
        drop(reactor);
        let app_threads = self.app_threads();
        if !app_threads.is_alone() {
            driver.finish = Some(finish);
        }
        self.put_back(driver);
        if app_threads.is_alone() {
            return Some(finish);
        }
        self.engine.control.set_lead_over(true);
        app_threads.close(true);
        None
    }

    /// This thread is to return, or the lead is over.
    #[cold]
    fn stop_leading(&mut self, mut driver: Box<Driver>, mut reactor: LockedReactor<'e>) -> Option<Finish> {
        self.recalled |= std::mem::take(&mut driver.recalled);
        driver.put_off(&mut reactor);
        drop(reactor);
        self.put_back(driver);
        match (self.number, self.recalled) {
            (MAIN, true) if self.app_threads().is_alone() => return Some(Finish::Broken),
            (_, false) => self.app_threads().give_up(),
            (MAIN, true) => self.close(true),
            (number, true) => {
                self.app_threads().leave(number, true);
                return Some(Finish::Broken);
            }
        }
        None
    }

    /// The first thread is to return: no thread takes another request, and it waits for those in progress.
    fn close(&mut self, leads: bool) {
        self.recalled = false;
        self.finish = Some(Finish::Broken);
        self.engine.control.set_lead_over(true);
        self.app_threads().close(leads);
        self.engine.control.notify();
    }

    /// Why the first thread returns.
    fn finish(&mut self) -> Finish {
        let drivers = || self.engine.driver().as_ref().and_then(|driver| driver.finish);
        self.finish.take().or_else(drivers).unwrap_or(Finish::Broken)
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
