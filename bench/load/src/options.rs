//! The command line.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// A request, and its share among the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// The request's path.
    pub path: String,
    /// Its share is this over the sum of all weights.
    pub weight: u32,
}

/// The command line.
#[derive(Debug)]
pub struct Options {
    /// Where the server listens; clients are shared out over these (only `closed-loop` knows more than one).
    pub addresses: Vec<SocketAddr>,
    /// The requests; one at least.
    pub kinds: Vec<Kind>,
    /// How many clients (`closed-loop`, `hold`).
    pub connections: usize,
    /// How many of the clients connect anew for each request.
    pub new_clients: usize,
    /// How many routers keep the connections instead of the clients; 0 for none.
    pub routers: usize,
    /// How many threads play the clients. Each thread has a sequence of requests of its own.
    pub threads: usize,
    /// For how long requests are begun (`closed-loop`), or connections made (`hold`).
    pub duration: Duration,
    /// The mean of a client's exponential pause before a request.
    pub pause: Duration,
    /// The same for the clients that connect anew.
    pub new_pause: Duration,
    /// After how many requests no more are begun.
    pub requests: u64,
    /// The bytes to send instead of a GET of the paths, which then are names only: none, or those of each path.
    pub requests_bytes: Vec<Vec<u8>>,
    /// How many requests a client sends at once, before it waits for their answers.
    pub pipeline: usize,
    /// After how many answers, or batches of them, a client closes its connection and makes another.
    pub per_connection: u32,
    /// Until an answer counts as none.
    pub patience: Duration,
    /// Of the sequence of requests and pauses.
    pub seed: u64,
    /// Where to write a line for each request.
    pub trace: Option<String>,
    /// How many clients send slowly (`trickle`).
    pub senders: usize,
    /// How many clients read slowly (`trickle`).
    pub readers: usize,
    /// The time between two steps of a slow client.
    pub interval: Duration,
    /// How many bytes a slow client takes in each step.
    pub bytes: usize,
}

impl Options {
    /// Reads the words after the command: `--NAME VALUE` each. The fields' defaults are here.
    ///
    /// # Errors
    /// One line that names the argument which is unknown, incomplete or wrong.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> io::Result<Self> {
        let mut words = Words::default();
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| wrong(&name))?;
            words.0.entry(name).or_default().push(value);
        }
        let pause = words.seconds("--pause-ms", 0.0, 1e3)?;
        let files: Vec<String> = words.all("--request")?;
        let kinds = words.0.remove("--path").unwrap_or_else(|| vec!["/".into()]);
        let options = Self {
            addresses: words.all("--address")?,
            kinds: kinds.iter().map(|value| kind(value)).collect::<io::Result<_>>()?,
            connections: words.one("--connections", 1)?,
            new_clients: words.one("--new", 0)?,
            routers: words.one("--routers", 0)?,
            threads: words.one("--threads", 1)?,
            duration: words.seconds("--seconds", 1.0, 1.0)?,
            pause,
            new_pause: words.seconds("--new-pause-ms", pause.as_secs_f64() * 1e3, 1e3)?,
            requests: words.one("--requests", u64::MAX)?,
            requests_bytes: files.iter().map(std::fs::read).collect::<io::Result<_>>()?,
            pipeline: words.one("--pipeline", 1)?,
            per_connection: words.one("--per-connection", u32::MAX)?,
            patience: words.seconds("--patience-s", 10.0, 1.0)?,
            seed: words.one("--seed", 0)?,
            trace: words.all("--trace")?.pop(),
            senders: words.one("--senders", 0)?,
            readers: words.one("--readers", 0)?,
            interval: words.seconds("--interval-ms", 1e3, 1e3)?,
            bytes: words.one("--bytes", 1)?,
        };
        words.0.keys().next().map_or(Ok(()), |name| Err(wrong(name)))?;
        options.refuse_nonsense()?;
        Ok(options)
    }

    fn refuse_nonsense(&self) -> io::Result<()> {
        let several = self.threads > 1;
        let nonsense = [
            ("--address", self.addresses.is_empty()),
            ("--new", self.new_clients > self.connections),
            ("--threads", self.threads == 0),
            // A client that connects anew for each request has none to send after it.
            ("--pipeline", self.pipeline == 0 || self.pipeline > 1 && self.new_clients > 0),
            // A connection of a router has had the answers of many clients.
            (
                "--per-connection",
                self.per_connection == 0 || self.per_connection < u32::MAX && self.routers > 0,
            ),
            ("--request", !self.requests_bytes.is_empty() && self.requests_bytes.len() != self.kinds.len()),
            // A router keeps its connections to one address.
            ("--routers", self.routers > 0 && self.addresses.len() > 1),
            // The numbers of several sequences would come twice.
            ("--trace", self.trace.is_some() && several),
            ("--requests", self.requests < u64::MAX && several),
        ];
        nonsense.iter().find(|(_, is)| *is).map_or(Ok(()), |(name, _)| Err(wrong(name)))
    }
}

/// The values by name. What is asked for is taken out.
#[derive(Default)]
struct Words(HashMap<String, Vec<String>>);

impl Words {
    fn all<T: FromStr>(&mut self, name: &str) -> io::Result<Vec<T>> {
        let values = self.0.remove(name).unwrap_or_default();
        values.iter().map(|value| value.parse().map_err(|_| wrong(name))).collect()
    }

    fn one<T: FromStr>(&mut self, name: &str, default: T) -> io::Result<T> {
        Ok(self.all(name)?.pop().unwrap_or(default))
    }

    /// A time in units of which a second has `parts`.
    fn seconds(&mut self, name: &str, default: f64, parts: f64) -> io::Result<Duration> {
        Duration::try_from_secs_f64(self.one(name, default)? / parts).map_err(|_| wrong(name))
    }
}

/// `/path`, or `/path=weight`.
fn kind(value: &str) -> io::Result<Kind> {
    let (path, weight) = value.split_once('=').unwrap_or((value, "1"));
    match weight.parse() {
        Ok(weight) if weight > 0 && path.starts_with('/') => Ok(Kind { path: path.into(), weight }),
        _ => Err(wrong("--path")),
    }
}

fn wrong(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is unknown, missing or has no fitting value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> io::Result<Options> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn reads_paths_with_weights_and_times() {
        let options = parse("--address 127.0.0.1:80 --path /fast=95 --path /slow=5 --pause-ms 2.5").unwrap();
        assert_eq!(options.kinds[1], Kind { path: "/slow".into(), weight: 5 });
        assert_eq!((options.pause, options.new_pause.as_micros()), (Duration::from_micros(2_500), 2_500));
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        for line in [
            "--address here",
            "--address",
            "--path fast",
            "--path /a=0",
            "--pause-ms -1",
            "--new 3",
            "--often 3",
            "--pipeline 0",
        ] {
            assert!(parse(&format!("--address 127.0.0.1:80 {line}")).is_err(), "{line}");
        }
        assert!(parse("").is_err());
    }
}
