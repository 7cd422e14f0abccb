//! A request as the application gets it.

use std::fs::File;
use std::net::SocketAddr;

use fastrack_http::Head;

use super::body::BodyStream;

/// A request's body, decoded.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// No body.
    None,
    /// All of it.
    Memory(&'a [u8]),
    /// An unlinked file, positioned at its start, and its length in bytes.
    File(&'a File, u64),
    /// It is still arriving.
    Stream(BodyStream<'a>),
}

impl Content<'_> {
    /// Bytes of one that is too large for memory; the application may have them there all the same.
    pub(crate) fn large(&self) -> usize {
        match self {
            Content::File(_, length) => usize::try_from(*length).unwrap_or(usize::MAX),
            _ => 0,
        }
    }
}

/// One request: its head, its body, and where it came from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The parsed head: ranges of `bytes`.
    pub head: &'a Head,
    /// What the head was parsed from.
    pub bytes: &'a [u8],
    /// The path, decoded if the settings ask for it.
    pub path: &'a [u8],
    /// The body.
    pub content: Content<'a>,
    /// What was received after the request.
    pub pipelined: &'a [u8],
    /// The index of its listener.
    pub listener: usize,
    /// The client's address; None on a unix socket.
    pub peer: Option<SocketAddr>,
    /// How long it has waited before the application is called, in microseconds.
    pub queue_time: u64,
}
