//! One client of the closed loop, and the request that it is at.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use crate::connection::{Connection, Received};
use crate::plan::Ticket;
use crate::response::{Progress, Reader, Said};

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

/// What all clients share.
#[derive(Debug)]
pub struct Surroundings {
    /// The server.
    pub address: SocketAddr,
    /// Where connections are waited for, under the client's key.
    pub epoll: Epoll,
    /// The bytes of the requests, by kind.
    pub requests: Vec<Vec<u8>>,
}

/// A client that makes one request after the other, on one connection for as long as the server keeps it.
#[derive(Debug)]
pub struct Client {
    key: u64,
    connection: Option<Connection>,
    /// Whether an answer has already come on the connection: it may then be closed at any time.
    used: bool,
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
}

impl Client {
    /// A client that has no connection yet.
    pub fn new(key: u64, ticket: Ticket, now: Instant) -> Self {
        let reader = Reader::default();
        Self {
            key,
            connection: None,
            used: false,
            sent: 0,
            reader,
            ticket,
            idle_since: now,
            begun: now,
            waits: false,
        }
    }

    /// Begins with the request. Connecting, where that is needed, is a part of it.
    pub fn begin(&mut self, around: &Surroundings, now: Instant) -> Outcome {
        self.begun = now;
        self.waits = true;
        self.proceed(around)
    }

    /// Goes on after epoll has said that something happened on the connection.
    pub fn ready(&mut self, around: &Surroundings) -> Outcome {
        if self.waits {
            return self.proceed(around);
        }
        // Nobody has asked: all that can come is the end.
        self.connection = None;
        Outcome::Pending
    }

    /// Leaves the request as it is.
    pub fn give_up(&mut self) -> Outcome {
        self.end(Outcome::Failed(Failure::Timeout), false)
    }

    fn proceed(&mut self, around: &Surroundings) -> Outcome {
        match self.advance(around) {
            Ok(Progress::Partial) => Outcome::Pending,
            Ok(Progress::Complete(said)) if said.status == 200 => {
                self.end(Outcome::Answered(said), said.keeps)
            }
            Ok(Progress::Complete(_)) => self.end(Outcome::Failed(Failure::Status), false),
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
    fn advance(&mut self, around: &Surroundings) -> io::Result<Progress> {
        let request = &around.requests[self.ticket.kind];
        if self.connection.is_none() {
            let connection = Connection::open(around.address, false)?;
            let events = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT;
            around.epoll.add(&connection, EpollEvent::new(events, self.key))?;
            self.connection = Some(connection);
        }
        let connection = self.connection.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        if self.sent < request.len() {
            let began_on_new = self.sent == 0 && !self.used;
            self.sent += connection.send(&request[self.sent..])?;
            let all = self.sent == request.len();
            if all && began_on_new {
                around.epoll.modify(connection, &mut EpollEvent::new(EpollFlags::EPOLLIN, self.key))?;
            }
            // What has just been asked has no answer yet; epoll will tell.
            return Ok(Progress::Partial);
        }
        let mut buffer = [0; 16 * 1024];
        match connection.receive(&mut buffer)? {
            Received::Bytes(bytes) => Ok(self.reader.take(&buffer[..bytes])),
            Received::Nothing => Ok(Progress::Partial),
            Received::End => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn end(&mut self, outcome: Outcome, keep: bool) -> Outcome {
        self.used = keep;
        self.sent = 0;
        self.reader = Reader::default();
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
