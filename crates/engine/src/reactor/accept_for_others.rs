//! New clients while all workers are busy: they wait in the shared queue with the requests of those that are kept.

use super::next_action::PER_LOOK;
use super::{Next, Reactor};
use crate::accept::Backlog;
use crate::handoff::QueueHandle;

impl Reactor {
    pub fn set_backlog(&mut self, backlog: Backlog) {
        self.backlog = backlog;
    }

    /// Accepts clients and puts their requests into the shared queue, behind those that have come before.
    ///
    /// In the kernel's backlog they would wait beside the queue, and whoever is kept would go before them.
    pub(super) fn accept_for_others(&mut self, is_back: &dyn Fn() -> bool) {
        self.backlog_failed = false;
        self.accepts_clients();
        for _ in 0..PER_LOOK {
            if is_back() || !self.may_accept_more() {
                return;
            }
            let client = match self.backlog.accept() {
                Ok(Some(client)) => client,
                Ok(None) => return,
                Err(error) => {
                    self.backlog_failed = true;
                    return self.note_failed_accept_for_others(&error);
                }
            };
            let (connection, step) = self.greet(client);
            if let Next::Ready(connection) = self.enter(connection, step) {
                self.queue_behind_waiting(connection);
            }
        }
    }

    /// Whether to wait for new clients: not while a worker is idle, which the kernel wakes instead.
    pub fn may_accept_for_others(&self) -> bool {
        self.may_accept_more() && !self.backlog_failed && !self.ask_member(QueueHandle::is_another_idle)
    }

    /// Whether there is room for requests in the shared queue, and here for what is not a request yet. What finds none waits
    /// in the backlog, where it costs nothing.
    fn may_accept_more(&self) -> bool {
        let control = &self.control;
        let is_ending =
            self.is_stopping() || control.is_stopping() || control.is_draining() || control.is_ending();
        let has_room = self.ready.is_empty() && self.table.len() < self.capacity;
        self.queue_handle.is_some() && !is_ending && has_room && self.accept_pause == 0
    }
}
