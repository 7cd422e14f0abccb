//! The beginning of a graceful stop.

use super::{Engine, Hold};
use crate::accept::Client;

impl Engine {
    /// Stops accepting. Only clients that are here already are waited for, each for a while.
    pub(super) fn begin_stop(&mut self, hold: &mut Hold<'_>) {
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
        } else if self.queue_announced {
            // As with a client that was announced to this worker alone.
            hold.pass_on_queued();
        }
    }
}

fn admit(client: Client, hold: &mut Hold<'_>) {
    let (connection, step) = hold.greet(client);
    let next = hold.enter(connection, step);
    hold.queue_if_ready(next);
}
