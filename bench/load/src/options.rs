//! The command line.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What to play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Clients that send their next request when they have their answer, and have paused.
    ClosedLoop,
    /// Clients that send their head, or read their answer, a few bytes at a time.
    Trickle,
    /// Clients that make one request and then keep their connection.
    Hold,
}

/// What is asked for, and how often in proportion to the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// The request's path.
    pub path: String,
    /// Its share is this over the sum of all weights.
    pub weight: u32,
}

/// What the command line asked for.
#[derive(Debug)]
pub struct Options {
    /// What to play.
    pub command: Command,
    /// Where the server listens; clients are shared out over these (only `closed-loop` knows more than one).
    pub addresses: Vec<SocketAddr>,
    /// The requests; one at least.
    pub kinds: Vec<Kind>,
    /// How many clients (`closed-loop`, `hold`).
    pub connections: usize,
    /// How many of the clients connect anew for each request (`closed-loop`).
    pub new_clients: usize,
    /// How many routers keep the connections instead of the clients (`closed-loop`); 0 for none.
    pub routers: usize,
    /// How many threads play the clients (`closed-loop`). With more than one, each has a sequence of its own.
    pub threads: usize,
    /// For how long new requests are begun (`closed-loop`), or connections made (`hold`).
    pub duration: Duration,
    /// The mean of a client's exponential pause before a request (`closed-loop`).
    pub pause: Duration,
    /// The same for the clients that connect anew; `pause` when it is not given.
    pub new_pause: Option<Duration>,
    /// After how many requests no more are begun (`closed-loop`).
    pub requests: Option<u64>,
    /// The bytes to send instead of a GET of the paths, which then are but names: none, or those of each path (`closed-loop`).
    pub requests_bytes: Vec<Vec<u8>>,
    /// How many requests a client sends at once, before it waits for their answers (`closed-loop`).
    pub pipeline: usize,
    /// After how many answers, or batches of them, a client closes its connection and makes another (`closed-loop`).
    pub per_connection: Option<u32>,
    /// Until an answer counts as none (`closed-loop`).
    pub patience: Duration,
    /// Of the sequence of requests and pauses (`closed-loop`).
    pub seed: u64,
    /// Where to write a line for each request (`closed-loop`).
    pub trace: Option<PathBuf>,
    /// How many clients send slowly, and how many read slowly (`trickle`).
    pub senders: usize,
    /// See `senders`.
    pub readers: usize,
    /// The time between two steps of a slow client, and how many bytes it takes in each (`trickle`).
    pub interval: Duration,
    /// See `interval`.
    pub bytes: usize,
}

const USAGE: &str = "usage: load closed-loop|trickle|hold --address ADDRESS:PORT... [--path /PATH[=WEIGHT]]... \
    [--connections N] [--new N] [--routers N] [--threads N] [--seconds S] [--requests N] [--pause-ms MS] [--new-pause-ms MS] \
    [--patience-s S] [--request FILE]... [--pipeline N] [--per-connection N] [--seed N] [--trace FILE] \
    [--senders N] [--readers N] [--interval-ms MS] [--bytes N]";

