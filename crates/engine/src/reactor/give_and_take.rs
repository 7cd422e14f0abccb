//! The shared queue: this worker gives connections to the queue, and takes connections from it.

use std::os::fd::AsFd;

use super::{Next, Reactor};
use crate::conn::{Connection, Phase, Step};
use crate::handoff::QueueHandle;
use crate::scoreboard::Count;

/// Connections read in a row before the first of their requests is served: each may bring a megabyte.
const READS_PER_SHARING: usize = 64;

impl Reactor {
    /// Gives a connection to the shared queue. Returns the connection if that fails.
    pub(super) fn give(&mut self, connection: Box<Connection>) -> Result<(), Box<Connection>> {
        match self.queue_handle.as_ref().map(|queue_handle| queue_handle.send(&connection, &self.settings)) {
            Some(Ok(())) => {
                self.control.counters().add(Count::HandedOver, 1);
                self.release(connection);
                Ok(())
            }
            Some(Err(error)) => {
                self.shortage.lost_descriptors |= fastrack_sys::is_lost_fd(&error);
                Err(connection)
            }
            None => Err(connection),
        }
    }

    /// Gives the ready requests to the shared queue. The first worker that is free answers them, perhaps this one.
    pub(super) fn give_ready(&mut self, is_back: &dyn Fn() -> bool) {
        if self.is_stopping() && !self.queue_says(QueueHandle::is_another_serving) {
            return;
        }
        if !self.ready.is_empty() && self.must_keep() {
            return;
        }
        while let Some(connection) = self.ready.pop_front() {
            if let Err(connection) = self.give(connection) {
                return self.ready.push_front(connection);
            }
            if is_back() {
                break;
            }
        }
        self.take_all_over_if_last();
    }

    /// Whether no worker can take a connection from the shared queue: the system lacks a resource, or the only worker has no free
    /// descriptor.
    fn must_keep(&self) -> bool {
        self.shortage.is_queue_stuck() && self.queue_says(QueueHandle::is_anything_queued)
            || self.queue_says(|queue_handle| !queue_handle.has_others()) && !fastrack_sys::has_free_fds()
    }

    /// Takes slow clients from the head of the shared queue while all workers are in the application. A slow client behind a request stays
    /// there, because requests keep their order.
    pub(super) fn take_slow_clients(&mut self, is_back: &dyn Fn() -> bool) {
        if self.is_stopping() || self.queue_says(QueueHandle::is_another_idle) {
            return;
        }
        for _ in 0..self.queue_handle.as_ref().map_or(0, QueueHandle::queued) {
            if is_back() || !self.queue_says(QueueHandle::is_client_next) {
                return;
            }
            // If another worker has taken the slow client, this connection has a request, and goes back to the queue.
            let Some((connection, step)) = self.take_any() else { return };
            let next = self.settle_taken(connection, step);
            self.queue_if_ready(next);
        }
    }

    /// Whether requests wait, here or in the shared queue.
    pub fn has_waiting_requests(&self) -> bool {
        !self.ready.is_empty() || self.queue_says(QueueHandle::is_anything_queued)
    }

    /// Gives a request to the shared queue, behind the requests there. Queues it in this worker if that fails.
    pub fn give_or_queue(&mut self, mut connection: Box<Connection>) {
        // A client that has shut down its sending side together with its request is not gone: see `close_if_gone`.
        connection.ended |= fastrack_sys::has_peer_closed(connection.as_fd());
        let given = if self.must_keep() { Err(connection) } else { self.give(connection) };
        if let Err(connection) = given {
            self.queue(connection);
        }
    }

    /// Gives the ready requests to the shared queue, behind the requests there. Returns the request to be served next: `next`; or the first
    /// ready one, if nobody waits in the queue and no new client is likely.
    pub(super) fn share(
        &mut self,
        mut next: Option<Box<Connection>>,
        is_client_likely: bool,
    ) -> Option<Box<Connection>> {
        let stays = next.is_none() && !is_client_likely && !self.queue_says(QueueHandle::is_anything_queued);
        if stays {
            next = self.take_ready();
        }
        self.give_ready(&|| false);
        for _ in 0..self.table.events().min(READS_PER_SHARING) {
            match self.handle_event() {
                Next::Ready(connection) if stays && next.is_none() => next = Some(connection),
                Next::Ready(connection) => self.give_or_queue(connection),
                Next::Kept => {}
            }
        }
        next
    }

    /// The queue's answer to a question; false without a queue.
    pub(super) fn queue_says(&self, question: fn(&QueueHandle) -> bool) -> bool {
        self.queue_handle.as_ref().is_some_and(question)
    }

    /// Takes connections from the shared queue until one has a request.
    pub fn take_request(&mut self) -> Option<Box<Connection>> {
        loop {
            let next = match self.take_any()? {
                (connection, Step::Ready) => self.close_if_gone(connection),
                (connection, step) => self.settle_taken(connection, step),
            };
            if let Next::Ready(connection) = next {
                return Some(connection);
            }
        }
    }

    /// Takes the first connection from the shared queue, and its step.
    pub(super) fn take_any(&mut self) -> Option<(Box<Connection>, Step)> {
        self.queue_handle.as_ref()?;
        // The kernel would drop a connection that arrives while no descriptor is free.
        while !fastrack_sys::has_free_fds() {
            if !self.make_room() {
                self.shortage.note_untaken(fastrack_sys::too_many_open_files());
                return None;
            }
        }
        match self.queue_handle.as_ref()?.receive(&self.settings, &mut self.read_bufs) {
            Ok(received) => {
                self.shortage.end_queue_failure();
                self.control.counters().add(Count::TakenOver, u64::from(received.is_some()));
                received
            }
            Err(error) if fastrack_sys::is_lost_fd(&error) => {
                self.shortage.lost_descriptors = true;
                None
            }
            Err(error) => {
                self.shortage.note_untaken(error);
                None
            }
        }
    }

    /// Whether there are other workers, idle or busy.
    pub fn has_others(&self) -> bool {
        self.queue_says(QueueHandle::has_others)
    }

    /// Gives one of several connections with work to an idle worker, if there is one.
    pub fn give_one(&mut self) -> bool {
        self.table.events() + self.ready.len() > 1
            && self.queue_says(QueueHandle::is_another_idle)
            && self.give_last()
    }

    /// Prefers a connection with pipelined requests: it has more work.
    fn give_last(&mut self) -> bool {
        if let Some(connection) = self.ready.pop_back() {
            return self.give(connection).map_err(|connection| self.ready.push_back(connection)).is_ok();
        }
        let Some((mut connection, since, ended)) = self.table.last_event() else { return false };
        connection.ended |= ended;
        connection.arrival.at = since;
        let idle = connection.phase() == Phase::Idle && !ended;
        let given = if idle { self.give(connection) } else { Err(connection) };
        let Err(connection) = given else { return true };
        let (key, deadline) = (connection.key, connection.deadline);
        self.park(connection, deadline);
        key.into_iter().for_each(|key| self.table.queue_event(key));
        false
    }
}
