//! Has the application answer a request.

use std::os::fd::AsFd;

use super::thread::{AppThread, Lead};
use super::{Driver, Engine};
use crate::app::{App, Flow};
use crate::conn::{Connection, ResponseWriter, Stage};
use crate::reactor::Reactor;

impl<'e> AppThread<'e> {
    /// Serves a ready request. Of several threads, another one may lead meanwhile, and afterwards: then this returns None,
    /// as in a forked child.
    pub(super) fn serve(
        &mut self,
        lead: Lead<'e>,
        connection: Box<Connection>,
        app: &mut impl App,
    ) -> Option<Lead<'e>> {
        let Lead { mut driver, mut reactor } = lead;
        let (engine, number) = (self.engine, self.number);
        let (shared, control) = (self.shared(), &engine.control);
        let Some(mut connection) = reactor.refuse_if_late(connection) else {
            return Some(Lead { driver, reactor });
        };
        let settings = reactor.settings();
        connection.open_body(settings, &self.in_flight, control);
        let Some(mut request) = connection.request(settings) else {
            // A connection that is ready always has one.
            reactor.close(connection);
            return Some(Lead { driver, reactor });
        };
        let served = connection.served.saturating_add(1);
        let last = settings.keep_alive_requests != 0 && served >= settings.keep_alive_requests;
        let now = self.in_flight.begin(connection.raw_fd(), &mut request, connection.arrived);
        driver.count_request(now);
        if reactor.is_logging() {
            self.in_flight.sent.began = fastrack_sys::monotonic_micros();
        }
        let (fd, in_flight) = (connection.as_fd(), &mut self.in_flight);
        let mut writer = ResponseWriter::new(fd, in_flight, control, &request, settings, last);
        reactor.set_idle(false);
        reactor.publish_pending();
        drop(reactor);
        let driver = engine.lead_or_put_back(driver, number);
        let large = request.content.large();
        let flow = app.call(&request, &mut writer);
        writer.release();
        let (stage, keep_alive) = (writer.stage(), writer.is_persistent());
        let leads = driver.is_some();
        if leads {
            shared.epoch().advance();
        }
        if !self.in_flight.end(control, leads) {
            return self.lose(connection, app);
        }
        let Some(mut reactor) = self.lock_after_request(leads) else { return self.give_back(driver) };
        if leads {
            // What is called after the response may take long, too. The next request begins by the same timer.
            shared.begin(false);
        }
        // The body on a hijacked connection is the application's.
        let keep_alive = (stage == Stage::Hijacked || connection.skip_body()) && keep_alive;
        let next = reactor.finish(connection, stage, keep_alive, &mut self.in_flight);
        reactor.queue_if_ready(next);
        reactor.note_large(large.saturating_add(self.in_flight.take_large()));
        self.in_flight.reset();
        drop(reactor);
        let mut is_recalled = (flow == Flow::Break) | (app.after_response() == Flow::Break);
        if app.has_callbacks() && !self.call_callbacks(leads, &mut is_recalled, app) {
            self.await_end(app);
            return None;
        }
        match driver {
            Some(mut driver) => {
                driver.recalled = is_recalled;
                shared.epoch().advance();
                match self.lock() {
                    Some(reactor) => Some(Lead { driver, reactor }),
                    None => self.give_back(Some(driver)),
                }
            }
            None => self.lead_again(is_recalled),
        }
    }

    /// Of several threads, this one has answered a request: whether it leads.
    #[inline(never)]
    fn lead_again(&mut self, is_recalled: bool) -> Option<Lead<'e>> {
        self.recalled |= is_recalled;
        if self.engine.control.is_closed() {
            return None;
        }
        self.gives_way = !self.app_threads().end_request(self.number)?;
        let mut lead = self.take_lead()?;
        lead.driver.recalled |= self.recalled;
        Some(lead)
    }

    /// Whoever has taken the request uses the connection.
    #[cold]
    fn lose(&mut self, connection: Box<Connection>, app: &mut impl App) -> Option<Lead<'e>> {
        std::mem::forget(connection);
        self.await_end(app);
        None
    }

    /// This is a forked child.
    #[cold]
    fn give_back(&self, driver: Option<Box<Driver>>) -> Option<Lead<'e>> {
        driver.into_iter().for_each(|driver| self.put_back(driver));
        None
    }

    /// False if another thread has taken this one's callbacks.
    #[cold]
    fn call_callbacks(&mut self, leads: bool, is_recalled: &mut bool, app: &mut impl App) -> bool {
        let control = &self.engine.control;
        let (flow, ended) = self.in_flight.during_callbacks(control, leads, || app.call_callbacks());
        *is_recalled |= flow == Flow::Break;
        ended
    }
}

impl Engine {
    /// With one thread, that leads on while it has a request.
    fn lead_or_put_back(&self, driver: Box<Driver>, thread: usize) -> Option<Box<Driver>> {
        let app_threads = self.shared.app_threads();
        if app_threads.is_alone() {
            return Some(driver);
        }
        self.put_back(driver);
        app_threads.begin_request(thread);
        None
    }
}

impl Driver {
    /// A request begins at this time.
    pub(super) fn count_request(&mut self, now: u64) {
        self.schedule.length.begin(now);
        self.schedule.last_began = now;
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.schedule.since_given = self.schedule.since_given.saturating_add(1);
    }

    /// Leaves a request that it was to serve next to another thread.
    pub(super) fn put_off(&mut self, reactor: &mut Reactor) {
        self.schedule.first.take().into_iter().for_each(|connection| reactor.queue(connection));
    }
}
