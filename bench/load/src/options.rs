//! The command line.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// A request, and its share among the others.
#[derive(Debug, Clone)]
pub struct Kind {
    /// The bytes that a client sends.
    pub bytes: Vec<u8>,
    /// The share is this over the sum of all weights.
    pub weight: u32,
}

/// The command line: `--NAME VALUE` for each field; `--request` as often as there are kinds.
#[derive(Debug)]
pub struct Options {
    /// Where the server listens.
    pub address: SocketAddr,
    /// The requests; one at least. Each is `--request "WEIGHT BYTES"`.
    pub kinds: Vec<Kind>,
    /// How many clients.
    pub connections: usize,
    /// How many of the clients connect anew for each request.
    pub new_clients: usize,
    /// How many routers keep the connections instead of the clients; 0 for none.
    pub routers: usize,
    /// How many threads play the clients. Each thread has a sequence of requests of its own.
    pub threads: usize,
    /// For how long requests are begun.
    pub duration: Duration,
    /// The mean of a client's exponential pause before a request.
    pub pause: Duration,
    /// The same for the clients that connect anew.
    pub new_pause: Duration,
    /// After how many requests no more are begun; with one thread only.
    pub requests: u64,
    /// How many requests a client sends at once, before it waits for their answers.
    pub pipeline: usize,
    /// After how many answers, or batches of them, a client closes its connection and makes another.
    pub per_connection: u32,
    /// Until an answer counts as none.
    pub patience: Duration,
    /// Of the sequence of requests and pauses.
    pub seed: u64,
}

impl Options {
    /// Reads the words of the command line. The fields' defaults are here.
    ///
    /// # Errors
    /// One line that names the option which is unknown, missing or wrong.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> io::Result<Self> {
        let mut words: HashMap<String, Vec<String>> = HashMap::new();
        while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
            words.entry(name).or_default().push(value);
        }
        let mut seconds = |name: &str, default: f64, parts: f64| {
            Duration::try_from_secs_f64(one(&mut words, name, Some(default))? / parts)
                .map_err(|_| wrong(name))
        };
        let duration = seconds("--seconds", 1.0, 1.0)?;
        let patience = seconds("--patience-s", 10.0, 1.0)?;
        let pause = seconds("--pause-ms", 0.0, 1e3)?;
        let new_pause = seconds("--new-pause-ms", pause.as_secs_f64() * 1e3, 1e3)?;
        let kinds = words.remove("--request").unwrap_or_default();
        let kinds: Vec<Kind> = kinds.iter().map(|value| kind(value)).collect::<io::Result<_>>()?;
        let options = Self {
            address: one(&mut words, "--address", None)?,
            kinds,
            connections: one(&mut words, "--connections", Some(1))?,
            new_clients: one(&mut words, "--new", Some(0))?,
            routers: one(&mut words, "--routers", Some(0))?,
            threads: one(&mut words, "--threads", Some(1))?,
            duration,
            pause,
            new_pause,
            requests: one(&mut words, "--requests", Some(u64::MAX))?,
            pipeline: one(&mut words, "--pipeline", Some(1))?,
            per_connection: one(&mut words, "--per-connection", Some(u32::MAX))?,
            patience,
            seed: one(&mut words, "--seed", Some(0))?,
        };
        match words.keys().next() {
            Some(name) => Err(wrong(name)),
            None if options.kinds.is_empty() => Err(wrong("--request")),
            None => Ok(options),
        }
    }
}

/// Takes the value of an option out of the words.
fn one<T: FromStr>(
    words: &mut HashMap<String, Vec<String>>,
    name: &str,
    default: Option<T>,
) -> io::Result<T> {
    match words.remove(name).and_then(|mut values| values.pop()) {
        Some(value) => value.parse().map_err(|_| wrong(name)),
        None => default.ok_or_else(|| wrong(name)),
    }
}

fn kind(value: &str) -> io::Result<Kind> {
    let (weight, bytes) = value.split_once(' ').ok_or_else(|| wrong("--request"))?;
    let weight = weight.parse().map_err(|_| wrong("--request"))?;
    Ok(Kind { bytes: bytes.into(), weight })
}

fn wrong(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is unknown, missing or has no fitting value"))
}
