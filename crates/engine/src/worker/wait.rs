//! Waiting: for any event, or for one client's request.

use std::os::fd::AsFd;

use fastrack_sys::monotonic_millis;

use super::thread::AppThread;
use super::LockedReactor;
use crate::app::App;
use crate::conn::Connection;

/// How long a local client gets to send its request, in milliseconds. A proxy writes microseconds after it has
/// connected: waiting for that costs one system call, parking three.
const LOCAL_PATIENCE: u64 = 1;

/// How long a worker has been idle when the memory of large bodies goes back to the system, in milliseconds: that takes
/// milliseconds, and the next large body would need the memory again.
const REST: u64 = 1000;

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
        reactor.tend_log();
        let trims = reactor.has_heap_to_trim();
        let mut timeout = reactor.next_deadline().map(|at| at.saturating_sub(monotonic_millis()));
        if trims {
            timeout = timeout.filter(|timeout| *timeout < REST).or(Some(REST));
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
        reactor.lead.has_rested = trims && timeout == Some(REST) && self.events.is_empty();
        reactor.set_idle(true);
        if let Some(queue_handle) = reactor.queue_handle() {
            queue_handle.set_idle(false);
        }
        if let Err(error) = result {
            reactor.fail(&error);
        }
        reactor.announce(&self.events);
        Some(reactor)
    }

    /// Gives a local client a moment to send its request. None in a forked child.
    pub(super) fn await_request(
        &mut self,
        reactor: LockedReactor<'e>,
        mut connection: Box<Connection>,
        app: &mut impl App,
    ) -> Option<LockedReactor<'e>> {
        let (fd, control) = (connection.raw_fd(), &self.engine.control);
        control.track_fd(fd);
        let mut reactor = self.unlocked(reactor, || {
            // Whatever comes of it, the next read tells.
            app.block(&mut || drop(fastrack_sys::wait_readable(connection.as_fd(), LOCAL_PATIENCE)))
        })?;
        control.untrack_fd(fd);
        let step = reactor.read(&mut connection);
        reactor.take_in(connection, step);
        Some(reactor)
    }
}
