//! The bytes of a client of HTTP/1 on their way to hyper. Each head, and each line of a chunk, is judged first, by the rules of the worker
//! (crates/http/src/rules.md).

use std::io;
use std::ops::Range;
use std::task::{ready, Context, Poll};

use bytes::{Buf, BytesMut};
use fastrack_http::{Head, Judge, Judged, KnownName, Limits};
use hyper::body::Bytes;
use tokio::io::ReadBuf;

use super::notes::Note;
use super::Connection;

/// The first bytes of HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes that are read at a time while a head is incomplete.
const PART: usize = 4096;

/// Bytes that a client may send behind a request for another protocol, before it has the response.
const MOST_UNDECIDED: usize = 64 * 1024;

/// The request that hyper gets in the place of one that is none. The handler answers it by the judge's note.
const REFUSED: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// The same for a HEAD, whose refusal has no body.
const REFUSED_HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// A connection's bytes that hyper has not read.
#[derive(Debug)]
pub struct Inbound {
    judge: Judge,
    limits: Limits,
    /// Whether the first bytes may be those of HTTP/2.
    may_be_h2: bool,
    /// Heads that were judged.
    heads: u64,
    /// Bytes about which nothing can be said yet.
    held: BytesMut,
    /// Judged bytes.
    ready: Bytes,
    /// Why no more bytes are read.
    ending: Option<Ending>,
    /// Whether the client has ended its side.
    has_ended: bool,
    is_raw: bool,
}

#[derive(Debug)]
enum Ending {
    /// The last head is refused.
    Refused,
    /// The body that is being read has broken its framing.
    Broken(fastrack_http::Error),
}

/// Bytes that were judged together.
struct Sorted {
    /// Bytes at the beginning that hyper gets as they are.
    passed: usize,
    /// Bytes that need no further look.
    judged: usize,
    /// Bytes that hyper gets after the passed ones.
    then: Bytes,
}

impl Inbound {
    /// For a new connection. `may_be_h2`: the client may choose its protocol by its first bytes.
    pub fn new(limits: Limits, may_be_h2: bool) -> Self {
        Inbound {
            judge: Judge::new(limits),
            limits,
            may_be_h2,
            heads: 0,
            held: BytesMut::new(),
            ready: Bytes::new(),
            ending: None,
            has_ended: false,
            is_raw: false,
        }
    }

    /// Whether bytes wait that hyper has not read.
    pub fn has_bytes(&self) -> bool {
        !self.held.is_empty() || !self.ready.is_empty()
    }

    /// Gives hyper the next judged bytes. `read` reads from the client.
    pub fn poll_read(
        &mut self,
        connection: &Connection,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
        mut read: impl FnMut(&mut Context<'_>, &mut ReadBuf<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        if connection.is_late() {
            self.refuse_late(connection);
        }
        // Bytes that were held may be judged now: the last request may have its response.
        self.judge_held(connection);
        loop {
            if !self.ready.is_empty() {
                let count = buf.remaining().min(self.ready.len());
                buf.put_slice(&self.ready.split_to(count));
                return Poll::Ready(Ok(()));
            }
            match &self.ending {
                Some(Ending::Refused) => return Poll::Pending,
                Some(Ending::Broken(error)) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, *error)));
                }
                None if self.has_ended => return self.poll_end(connection, cx),
                None if self.held.is_empty() => {
                    let before = buf.filled().len();
                    ready!(read(cx, buf))?;
                    if buf.filled().len() == before {
                        return self.poll_end(connection, cx);
                    }
                    let sorted = self.sort(&buf.filled()[before..], connection);
                    self.held.extend_from_slice(&buf.filled()[before + sorted.judged..]);
                    self.ready = sorted.then;
                    buf.set_filled(before + sorted.passed);
                    if sorted.passed > 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                None => {
                    connection.notes.wait(cx.waker());
                    if self.held.len() >= MOST_UNDECIDED.max(self.limits.head) {
                        return Poll::Pending;
                    }
                    let mut part = [0; PART];
                    let mut part = ReadBuf::new(&mut part);
                    ready!(read(cx, &mut part))?;
                    if part.filled().is_empty() {
                        return self.poll_end(connection, cx);
                    }
                    self.held.extend_from_slice(part.filled());
                    // Only the end of a line can complete a head. So one that comes byte by byte is not parsed for each byte.
                    if part.filled().contains(&b'\n')
                        || self.may_be_h2
                        || self.held.len() >= self.limits.target
                    {
                        self.judge_held(connection);
                    }
                }
            }
        }
    }

    /// The end of what the client sends. hyper gets it after the responses: the client may still take them.
    fn poll_end(&mut self, connection: &Connection, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.has_ended = true;
        let has_no_response = self.is_raw || connection.is_tunnel() || self.judge.is_within_body();
        if has_no_response || connection.has_answered(self.heads) {
            return Poll::Ready(Ok(()));
        }
        connection.leave();
        connection.notes.wait(cx.waker());
        if connection.has_answered(self.heads) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Refuses the head that has begun, and whose time is over.
    fn refuse_late(&mut self, connection: &Connection) {
        let has_begun = !self.held.is_empty() && self.ready.is_empty() && self.judge.is_between_requests();
        if has_begun && self.ending.is_none() {
            let head = std::mem::take(&mut self.held);
            self.ready = self.refuse(&head, fastrack_http::Error::Timeout, connection);
        }
    }

    /// The request that hyper gets in the place of these bytes.
    fn refuse(&mut self, bytes: &[u8], error: fastrack_http::Error, connection: &Connection) -> Bytes {
        self.heads += 1;
        connection.notes.leave(self.heads, Note::Refused(error));
        self.ending = Some(Ending::Refused);
        let is_head = bytes.trim_ascii_start().starts_with(b"HEAD ");
        Bytes::from_static(if is_head { REFUSED_HEAD } else { REFUSED })
    }

    fn judge_held(&mut self, connection: &Connection) {
        if self.held.is_empty() || !self.ready.is_empty() || self.ending.is_some() {
            return;
        }
        let mut held = std::mem::take(&mut self.held);
        let sorted = self.sort(&held, connection);
        let passed = held.split_to(sorted.passed).freeze();
        held.advance(sorted.judged - sorted.passed);
        self.held = held;
        self.ready = if sorted.then.is_empty() { passed } else { [passed, sorted.then].concat().into() };
    }

    /// Judges bytes up to the first that cannot be passed as they are.
    fn sort(&mut self, bytes: &[u8], connection: &Connection) -> Sorted {
        let sorted = self.judge_each(bytes, connection);
        connection.set_owes_body(self.judge.is_within_body());
        sorted
    }

    fn judge_each(&mut self, bytes: &[u8], connection: &Connection) -> Sorted {
        let mut passed = 0;
        let stop = |passed, judged, then| Sorted { passed, judged, then };
        loop {
            let rest = &bytes[passed..];
            if self.is_raw || rest.is_empty() {
                return stop(bytes.len(), bytes.len(), Bytes::new());
            }
            if self.may_be_h2 {
                if rest.len() < PREFACE.len() && PREFACE.starts_with(rest) {
                    return stop(passed, passed, Bytes::new());
                }
                self.is_raw = rest.starts_with(PREFACE);
                self.may_be_h2 = false;
                continue;
            }
            match self.judge.judge(rest) {
                Ok(Judged::Body(count)) => passed += count,
                Ok(Judged::Head(count)) => {
                    self.heads += 1;
                    let Some((head, target)) = for_hyper(self.judge.head(), &rest[..count]) else {
                        passed += count;
                        continue;
                    };
                    target.into_iter().for_each(|target| {
                        connection.notes.leave(self.heads, Note::Target(target));
                    });
                    return stop(passed, passed + count, head);
                }
                Ok(Judged::Partial) => return stop(passed, passed, Bytes::new()),
                Ok(Judged::Undecided) => {
                    self.is_raw = connection.is_tunnel();
                    if self.is_raw || connection.has_answered(self.heads) {
                        self.judge.decide(self.is_raw);
                    } else {
                        return stop(passed, passed, Bytes::new());
                    }
                }
                Err(error) if self.judge.is_between_requests() => {
                    let refused = self.refuse(rest, error, connection);
                    return stop(passed, bytes.len(), refused);
                }
                Err(error) => {
                    self.ending = Some(Ending::Broken(error));
                    return stop(passed, bytes.len(), Bytes::new());
                }
            }
        }
    }
}

