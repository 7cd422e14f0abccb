//! One client of the closed loop, and the request that it is at.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use crate::connection::{Connection, Received};
use crate::gaps::Gap;
use crate::plan::Ticket;
use crate::response::{Progress, Reader, Said};
use crate::routers::Routers;

/// What epoll waits for when the request has been sent.
const ANSWER: EpollFlags = EpollFlags::EPOLLIN;

/// Why a request got no good answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection could be made.
    Connect,
    /// It broke off, or what came is no response.
    Read,
    /// Another status than 200.
    Status,
    /// Nothing came in time.
    Timeout,
}

/// What has become of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is under way.
    Pending,
    /// The whole answer has come.
    Answered(Said),
    /// There will be none.
    Failed(Failure),
}

/// What all clients of a thread share.
#[derive(Debug)]
pub struct Surroundings {
    /// Where connections are waited for, under the client's key.
    pub epoll: Epoll,
    /// The requests by kind.
    pub requests: Vec<Request>,
    /// Where answers are read to.
    pub buffer: Vec<u8>,
    /// Who keeps the connections, where the clients do not.
    pub routers: Option<Routers>,
    /// How many requests are in the bytes of one, and so many answers are waited for.
    pub pipeline: usize,
    /// After how many answers, or batches of them, a client closes its connection.
    pub per_connection: Option<u32>,
}

/// The bytes of a request.
#[derive(Debug)]
pub struct Request {
    /// As a client sends it that keeps its connection.
    pub kept: Vec<u8>,
    /// As one sends it that connects anew for each request.
    pub last: Vec<u8>,
}

/// What makes a client differ from others.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// The server.
    pub address: SocketAddr,
    /// Connects for each request, and closes after the answer.
    pub reconnects: bool,
    /// The mean of its pauses.
    pub pause: Duration,
}

/// A client that makes one request after the other, on one connection for as long as the server keeps it, or on a
/// connection for each.
#[derive(Debug)]
pub struct Client {
    key: u64,
    /// Who it is.
    pub profile: Profile,
    connection: Option<Connection>,
    /// What epoll waits for on the connection.
    interest: EpollFlags,
    /// Whether an answer has already come on the connection: it may then be closed at any time.
    used: bool,
    /// How many answers, or batches of them, have come on it.
    answers: u32,
    sent: usize,
    reader: Reader,
    /// The request that it is at, or pauses before.
    pub ticket: Ticket,
    /// When it had the answer before.
    pub idle_since: Instant,
    /// When it began with the request, or, while it pauses, with the one before.
    pub begun: Instant,
    /// Whether the request is under way.
    pub waits: bool,
    /// How long it has gone without an answer.
    pub gap: Gap,
}

impl Client {
    /// A client that has no connection yet.
    pub fn new(key: u64, profile: Profile, ticket: Ticket, now: Instant) -> Self {
        Self {
            key,
            profile,
            connection: None,
            interest: EpollFlags::empty(),
            used: false,
            answers: 0,
            sent: 0,
            reader: Reader::default(),
            ticket,
            idle_since: now,
            begun: now,
            waits: false,
            gap: Gap::default(),
        }
    }

    /// Begins with the request. Connecting, where that is needed, is a part of it.
    pub fn begin(&mut self, around: &mut Surroundings, now: Instant) -> Outcome {
        self.begun = now;
        self.waits = true;
        self.gap.asks(now);
        self.proceed(around)
    }

    /// Goes on after epoll has said that something happened on the connection.
    pub fn ready(&mut self, around: &mut Surroundings) -> Outcome {
        if self.waits {
            return self.proceed(around);
        }
        // Nobody has asked: all that can come is the end.
        self.connection = None;
        Outcome::Pending
    }

    /// How many answers have come of a batch that is under way.
    pub fn answers_of_batch(&self) -> usize {
        if self.waits {
            self.reader.answers()
        } else {
            0
        }
    }

    /// Leaves the request as it is.
    pub fn give_up(&mut self) -> Outcome {
        self.end(Outcome::Failed(Failure::Timeout), false)
    }

