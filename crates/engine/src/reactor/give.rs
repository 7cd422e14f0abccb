//! Sharing connections with the other workers through the shared queue.

use std::os::fd::AsFd;

use super::{Next, Reactor};
use crate::conn::{Connection, Phase, Step};
use crate::handoff::QueueHandle;
use crate::scoreboard::Count;

impl Reactor {
    /// Puts a connection into the shared queue. Returns it if that is not possible.
    pub(super) fn give(&mut self, connection: Box<Connection>) -> Result<(), Box<Connection>> {
        match self.queue_handle.as_ref().map(|queue_handle| queue_handle.send(&connection, &self.settings)) {
            Some(Ok(())) => {
                self.control.counters().add(Count::HandedOver, 1);
                self.release(connection);
                Ok(())
            }
            Some(Err(error)) => {
                self.lost_descriptors |= fastrack_sys::is_lost_fd(&error);
                Err(connection)
            }
            None => Err(connection),
        }
    }

    /// Puts the ready requests into the shared queue: whichever worker is free first answers them, perhaps this one.
    pub(super) fn give_ready(&mut self, is_back: &dyn Fn() -> bool) {
        if self.is_stopping() && !self.ask_member(QueueHandle::is_another_serving) {
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
        self.drain_queue_if_last();
    }

    /// Whether nobody could take a connection from the shared queue: the system lacks something for that, or the only worker has
    /// no descriptor for it.
    fn must_keep(&self) -> bool {
        self.queue_failure.is_some() && self.ask_member(QueueHandle::is_anything_queued)
            || self.ask_member(|queue_handle| !queue_handle.has_others()) && !fastrack_sys::has_free_fds()
    }

    /// Goes on with slow clients in the shared queue: if all workers are in the application, nobody else does. Only with
    /// those at its head, because requests wait in their order.
    pub(super) fn take_slow_clients(&mut self, is_back: &dyn Fn() -> bool) {
        if self.is_stopping() || self.ask_member(QueueHandle::is_another_idle) {
            return;
        }
        for _ in 0..self.queue_handle.as_ref().map_or(0, QueueHandle::queued) {
            if is_back() || !self.ask_member(QueueHandle::is_client_next) {
                return;
            }
            // Another worker may have been faster. Then this is a request, which goes back to the queue.
            let Some((connection, step)) = self.receive_queued() else { return };
            let next = self.resume(connection, step);
            self.queue_if_ready(next);
        }
    }

    /// Whether requests are waiting that came before any new one.
    pub fn has_waiting_requests(&self) -> bool {
        !self.ready.is_empty() || self.ask_member(QueueHandle::is_anything_queued)
    }

    pub fn queue_behind_waiting(&mut self, mut connection: Box<Connection>) {
        // One that has shut down its sending side with the request is not gone: see `drop_if_gone`.
        connection.ended |= fastrack_sys::has_peer_closed(connection.as_fd());
        let given = if self.must_keep() { Err(connection) } else { self.give(connection) };
        if let Err(connection) = given {
            self.queue(connection);
        }
    }

    /// Asks the shared queue; false without one.
    pub(super) fn ask_member(&self, question: fn(&QueueHandle) -> bool) -> bool {
        self.queue_handle.as_ref().is_some_and(question)
    }

    pub fn take_queued(&mut self) -> Option<Box<Connection>> {
        loop {
            let next = match self.receive_queued()? {
                (connection, Step::Ready) => self.drop_if_gone(connection),
                (connection, step) => self.resume(connection, step),
            };
            if let Next::Ready(connection) = next {
                return Some(connection);
            }
        }
    }

    pub(super) fn receive_queued(&mut self) -> Option<(Box<Connection>, Step)> {
        self.queue_handle.as_ref()?;
        // A connection received while no descriptor is free is lost.
        while !fastrack_sys::has_free_fds() {
            if !self.make_room() {
                return self.leave_queued(fastrack_sys::too_many_open_files());
            }
        }
        match self.queue_handle.as_ref()?.receive(&self.settings, &mut self.read_bufs) {
            Ok(received) => {
                self.queue_failure = None;
                self.control.counters().add(Count::TakenOver, u64::from(received.is_some()));
                received
            }
            Err(error) if fastrack_sys::is_lost_fd(&error) => {
                self.lost_descriptors = true;
                None
            }
            Err(error) => self.leave_queued(error),
        }
    }

    /// Whether there are other workers, which may be idle at another time.
    pub fn has_others(&self) -> bool {
        self.ask_member(QueueHandle::has_others)
    }

    /// Gives one of several connections with something to do to a worker that is idle, if there is one.
    pub fn share(&mut self) -> bool {
        self.table.events() + self.ready.len() > 1
            && self.ask_member(QueueHandle::is_another_idle)
            && self.share_last()
    }

    /// Rather one that has pipelined requests: there is more to be done for it.
    fn share_last(&mut self) -> bool {
        if let Some(connection) = self.ready.pop_back() {
            return self.give(connection).map_err(|connection| self.ready.push_back(connection)).is_ok();
        }
        let Some((mut connection, since, ended)) = self.table.last_event() else { return false };
        connection.ended |= ended;
        connection.arrived = since;
        let idle = connection.phase() == Phase::Idle && !ended;
        let given = if idle { self.give(connection) } else { Err(connection) };
        let Err(connection) = given else { return true };
        let (key, deadline) = (connection.key, connection.deadline);
        self.park(connection, deadline);
        key.into_iter().for_each(|key| self.table.queue_event(key));
        false
    }
}
