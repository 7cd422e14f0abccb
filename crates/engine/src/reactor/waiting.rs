//! Connections that wait: parks them in the table, and ends the wait when their deadline has passed.

use fastrack_http::Error;
use fastrack_sys::{epoch_seconds, monotonic_millis};
use std::os::fd::AsFd;

use super::Reactor;
use crate::conn::{Connection, Phase};

const DRAIN_TIME: u64 = 2_000;

impl Reactor {
    pub(super) fn deadline(&self, phase: Phase) -> u64 {
        let time = match phase {
            Phase::Fresh | Phase::Head => self.settings.header_timeout,
            Phase::Idle => self.settings.keep_alive_timeout,
            Phase::Body => self.settings.body_timeout,
            Phase::Sending => self.settings.write_timeout,
            Phase::Draining => DRAIN_TIME,
        };
        monotonic_millis().saturating_add(time)
    }

    /// Parks a connection in its phase, with the time that this phase gets.
    pub(super) fn park_anew(&mut self, connection: Box<Connection>) {
        let deadline = self.deadline(connection.phase());
        self.park(connection, deadline);
    }

    /// Parks a connection. While stopping, an idle one goes to another worker.
    pub(super) fn park(&mut self, mut connection: Box<Connection>, mut deadline: u64) {
        connection.release_empty_buffer(&mut self.read_bufs);
        if let Some(stop) = self.stop_deadline {
            if connection.phase() == Phase::Idle {
                return self.hand_off_idle(connection);
            }
            deadline = deadline.min(stop);
        }
        if connection.key.is_none() && self.table.len() >= self.capacity {
            self.make_room();
        }
        self.keep(connection, deadline);
    }

    /// Puts a connection into the table until an event or its deadline.
    pub(super) fn keep(&mut self, connection: Box<Connection>, deadline: u64) {
        let Err((connection, error)) = self.table.park(connection, deadline, &self.control) else { return };
        let now = epoch_seconds();
        if self.last_failure != now {
            self.last_failure = now;
            self.warn(format!("cannot wait for a client: {error}"));
        }
        self.abort(connection);
    }

    /// Ends the connection with the earliest deadline; false if there is none.
    pub fn make_room(&mut self) -> bool {
        let due = self.table.due(u64::MAX);
        due.into_iter().for_each(|key| self.time_out(key));
        due.is_some()
    }

    /// Ends the connections whose deadline has passed, until something else `is_urgent`.
    pub fn expire(&mut self, is_urgent: &dyn Fn() -> bool) {
        if self.table.next_deadline().is_none() {
            return;
        }
        let now = monotonic_millis();
        while let Some(key) = self.table.due(now) {
            if !self.is_just_in_time(key) {
                self.time_out(key);
            }
            if is_urgent() {
                return;
            }
        }
    }

    /// Queues an event if an idle client has sent a request in time that nobody has read: a close would lose it.
    fn is_just_in_time(&mut self, key: usize) -> bool {
        let Some((connection, deadline)) = self.table.take(key) else { return false };
        let begun = matches!(connection.phase(), Phase::Fresh | Phase::Idle)
            && fastrack_sys::is_readable(connection.as_fd());
        let deadline = if begun { self.deadline(Phase::Head) } else { deadline };
        self.keep(connection, deadline);
        if begun {
            self.table.queue_event(key);
        }
        begun
    }

    /// Ends a connection whose time is over; with a 408 if its client has begun a request.
    fn time_out(&mut self, key: usize) {
        let Some((connection, _)) = self.table.take(key) else { return };
        match connection.phase() {
            Phase::Head | Phase::Body => self.refuse(connection, Error::Timeout),
            _ => self.abort(connection),
        }
    }
}
