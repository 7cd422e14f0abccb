//! Reading a request: receives bytes, and parses the head and the body from them.

use std::os::fd::AsFd;

use fastrack_http::{percent_decode, Error, Expectation, Status};

use super::body::{send_continue, will_stream, BufferedBody};
use super::disk::Disk;
use super::read_buf::{receive, ReadBufPool, Received, READ_SIZE};
use super::{Connection, ConnectionState, Phase, Step};
use crate::settings::Settings;

/// Reads from one connection before another gets a turn: a megabyte of a long body.
// Fewer in tests, so that several turns fit into a socket's buffer.
const READS_PER_TURN: usize = if cfg!(test) { 4 } else { 16 };

impl Connection {
    /// Reads until the request is complete, the kernel has no more bytes, a part of the body must be written to a file,
    /// or the turn is over.
    pub fn read(&mut self, settings: &Settings, pool: &mut ReadBufPool, disk: &Disk) -> Step {
        for _ in 0..READS_PER_TURN {
            let most = self.next_read();
            let buf = self.read_buf.get_or_insert_with(|| pool.take());
            let got = match receive(self.fd.as_fd(), &mut buf.bytes, most) {
                Received::Bytes(got) => got,
                Received::Nothing => {
                    self.last_read_was_full = false;
                    return Step::Wait;
                }
                Received::End => return Step::Close,
                // A refused request already has its response.
                Received::NoMemory if self.phase() == Phase::Draining => return Step::Close,
                Received::NoMemory => return Step::Refuse(Error::Memory),
            };
            self.received += got as u64;
            self.last_read_was_full = got == most;
            match self.take_in(got, settings) {
                // The connection receives more after the write.
                Ok(Status::Partial) if self.has_write_due() => return Step::Wait,
                // The kernel has no more, and the end of the stream has not arrived.
                Ok(Status::Partial) if !self.last_read_was_full && !self.ended => return Step::Wait,
                // Otherwise each of many new clients would add a megabyte.
                Ok(Status::Partial) if disk.is_full() => break,
                Ok(Status::Partial) => {}
                Ok(Status::Complete) => return Step::Ready,
                Err(error) => return Step::Refuse(error),
            }
        }
        // The kernel may hold more bytes, or the end of the stream, which the poller does not report again.
        self.last_read_was_full = true;
        Step::Wait
    }

    pub fn parse_buffered(&mut self, settings: &Settings) -> Step {
        let got = self.read_buf.as_ref().map_or(0, |buf| buf.bytes.len());
        if got == 0 {
            return Step::Wait;
        }
        match self.take_in(got, settings) {
            Ok(Status::Complete) => Step::Ready,
            Ok(Status::Partial) => Step::Wait,
            Err(error) => Step::Refuse(error),
        }
    }

    fn next_read(&self) -> usize {
        match (&self.state, &self.read_buf) {
            (ConnectionState::Body(body), Some(buf)) => body.next_read(buf),
            _ => READ_SIZE,
        }
    }

    /// Parses the last `got` bytes of the buffer.
    fn take_in(&mut self, got: usize, settings: &Settings) -> Result<Status, Error> {
        let Some(buf) = &mut self.read_buf else { return Ok(Status::Partial) };
        match &mut self.state {
            ConnectionState::Head => self.take_in_head(got, settings),
            ConnectionState::Body(body) => body.take_in(buf, settings),
            ConnectionState::Unread | ConnectionState::Stream(_) | ConnectionState::Sending { .. } => {
                Ok(Status::Partial)
            }
            ConnectionState::Draining { .. } => {
                buf.bytes.clear();
                Ok(Status::Partial)
            }
        }
    }

    fn take_in_head(&mut self, got: usize, settings: &Settings) -> Result<Status, Error> {
        let Some(buf) = &mut self.read_buf else { return Ok(Status::Partial) };
        let new = buf.bytes.len() - got;
        if new > 0 && buf.bytes.len() < settings.limits.target && !buf.bytes[new..].contains(&b'\n') {
            // Only the end of a line can complete a head. So a head that is sent byte by byte is not parsed again for
            // each byte.
            return Ok(Status::Partial);
        }
        if buf.parse_head(self.listener, settings)? == Status::Partial {
            return Ok(Status::Partial);
        }
        if settings.decode_path {
            percent_decode(buf.head.path(&buf.bytes), &mut buf.path)?;
        }
        if settings.stream_body && will_stream(buf, settings)? {
            self.state = ConnectionState::Unread;
            return Ok(Status::Complete);
        }
        let mut body = BufferedBody::of(buf, settings)?;
        let status = body.take_in(buf, settings)?;
        if status == Status::Partial && buf.head.expectation == Expectation::Continue {
            send_continue(self.fd.as_fd());
        }
        self.state = ConnectionState::Body(body);
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::accept::Client;
    use crate::conn::Spooling;

    /// The poller reports the end together with the bytes, and does not report it again.
    #[test]
    fn the_end_of_a_stream_is_read_however_many_turns_that_takes() {
        let settings = Settings::default();
        let disk = Disk::new(Spooling::new(&settings)).expect("a waker");
        let mut pool = ReadBufPool::default();
        for reads in 1..=2 * READS_PER_TURN {
            let (mut client, server) = UnixStream::pair().expect("a pair");
            server.set_nonblocking(true).expect("nonblocking");
            let mut connection = Connection::new(Client { fd: server.into(), peer: None, listener: 0 });
            client.write_all(&vec![b'x'; reads * READ_SIZE - 1]).expect("room");
            drop(client);
            connection.drain(u64::MAX);
            connection.ended = true;
            while connection.read(&settings, &mut pool, &disk) != Step::Close {
                assert!(connection.needs_another_turn(), "the end after {reads} reads is missed");
            }
        }
    }
}
