//! How connections change hands between workers: the reactor's side of the queue that they share.

use std::io;

use fastrack_sys::monotonic_millis;

use crate::connection::{Connection, Phase, Step};
use crate::parcel;
use crate::reactor::Reactor;
use crate::shared_queue::Member;

/// How long a worker that stops waits for room in the queue, in milliseconds.
const ROOM_TIME: u64 = 100;

impl Reactor {
    /// Puts a connection into the queue that all workers share; gives it back when that cannot be.
    pub(crate) fn give(&mut self, connection: Box<Connection>) -> Option<Box<Connection>> {
        let Some(member) = &self.member else { return Some(connection) };
        member.count_one_more();
        if parcel::send(member.sender(), &connection, &self.settings).is_ok() {
            self.forget(connection);
            return None;
        }
        member.count_one_less();
        Some(connection)
    }

    /// Puts the requests that are complete into the queue: whoever is free first answers them, this worker perhaps.
    pub(crate) fn give_ready(&mut self, is_back: &dyn Fn() -> bool) {
        if self.stop_deadline.is_some() && !self.member.as_ref().is_some_and(Member::is_another_serving) {
            return;
        }
        while let Some(connection) = self.ready.pop_front() {
            if let Some(connection) = self.give(connection) {
                return self.ready.push_front(connection);
            }
            if is_back() {
                break;
            }
        }
        self.leave_nobody_behind();
    }

    /// Whether requests wait that have come before any new one.
    pub fn is_crowded(&self) -> bool {
        !self.ready.is_empty() || self.member.as_ref().is_some_and(Member::is_anybody_queued)
    }

    /// Has a complete request wait behind those.
    pub fn line_up(&mut self, connection: Box<Connection>) {
        let kept = self.give(connection);
        kept.into_iter().for_each(|connection| self.queue(connection));
    }

    /// Takes a connection out of that queue; gives back one whose request is complete.
    pub fn take_queued(&mut self) -> Option<Box<Connection>> {
        loop {
            let connection = match self.receive_queued()? {
                (connection, Step::Ready) => self.unless_gone(connection),
                (connection, step) => self.enter(connection, step),
            };
            if connection.is_some() {
                return connection;
            }
        }
    }

    fn receive_queued(&mut self) -> Option<(Box<Connection>, Step)> {
        self.member.as_ref()?;
        // What is received without a descriptor being free is lost.
        while !fastrack_sys::has_free_fds() {
            if !self.make_room() {
                self.exhausted = true;
                return None;
            }
        }
        let member = self.member.as_ref()?;
        let received = parcel::receive(member.receiver(), &self.settings, &mut self.inputs);
        match &received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                member.count_none();
                return None;
            }
            _ => member.count_one_less(),
        }
        match received {
            Ok(received) => Some(received),
            Err(error) => {
                self.warnings.push(format!("cannot take a connection over: {error}"));
                None
            }
        }
    }

    /// One of several connections with something to read goes to a worker that has nothing to do, if there is one.
    pub fn share(&mut self) -> bool {
        if !self.member.as_ref().is_some_and(Member::is_another_idle) {
            return false;
        }
        let Some(arrival) = self.arrivals.pop_back() else { return false };
        let arrival = self.connections.out_of_line(arrival);
        let Some((connection, deadline)) = self.connections.take(arrival.key) else {
            self.connections.note(arrival);
            return false;
        };
        let idle = connection.phase() == Phase::Idle && !arrival.ended;
        let kept = if idle { self.give(connection) } else { Some(connection) };
        let Some(connection) = kept else { return true };
        self.park(connection, deadline);
        self.get_in_line(arrival);
        false
    }

    /// Another worker goes on with an idle connection, or else it ends here.
    pub(crate) fn retire(&mut self, connection: Box<Connection>) {
        if !self.member.as_ref().is_some_and(Member::is_followed) {
            return self.discard_unless_begun(connection);
        }
        let Some(connection) = self.give(connection) else { return self.leave_nobody_behind() };
        // The queue is full: the others have it empty in no time, unless they are busy.
        let has_room =
            |member: &Member| fastrack_sys::wait_writable(member.sender(), ROOM_TIME).unwrap_or(false);
        self.crammed = self.crammed || !self.member.as_ref().is_some_and(has_room);
        let connection = if self.crammed { Some(connection) } else { self.give(connection) };
        match connection {
            Some(connection) => self.discard_unless_begun(connection),
            None => self.leave_nobody_behind(),
        }
    }

    /// The others may have stopped in the moment of giving: whoever is last looks after what is left.
    fn leave_nobody_behind(&mut self) {
        if self.stop_deadline.is_some() && !self.member.as_ref().is_some_and(Member::is_followed) {
            self.drain_queue();
        }
    }

    /// Whether a worker that stops is done. As long as it is the one to take what is in the queue and has no descriptor
    /// for that, it is not, until its time is over.
    pub(crate) fn has_left_nobody(&mut self) -> bool {
        if !self.is_done() {
            return false;
        }
        self.leave_nobody_behind();
        self.is_done() && !(self.exhausted && self.stop_deadline.is_some_and(|end| monotonic_millis() < end))
    }

    /// Takes one connection out of the queue, and puts it back unless its request is complete: that wakes another worker.
    pub(crate) fn pass_on_queued(&mut self) {
        if let Some((connection, step)) = self.receive_queued() {
            let connection = self.enter(connection, step);
            connection.into_iter().for_each(|connection| self.queue(connection));
        }
    }

    /// Takes the requests out of the queue that nobody else would answer soon. Connections without one go back to its
    /// end, for the successor.
    pub(crate) fn answer_queued(&mut self) {
        for _ in 0..self.member.as_ref().map_or(0, Member::queued) {
            self.pass_on_queued();
        }
    }

    /// Takes all that is in the queue, for nobody else would.
    pub(crate) fn drain_queue(&mut self) {
        while let Some(connection) = self.take_queued() {
            self.queue(connection);
        }
    }

    /// A request may come in the very moment, and one that is busy with this connection sends it soon: it is answered,
    /// and the client told that it was the last. A close that crosses a request on its way costs that request.
    fn discard_unless_begun(&mut self, mut connection: Box<Connection>) {
        let step = connection.read(&self.settings, &mut self.inputs);
        match step {
            Step::Wait if connection.phase() == Phase::Idle => self.linger(connection),
            step => {
                let deadline = self.stop_deadline.unwrap_or_default();
                if let Some(connection) = self.proceed(connection, step, deadline) {
                    self.queue(connection);
                }
            }
        }
    }
}
