//! Requests come in: events are polled and handled until a request is ready.

use std::io;
use std::os::fd::AsFd;

use fastrack_sys::monotonic_millis;

use super::table::EVENTS_PER_TURN;
use super::{Next, Reactor};
use crate::accept::Client;
use crate::conn::{Connection, Phase, Step};
use crate::scoreboard::Count;

impl Reactor {
    pub fn poll(&mut self) -> io::Result<()> {
        self.table.poll()?;
        self.table.publish(self.control.counters());
        Ok(())
    }

    /// Takes a request that became ready while nobody had time for it.
    pub fn take_ready(&mut self) -> Option<Box<Connection>> {
        while let Some(connection) = self.ready.pop_front() {
            if let Next::Ready(connection) = self.drop_if_gone(connection) {
                return Some(connection);
            }
        }
        None
    }

    /// Drops a request that has waited if its client has disconnected meanwhile. A client that had only shut down its
    /// sending side may still be there for the response, and so may one that has pipelined requests.
    pub(super) fn drop_if_gone(&mut self, connection: Box<Connection>) -> Next {
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

    /// Handles events until a request is ready, but not too many: others want a turn.
    pub fn handle_events(&mut self) -> Option<Box<Connection>> {
        (0..self.table.events().min(EVENTS_PER_TURN)).find_map(|_| match self.handle_event() {
            Next::Ready(connection) => Some(connection),
            Next::Kept => None,
        })
    }

    pub(super) fn handle_event(&mut self) -> Next {
        let Some((mut connection, since, ended)) = self.table.next_event() else { return Next::Kept };
        connection.ended |= ended;
        let deadline = connection.deadline;
        let before = connection.phase();
        // One that another worker has passed on was there before.
        if connection.arrived == 0 || !matches!(before, Phase::Idle | Phase::Fresh) {
            connection.arrived = since;
        }
        if before == Phase::Sending {
            return self.send_more(connection, deadline);
        }
        if before == Phase::Body {
            if let Some(step) = self.go_on_with_body(&mut connection) {
                let deadline = self.deadline(Phase::Body);
                return self.proceed(connection, step, deadline);
            }
        }
        let step = self.read(&mut connection);
        if step == Step::Ready {
            return Next::Ready(connection);
        }
        // The deadline is for the whole head, so that nobody can keep a connection by sending one byte by byte.
        let deadline = match (before, connection.phase()) {
            (Phase::Idle, Phase::Head) | (_, Phase::Body) => self.deadline(connection.phase()),
            (_, Phase::Draining) => self.linger_deadline(&connection),
            _ => deadline,
        };
        self.proceed(connection, step, deadline)
    }

    /// Sees to what is being written of a body. None if more of it can be received.
    fn go_on_with_body(&mut self, connection: &mut Connection) -> Option<Step> {
        connection.end_write().or_else(|| self.table.put_off(connection).then_some(Step::Wait))
    }

    pub fn read(&mut self, connection: &mut Connection) -> Step {
        let step = connection.read(&self.settings, &mut self.read_bufs, self.table.disk());
        self.control.counters().add(Count::BytesIn, connection.take_received());
        step
    }

    /// Reads what a client that has just been accepted has sent.
    pub fn greet(&mut self, client: Client) -> (Box<Connection>, Step) {
        let mut connection = Connection::new(client);
        self.control.counters().add(Count::Accepted, 1);
        let step = self.read(&mut connection);
        if step == Step::Ready {
            connection.arrived = self.arrival(&connection);
        }
        (connection, step)
    }

    /// When the request of a client came that has just been accepted. It may have waited in the backlog, unless this worker
    /// had been waiting for it. Neighbours in the backlog have waited for as long: one is asked for each tick of the clock.
    fn arrival(&mut self, connection: &Connection) -> u64 {
        let now = monotonic_millis();
        if self.backlog_time.is_idle {
            return now;
        }
        if now != self.backlog_time.looked {
            let waited = connection.peer.and_then(|_| fastrack_sys::millis_since_data(connection.as_fd()));
            self.backlog_time.looked = now;
            self.backlog_time.waited = waited.unwrap_or(0);
        }
        now.saturating_sub(self.backlog_time.waited).max(1)
    }

    pub fn enter(&mut self, connection: Box<Connection>, step: Step) -> Next {
        let now = if step == Step::Wait { monotonic_millis() } else { 0 };
        self.enter_at(connection, step, now)
    }

    pub(super) fn enter_at(&mut self, connection: Box<Connection>, step: Step, now: u64) -> Next {
        let deadline = if step == Step::Wait { self.deadline_from(connection.phase(), now) } else { 0 };
        self.proceed(connection, step, deadline)
    }

    /// Goes on with a connection from the shared queue, in the time that it had with its former worker.
    pub(super) fn resume(&mut self, mut connection: Box<Connection>, step: Step) -> Next {
        let before = connection.phase();
        let deadline = if connection.deadline == 0 { self.deadline(before) } else { connection.deadline };
        if before == Phase::Sending {
            return self.send_more(connection, deadline);
        }
        let is_arriving = matches!(before, Phase::Head | Phase::Body | Phase::Draining) && step == Step::Wait;
        if !is_arriving || !fastrack_sys::is_readable(connection.as_fd()) {
            return self.proceed(connection, step, deadline);
        }
        // Its time may have passed in the queue, while the client went on sending.
        let step = self.read(&mut connection);
        let is_late = deadline <= monotonic_millis();
        let deadline = match connection.phase() {
            Phase::Body => self.deadline(Phase::Body),
            Phase::Draining => self.linger_deadline(&connection),
            phase if is_late => self.deadline(phase),
            _ => deadline,
        };
        self.proceed(connection, step, deadline)
    }

    pub(super) fn proceed(&mut self, connection: Box<Connection>, step: Step, deadline: u64) -> Next {
        match step {
            Step::Ready => return Next::Ready(connection),
            Step::Wait => self.park(connection, deadline),
            Step::Refuse(error) => self.refuse(connection, error),
            Step::Close => self.close(connection),
        }
        Next::Kept
    }

    pub fn queue(&mut self, mut connection: Box<Connection>) {
        connection.deadline = 0;
        if self.handed_off {
            return self.give_or_abort(connection);
        }
        // The application may fork before its turn.
        self.control.track_fd(connection.raw_fd());
        self.ready.push_back(connection);
    }

    pub fn queue_if_ready(&mut self, next: Next) {
        if let Next::Ready(connection) = next {
            self.queue(connection);
        }
    }
}
