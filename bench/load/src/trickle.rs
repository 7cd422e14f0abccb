//! Slow clients: ones that send a head, and ones that read an answer, a few bytes at a time.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use nix::poll::PollFlags;

use crate::connection::{Connection, Received};
use crate::descriptors;
use crate::options::Options;
use crate::standard_input;

/// Milliseconds in which a connection must come about.
const PATIENCE: u16 = 1_000;

/// Plays the clients until the standard input ends. Prints `{"clients":N}` when all have begun, and in the
/// end how often the server broke off with one, after which the client began anew.
///
/// # Errors
/// When the first connections cannot be made; those of the standard input.
pub fn run(options: &Options) -> io::Result<()> {
    let count = descriptors::allow(options.senders + options.readers)?;
    let path = &options.kinds[0].path;
    let mut clients: Vec<_> = (0..count)
        .map(|number| if number < options.senders { SlowClient::sender() } else { SlowClient::reader(path) })
        .collect();
    for client in &mut clients {
        client.step(options.addresses[0], options.bytes)?;
    }
    println!(r#"{{"clients":{count}}}"#);
    io::stdout().flush()?;
    let (mut broken, mut turn) = (0_u64, 0);
    // One after the other, so that they do not all come in the same millisecond.
    let pace = options.interval.div_f64(count.max(1) as f64).max(Duration::from_millis(1));
    while !standard_input::ends_within(Some(pace))? {
        if let Some(client) = clients.get_mut(turn % count.max(1)) {
            if client.step(options.addresses[0], options.bytes).is_err() {
                client.connection = None;
                broken += 1;
            }
        }
        turn += 1;
    }
    println!(r#"{{"broken":{broken}}}"#);
    Ok(())
}

/// A client that takes a small step at a time.
#[derive(Debug)]
struct SlowClient {
    connection: Option<Connection>,
    request: Vec<u8>,
    reads: bool,
    sent: usize,
}

impl SlowClient {
    /// Its head never ends: after these bytes it sends the letter a for ever.
    fn sender() -> Self {
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".to_vec();
        Self { connection: None, request, reads: false, sent: 0 }
    }

    fn reader(path: &str) -> Self {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes();
        Self { connection: None, request, reads: true, sent: 0 }
    }

    /// Connects where that is needed, then sends or reads up to so many bytes.
    ///
    /// # Errors
    /// When the server has closed the connection, or does not take one.
    fn step(&mut self, address: SocketAddr, bytes: usize) -> io::Result<()> {
        if self.connection.is_none() {
            let connection = Connection::open(address, self.reads)?;
            connection.wait(PollFlags::POLLOUT, PATIENCE)?;
            self.connection = Some(connection);
            self.sent = 0;
        }
        let connection = self.connection.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        if !self.reads {
            refuse_answer(connection)?;
            let rest = self.request.get(self.sent..).filter(|rest| !rest.is_empty()).unwrap_or(b"a");
            self.sent += connection.send(&rest[..bytes.min(rest.len())])?;
        } else if self.sent < self.request.len() {
            self.sent += connection.send(&self.request[self.sent..])?;
        } else if connection.receive(&mut vec![0; bytes])? == Received::End {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

/// A head that has no end has no answer, unless the server has had enough of it.
fn refuse_answer(connection: &Connection) -> io::Result<()> {
    match connection.receive(&mut [0; 1024])? {
        Received::Nothing => Ok(()),
        Received::Bytes(_) | Received::End => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}