impl Options {
    /// Reads `arguments` (the program's name left out).
    ///
    /// # Errors
    /// One line that names the argument which is unknown, incomplete or missing.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> io::Result<Self> {
        let mut options = Self::of(command(arguments.next().as_deref())?);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| wrong(&name))?;
            match name.as_str() {
                "--address" => options.addresses.push(parsed(&name, &value)?),
                "--path" => options.kinds.push(kind(&name, &value)?),
                "--connections" => options.connections = parsed(&name, &value)?,
                "--new" => options.new_clients = parsed(&name, &value)?,
                "--routers" => options.routers = parsed(&name, &value)?,
                "--threads" => options.threads = parsed(&name, &value)?,
                "--requests" => options.requests = Some(parsed(&name, &value)?),
                "--request" => options.requests_bytes.push(std::fs::read(&value)?),
                "--pipeline" => options.pipeline = parsed(&name, &value)?,
                "--per-connection" => options.per_connection = Some(parsed(&name, &value)?),
                "--patience-s" => options.patience = seconds(&name, &value, 1.0)?,
                "--new-pause-ms" => options.new_pause = Some(seconds(&name, &value, 1e3)?),
                "--seconds" => options.duration = seconds(&name, &value, 1.0)?,
                "--pause-ms" => options.pause = seconds(&name, &value, 1e3)?,
                "--seed" => options.seed = parsed(&name, &value)?,
                "--trace" => options.trace = Some(value.into()),
                "--senders" => options.senders = parsed(&name, &value)?,
                "--readers" => options.readers = parsed(&name, &value)?,
                "--interval-ms" => options.interval = seconds(&name, &value, 1e3)?,
                "--bytes" => options.bytes = parsed(&name, &value)?,
                _ => return Err(wrong(&name)),
            }
        }
        if options.kinds.is_empty() {
            options.kinds.push(Kind { path: "/".into(), weight: 1 });
        }
        options.refuse_nonsense()?;
        Ok(options)
    }

    fn refuse_nonsense(&self) -> io::Result<()> {
        let nonsense = [
            ("--address", self.addresses.is_empty()),
            ("--new", self.new_clients > self.connections),
            ("--threads", self.threads == 0),
            // Whoever connects anew for each request has none to send after it.
            ("--pipeline", self.pipeline == 0 || self.pipeline > 1 && self.new_clients > 0),
            // A connection of a router has had the answers of many clients.
            (
                "--per-connection",
                self.per_connection == Some(0) || self.per_connection.is_some() && self.routers > 0,
            ),
            ("--request", !self.requests_bytes.is_empty() && self.requests_bytes.len() != self.kinds.len()),
            // What is kept to one address does not lead to another.
            ("--routers", self.routers > 0 && self.addresses.len() > 1),
            // The numbers of several sequences would come twice.
            ("--trace", self.trace.is_some() && self.threads > 1),
            ("--requests", self.requests.is_some() && self.threads > 1),
        ];
        nonsense.iter().find(|(_, is)| *is).map_or(Ok(()), |(name, _)| Err(wrong(name)))
    }

    fn of(command: Command) -> Self {
        Self {
            command,
            addresses: Vec::new(),
            kinds: Vec::new(),
            connections: 1,
            new_clients: 0,
            routers: 0,
            threads: 1,
            duration: Duration::from_secs(1),
            pause: Duration::ZERO,
            new_pause: None,
            requests: None,
            requests_bytes: Vec::new(),
            pipeline: 1,
            per_connection: None,
            patience: Duration::from_secs(10),
            seed: 0,
            trace: None,
            senders: 0,
            readers: 0,
            interval: Duration::from_secs(1),
            bytes: 1,
        }
    }
}

fn command(name: Option<&str>) -> io::Result<Command> {
    match name {
        Some("closed-loop") => Ok(Command::ClosedLoop),
        Some("trickle") => Ok(Command::Trickle),
        Some("hold") => Ok(Command::Hold),
        _ => Err(wrong("the command")),
    }
}

/// `/path`, or `/path=weight`.
fn kind(name: &str, value: &str) -> io::Result<Kind> {
    let (path, weight) = value.split_once('=').unwrap_or((value, "1"));
    let weight = parsed(name, weight)?;
    if weight == 0 || !path.starts_with('/') {
        return Err(wrong(name));
    }
    Ok(Kind { path: path.into(), weight })
}

/// `value` in units of which a second has `parts`.
fn seconds(name: &str, value: &str, parts: f64) -> io::Result<Duration> {
    let number: f64 = parsed(name, value)?;
    Duration::try_from_secs_f64(number / parts).map_err(|_| wrong(name))
}

fn parsed<T: FromStr>(name: &str, value: &str) -> io::Result<T> {
    value.parse().map_err(|_| wrong(name))
}

fn wrong(name: &str) -> io::Error {
    let message = format!("{name} is unknown, missing or has no fitting value; {USAGE}");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> io::Result<Options> {
        Options::parse(line.split(' ').map(String::from))
    }

    #[test]
    fn reads_paths_with_weights_and_times() {
        let line =
            "closed-loop --address 127.0.0.1:80 --path /fast=95 --path /slow=5 --pause-ms 2.5 --seconds 0.3";
        let options = parse(line).unwrap();
        assert_eq!(options.kinds[1], Kind { path: "/slow".into(), weight: 5 });
        assert_eq!(
            (options.pause, options.duration),
            (Duration::from_micros(2_500), Duration::from_millis(300))
        );
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        for line in [
            "walk --address 127.0.0.1:80",
            "hold",
            "hold --address",
            "hold --address here",
            "hold --address 127.0.0.1:80 --path fast",
            "hold --address 127.0.0.1:80 --path /fast=0",
            "closed-loop --address 127.0.0.1:80 --pause-ms -1",
            "closed-loop --address 127.0.0.1:80 --connections 2 --new 3",
            "closed-loop --address 127.0.0.1:80 --threads 0",
            "closed-loop --address 127.0.0.1:80 --address 127.0.0.1:81 --routers 2",
            "closed-loop --address 127.0.0.1:80 --threads 2 --requests 9",
            "closed-loop --address 127.0.0.1:80 --request /no/such/file",
            "closed-loop --address 127.0.0.1:80 --path /a --path /b --request /dev/null",
            "closed-loop --address 127.0.0.1:80 --pipeline 0",
            "closed-loop --address 127.0.0.1:80 --pipeline 2 --new 1",
            "closed-loop --address 127.0.0.1:80 --per-connection 0",
            "hold --address 127.0.0.1:80 --often 3",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
