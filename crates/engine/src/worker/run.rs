//! What ends the loop, and calls of the application in between.

use std::io;

use super::{Driver, Finish, LockedReactor};
use crate::accept::Client;
use crate::app::Flow;
use crate::helper::Shared;
use crate::reactor::Reactor;

pub(super) const EXHAUSTION_PAUSE: u64 = 20;

const LOST: &str =
    "the app has closed sockets or other descriptors of the server: this worker ends and is replaced";

impl Driver {
    pub(super) fn finished(&mut self, reactor: &mut Reactor) -> Option<Finish> {
        let is_done = self.finish.is_some() || self.left == Some(0);
        if self.control.is_stopping() && !reactor.is_stopping() && !is_done {
            self.begin_stop(reactor);
        }
        if self.finish.is_some() {
            return self.finish;
        }
        if self.left == Some(0) {
            return Some(Finish::Limit);
        }
        let is_stopping = reactor.is_stopping() && self.schedule.first.is_none();
        if is_stopping && reactor.is_stopped() && self.is_rest_done() {
            return Some(if self.lost { Finish::Lost } else { Finish::Stopped });
        }
        self.control.take_pause().then_some(Finish::Paused)
    }

    /// Whether no other thread has a request, which may leave something to send.
    pub(super) fn is_rest_done(&self) -> bool {
        let app_threads = self.shared.app_threads();
        app_threads.is_alone() || app_threads.is_idle()
    }

    /// Stops accepting. Only clients that are here already are waited for, each for a while.
    fn begin_stop(&mut self, reactor: &mut Reactor) {
        if self.control.is_draining() {
            // Nobody else will accept them: they would be cut off with the last listener.
            self.listeners.accept_backlog().into_iter().for_each(|client| admit(client, reactor));
        }
        // The kernel has woken only this worker for those (EPOLLEXCLUSIVE, epoll_ctl(2)). One for each listener.
        while self.listeners.is_client_announced() {
            let Ok(Some(client)) = self.listeners.accept() else { break };
            admit(client, reactor);
        }
        self.shared.watch_no_listeners();
        self.listeners.close(&self.poller, &self.control);
        if let Some(queue_handle) = reactor.queue_handle().filter(|_| self.is_orphaned) {
            queue_handle.end_master();
        }
        reactor.begin_stop();
        let Some(queue_handle) = reactor.queue_handle() else { return };
        // It fails only if the queue is not registered.
        let _ = self.poller.remove(queue_handle.receiver());
        if !queue_handle.has_successor() {
            reactor.drain_queue();
        } else if !queue_handle.is_another_serving() {
            reactor.answer_queued();
        } else if self.schedule.queue_announced {
            // As with a client that was announced to this worker alone.
            reactor.pass_on_queued();
        }
        self.schedule.queue_announced = false;
    }

    /// As [`AppThread::lock`](super::thread::AppThread::lock).
    fn lock<'a>(&self, shared: &'a Shared) -> Option<LockedReactor<'a>> {
        (!self.control.is_closed()).then(|| shared.reactor())
    }

    /// Calls the application with the reactor unlocked. None in a forked child.
    pub(super) fn unlocked<'a>(
        &mut self,
        shared: &'a Shared,
        reactor: LockedReactor<'a>,
        call: impl FnOnce() -> Flow,
    ) -> Option<LockedReactor<'a>> {
        drop(reactor);
        let flow = call();
        self.note(flow);
        self.lock(shared)
    }

    /// The poller has failed.
    pub(super) fn fail(&mut self, error: &io::Error, reactor: &mut Reactor) {
        if fastrack_sys::is_lost_fd(error) {
            self.stop_lost(reactor);
            reactor.hand_off_all();
            self.finish = Some(Finish::Lost);
        } else if fastrack_sys::is_shortage(error) {
            // There will be memory again, and the connections are here.
            reactor.warn_of_shortage("wait", error);
            fastrack_sys::sleep(EXHAUSTION_PAUSE);
        } else {
            reactor.warn(format!("cannot wait: {error}"));
            self.finish = Some(Finish::Broken);
        }
    }

    /// The application has closed descriptors that are the engine's, all sockets for example. It stops: without them it
    /// would only look as if it served.
    pub(super) fn stop_lost(&mut self, reactor: &mut Reactor) {
        if !std::mem::replace(&mut self.lost, true) {
            reactor.warn(LOST.into());
        }
        self.control.stop();
    }

    pub(super) fn note(&mut self, flow: Flow) {
        if flow == Flow::Break {
            self.recalled = true;
        }
    }
}

fn admit(client: Client, reactor: &mut Reactor) {
    let (connection, step) = reactor.greet(client);
    let next = reactor.enter(connection, step);
    reactor.queue_if_ready(next);
}
