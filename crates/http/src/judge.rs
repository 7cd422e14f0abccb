//! Judges the bytes of a connection before another parser reads them.
//!
//! The other parser is more lenient, or strict elsewhere. So it gets the bytes of a request only once they are known to be one, and it never
//! finds another end of a request than this judge.

use crate::chunked::ChunkedDecoder;
use crate::error::{Error, Status};
use crate::framing::Framing;
use crate::head::Head;
use crate::limits::Limits;

/// The part of a request that the next byte belongs to.
#[derive(Debug)]
enum State {
    Head,
    /// Bytes of the body that have not arrived.
    Length(u64),
    Chunks(ChunkedDecoder),
    /// The request before asks for another protocol. Its response says whether a request follows.
    Change,
    /// Another protocol: any bytes.
    Changed,
}

/// The next bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// The beginning of a head: more bytes are needed.
    Partial,
    /// A head of this many bytes.
    Head(usize),
    /// This many bytes of a body with its framing, or of another protocol.
    Body(usize),
    /// Nothing can be said of the bytes before the last request has its response.
    Undecided,
}

/// Judges a connection's requests, one after the other.
#[derive(Debug)]
pub struct Judge {
    limits: Limits,
    state: State,
    head: Head,
}

impl Judge {
    /// For a connection whose first request begins with the next byte.
    pub fn new(limits: Limits) -> Self {
        Judge { limits, state: State::Head, head: Head::default() }
    }

    /// The last head, which was parsed from the bytes of [`Judged::Head`].
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Whether the next byte begins a request.
    pub fn is_between_requests(&self) -> bool {
        matches!(self.state, State::Head)
    }

    /// Whether the next byte belongs to a body.
    pub fn is_within_body(&self) -> bool {
        matches!(self.state, State::Length(_) | State::Chunks(_))
    }

    /// Judges the beginning of `bytes`, which are those after the last ones that were a head or of a body. An error is the connection's
    /// last: the caller takes no more bytes.
    pub fn judge(&mut self, bytes: &[u8]) -> Result<Judged, Error> {
        match &mut self.state {
            State::Head if bytes.is_empty() => Ok(Judged::Partial),
            State::Head => match self.head.parse(bytes, self.limits)? {
                Status::Partial => Ok(Judged::Partial),
                Status::Complete => {
                    self.state = self.after_head();
                    Ok(Judged::Head(self.head.len))
                }
            },
            State::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= count as u64;
                if *left == 0 {
                    self.state = State::Head;
                }
                Ok(Judged::Body(count))
            }
            State::Chunks(decoder) => {
                let (status, count) = decoder.decode(bytes, |_| Ok::<_, Error>(()))?;
                if status == Status::Complete {
                    self.state = State::Head;
                }
                Ok(Judged::Body(count))
            }
            State::Change => Ok(Judged::Undecided),
            State::Changed => Ok(Judged::Body(bytes.len())),
        }
    }

    /// What follows a request that asks for another protocol: that protocol, or the next request.
    pub fn decide(&mut self, is_changed: bool) {
        if is_changed {
            self.state = State::Changed;
        } else if matches!(self.state, State::Change) {
            self.state = State::Head;
        }
    }

    fn after_head(&self) -> State {
        match self.head.framing {
            Framing::Chunked => State::Chunks(ChunkedDecoder::default()),
            Framing::Length(length @ 1..) => State::Length(length),
            // A request with content does not change protocols.
            Framing::None | Framing::Length(0) if self.head.asks_for_change() => State::Change,
            Framing::None | Framing::Length(0) => State::Head,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The parts of a connection's bytes that came in these pieces, and the error that has ended it. Parts of bodies are joined.
    fn judged(pieces: &[&[u8]]) -> (Vec<(char, usize)>, Option<Error>) {
        let mut judge = Judge::new(Limits::default());
        let (mut parts, mut held): (Vec<(char, usize)>, Vec<u8>) = Default::default();
        for piece in pieces {
            held.extend_from_slice(piece);
            while !held.is_empty() {
                let (kind, count) = match judge.judge(&held) {
                    Ok(Judged::Head(count)) => ('h', count),
                    Ok(Judged::Body(count)) => ('b', count),
                    Ok(Judged::Partial | Judged::Undecided) => break,
                    Err(error) => return (parts, Some(error)),
                };
                held.drain(..count);
                match parts.last_mut() {
                    Some(('b', total)) if kind == 'b' => *total += count,
                    _ => parts.push((kind, count)),
                }
            }
        }
        (parts, None)
    }

    #[test]
    fn each_request_ends_where_the_next_one_begins() {
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let text = format!("{get}{post}abc{chunked}3\r\nabc\r\n0\r\n\r\n{get}GET");
        let expected = vec![
            ('h', get.len()),
            ('h', post.len()),
            ('b', 3),
            ('h', chunked.len()),
            ('b', 13),
            ('h', get.len()),
        ];
        for cut in 0..text.len() {
            let (before, after) = text.as_bytes().split_at(cut);
            assert_eq!(judged(&[before, after]), (expected.clone(), None), "{cut}");
        }
    }

    #[test]
    fn a_broken_request_is_the_last_one() {
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (bytes, parts, error) in [
            (format!("{get}GET / HTTP/1.1\r\n\r\n"), vec![('h', get.len())], Error::Host),
            (format!("{get}GET / HTTP/1.1\nHost: a\r\n\r\n"), vec![('h', get.len())], Error::Syntax),
            (format!("{chunked}3 \r\nabc"), vec![('h', chunked.len())], Error::Chunk),
        ] {
            assert_eq!(judged(&[bytes.as_bytes()]), (parts, Some(error)), "{bytes:?}");
        }
    }

    #[test]
    fn bytes_after_a_request_for_another_protocol_wait_for_its_response() {
        let ask = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: x\r\n\r\n";
        let next = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for is_changed in [true, false] {
            let mut judge = Judge::new(Limits::default());
            assert_eq!(judge.judge(ask), Ok(Judged::Head(ask.len())));
            assert_eq!(judge.judge(next), Ok(Judged::Undecided));
            judge.decide(is_changed);
            let expected = if is_changed { Judged::Body(next.len()) } else { Judged::Head(next.len()) };
            assert_eq!(judge.judge(next), Ok(expected));
        }
    }

    #[test]
    fn a_request_with_content_or_of_http_10_asks_for_no_other_protocol() {
        for head in [
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\n",
            "GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n",
        ] {
            let mut judge = Judge::new(Limits::default());
            assert_eq!(judge.judge(head.as_bytes()), Ok(Judged::Head(head.len())));
            assert_ne!(judge.judge(b"x"), Ok(Judged::Undecided), "{head}");
        }
    }

    proptest! {
        #[test]
        fn the_judgement_does_not_depend_on_the_pieces(
            texts in prop::collection::vec(prop::sample::select(vec![
                "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n", "0\r\n\r\n", "hello", "\r\n", "\n", "5 \r\n",
                "Content-Length: 1\r\n", "GET /", " HTTP/1.1\r\n",
            ]), 0..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let bytes = texts.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(judged(&pieces).1, judged(&[&bytes]).1);
        }
    }
}
