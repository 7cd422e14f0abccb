//! How a connection's request comes in: reading what the client sends, and making a head and a body of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use fastrack_http::{percent_decode, Error, Expectation, Status};

use crate::conn::body::buffered::Body;
use crate::conn::body::reader::is_under_way;
use crate::conn::read_buf::{InputPool, READ_SIZE};
use crate::conn::{Connection, Phase, State};
use crate::settings::Settings;

/// Reads of one connection before another has its turn: a megabyte of a long body.
const READS_IN_A_ROW: usize = 16;

/// What reading came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The request is complete.
    Ready,
    /// There is more to come.
    Wait,
    /// The request has an error in it.
    Refuse(Error),
    /// The client is gone, or has said all that may be said.
    Close,
}

impl Connection {
    /// Reads until the request is complete, or the kernel has no more of it, or others should have their turn.
    pub fn read(&mut self, settings: &Settings, inputs: &mut InputPool) -> Step {
        for _ in 0..READS_IN_A_ROW {
            let most = self.wanted();
            let input = self.input.get_or_insert_with(|| inputs.take());
            let got = match fastrack_sys::recv(self.fd.as_fd(), &mut input.bytes, most) {
                Ok(0) => return Step::Close,
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.brim = false;
                    return Step::Wait;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Step::Close,
            };
            self.brim = got == most;
            match self.take(got, settings) {
                // Less than asked for: the kernel has no more, and asking again would only tell so.
                Ok(Status::Partial) if !self.may_have_more() => return Step::Wait,
                Ok(Status::Partial) => {}
                Ok(Status::Complete) if self.phase() == Phase::Draining => return Step::Close,
                Ok(Status::Complete) => return Step::Ready,
                Err(error) => return Step::Refuse(error),
            }
        }
        Step::Wait
    }

    fn wanted(&self) -> usize {
        match (&self.state, &self.input) {
            (State::Body(body), Some(input)) => body.wanted(input),
            _ => READ_SIZE,
        }
    }

    /// Takes in the `got` bytes that have just been received.
    fn take(&mut self, got: usize, settings: &Settings) -> Result<Status, Error> {
        let Some(input) = &mut self.input else { return Ok(Status::Partial) };
        match &mut self.state {
            State::Head => self.take_head(got, settings),
            State::Body(body) => body.take(input, settings),
            State::Unread | State::Stream(_) | State::Sending(_) => Ok(Status::Partial),
            State::Draining(left) => {
                input.bytes.clear();
                *left = left.saturating_sub(got);
                Ok(if *left == 0 { Status::Complete } else { Status::Partial })
            }
        }
    }

    fn take_head(&mut self, got: usize, settings: &Settings) -> Result<Status, Error> {
        let Some(input) = &mut self.input else { return Ok(Status::Partial) };
        let new = input.bytes.len() - got;
        if new > 0 && input.bytes.len() < settings.limits.target && !input.bytes[new..].contains(&b'\n') {
            // Byte by byte, a head would be parsed anew for each byte; only the end of a line can complete it.
            return Ok(Status::Partial);
        }
        if input.head.parse(&input.bytes, settings.limits)? == Status::Partial {
            return Ok(Status::Partial);
        }
        if settings.decode_path {
            percent_decode(input.head.path(&input.bytes), &mut input.path)?;
        }
        if settings.stream_body && is_under_way(input, settings)? {
            self.state = State::Unread;
            return Ok(Status::Complete);
        }
        let mut body = Body::of(input, settings)?;
        let status = body.take(input, settings)?;
        // A client that has sent the body already, if to another worker, waits for the answer alone.
        if status == Status::Partial && input.head.expectation == Expectation::Continue {
            send_continue(self.fd.as_fd());
        }
        self.state = State::Body(body);
        Ok(status)
    }

    /// Goes on with bytes that are there already, from somewhere else than the socket.
    pub fn take_stock(&mut self, settings: &Settings) -> Step {
        let got = self.input.as_ref().map_or(0, |input| input.bytes.len());
        if got == 0 {
            return Step::Wait;
        }
        match self.take(got, settings) {
            Ok(Status::Complete) => Step::Ready,
            Ok(Status::Partial) => Step::Wait,
            Err(error) => Step::Refuse(error),
        }
    }
}

/// Tells the client to send the body (RFC 9110 §15.2.1). If it does not
/// get through, the client sends it anyway after a while, or goes away.
fn send_continue(fd: BorrowedFd<'_>) {
    let _ = fastrack_sys::send(fd, b"HTTP/1.1 100 Continue\r\n\r\n");
}
