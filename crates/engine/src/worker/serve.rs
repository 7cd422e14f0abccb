//! Has the application answer a request.

use std::os::fd::AsFd;

use super::{Engine, LockedReactor};
use crate::app::App;
use crate::conn::{Connection, ResponseWriter, Stage};
use crate::helper::Shared;

impl Engine {
    /// Serves a ready request. None in a forked child.
    pub(super) fn serve<'a>(
        &mut self,
        shared: &'a Shared,
        mut reactor: LockedReactor<'a>,
        mut connection: Box<Connection>,
        app: &mut impl App,
    ) -> Option<LockedReactor<'a>> {
        let settings = reactor.settings();
        connection.open_body(settings, &self.in_flight, &self.control);
        let Some(request) = connection.request(settings) else {
            // A connection that is ready always has one.
            reactor.close(connection);
            return Some(reactor);
        };
        let served = connection.served.saturating_add(1);
        let last = settings.keep_alive_requests != 0 && served >= settings.keep_alive_requests;
        self.schedule.last_began = self.in_flight.begin(connection.raw_fd(), &request);
        let (fd, in_flight) = (connection.as_fd(), &mut self.in_flight);
        let mut writer = ResponseWriter::new(fd, in_flight, &self.control, &request, settings, last);
        self.control.set_pending(reactor.has_pending());
        drop(reactor);
        let flow = app.call(&request, &mut writer);
        let (stage, keep_alive) = (writer.stage(), writer.is_persistent());
        shared.epoch().advance();
        self.in_flight.end(&self.control);
        let mut reactor = self.lock(shared)?;
        // What is called after the response may take long, too.
        shared.begin(true);
        // The body on a hijacked connection is the application's.
        let keep_alive = (stage == Stage::Hijacked || connection.skip_body()) && keep_alive;
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.schedule.since_given = self.schedule.since_given.saturating_add(1);
        let next = reactor.finish(connection, stage, keep_alive, &mut self.in_flight);
        reactor.queue_if_ready(next);
        self.in_flight.reset();
        drop(reactor);
        self.note(flow);
        let flow = app.after_response();
        self.note(flow);
        if app.has_callbacks() {
            let flow = self.in_flight.during_callbacks(&self.control, || app.call_callbacks());
            self.note(flow);
        }
        shared.epoch().advance();
        self.lock(shared)
    }
}
