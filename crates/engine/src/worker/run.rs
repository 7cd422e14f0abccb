//! The loop: does one thing after the other until there is a reason to return.

use std::io;
use std::sync::Arc;

use super::schedule::Action;
use super::{Engine, Finish, LockedReactor};
use crate::accept::Client;
use crate::app::{App, Flow};
use crate::helper::Shared;
use crate::reactor::Reactor;

const EXHAUSTION_PAUSE: u64 = 20;

const LOST: &str =
    "the app has closed sockets or other descriptors of the server: this worker ends and is replaced";

impl Engine {
    /// Serves until stopped, or until `limit` requests have been answered.
    pub fn run(&mut self, app: &mut impl App, limit: Option<u64>) -> Finish {
        if self.control.is_closed() {
            return Finish::Closed;
        }
        self.left = limit;
        self.finish = None;
        let shared = Arc::clone(&self.shared);
        shared.set_busy();
        let finish = self.serve_all(&shared, app);
        if let Some(mut reactor) = self.lock(&shared) {
            let lines = reactor.take_warnings();
            shared.set_waiting(reactor);
            lines.iter().for_each(|line| app.warn(line));
        }
        finish
    }

    fn serve_all(&mut self, shared: &Shared, app: &mut impl App) -> Finish {
        let mut reactor = shared.reactor();
        loop {
            let action = match self.finished(&mut reactor) {
                Some(finish) => return finish,
                None => self.next_action(&mut reactor),
            };
            if let Action::Wait = action {
                shared.epoch().advance();
            } else {
                shared.begin(matches!(action, Action::Serve(_)));
            }
            // These return None in a forked child, where a thread that was not copied may have the reactor locked.
            let after = match action {
                Action::Serve(connection) => self.serve(shared, reactor, connection, app),
                Action::AwaitRequest(connection) => self.await_request(shared, reactor, connection, app),
                Action::Continue => self.unlocked(shared, reactor, || app.check()),
                Action::Log(lines) => {
                    let lacks_memory = reactor.take_memory_shortage();
                    self.unlocked(shared, reactor, || {
                        lines.iter().for_each(|line| app.warn(line));
                        if lacks_memory {
                            app.free_memory()
                        } else {
                            app.check()
                        }
                    })
                }
                Action::Pause => {
                    let mut pause = || fastrack_sys::sleep(EXHAUSTION_PAUSE);
                    self.unlocked(shared, reactor, || app.block(&mut pause))
                }
                Action::Wait => self.wait(shared, reactor, app),
            };
            let Some(after) = after else { return Finish::Closed };
            reactor = after;
        }
    }

    fn finished(&mut self, reactor: &mut Reactor) -> Option<Finish> {
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
        if reactor.is_stopping() && self.schedule.first.is_none() && reactor.is_stopped() {
            return Some(if self.lost { Finish::Lost } else { Finish::Stopped });
        }
        self.control.take_pause().then_some(Finish::Paused)
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
        self.listeners.close(&self.poller, &self.control);
        if let Some(member) = reactor.member().filter(|_| self.is_orphaned) {
            member.end_master();
        }
        reactor.begin_stop();
        let Some(member) = reactor.member() else { return };
        // It fails only if the queue is not registered.
        let _ = self.poller.remove(member.receiver());
        if !member.has_successor() {
            reactor.drain_queue();
        } else if !member.is_another_serving() {
            reactor.answer_queued();
        } else if self.schedule.queue_announced {
            // As with a client that was announced to this worker alone.
            reactor.pass_on_queued();
        }
    }

    /// Locks the reactor again after the application had the thread. None in a forked child.
    pub(super) fn lock<'a>(&self, shared: &'a Shared) -> Option<LockedReactor<'a>> {
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
            self.finish = Some(Finish::Broken);
        }
    }
}

fn admit(client: Client, reactor: &mut Reactor) {
    let (connection, step) = reactor.greet(client);
    let next = reactor.enter(connection, step);
    reactor.queue_if_ready(next);
}
