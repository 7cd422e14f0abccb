//! How connections change hands between workers: the reactor's side of the queue that they share.

use std::io;

use crate::connection::{Connection, Phase, Step};
use crate::dispatch::Seat;
use crate::parcel;
use crate::reactor::Reactor;

impl Reactor {
    /// Puts a connection into the queue that all workers share; gives it back when that cannot be.
    pub(crate) fn give(&mut self, connection: Connection) -> Option<Connection> {
        let Some(seat) = &self.seat else { return Some(connection) };
        seat.count_one_more();
        if parcel::send(seat.sender(), &connection).is_ok() {
            self.forget(connection);
            return None;
        }
        seat.count_one_less();
        Some(connection)
    }

    /// Puts the requests that are complete into the queue: whoever is free first answers them, this worker perhaps.
    pub(crate) fn give_ready(&mut self) {
        if self.stop_deadline.is_some() && !self.seat.as_ref().is_some_and(Seat::is_another_serving) {
            return;
        }
        while let Some(connection) = self.ready.pop_front() {
            if let Some(connection) = self.give(connection) {
                return self.ready.push_front(connection);
            }
        }
    }

    /// Whether requests wait that have come before any new one.
    pub fn is_crowded(&self) -> bool {
        !self.ready.is_empty() || self.seat.as_ref().is_some_and(Seat::is_anybody_queued)
    }

    /// Has a complete request wait behind those.
    pub fn line_up(&mut self, connection: Connection) {
        let kept = self.give(connection);
        self.ready.extend(kept);
    }

    /// Takes a connection out of that queue; gives back one whose request is complete.
    pub fn take_queued(&mut self) -> Option<Connection> {
        loop {
            let seat = self.seat.as_ref()?;
            let (mut connection, step) =
                match parcel::receive(seat.receiver(), &self.settings, &mut self.inputs) {
                    Ok(received) => received,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        seat.count_none();
                        return None;
                    }
                    Err(error) => {
                        seat.count_one_less();
                        self.warnings.push(format!("cannot take a connection over: {error}"));
                        return None;
                    }
                };
            seat.count_one_less();
            if connection.listener >= self.listeners {
                // It came by a listener that only another generation of workers has.
                connection.listener = 0;
            }
            let connection = match step {
                Step::Ready => self.unless_gone(connection),
                step => self.enter(connection, step),
            };
            if connection.is_some() {
                return connection;
            }
        }
    }

    /// One of several connections with something to read goes to a worker that has nothing to do, if there is one.
    pub fn share(&mut self) -> bool {
        if !self.seat.as_ref().is_some_and(Seat::is_another_idle) {
            return false;
        }
        let Some(arrival) = self.arrivals.pop_back() else { return false };
        let Some((connection, deadline)) = self.connections.take(arrival.key) else {
            self.connections.note(arrival);
            return false;
        };
        let idle = connection.phase() == Phase::Idle && !arrival.ended;
        let kept = if idle { self.give(connection) } else { Some(connection) };
        let Some(connection) = kept else { return true };
        self.park(connection, deadline);
        self.arrivals.push_back(arrival);
        false
    }

    /// Another worker goes on with an idle connection, or else it ends here.
    pub(crate) fn retire(&mut self, connection: Connection) {
        if !self.seat.as_ref().is_some_and(Seat::is_another_serving) {
            return self.discard_unless_begun(connection);
        }
        if let Some(connection) = self.give(connection) {
            return self.discard_unless_begun(connection);
        }
        // The others may have stopped in this moment: whoever is last looks after what is left.
        if !self.seat.as_ref().is_some_and(Seat::is_another_serving) {
            self.drain_queue();
        }
    }

    /// Takes all that is in the queue, for nobody else would.
    pub(crate) fn drain_queue(&mut self) {
        while let Some(connection) = self.take_queued() {
            self.ready.push_back(connection);
        }
    }

    /// A request may have come in the very moment: it is answered, and the client told that it was the last.
    fn discard_unless_begun(&mut self, mut connection: Connection) {
        let step = connection.read(&self.settings, &mut self.inputs);
        match step {
            Step::Wait if connection.phase() == Phase::Idle => self.discard(connection),
            step => {
                let deadline = self.stop_deadline.unwrap_or_default();
                if let Some(connection) = self.proceed(connection, step, deadline) {
                    self.ready.push_back(connection);
                }
            }
        }
    }
}
