//! A request, as the application receives it.

use std::fs::File;
use std::net::SocketAddr;

use fastrack_http::{Forwarded, Head};

use super::body::BodyStream;

/// A request's body, decoded.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// No body.
    None,
    /// The whole body.
    Memory(&'a [u8]),
    /// An unlinked file, positioned at its start, and its length in bytes.
    File(&'a File, u64),
    /// A body that is still arriving.
    Stream(BodyStream<'a>),
}

impl Content<'_> {
    /// The length of a body in a file, in bytes; 0 for others. The application may read the whole file into memory.
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
    /// The bytes that the head was parsed from.
    pub bytes: &'a [u8],
    /// The path, decoded if the settings ask for it.
    pub path: &'a [u8],
    /// The body.
    pub content: Content<'a>,
    /// Bytes that were received after the request: the next request, or another protocol after an upgrade.
    pub pipelined: &'a [u8],
    /// The index of the listener.
    pub listener: usize,
    /// The client's address; None on a unix socket.
    pub peer: Option<SocketAddr>,
    /// How long the request waited for the application, in microseconds, without the time for its body.
    pub queue_time: u64,
    /// How long the server waited for the body after the head, in milliseconds.
    pub body_wait: u64,
}

impl<'a> Request<'a> {
    /// The client as the proxy describes it, for a request on the proxy's own socket.
    pub fn forwarded(&self) -> Option<Forwarded<'a>> {
        Forwarded::of(self.head, self.bytes)
    }
}