    fn proceed(&mut self, around: &mut Surroundings) -> Outcome {
        match self.advance(around) {
            Ok(Progress::Partial) => Outcome::Pending,
            Ok(Progress::Complete(said)) if said.status == 200 => {
                self.answers += 1;
                let enough = around.per_connection.is_some_and(|most| self.answers >= most);
                let keep = said.keeps && !self.profile.reconnects && !enough;
                let outcome = self.end(Outcome::Answered(said), keep);
                self.hand_back(around);
                outcome
            }
            Ok(Progress::Complete(_)) => self.end(Outcome::Failed(Failure::Status), false),
            // The server takes no more of them here: the others have to be sent again.
            Ok(Progress::Cut(answers)) => {
                self.disconnect();
                let request = &around.requests[self.ticket.kind].kept;
                self.sent = request.len() / around.pipeline * answers;
                self.proceed(around)
            }
            Ok(Progress::Nonsense) => self.end(Outcome::Failed(Failure::Read), false),
            // As any client does: a connection that was closed before the request came is no failure of it.
            Err(_) if self.used && self.reader.is_untouched() => {
                self.disconnect();
                self.proceed(around)
            }
            Err(_) if self.sent == 0 => self.end(Outcome::Failed(Failure::Connect), false),
            Err(_) => self.end(Outcome::Failed(Failure::Read), false),
        }
    }

    /// Connects, sends, reads: as far as it goes without waiting.
    fn advance(&mut self, around: &mut Surroundings) -> io::Result<Progress> {
        if self.connection.is_none() {
            self.borrow(around)?;
        }
        let request = &around.requests[self.ticket.kind];
        let request = if self.profile.reconnects { &request.last } else { &request.kept };
        if self.connection.is_none() {
            self.connection = Some(Connection::open(self.profile.address, false)?);
            self.answers = 0;
            self.interest = EpollFlags::empty();
            self.watch(&around.epoll, ANSWER | EpollFlags::EPOLLOUT)?;
            return Ok(Progress::Partial);
        }
        let connection = self.connection.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        if self.sent < request.len() {
            self.sent += connection.send(&request[self.sent..])?;
            let all = self.sent == request.len();
            self.watch(&around.epoll, if all { ANSWER } else { ANSWER | EpollFlags::EPOLLOUT })?;
            // What has just been asked has no answer yet; epoll will tell.
            return Ok(Progress::Partial);
        }
        loop {
            match connection.receive(&mut around.buffer)? {
                Received::Bytes(bytes) => match self.reader.take(&around.buffer[..bytes], around.pipeline) {
                    Progress::Partial if bytes == around.buffer.len() => {}
                    progress => return Ok(progress),
                },
                Received::Nothing => return Ok(Progress::Partial),
                Received::End => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Takes a connection that a router keeps, if there is one.
    fn borrow(&mut self, around: &mut Surroundings) -> io::Result<()> {
        let Some(routers) = around.routers.as_mut().filter(|_| !self.profile.reconnects) else {
            return Ok(());
        };
        self.connection = routers.take(self.ticket.number, Instant::now());
        self.used = self.connection.is_some();
        self.interest = EpollFlags::empty();
        if self.used {
            self.watch(&around.epoll, ANSWER)?;
        }
        Ok(())
    }

    /// Gives the connection back to its router, if there are routers.
    fn hand_back(&mut self, around: &mut Surroundings) {
        let Some(routers) = &mut around.routers else { return };
        if let Some(connection) =
            self.connection.take_if(|connection| around.epoll.delete(connection).is_ok())
        {
            routers.give(self.ticket.number, connection, Instant::now());
        }
    }

    /// Has epoll wait for `interest`, where it does not already.
    fn watch(&mut self, epoll: &Epoll, interest: EpollFlags) -> io::Result<()> {
        let connection = self.connection.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let mut event = EpollEvent::new(interest, self.key);
        if self.interest.is_empty() {
            epoll.add(connection, event)?;
        } else if self.interest != interest {
            epoll.modify(connection, &mut event)?;
        }
        self.interest = interest;
        Ok(())
    }

    fn end(&mut self, outcome: Outcome, keep: bool) -> Outcome {
        self.used = keep;
        self.sent = 0;
        self.reader.reset();
        self.waits = false;
        if !keep {
            self.connection = None;
        }
        outcome
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.used = false;
        self.sent = 0;
    }
}
