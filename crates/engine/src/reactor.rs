//! Where a worker's connections are looked after: by the thread that runs the
//! application whenever it has time, and by the helper while it has none.
//!
//! Nothing here waits, and nothing knows the application. What comes out is
//! connections whose requests are complete.

use std::collections::VecDeque;
use std::io::{self};
use std::os::fd::AsFd;
use std::sync::Arc;

use fastrack_http::{DateCache, Error};
use fastrack_sys::{epoch_seconds, monotonic_millis, Events};

use crate::connection::{Connection, Phase, Step};
use crate::connections::{Arrival, Connections};
use crate::control::Control;
use crate::input::InputPool;
use crate::settings::Settings;
use crate::shared_queue::Member;

/// How long a refused client gets to read the answer, in milliseconds.
const DRAIN_TIME: u64 = 2_000;

/// How long requests that have begun get to come in whole once the engine is stopping, in milliseconds.
pub(crate) const STOP_TIME: u64 = 5_000;

/// How long idle clients get then, where no other worker takes them over and nobody wishes otherwise, in milliseconds.
pub(crate) const STOP_TIME_IDLE: u64 = 250;

/// How long clients get then that were accepted and have sent nothing yet, in milliseconds: theirs is on its way.
const STOP_TIME_FRESH: u64 = 1_000;

/// Descriptors that are not for connections: the application has files and sockets, too.
const RESERVED_DESCRIPTORS: usize = 64;

/// Arrivals that are seen to before the poller is asked for newer ones.
const ARRIVALS_IN_A_ROW: u32 = 16;

/// Connections that are read without a request coming of it before others have their turn: each may bring a megabyte.
const READ_IN_A_ROW: usize = 16;

#[derive(Debug)]
pub(crate) struct Reactor {
    pub settings: Settings,
    pub(crate) control: Arc<Control>,
    pub(crate) connections: Connections,
    pub inputs: InputPool,
    pub(crate) events: Events,
    /// Arrivals that nobody has looked at yet.
    pub(crate) arrivals: VecDeque<Arrival>,
    /// How many of them were looked at since the poller was asked.
    pub(crate) in_a_row: u32,
    /// Complete requests, in the order in which they became so.
    pub(crate) ready: VecDeque<Box<Connection>>,
    /// This worker's place at the queue that all workers share.
    pub(crate) member: Option<Member>,
    pub(crate) date: DateCache,
    /// Connections that may be kept at most.
    pub(crate) most: usize,
    /// When what has begun is cut off; set while stopping.
    pub(crate) stop_deadline: Option<u64>,
    /// The queue was full, and stayed so, when connections were to go to other workers.
    pub(crate) crammed: bool,
    /// No descriptor was free for a connection out of the queue.
    pub(crate) exhausted: bool,
    /// Lines for the log.
    pub(crate) warnings: Vec<String>,
    /// The second in which the last connection could not be kept.
    pub(crate) last_failure: u64,
    /// Whether the application may fork meanwhile.
    pub(crate) beside_application: bool,
}

impl Reactor {
    pub fn new(
        settings: Settings,
        control: Arc<Control>,
        connections: Connections,
        member: Option<Member>,
    ) -> Self {
        let descriptors = fastrack_sys::fd_limit();
        Reactor {
            settings,
            control,
            connections,
            inputs: InputPool::default(),
            events: Events::default(),
            arrivals: VecDeque::new(),
            in_a_row: 0,
            ready: VecDeque::new(),
            member,
            date: DateCache::default(),
            most: descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(descriptors / 2),
            stop_deadline: None,
            crammed: false,
            exhausted: false,
            warnings: Vec::new(),
            last_failure: 0,
            beside_application: false,
        }
    }

