//! The command line.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the workers listen.
#[derive(Debug)]
pub enum Address {
    /// A TCP address, with TCP_NODELAY set on every accepted connection as servers do.
    Tcp(SocketAddr),
    /// The path of a unix stream socket.
    Unix(PathBuf),
}

/// What the command line asked for.
#[derive(Debug)]
pub struct Options {
    /// Where to listen.
    pub address: Address,
    /// How many processes share the listener.
    pub workers: usize,
    /// The listener's backlog, in connections.
    pub backlog: i32,
    /// A file with the bytes of the whole response, head and body.
    pub response: PathBuf,
    /// How many bytes make a request; 0 when whatever one recv brings is a whole request.
    pub request_bytes: usize,
    /// Serve any number of requests on a connection instead of closing it after the first.
    pub keep_alive: bool,
}

const USAGE: &str = "usage: limit (--tcp ADDRESS:PORT | --unix PATH) --response FILE \
                     [--workers N] [--backlog N] [--request-bytes N] [--keep-alive]";

impl Options {
    /// Reads `arguments` (the program's name left out).
    ///
    /// # Errors
    /// One line that names the argument which is unknown, incomplete or missing.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> io::Result<Self> {
        let (mut address, mut response) = (None, None);
        let (mut workers, mut backlog, mut request_bytes, mut keep_alive) = (2, 1024, 0, false);
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| wrong(&name));
            match name.as_str() {
                "--tcp" => address = Some(Address::Tcp(parsed(&name, &value()?)?)),
                "--unix" => address = Some(Address::Unix(value()?.into())),
                "--response" => response = Some(value()?.into()),
                "--workers" => workers = parsed(&name, &value()?)?,
                "--backlog" => backlog = parsed(&name, &value()?)?,
                "--request-bytes" => request_bytes = parsed(&name, &value()?)?,
                "--keep-alive" => keep_alive = true,
                _ => return Err(wrong(&name)),
            }
        }
        Ok(Self {
            address: address.ok_or_else(|| wrong("--tcp or --unix"))?,
            response: response.ok_or_else(|| wrong("--response"))?,
            workers,
            backlog,
            request_bytes,
            keep_alive,
        })
    }
}

fn parsed<T: FromStr>(name: &str, value: &str) -> io::Result<T> {
    value.parse().map_err(|_| wrong(name))
}

fn wrong(name: &str) -> io::Error {
    let message = format!("{name} is unknown, missing or has no fitting value; {USAGE}");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
