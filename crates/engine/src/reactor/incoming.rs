//! Reading: events of connections are handled until a request is ready. Each reading is settled: served, parked, refused or closed.

use std::os::fd::AsFd;

use fastrack_sys::monotonic_millis;

use super::table::EVENTS_PER_TURN;
use super::{Next, Reactor};
use crate::accept::Client;
use crate::conn::{Connection, Phase, Step};
use crate::scoreboard::Count;

impl Reactor {
    /// Takes the first ready request whose client is still there.
    pub fn take_ready(&mut self) -> Option<Box<Connection>> {
        while let Some(connection) = self.ready.pop_front() {
            if let Next::Ready(connection) = self.close_if_gone(connection) {
                return Some(connection);
            }
        }
        None
    }

    /// Closes a connection whose client has disconnected while its request waited. A client that has only shut down its sending side,
    /// or has pipelined requests, may still be there for the response.
    pub(super) fn close_if_gone(&mut self, connection: Box<Connection>) -> Next {
        if connection.ended
            || connection.answer_after_shutdown
            || !fastrack_sys::is_peer_gone(connection.as_fd())
        {
            return Next::Ready(connection);
        }
        self.control.counters().add(Count::Dropped, 1);
        self.close(connection);
        Next::Kept
    }

    /// Handles events until a request is ready, up to a limit: other sources want a turn.
    pub fn handle_events(&mut self) -> Option<Box<Connection>> {
        (0..self.table.events().min(EVENTS_PER_TURN)).find_map(|_| match self.handle_event() {
            Next::Ready(connection) => Some(connection),
            Next::Kept => None,
        })
    }

    /// Handles the first event: sends or reads, and settles the connection.
    pub(super) fn handle_event(&mut self) -> Next {
        let Some((mut connection, since, ended)) = self.table.next_event() else { return Next::Kept };
        connection.ended |= ended;
        let deadline = connection.deadline;
        let before = connection.phase();
        // A connection from another worker keeps the time of its first arrival.
        if connection.arrival.at == 0 || matches!(before, Phase::Head | Phase::Sending | Phase::Draining) {
            connection.arrival.at = since;
        }
        if before == Phase::Sending {
            return self.send_more(connection, deadline);
        }
        if before == Phase::Body {
            if let Some(step) = self.go_on_with_body(&mut connection) {
                self.end_body(&mut connection, &step, since);
                let deadline = self.deadline(Phase::Body);
                return self.settle(connection, step, deadline);
            }
        }
        let step = self.read(&mut connection);
        if step == Step::Ready {
            self.end_body(&mut connection, &step, since);
            return Next::Ready(connection);
        }
        // The deadline is for the whole head. Otherwise a client could keep a connection by sending a head byte by byte.
        let deadline = match (before, connection.phase()) {
            (Phase::Idle, Phase::Head) | (_, Phase::Body) => self.deadline(connection.phase()),
            (_, Phase::Draining) => self.linger_deadline(&connection),
            _ => deadline,
        };
        self.settle(connection, step, deadline)
    }

    /// Ends a write of the body to the disk. None if more of the body can be received.
    fn go_on_with_body(&mut self, connection: &mut Connection) -> Option<Step> {
        connection.end_write().or_else(|| self.table.put_off(connection).then_some(Step::Wait))
    }

    /// Notes the end of the wait for a body that is complete. A worker that was busy learns of the last part later than
    /// `polled`: then the system knows how long ago the part arrived.
    fn end_body(&self, connection: &mut Connection, step: &Step, polled: u64) {
        if *step != Step::Ready || connection.arrival.body_since == 0 {
            return;
        }
        let waited = connection.peer.and_then(|_| fastrack_sys::millis_since_data(connection.as_fd()));
        let arrived = waited.map_or(polled, |waited| monotonic_millis().saturating_sub(waited).min(polled));
        connection.arrival.end_body(arrived);
    }

    /// Receives bytes of a request.
    pub fn read(&mut self, connection: &mut Connection) -> Step {
        let step = connection.read(&self.settings, &mut self.read_bufs, self.table.disk());
        self.control.counters().add(Count::BytesIn, connection.take_received());
        step
    }

    /// Makes a connection of a client that was just accepted, and reads for the first time.
    pub fn read_first(&mut self, client: Client) -> (Box<Connection>, Step) {
        let mut connection = Connection::new(client);
        self.control.counters().add(Count::Accepted, 1);
        let step = self.read(&mut connection);
        if step == Step::Ready || connection.phase() == Phase::Body {
            connection.arrival.at = self.backlog_time.arrival(&connection, monotonic_millis());
        }
        (connection, step)
    }

    /// Settles a connection that is new in this worker. Its phase gets its full time.
    pub fn settle_new(&mut self, connection: Box<Connection>, step: Step) -> Next {
        let now = if step == Step::Wait { monotonic_millis() } else { 0 };
        self.settle_at(connection, step, now)
    }

    /// As [`settle_new`](Self::settle_new), at `now` in milliseconds of the monotonic clock.
    pub(super) fn settle_at(&mut self, connection: Box<Connection>, step: Step, now: u64) -> Next {
        let deadline = if step == Step::Wait { self.deadline_from(connection.phase(), now) } else { 0 };
        self.settle(connection, step, deadline)
    }

    /// Settles a connection from the shared queue. The connection keeps the deadline that it had in its former worker.
    pub(super) fn settle_taken(&mut self, mut connection: Box<Connection>, step: Step) -> Next {
        let before = connection.phase();
        let deadline = if connection.deadline == 0 { self.deadline(before) } else { connection.deadline };
        if before == Phase::Sending {
            return self.send_more(connection, deadline);
        }
        let is_arriving = matches!(before, Phase::Head | Phase::Body | Phase::Draining) && step == Step::Wait;
        if !is_arriving || !fastrack_sys::is_readable(connection.as_fd()) {
            return self.settle(connection, step, deadline);
        }
        // The deadline may have passed in the queue, while the client went on sending.
        let step = self.read(&mut connection);
        let now = monotonic_millis();
        self.end_body(&mut connection, &step, now);
        let is_late = deadline <= now;
        let deadline = match connection.phase() {
            Phase::Body => self.deadline(Phase::Body),
            Phase::Draining => self.linger_deadline(&connection),
            phase if is_late => self.deadline(phase),
            _ => deadline,
        };
        self.settle(connection, step, deadline)
    }

    /// Settles a connection: does the step that the last reading asks for. Returns the connection if its request is ready.
    pub(super) fn settle(&mut self, mut connection: Box<Connection>, step: Step, deadline: u64) -> Next {
        match step {
            Step::Ready => return Next::Ready(connection),
            Step::Wait => {
                if connection.phase() == Phase::Body {
                    connection.arrival.wait_for_body(monotonic_millis());
                }
                self.park(connection, deadline);
            }
            Step::Refuse(error) => self.refuse(connection, error),
            Step::Close => self.close(connection),
        }
        Next::Kept
    }

    /// Queues a connection whose request is ready, for the next free thread of this worker.
    pub fn queue(&mut self, mut connection: Box<Connection>) {
        connection.deadline = 0;
        if self.stopping.is_handing_off {
            return self.give_or_abort(connection);
        }
        // The application may fork before the request has its turn.
        self.control.track_fd(connection.raw_fd());
        self.ready.push_back(connection);
    }

    pub fn queue_if_ready(&mut self, next: Next) {
        if let Next::Ready(connection) = next {
            self.queue(connection);
        }
    }
}
