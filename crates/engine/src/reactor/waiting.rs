//! Connections that wait: parks them in the table, and ends the wait when their deadline has passed.

use fastrack_http::Error;
use fastrack_sys::monotonic_millis;
use std::os::fd::AsFd;

use super::linger::SILENCE;
use super::Reactor;
use crate::conn::{Connection, Phase};

/// The most memory that all incomplete bodies of a worker take, in bytes. Beyond that they go to files.
const BODY_MEMORY: usize = 64 * 1024 * 1024;

impl Reactor {
    pub(super) fn deadline(&self, phase: Phase) -> u64 {
        self.deadline_from(phase, monotonic_millis())
    }

    pub(super) fn deadline_from(&self, phase: Phase, now: u64) -> u64 {
        let time = match phase {
            Phase::Fresh | Phase::Head => self.settings.header_timeout,
            Phase::Idle => self.settings.keep_alive_timeout,
            Phase::Body => self.settings.body_timeout,
            Phase::Sending => self.settings.write_timeout,
            Phase::Draining => SILENCE,
        };
        now.saturating_add(time)
    }

    /// Parks a connection in its phase, with the time that this phase gets.
    pub(super) fn park_anew(&mut self, connection: Box<Connection>) {
        let deadline = self.deadline(connection.phase());
        self.park(connection, deadline);
    }

    /// Parks a connection. While stopping, it goes to another worker if there is one.
    pub(super) fn park(&mut self, mut connection: Box<Connection>, deadline: u64) {
        connection.release_empty_buffer(&mut self.read_bufs);
        connection.deadline = deadline;
        if self.handed_off {
            return self.give_or_abort(connection);
        }
        let memory = connection.body_memory();
        if memory > 0 && self.table.body_memory() + memory > BODY_MEMORY {
            if let Err(error) = connection.spool_body(&self.settings) {
                return self.refuse(connection, error);
            }
        }
        if self.is_stopping() {
            return self.park_stopping(connection);
        }
        if connection.key.is_none() && self.table.len() >= self.capacity {
            self.make_room();
        }
        self.keep(connection, deadline);
    }

    /// Puts a connection into the table until an event or its deadline.
    pub(super) fn keep(&mut self, connection: Box<Connection>, deadline: u64) {
        let kept = self.table.park(connection, deadline, &self.control);
        if let Some(error) = self.table.unwatched.take_error() {
            self.warn_of_shortage("wait for a client", &error);
        }
        if let Err((connection, error)) = kept {
            self.warn_of_shortage("wait for a client", &error);
            self.abort(connection);
        }
    }

    /// Ends the connections whose deadline has passed, until something else `is_urgent`.
    pub fn expire(&mut self, is_urgent: &dyn Fn() -> bool) {
        if self.table.next_deadline().is_none() {
            return;
        }
        let now = monotonic_millis();
        while let Some(key) = self.table.due(now) {
            if !self.goes_on(key) {
                self.time_out(key);
            }
            if is_urgent() {
                return;
            }
        }
    }

    /// Whether a connection that is due is not over: a client has sent or taken something in time and nobody has
    /// noticed, or another worker takes it.
    fn goes_on(&mut self, key: usize) -> bool {
        let Some((mut connection, deadline)) = self.table.take(key) else { return false };
        match connection.phase() {
            Phase::Fresh | Phase::Idle if fastrack_sys::is_readable(connection.as_fd()) => {
                connection.deadline = self.deadline(Phase::Head);
                let deadline = connection.deadline;
                self.keep(connection, deadline);
                self.table.queue_event(key);
                true
            }
            Phase::Draining if self.is_still_sending(&connection, deadline) => {
                let deadline = self.linger_deadline(&connection);
                self.keep(connection, deadline);
                self.table.queue_event(key);
                true
            }
            // The poller reports a socket only when a third of its buffer is free, which may take a slow client long.
            Phase::Sending => {
                let own = connection.deadline;
                let next = self.send_more(connection, own);
                self.queue_if_ready(next);
                self.table.take(key).is_none_or(|(connection, later)| {
                    self.keep(connection, later);
                    later > deadline
                })
            }
            _ if self.is_stopping() && deadline < connection.deadline => {
                self.hand_off_late(connection, deadline)
            }
            _ => {
                self.keep(connection, deadline);
                false
            }
        }
    }

    /// Ends a connection whose time is over; with a 408 if its client has begun a request.
    pub(super) fn time_out(&mut self, key: usize) {
        let Some((connection, _)) = self.table.take(key) else { return };
        match connection.phase() {
            Phase::Head | Phase::Body => self.refuse(connection, Error::Timeout),
            _ => self.abort(connection),
        }
    }
}
