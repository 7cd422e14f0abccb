//! Connections that are kept after one request and then lie idle.

use std::io::{self, Write};
use std::time::Instant;

use nix::poll::PollFlags;

use crate::connection::{Connection, Received};
use crate::descriptors;
use crate::gaps::Served;
use crate::options::Options;
use crate::response::{Progress, Reader, Said};
use crate::standard_input;

/// How many connections are made at once: enough for all workers to get some.
const BATCH: usize = 32;
/// Milliseconds in which an answer must come.
const PATIENCE: u16 = 10_000;

/// Makes the connections, as many as there is time for. Prints how many the server keeps, and how many were answered within
/// a second; holds them until the standard input ends; then prints how many are still open.
///
/// # Errors
/// Those of the descriptors' limit and of the standard input. A connection that fails is only counted.
pub fn run(options: &Options) -> io::Result<()> {
    let possible = descriptors::allow(options.connections)?;
    let mut held = Vec::with_capacity(possible);
    let (mut closed, mut failed) = (0, 0);
    let mut served = Served::default();
    let last_batch = Instant::now() + options.duration;
    while held.len() + closed + failed < possible && Instant::now() < last_batch {
        let batch = BATCH.min(possible - held.len() - closed - failed);
        let asked: Vec<_> = (0..batch).map(|_| (Instant::now(), ask(options))).collect();
        for (since, connection) in asked {
            let answered =
                connection.and_then(|connection| answer(&connection).map(|said| (connection, said)));
            // One that waited behind others of the batch may have been answered before: it never looks better than it was.
            let wait = since.elapsed();
            match answered {
                Ok((connection, said)) if said.keeps && said.status == 200 => held.push(connection),
                Ok(_) => closed += 1,
                Err(_) => {
                    failed += 1;
                    served.add_unanswered(wait);
                    continue;
                }
            }
            served.add_wait(wait);
        }
        if failed >= BATCH {
            break;
        }
    }
    let (kept, served) = (held.len(), served.json());
    println!(r#"{{"possible":{possible},"held":{kept},"closed":{closed},"failed":{failed},{served}}}"#);
    io::stdout().flush()?;
    while !standard_input::ends_within(None)? {}
    let open = held.iter().filter(|connection| is_open(connection)).count();
    println!(r#"{{"still_open":{open}}}"#);
    Ok(())
}

/// Connects and sends a request.
fn ask(options: &Options) -> io::Result<Connection> {
    let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", options.kinds[0].path);
    let connection = Connection::open(options.addresses[0], false)?;
    if connection.wait(PollFlags::POLLOUT, PATIENCE)? && connection.send(request.as_bytes())? == request.len()
    {
        return Ok(connection);
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn answer(connection: &Connection) -> io::Result<Said> {
    let mut reader = Reader::default();
    let mut buffer = [0; 4096];
    while connection.wait(PollFlags::POLLIN, PATIENCE)? {
        match connection.receive(&mut buffer)? {
            Received::Nothing => {}
            Received::End => return Err(io::ErrorKind::UnexpectedEof.into()),
            Received::Bytes(bytes) => match reader.take(&buffer[..bytes], 1) {
                Progress::Partial => {}
                Progress::Complete(said) => return Ok(said),
                Progress::Cut(_) | Progress::Nonsense => return Err(io::ErrorKind::InvalidData.into()),
            },
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn is_open(connection: &Connection) -> bool {
    matches!(connection.receive(&mut [0]), Ok(Received::Nothing))
}