    pub fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    pub fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Whether there are connections to be asked about.
    pub fn is_watching(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Whether everything that was waited for has come or gone.
    pub fn is_done(&self) -> bool {
        self.connections.is_empty() && self.ready.is_empty()
    }

    pub fn is_stopping(&self) -> bool {
        self.stop_deadline.is_some()
    }

    /// When to look for connections that have taken too long.
    pub fn next_deadline(&self) -> Option<u64> {
        self.connections.next_deadline()
    }

    pub fn has_pending(&self) -> bool {
        !self.arrivals.is_empty() || !self.ready.is_empty()
    }

    // --- requests come in

    /// Asks the poller, unless there are arrivals enough.
    pub fn poll(&mut self) -> io::Result<()> {
        if !self.arrivals.is_empty() && self.in_a_row < ARRIVALS_IN_A_ROW {
            return Ok(());
        }
        self.in_a_row = 0;
        self.connections.poll(&mut self.events)?;
        for event in self.events.iter() {
            let arrival = Arrival { key: event.token as usize, ended: event.ended };
            if self.connections.gets_in_line(arrival) {
                self.arrivals.push_back(arrival);
            }
        }
        Ok(())
    }

    /// Has an arrival looked at when its turn comes.
    pub(crate) fn get_in_line(&mut self, arrival: Arrival) {
        if self.connections.gets_in_line(arrival) {
            self.arrivals.push_back(arrival);
        }
    }

    /// A request that was read while nobody had time for it.
    pub fn take_ready(&mut self) -> Option<Box<Connection>> {
        while let Some(connection) = self.ready.pop_front() {
            if let Some(connection) = self.unless_gone(connection) {
                return Some(connection);
            }
        }
        None
    }

    /// Drops a request that has waited, if its client has left meanwhile. One that had said before that it sends
    /// nothing more may still be there for the answer, and so may one that has asked for several things at once.
    pub(crate) fn unless_gone(&mut self, connection: Box<Connection>) -> Option<Box<Connection>> {
        if connection.ended || connection.pipelined || !fastrack_sys::is_peer_gone(connection.as_fd()) {
            return Some(connection);
        }
        self.control.drop_one();
        self.discard(connection);
        None
    }

    /// Looks at arrivals until one completes a request, but not at too many: others want their turn.
    pub fn take_arrival(&mut self) -> Option<Box<Connection>> {
        (0..self.arrivals.len().min(READ_IN_A_ROW)).find_map(|_| self.next_arrival())
    }

    /// Looks at the next arrival.
    fn next_arrival(&mut self) -> Option<Box<Connection>> {
        let arrival = self.arrivals.pop_front()?;
        self.in_a_row += 1;
        self.resume(arrival)
    }

    fn resume(&mut self, arrival: Arrival) -> Option<Box<Connection>> {
        let arrival = self.connections.out_of_line(arrival);
        let Some((mut connection, deadline)) = self.connections.take(arrival.key) else {
            self.connections.note(arrival);
            return None;
        };
        connection.ended |= arrival.ended;
        let before = connection.phase();
        if before == Phase::Sending {
            return self.send_more(connection, deadline);
        }
        let step = connection.read(&self.settings, &mut self.inputs);
        // A head has its time as a whole, so that it cannot be sent for ever byte by byte.
        let deadline = match (before, connection.phase()) {
            (Phase::Idle, Phase::Head) | (_, Phase::Body) => self.deadline(connection.phase()),
            _ => deadline,
        };
        self.proceed(connection, step, deadline)
    }

    /// When a connection that enters this phase now has taken too long.
    pub(crate) fn deadline(&self, phase: Phase) -> u64 {
        let time = match phase {
            Phase::Fresh | Phase::Head => self.settings.header_timeout,
            Phase::Idle => self.settings.keep_alive_timeout,
            Phase::Body => self.settings.body_timeout,
            Phase::Sending => self.settings.write_timeout,
            Phase::Draining => DRAIN_TIME,
        };
        monotonic_millis().saturating_add(time)
    }

    /// A connection that is new here: what its first reading came to.
    pub fn enter(&mut self, connection: Box<Connection>, step: Step) -> Option<Box<Connection>> {
        let deadline = if step == Step::Wait { self.deadline(connection.phase()) } else { 0 };
        self.proceed(connection, step, deadline)
    }

    /// Does what reading has made possible; gives back a connection whose request is complete.
    pub(crate) fn proceed(
        &mut self,
        connection: Box<Connection>,
        step: Step,
        deadline: u64,
    ) -> Option<Box<Connection>> {
        match step {
            Step::Ready => return Some(connection),
            Step::Wait => self.park(connection, deadline),
            Step::Refuse(error) => self.refuse(connection, error),
            Step::Close => self.discard(connection),
        }
        None
    }

    pub(crate) fn park(&mut self, mut connection: Box<Connection>, deadline: u64) {
        connection.rest(&mut self.inputs, false);
        let mut deadline = deadline;
        if let Some(stop) = self.stop_deadline {
            if connection.phase() == Phase::Idle {
                return self.retire(connection);
            }
            deadline = deadline.min(stop);
        }
        if connection.key.is_none() && self.connections.len() >= self.most {
            self.make_room();
        }
        self.keep(connection, deadline);
    }

    /// Keeps a connection until something arrives or its time is over.
    pub(crate) fn keep(&mut self, connection: Box<Connection>, deadline: u64) {
        let (connection, error) = match self.connections.park(connection, deadline, &self.control) {
            Ok(arrival) => return arrival.into_iter().for_each(|arrival| self.get_in_line(arrival)),
            Err(failed) => failed,
        };
        let now = epoch_seconds();
        if self.last_failure != now {
            self.last_failure = now;
            self.warnings.push(format!("cannot wait for a client: {error}"));
        }
        match connection.phase() {
            // What it has got of its response must not look like all of it.
            Phase::Sending => self.reset(connection),
            _ => self.discard(connection),
        }
    }

    /// Parts with the connection that has the least time left; false when there is none.
    pub fn make_room(&mut self) -> bool {
        let due = self.connections.due(u64::MAX);
        due.into_iter().for_each(|key| self.part_with(key));
        due.is_some()
    }

    /// A request for which the application has no time yet: it waits behind those of others.
    pub fn queue(&mut self, connection: Box<Connection>) {
        // The application may fork before its turn comes.
        self.control.hold(connection.raw_fd());
        self.ready.push_back(connection);
    }

    // --- time passes

    /// Parts with the connections that took too long, unless others become more urgent meanwhile.
    pub fn expire(&mut self, is_urgent: &dyn Fn() -> bool) {
        if self.connections.next_deadline().is_none() {
            return;
        }
        let now = monotonic_millis();
        while let Some(key) = self.connections.due(now) {
            if !self.is_just_in_time(key) {
                self.part_with(key);
            }
            if is_urgent() {
                return;
            }
        }
    }

    /// Whether an idle client has sent a request before its time was over, which nobody has had the time to read: a
    /// close would cost it that. It is in line to be read then.
    fn is_just_in_time(&mut self, key: usize) -> bool {
        let Some((connection, deadline)) = self.connections.take(key) else { return false };
        let begun = matches!(connection.phase(), Phase::Fresh | Phase::Idle)
            && fastrack_sys::is_readable(connection.as_fd());
        let deadline = if begun { self.deadline(Phase::Head) } else { deadline };
        self.keep(connection, deadline);
        if begun {
            self.get_in_line(Arrival { key, ended: false });
        }
        begun
    }

    /// Ends a connection, with a word if the client has begun a request.
    fn part_with(&mut self, key: usize) {
        let Some((connection, _)) = self.connections.take(key) else { return };
        match connection.phase() {
            Phase::Head | Phase::Body => self.refuse(connection, Error::Timeout),
            Phase::Sending => self.reset(connection),
            Phase::Fresh | Phase::Idle | Phase::Draining => self.discard(connection),
        }
    }

    /// How long an idle connection is waited for while stopping. Where the whole service ends, waiting gains nothing.
    pub(crate) fn parting_time(&self) -> u64 {
        if self.control.is_draining() {
            STOP_TIME_IDLE
        } else {
            self.settings.parting_time
        }
    }

    /// From now on only clients that are here already are waited for, each for a while; idle ones go to another worker.
    pub fn begin_stop(&mut self) {
        let now = monotonic_millis();
        // Whoever begins a request in the last moment gets the time for it, too.
        self.stop_deadline = Some(now + self.parting_time() + STOP_TIME);
        self.member.iter().for_each(|member| member.set_serving(false));
        for key in self.connections.parked() {
            let Some((connection, deadline)) = self.connections.take(key) else { continue };
            let latest = match connection.phase() {
                Phase::Fresh => now + STOP_TIME_FRESH,
                _ => now + STOP_TIME,
            };
            self.park(connection, deadline.min(latest));
        }
    }

    // --- both threads

    /// How many arrivals wait to be looked at.
    pub fn arrived(&self) -> usize {
        self.arrivals.len()
    }

    /// The helper's turn, while the application has the other thread: everything that can be done without it. Requests
    /// are complete go to whoever is free first. What is left when the other thread `is_back` is left to that one: it
    /// waits for a single connection at most, of which a megabyte is read.
    pub fn attend(&mut self, is_back: &dyn Fn() -> bool) {
        self.beside_application = true;
        if let Err(error) = self.poll() {
            self.warnings.push(format!("cannot wait: {error}"));
        }
        for _ in 0..self.arrivals.len() {
            if is_back() {
                break;
            }
            let next = self.next_arrival();
            next.into_iter().for_each(|connection| self.queue(connection));
        }
        self.expire(is_back);
        self.give_ready(is_back);
        self.control.set_pending(self.has_pending());
        self.beside_application = false;
    }
}

#[cfg(test)]
mod tests;
