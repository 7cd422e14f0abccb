//! Parking: connections wait in the table for an event or for their deadline.

use fastrack_http::Error;
use fastrack_sys::monotonic_millis;
use std::os::fd::AsFd;

use super::linger::LINGER_SILENCE;
use super::Reactor;
use crate::conn::{Connection, Phase};

impl Reactor {
    /// The deadline of a phase that begins now, in milliseconds of the monotonic clock.
    pub(super) fn deadline(&self, phase: Phase) -> u64 {
        self.deadline_from(phase, monotonic_millis())
    }

    /// The deadline of a phase that begins at `now`.
    pub(super) fn deadline_from(&self, phase: Phase, now: u64) -> u64 {
        let time = match phase {
            Phase::Fresh | Phase::Head => self.settings.header_timeout,
            Phase::Idle => self.settings.keep_alive_timeout,
            Phase::Body => self.settings.body_timeout,
            Phase::Sending => self.settings.write_timeout,
            Phase::Draining => LINGER_SILENCE,
        };
        now.saturating_add(time)
    }

    /// Parks a connection with the deadline of its phase.
    pub(super) fn park_in_phase(&mut self, connection: Box<Connection>) {
        let deadline = self.deadline(connection.phase());
        self.park(connection, deadline);
    }

    /// Parks a connection. A stopping worker gives the connection to another worker, if there is one.
    pub(super) fn park(&mut self, mut connection: Box<Connection>, deadline: u64) {
        connection.release_empty_buffer(&mut self.read_bufs);
        connection.deadline = deadline;
        if self.stopping.is_handing_off {
            return self.give_or_abort(connection);
        }
        if self.table.is_too_much(connection.body_memory()) {
            if let Err(error) = connection.spool_body() {
                return self.refuse(connection, error);
            }
        }
        if self.is_stopping() {
            return self.park_stopping(connection);
        }
        if connection.key.is_none() && !self.shortage.has_room(self.table.len()) {
            self.make_room();
        }
        self.park_here(connection, deadline);
    }

    /// Parks a connection in this worker's table.
    pub(super) fn park_here(&mut self, connection: Box<Connection>, deadline: u64) {
        let kept = self.table.park(connection, deadline, &self.control);
        if let Some(error) = self.table.unwatched.take_error() {
            self.logging.warn_of_failure("wait for a client", &error);
        }
        if let Err((connection, error)) = kept {
            self.logging.warn_of_failure("wait for a client", &error);
            self.abort(connection);
        }
    }

    /// Ends connections whose deadline has passed, until work of another thread `is_urgent`.
    pub fn expire(&mut self, is_urgent: &dyn Fn() -> bool) {
        if self.control.take_descriptor_need() {
            self.make_room();
        }
        if self.table.next_deadline().is_none() {
            return;
        }
        let now = monotonic_millis();
        while let Some(key) = self.table.due(now) {
            if !self.extend(key) {
                self.time_out(key);
            }
            if is_urgent() {
                return;
            }
        }
    }

    /// Gives an overdue connection another chance: parks it again if its client has sent or taken something in time without notice, or
    /// gives it to another worker. Returns whether it did.
    pub(super) fn extend(&mut self, key: usize) -> bool {
        let Some((mut connection, deadline)) = self.table.take(key) else { return false };
        match connection.phase() {
            Phase::Fresh | Phase::Idle if fastrack_sys::is_readable(connection.as_fd()) => {
                connection.deadline = self.deadline(Phase::Head);
                let deadline = connection.deadline;
                self.park_here(connection, deadline);
                self.table.queue_event(key);
                true
            }
            Phase::Draining if self.is_still_sending(&connection, deadline) => {
                let deadline = self.linger_deadline(&connection);
                self.park_here(connection, deadline);
                self.table.queue_event(key);
                true
            }
            // The poller reports a socket only when a third of its buffer is free. That may take a slow client long.
            Phase::Sending => {
                let own = connection.deadline;
                let next = self.send_more(connection, own);
                self.queue_if_ready(next);
                self.table.take(key).is_none_or(|(connection, later)| {
                    self.park_here(connection, later);
                    later > deadline
                })
            }
            // The disk is slow, and not the client.
            Phase::Body
                if !self.is_stopping() && (connection.is_being_written() || self.table.disk().is_full()) =>
            {
                self.park_in_phase(connection);
                true
            }
            _ if self.is_stopping() && deadline < connection.deadline => self.give_late(connection, deadline),
            _ => {
                self.park_here(connection, deadline);
                false
            }
        }
    }

    /// Ends a connection whose deadline has passed. A client that has sent a part of a request gets 408.
    pub(super) fn time_out(&mut self, key: usize) {
        let Some((connection, _)) = self.table.take(key) else { return };
        match connection.phase() {
            Phase::Head | Phase::Body => self.refuse(connection, Error::Timeout),
            _ => self.abort(connection),
        }
    }
}
