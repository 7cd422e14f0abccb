//! A request, as the application gets it.

use std::fs::File;
use std::net::SocketAddr;

use fastrack_http::Head;

use crate::conn::body::stream::BodyStream;

/// A request's body, decoded.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// There is none.
    None,
    /// All of it.
    Memory(&'a [u8]),
    /// A file that has no name, positioned at its start, and its length in bytes.
    File(&'a File, u64),
    /// It is still coming in.
    Stream(BodyStream<'a>),
}

/// One request: its head, its body, and where it came from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The parsed head, whose places are in `bytes`.
    pub head: &'a Head,
    /// What the head was parsed from.
    pub bytes: &'a [u8],
    /// The path, decoded if the settings ask for it.
    pub path: &'a [u8],
    /// The body.
    pub content: Content<'a>,
    /// What was received after the request.
    pub beyond: &'a [u8],
    /// The index of the listener that it came by.
    pub listener: usize,
    /// The client's address; None on a unix socket.
    pub peer: Option<SocketAddr>,
}

/// For tests: a request with this head and no body.
#[cfg(test)]
pub(crate) fn with_request<T>(bytes: &[u8], work: impl FnOnce(&Request<'_>) -> T) -> T {
    let mut head = Head::default();
    head.parse(bytes, fastrack_http::Limits::default()).expect("a good head");
    let content = Content::None;
    work(&Request { head: &head, bytes, path: b"/", content, beyond: b"", listener: 0, peer: None })
}
