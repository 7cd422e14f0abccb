//! Has the application answer a request.

use std::os::fd::AsFd;

use super::thread::AppThread;
use super::LockedReactor;
use crate::app::App;
use crate::conn::{Connection, ResponseStage, ResponseWriter};

impl<'e> AppThread<'e> {
    /// Serves a ready request. With several threads, another thread may lead meanwhile and afterwards: then this returns None, as in a
    /// forked child.
    pub(super) fn serve(
        &mut self,
        mut reactor: LockedReactor<'e>,
        connection: Box<Connection>,
        app: &mut impl App,
    ) -> Option<LockedReactor<'e>> {
        let (shared, control) = (self.shared(), &self.engine.control);
        let Some(mut connection) = reactor.refuse_if_late(connection) else { return Some(reactor) };
        let settings = reactor.settings();
        connection.open_body(settings, &self.in_flight, control);
        let Some(mut request) = connection.request(settings) else {
            // A ready connection always has a request.
            reactor.close(connection);
            return Some(reactor);
        };
        let served = connection.served.saturating_add(1);
        let last = settings.keep_alive_requests != 0 && served >= settings.keep_alive_requests;
        let now = self.in_flight.begin(connection.raw_fd(), &mut request, &connection.arrival);
        if reactor.is_logging() || self.in_flight.active().times().is_some() {
            self.in_flight.begin_exact(fastrack_sys::monotonic_micros(), &request);
        }
        let (fd, in_flight) = (connection.as_fd(), &mut self.in_flight);
        let mut writer = ResponseWriter::new(fd, in_flight, control, &request, settings, last);
        reactor.lead.count_request(now);
        reactor.set_idle(false);
        reactor.publish_pending();
        // A single thread keeps the lead.
        let leads = shared.app_threads().is_alone();
        if !leads {
            shared.app_threads().begin_request(&mut reactor.threads, self.number);
        }
        drop(reactor);
        let large = request.content.large();
        let flow = app.call(&request, &mut writer);
        writer.release();
        let (stage, keep_alive) = (writer.stage(), writer.is_persistent());
        if leads {
            shared.baton().step();
        }
        if !self.in_flight.end(control) {
            return self.lose(connection, app);
        }
        let is_stream = !leads && self.in_flight.active().is_stream();
        if is_stream {
            self.in_flight.skip_stream();
        }
        let mut reactor = self.lock_after_request(leads)?;
        if leads {
            // rack.response_finished and the body's close may also take long. The next request begins by the same timer.
            shared.begin();
        }
        // The body of a hijacked connection is the application's.
        let keep_alive = (stage == ResponseStage::Hijacked || connection.skip_body()) && keep_alive;
        let next = reactor.finish(connection, stage, keep_alive, &mut self.in_flight);
        reactor.queue_if_ready(next);
        reactor.note_large(large.saturating_add(self.in_flight.take_large()));
        self.in_flight.reset();
        drop(reactor);
        if is_stream {
            // The leader waits for clients. It must see the work that this stream leaves: the client's next request, a deadline, a line of
            // the log.
            control.notify();
        }
        self.note(flow);
        self.note(app.after_response());
        if app.has_callbacks() && !self.call_callbacks(app) {
            self.await_end(app);
            return None;
        }
        if !leads {
            return self.lead_again();
        }
        shared.baton().step();
        self.lock()
    }

    /// This thread, one of several, has answered a request. Returns whether it leads.
    #[inline(never)]
    fn lead_again(&mut self) -> Option<LockedReactor<'e>> {
        let mut reactor = self.lock_after_request(false)?;
        if self.in_flight.active().is_stream() {
            self.end_stream(&mut reactor);
            return None;
        }
        self.gives_way = !self.app_threads().end_request(&mut reactor.threads, self.seat, self.number)?;
        Some(reactor)
    }

    /// The stream of this thread is over: the thread gets a seat, or leaves.
    #[cold]
    fn end_stream(&mut self, reactor: &mut LockedReactor<'e>) {
        let control = &self.engine.control;
        let seat = self.app_threads().end_stream(&mut reactor.threads, self.number);
        control.set_streams(reactor.threads.streams.threads().len());
        match seat {
            Some(seat) => {
                self.seat = seat;
                self.in_flight.active().set_seat(seat);
            }
            None => self.is_spare = true,
        }
        if control.is_stopping() {
            // The leader waits for the last stream.
            control.notify();
        }
    }

    /// The helper has seized the request, and uses the connection.
    #[cold]
    fn lose(&mut self, connection: Box<Connection>, app: &mut impl App) -> Option<LockedReactor<'e>> {
        std::mem::forget(connection);
        self.await_end(app);
        None
    }

    /// False if the helper has seized this thread's callbacks.
    #[cold]
    fn call_callbacks(&mut self, app: &mut impl App) -> bool {
        let control = &self.engine.control;
        let (flow, ended) = self.in_flight.during_callbacks(control, || app.call_callbacks());
        self.note(flow);
        ended
    }
}
