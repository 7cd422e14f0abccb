//! New clients while all workers are busy: their requests wait in the shared queue, with those of kept clients.

use super::schedule::ACCEPTS_PER_POLL;
use super::{Next, Reactor};
use crate::accept::Backlog;
use crate::handoff::QueueHandle;

impl Reactor {
    pub fn set_backlog(&mut self, backlog: Backlog) {
        self.backlog = backlog;
    }

    /// Accepts clients and gives their requests to the shared queue, behind earlier ones.
    ///
    /// If these clients stayed in the kernel's backlog, later requests of kept clients would go before them.
    pub(super) fn accept_for_others(&mut self, is_back: &dyn Fn() -> bool) {
        self.accepts_clients();
        for _ in 0..ACCEPTS_PER_POLL {
            if is_back() || !self.may_accept_more() {
                return;
            }
            let client = match self.backlog.accept() {
                Ok(Some(client)) => client,
                Ok(None) => return,
                Err(error) => {
                    return self.note_failed_accept_for_others(&error);
                }
            };
            let (connection, step) = self.read_first(client);
            if let Next::Ready(connection) = self.settle_new(connection, step) {
                self.give_or_queue(connection);
            }
        }
    }

    /// Whether the helper waits for new clients. While a worker is idle the helper does not, because the kernel wakes that worker.
    pub fn may_accept_for_others(&self) -> bool {
        self.may_accept_more() && !self.backlog.has_failed() && !self.queue_says(QueueHandle::is_another_idle)
    }

    /// Whether the shared queue has room for requests, and this worker for clients without a request yet. Without room, clients stay in the
    /// backlog, where they cost nothing.
    fn may_accept_more(&self) -> bool {
        let control = &self.control;
        let is_ending =
            self.is_stopping() || control.is_stopping() || control.is_draining() || control.is_ending();
        let has_room = self.ready.is_empty() && self.shortage.has_room(self.table.len());
        self.queue_handle.is_some() && !is_ending && has_room && !self.shortage.is_paused()
    }
}