/// Bytes of the longest target that hyper takes, with room for encoded ones. No file has such a path.
const LONGEST_TARGET: usize = 20_000;

/// A head that hyper takes in the place of this one, and the target that the worker gets instead of hyper's. None: hyper takes the head.
fn for_hyper(head: &Head, bytes: &[u8]) -> Option<(Bytes, Option<Bytes>)> {
    let (line, target) = (head.request_line(bytes), head.target.of_buffer(bytes));
    let is_usual = matches!(target, [b'/', ..] | b"*")
        && target.len() <= LONGEST_TARGET
        && !target.iter().any(is_foreign);
    let has_version = line.ends_with(b"HTTP/1.1") || line.ends_with(b"HTTP/1.0");
    // hyper takes no empty members beside `chunked`.
    let coding = head.value(KnownName::TransferEncoding).map(Range::from);
    let coding = coding.filter(|range| !bytes[range.clone()].eq_ignore_ascii_case(b"chunked"));
    if is_usual && has_version && coding.is_none() {
        return None;
    }
    let rest = head.fields.first().map_or(bytes.len() - 2, |field| field.name.start());
    let mut other = BytesMut::with_capacity(bytes.len() + 2 * target.len());
    other.extend_from_slice(head.method.of_buffer(bytes));
    other.extend_from_slice(b" ");
    if is_usual {
        other.extend_from_slice(target);
    } else {
        let query = head.query.of_buffer(bytes);
        let mark: &[u8] = if query.is_empty() { b"" } else { b"?" };
        let whole = [head.path(bytes), mark, query].concat();
        encode(&whole[..whole.len().min(LONGEST_TARGET)], &mut other);
    }
    let version: &[u8] = if line.ends_with(b"HTTP/1.0") { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" };
    other.extend_from_slice(version);
    match coding {
        Some(coding) => {
            [&bytes[rest..coding.start], b"chunked", &bytes[coding.end..]]
                .iter()
                .for_each(|part| other.extend_from_slice(part));
        }
        None => other.extend_from_slice(&bytes[rest..]),
    }
    Some((other.freeze(), (!is_usual).then(|| Bytes::copy_from_slice(target))))
}

/// Whether a byte of a target is none of a URI (RFC 3986 §2), though clients send it. hyper takes a few of these, at some places.
fn is_foreign(byte: &u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
}

fn encode(part: &[u8], out: &mut BytesMut) {
    for byte in part {
        if is_foreign(byte) {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            out.extend_from_slice(&[*byte]);
        }
    }
}

#[cfg(test)]
mod tests;
