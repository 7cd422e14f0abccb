//! Has the application answer a request.

use std::os::fd::AsFd;

use super::thread::{Lead, Runner};
use super::Driver;
use crate::app::{App, Flow};
use crate::conn::{Connection, ResponseWriter, Stage};
use crate::reactor::Reactor;

impl<'e> Runner<'e> {
    /// Serves a ready request. Of several threads, another one may lead meanwhile, and afterwards: then this returns None,
    /// as in a forked child.
    pub(super) fn serve(
        &mut self,
        lead: Lead<'e>,
        mut connection: Box<Connection>,
        app: &mut impl App,
    ) -> Option<Lead<'e>> {
        let Lead { mut driver, mut reactor } = lead;
        let (shared, control) = (self.shared(), &self.engine.control);
        let settings = reactor.settings();
        connection.open_body(settings, &self.in_flight, control);
        let Some(request) = connection.request(settings) else {
            // A connection that is ready always has one.
            reactor.close(connection);
            return Some(Lead { driver, reactor });
        };
        let served = connection.served.saturating_add(1);
        let last = settings.keep_alive_requests != 0 && served >= settings.keep_alive_requests;
        driver.count_request(self.in_flight.begin(connection.raw_fd(), &request));
        let (fd, in_flight) = (connection.as_fd(), &mut self.in_flight);
        let mut writer = ResponseWriter::new(fd, in_flight, control, &request, settings, last);
        control.set_pending(reactor.has_pending());
        drop(reactor);
        let crew = shared.crew();
        let driver = if crew.is_alone() {
            Some(driver)
        } else {
            self.engine.put_back(driver);
            crew.begin_request(self.number);
            None
        };
        let flow = app.call(&request, &mut writer);
        let (stage, keep_alive) = (writer.stage(), writer.is_persistent());
        let Some(mut driver) = driver else {
            return self.finish_request(connection, stage, keep_alive, flow, app);
        };
        shared.epoch().advance();
        self.in_flight.end(control);
        let Some(mut reactor) = self.lock() else {
            self.put_back(driver);
            return None;
        };
        // What is called after the response may take long, too.
        shared.begin(true);
        // The body on a hijacked connection is the application's.
        let keep_alive = (stage == Stage::Hijacked || connection.skip_body()) && keep_alive;
        let next = reactor.finish(connection, stage, keep_alive, &mut self.in_flight);
        reactor.queue_if_ready(next);
        self.in_flight.reset();
        drop(reactor);
        driver.note(flow);
        let flow = app.after_response();
        driver.note(flow);
        if app.has_callbacks() {
            let flow = self.in_flight.during_callbacks(control, || app.call_callbacks());
            driver.note(flow);
        }
        shared.epoch().advance();
        match self.lock() {
            Some(reactor) => Some(Lead { driver, reactor }),
            None => {
                self.put_back(driver);
                None
            }
        }
    }

    /// The application has returned, and another thread may lead. Leads if none does.
    fn finish_request(
        &mut self,
        mut connection: Box<Connection>,
        stage: Stage,
        keep_alive: bool,
        flow: Flow,
        app: &mut impl App,
    ) -> Option<Lead<'e>> {
        let (shared, control) = (self.shared(), &self.engine.control);
        self.note(flow);
        if !self.in_flight.try_end(control) {
            // Whoever has taken the request uses the connection.
            std::mem::forget(connection);
            self.await_end(app);
            return None;
        }
        if control.is_closed() {
            return None;
        }
        {
            let mut reactor = shared.reactor_at_once();
            let keep_alive = (stage == Stage::Hijacked || connection.skip_body()) && keep_alive;
            let next = reactor.finish(connection, stage, keep_alive, &mut self.in_flight);
            reactor.queue_if_ready(next);
            self.in_flight.reset();
        }
        let flow = app.after_response();
        self.note(flow);
        if app.has_callbacks() {
            let (flow, ended) = self.in_flight.try_callbacks(control, || app.call_callbacks());
            self.note(flow);
            if !ended {
                self.await_end(app);
                return None;
            }
        }
        if control.is_closed() {
            return None;
        }
        let leads = shared.crew().end_request(self.number);
        if leads {
            self.take_lead()
        } else {
            None
        }
    }

    fn note(&mut self, flow: Flow) {
        self.recalled |= flow == Flow::Break;
    }
}

impl Driver {
    /// A request begins at this time.
    fn count_request(&mut self, now: u64) {
        self.schedule.last_began = now;
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.schedule.since_given = self.schedule.since_given.saturating_add(1);
    }

    /// Leaves a request that it was to serve next to another thread.
    pub(super) fn put_off(&mut self, reactor: &mut Reactor) {
        self.schedule.first.take().into_iter().for_each(|connection| reactor.queue(connection));
    }
}
