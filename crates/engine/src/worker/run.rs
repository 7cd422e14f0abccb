//! The loop: does one thing after the other until there is a reason to return.

use std::io;
use std::sync::Arc;

use super::schedule::Action;
use super::{Engine, Finish, Hold};
use crate::accept::Client;
use crate::app::{App, Flow};
use crate::helper::Shared;

const EXHAUSTION_PAUSE: u64 = 20;

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
        if let Some(mut hold) = self.lock(&shared) {
            let lines = hold.take_warnings();
            shared.set_waiting(hold);
            lines.iter().for_each(|line| app.warn(line));
        }
        finish
    }

    fn serve_all(&mut self, shared: &Shared, app: &mut impl App) -> Finish {
        let mut hold = shared.reactor();
        loop {
            let action = match self.finished(&mut hold) {
                Some(finish) => return finish,
                None => self.next_action(&mut hold),
            };
            if let Action::Wait = action {
                shared.epoch().advance();
            } else {
                shared.begin(matches!(action, Action::Serve(_)));
            }
            // These return None in a forked child, where a thread that was not copied may have the reactor locked.
            let after = match action {
                Action::Serve(connection) => self.serve(shared, hold, connection, app),
                Action::AwaitRequest(connection) => self.await_request(shared, hold, connection, app),
                Action::Continue => self.unlocked(shared, hold, || app.check()),
                Action::Log(lines) => self.unlocked(shared, hold, || {
                    lines.iter().for_each(|line| app.warn(line));
                    app.check()
                }),
                Action::Pause => {
                    let mut pause = || fastrack_sys::pause(EXHAUSTION_PAUSE);
                    self.unlocked(shared, hold, || app.block(&mut pause))
                }
                Action::Wait => self.wait(shared, hold, app),
            };
            let Some(after) = after else { return Finish::Closed };
            hold = after;
        }
    }

    fn finished(&mut self, hold: &mut Hold<'_>) -> Option<Finish> {
        let is_done = self.finish.is_some() || self.left == Some(0);
        if self.control.is_stopping() && !hold.is_stopping() && !is_done {
            self.begin_stop(hold);
        }
        if self.finish.is_some() {
            return self.finish;
        }
        if self.left == Some(0) {
            return Some(Finish::Limit);
        }
        if hold.is_stopping() && self.schedule.first.is_none() && hold.is_stopped() {
            return Some(Finish::Stopped);
        }
        self.control.take_pause().then_some(Finish::Paused)
    }

    /// Stops accepting. Only clients that are here already are waited for, each for a while.
    fn begin_stop(&mut self, hold: &mut Hold<'_>) {
        if self.control.is_draining() {
            // Nobody else will accept them: they would be cut off with the last listener.
            self.listeners.accept_backlog().into_iter().for_each(|client| admit(client, hold));
        }
        // The kernel has woken only this worker for those clients (EPOLLEXCLUSIVE, epoll_ctl(2)): they would wait until
        // the next client wakes another one. One for each listener.
        while self.listeners.is_client_announced() {
            let Ok(Some(client)) = self.listeners.accept() else { break };
            admit(client, hold);
        }
        self.listeners.close(&self.poller, &self.control);
        hold.begin_stop();
        let Some(member) = hold.member() else { return };
        // It fails only if the queue is not registered.
        let _ = self.poller.remove(member.receiver());
        if !member.has_successor() {
            hold.drain_queue();
        } else if !member.is_another_serving() {
            hold.answer_queued();
        } else if self.schedule.queue_announced {
            // As with a client that was announced to this worker alone.
            hold.pass_on_queued();
        }
    }

    /// Locks the reactor again after the application had the thread. None in a forked child.
    pub(super) fn lock<'a>(&self, shared: &'a Shared) -> Option<Hold<'a>> {
        (!self.control.is_closed()).then(|| shared.reactor())
    }

    /// Calls the application with the reactor unlocked. None in a forked child.
    pub(super) fn unlocked<'a>(
        &mut self,
        shared: &'a Shared,
        hold: Hold<'a>,
        call: impl FnOnce() -> Flow,
    ) -> Option<Hold<'a>> {
        drop(hold);
        let flow = call();
        self.note(flow);
        self.lock(shared)
    }

    pub(super) fn fail(&mut self, error: &io::Error, hold: &mut Hold<'_>) {
        hold.warn(format!("cannot wait: {error}"));
        self.finish = Some(Finish::Broken);
    }

    pub(super) fn note(&mut self, flow: Flow) {
        if flow == Flow::Break {
            self.finish = Some(Finish::Broken);
        }
    }
}

fn admit(client: Client, hold: &mut Hold<'_>) {
    let (connection, step) = hold.greet(client);
    let next = hold.enter(connection, step);
    hold.queue_if_ready(next);
}
