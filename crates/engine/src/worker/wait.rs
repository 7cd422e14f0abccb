//! Waiting: for any event, or for one client's request.

use std::os::fd::AsFd;

use fastrack_sys::monotonic_millis;

use super::thread::AppThread;
use super::LockedReactor;
use crate::app::App;
use crate::conn::Connection;

/// Time that a local client gets to send its request, in milliseconds. A proxy writes microseconds after it has connected. Waiting costs
/// one system call, parking costs three. Bench: `bench/run --workload hello-nginx`.
const LOCAL_REQUEST_TIME: u64 = 1;

/// Idle time of a worker after which the memory of large bodies goes back to the system, in milliseconds. The return takes milliseconds,
/// and the next large body would need the memory again.
const IDLE_BEFORE_TRIM: u64 = 1000;

impl<'e> AppThread<'e> {
    /// Waits for an event. None in a forked child.
    pub(super) fn wait(
        &mut self,
        mut reactor: LockedReactor<'e>,
        app: &mut impl App,
    ) -> Option<LockedReactor<'e>> {
        if std::mem::take(&mut reactor.lead.has_rested) {
            reactor.release_memory();
            return self.unlocked(reactor, || app.trim_memory());
        }
        let shared = self.shared();
        reactor.lead.listeners.found_nobody();
        reactor.flush_log_if_due();
        let trims = reactor.has_heap_to_trim();
        let mut timeout = reactor.next_deadline().map(|at| at.saturating_sub(monotonic_millis()));
        if trims {
            timeout = timeout.filter(|timeout| *timeout < IDLE_BEFORE_TRIM).or(Some(IDLE_BEFORE_TRIM));
        }
        if let Some(queue_handle) = reactor.queue_handle() {
            queue_handle.set_idle(!reactor.is_stopping());
        }
        reactor.publish();
        shared.set_waiting(reactor);
        let mut result = Ok(());
        let (poller, events) = (&self.engine.poller, &mut self.events);
        events.clear();
        let flow = app.block(&mut || {
            result = poller.wait(events, timeout);
            shared.set_busy();
        });
        self.note(flow);
        if self.engine.control.is_closed() {
            return None;
        }
        shared.set_busy();
        let mut reactor = shared.reactor();
        reactor.lead.has_rested = trims && timeout == Some(IDLE_BEFORE_TRIM) && self.events.is_empty();
        reactor.set_idle(true);
        if let Some(queue_handle) = reactor.queue_handle() {
            queue_handle.set_idle(false);
        }
        if let Err(error) = result {
            reactor.fail(&error);
        }
        reactor.note_events(&self.events);
        Some(reactor)
    }

    /// Gives a local client a moment to send its request. None in a forked child.
    pub(super) fn await_request(
        &mut self,
        reactor: LockedReactor<'e>,
        mut connection: Box<Connection>,
        app: &mut impl App,
    ) -> Option<LockedReactor<'e>> {
        // The application may fork now, and before this client's request has its turn.
        self.engine.control.track_fd(connection.raw_fd());
        let mut reactor = self.unlocked(reactor, || {
            // The next read reports the outcome.
            app.block(&mut || drop(fastrack_sys::wait_readable(connection.as_fd(), LOCAL_REQUEST_TIME)))
        })?;
        let step = reactor.read(&mut connection);
        reactor.settle_next(connection, step);
        Some(reactor)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::accept::Listener;
    use crate::app::Flow;
    use crate::conn::{Request, ResponseWriter};
    use crate::settings::Settings;
    use crate::worker::Engine;

    /// An application whose client sends a request while the worker waits for it. A line is logged before the request is served.
    struct Logging<'e> {
        engine: &'e Engine,
        client: UnixStream,
        /// Numbers of descriptors that a forked child would close: before the client connects, and while a line is logged.
        inherited: [usize; 2],
    }

    impl App for Logging<'_> {
        fn call(&mut self, _: &Request<'_>, _: &mut ResponseWriter<'_>) -> Flow {
            self.engine.control.stop();
            Flow::Break
        }

        fn block(&mut self, wait: &mut (dyn FnMut() + Send)) -> Flow {
            self.engine.reactor().warn("a line".into());
            self.client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
            wait();
            Flow::Continue
        }

        fn warn(&mut self, _: &str) {
            self.inherited[1] = self.engine.control.tracked_fds();
        }
    }

    #[test]
    fn a_child_that_is_forked_while_a_line_is_logged_lets_go_of_the_client_that_is_served_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("bind");
        let listener = Listener::from_fd(listener.as_fd(), false).expect("a listener");
        let engine = Engine::new(vec![listener], None, Settings::default(), None).expect("an engine");
        let mut client = UnixStream::connect(&path).expect("connect");
        let own = client.try_clone().expect("a copy");
        let before = engine.control.tracked_fds();
        let mut app = Logging { engine: &engine, client: own, inherited: [before, 0] };
        engine.run(&mut app, Some(1));
        let [before, while_logging] = app.inherited;
        assert_eq!(while_logging, before + 1);
        client.set_read_timeout(Some(crate::patience::patience())).expect("a timeout");
        assert!(client.read(&mut [0; 12]).expect("a response") > 0);
    }
}
