//! Waiting: for any event, or for one client's request.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;

use fastrack_sys::monotonic_millis;

use super::{Driver, Finish, LockedReactor, CONNECTIONS, MASTER, NOTICE, QUEUE};
use crate::app::App;
use crate::conn::Connection;
use crate::helper::Shared;

/// How long a local client gets to send its request, in milliseconds. A proxy writes microseconds after it has
/// connected: waiting for that costs one system call, parking three.
const LOCAL_PATIENCE: u64 = 1;

/// How long a worker has been idle when the memory of large bodies goes back to the system, in milliseconds: that takes
/// milliseconds, and the next large body would need the memory again.
const REST: u64 = 1000;

impl Driver {
    /// Waits for an event. None in a forked child.
    pub(super) fn wait<'a>(
        &mut self,
        shared: &'a Shared,
        mut reactor: LockedReactor<'a>,
        app: &mut impl App,
    ) -> Option<LockedReactor<'a>> {
        if std::mem::take(&mut self.has_rested) {
            reactor.release_memory();
            return self.unlocked(shared, reactor, || app.trim_memory());
        }
        self.listeners.found_nobody();
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
        let (poller, events) = (&self.poller, &mut self.events);
        events.clear();
        let flow = app.block(&mut || {
            result = poller.wait(events, timeout);
            shared.set_busy();
        });
        self.note(flow);
        self.has_rested = trims && timeout == Some(REST) && self.events.is_empty();
        if self.control.is_closed() {
            return None;
        }
        shared.set_busy();
        let mut reactor = shared.reactor();
        reactor.set_idle(true);
        if let Some(queue_handle) = reactor.queue_handle() {
            queue_handle.set_idle(false);
        }
        if let Err(error) = result {
            self.fail(&error, &mut reactor);
        }
        self.announce();
        Some(reactor)
    }

    /// Polls the listeners and the queue, without waiting.
    pub(super) fn poll_listeners(&mut self) -> std::io::Result<()> {
        let result = self.poller.wait(&mut self.events, Some(0));
        self.announce();
        result
    }

    fn announce(&mut self) {
        let mut is_orphaned = false;
        for event in self.events.iter() {
            match event.token {
                // A byte has woken this thread; the end of file says that the master is gone.
                MASTER => is_orphaned |= self.master.as_ref().is_some_and(is_at_end),
                QUEUE => self.schedule.queue_announced = true,
                CONNECTIONS => {}
                NOTICE => self.control.clear_notice(),
                listener => self.listeners.announce(listener),
            }
        }
        if is_orphaned {
            self.note_orphaned();
        }
    }

    /// The master is gone, and its other workers go, too: from now on this is like the end of the whole server.
    fn note_orphaned(&mut self) {
        self.is_orphaned = true;
        self.control.drain();
        // It would be reported for ever.
        if let Some(master) = self.master.take() {
            let _ = self.poller.remove(&master);
        }
        self.finish = self.finish.or(Some(Finish::Orphaned));
    }

    /// Gives a local client a moment to send its request. None in a forked child.
    pub(super) fn await_request<'a>(
        &mut self,
        shared: &'a Shared,
        reactor: LockedReactor<'a>,
        mut connection: Box<Connection>,
        app: &mut impl App,
    ) -> Option<LockedReactor<'a>> {
        let fd = connection.raw_fd();
        self.control.track_fd(fd);
        let mut reactor = self.unlocked(shared, reactor, || {
            // Whatever comes of it, the next read tells.
            app.block(&mut || drop(fastrack_sys::wait_readable(connection.as_fd(), LOCAL_PATIENCE)))
        })?;
        self.control.untrack_fd(fd);
        let step = reactor.read(&mut connection);
        self.enter(connection, step, &mut reactor);
        Some(reactor)
    }
}

/// Empties a pipe that is readable, and says whether its other end was closed.
fn is_at_end(mut pipe: &File) -> bool {
    match pipe.read(&mut [0; 16]) {
        Ok(length) => length == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}
