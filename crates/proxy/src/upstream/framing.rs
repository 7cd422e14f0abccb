//! Where the body of a worker's response ends (RFC 9112 §6.3).

use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::response::Parts;
use hyper::{StatusCode, Version};

use super::head::{field_map, Malformed};

/// Bytes of a chunk's size line, or of trailers, at most.
const MOST_LINES: usize = 64 * 1024;

/// Fields of trailers, at most.
const MOST_TRAILERS: usize = 128;

/// The rest of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes.
    Length(u64),
    /// Chunks (RFC 9112 §7.1).
    Chunked(Chunk),
    /// All until the connection's end.
    Close,
}

/// The part of a chunked body that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// A chunk's size.
    Size,
    /// So many bytes of data.
    Data(u64),
    /// The line's end after the data.
    DataEnd,
    /// Fields after the last chunk.
    Trailers,
    /// Nothing more.
    Done,
}

/// A part of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes.
    Data(Bytes),
    /// Fields after the body.
    Trailers(HeaderMap),
}

impl Framing {
    /// That of the response with this head. `is_head`: the request was HEAD.
    pub fn of(parts: &Parts, is_head: bool) -> Result<Self, Malformed> {
        let has_none = matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if is_head || has_none || parts.status.is_informational() {
            return Ok(Framing::Length(0));
        }
        let mut codings = parts.headers.get_all(header::TRANSFER_ENCODING).iter();
        if parts.headers.contains_key(header::TRANSFER_ENCODING) {
            if parts.version == Version::HTTP_10 {
                return Err(Malformed("Transfer-Encoding in HTTP/1.0"));
            }
            // The client gets the body with a framing of its own, which cannot name another coding.
            if !codings.all(is_chunked) {
                return Err(Malformed("its Transfer-Encoding is not chunked"));
            }
            return Ok(Framing::Chunked(Chunk::Size));
        }
        let mut lengths = parts.headers.get_all(header::CONTENT_LENGTH).iter();
        let Some(first) = lengths.next() else { return Ok(Framing::Close) };
        let length = first.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        match length.and_then(|text| text.parse().ok()) {
            Some(length) if lengths.all(|other| other == first) => Ok(Framing::Length(length)),
            _ => Err(Malformed("invalid Content-Length")),
        }
    }

    /// Whether the body has ended.
    pub fn is_done(self) -> bool {
        matches!(self, Framing::Length(0) | Framing::Chunked(Chunk::Done))
    }

    /// Bytes that are to come, if that is known.
    pub fn length(self) -> Option<u64> {
        match self {
            Framing::Length(left) => Some(left),
            Framing::Chunked(Chunk::Done) => Some(0),
            Framing::Chunked(_) | Framing::Close => None,
        }
    }

    /// Takes the next part from the beginning of these bytes; None: it is not there, or the body has ended.
    pub fn decode(&mut self, bytes: &mut Bytes) -> Result<Option<Part>, Malformed> {
        match self {
            Framing::Length(left) => Ok(take(left, bytes)),
            Framing::Chunked(chunk) => chunk.decode(bytes),
            Framing::Close => Ok((!bytes.is_empty()).then(|| Part::Data(std::mem::take(bytes)))),
        }
    }
}

/// Whether a Transfer-Encoding has chunks and no other coding.
fn is_chunked(codings: &HeaderValue) -> bool {
    codings.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")
}

/// At most `left` bytes.
fn take(left: &mut u64, bytes: &mut Bytes) -> Option<Part> {
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
    *left -= count as u64;
    (count > 0).then(|| Part::Data(bytes.split_to(count)))
}

impl Chunk {
    fn decode(&mut self, bytes: &mut Bytes) -> Result<Option<Part>, Malformed> {
        loop {
            match self {
                Chunk::Size => {
                    let parsed = httparse::parse_chunk_size(bytes).map_err(|_| Malformed("invalid chunk"))?;
                    let httparse::Status::Complete((count, size)) = parsed else { return incomplete(bytes) };
                    drop(bytes.split_to(count));
                    *self = if size == 0 { Chunk::Trailers } else { Chunk::Data(size) };
                }
                Chunk::Data(left) => {
                    let part = take(left, bytes);
                    if *left == 0 {
                        *self = Chunk::DataEnd;
                    }
                    return Ok(part);
                }
                Chunk::DataEnd if bytes.len() < 2 => return Ok(None),
                Chunk::DataEnd if bytes.starts_with(b"\r\n") => {
                    drop(bytes.split_to(2));
                    *self = Chunk::Size;
                }
                Chunk::DataEnd => return Err(Malformed("invalid chunk")),
                Chunk::Trailers => {
                    let mut fields = [httparse::EMPTY_HEADER; MOST_TRAILERS];
                    let parsed = httparse::parse_headers(bytes, &mut fields)
                        .map_err(|_| Malformed("invalid trailers"))?;
                    let httparse::Status::Complete((count, fields)) = parsed else {
                        return incomplete(bytes);
                    };
                    let trailers = field_map(fields, bytes)?;
                    drop(bytes.split_to(count));
                    *self = Chunk::Done;
                    return Ok((!trailers.is_empty()).then_some(Part::Trailers(trailers)));
                }
                Chunk::Done => return Ok(None),
            }
        }
    }
}

fn incomplete(bytes: &Bytes) -> Result<Option<Part>, Malformed> {
    if bytes.len() > MOST_LINES {
        Err(Malformed("a chunk's lines are too long"))
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::upstream::head::Head;

    fn framing(head: &'static str) -> Result<Framing, Malformed> {
        let head = Bytes::from(format!("HTTP/1.1 200 OK\r\n{head}\r\n"));
        Head::parse(&head, false).map(|head| head.expect("whole").0.framing)
    }

    #[test]
    fn a_body_ends_by_its_coding_its_length_or_its_connection() {
        assert_eq!(framing(""), Ok(Framing::Close));
        assert_eq!(framing("Content-Length: 5\r\n"), Ok(Framing::Length(5)));
        assert_eq!(framing("Content-Length: 5\r\nContent-Length: 5\r\n"), Ok(Framing::Length(5)));
        assert_eq!(framing("Transfer-Encoding: Chunked\r\n"), Ok(Framing::Chunked(Chunk::Size)));
        for other in ["gzip", "gzip, chunked", "chunked, chunked"] {
            let head = Bytes::from(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {other}\r\n\r\n"));
            assert!(Head::parse(&head, false).is_err(), "{other}");
        }
        for invalid in ["-1", "+1", "5, 6", "", "99999999999999999999"] {
            let head = Bytes::from(format!("HTTP/1.1 200 OK\r\nContent-Length: {invalid}\r\n\r\n"));
            assert!(Head::parse(&head, false).is_err(), "{invalid}");
        }
        assert!(framing("Content-Length: 5\r\nContent-Length: 6\r\n").is_err());
    }

    /// The data and the trailers of a chunked body that comes in pieces of this size, and the bytes after it.
    fn decode(body: &str, piece: usize) -> Result<(String, Option<HeaderMap>, String), Malformed> {
        let (mut framing, mut bytes) = (Framing::Chunked(Chunk::Size), Bytes::new());
        let (mut data, mut trailers) = (Vec::new(), None);
        for piece in body.as_bytes().chunks(piece) {
            bytes = [&bytes[..], piece].concat().into();
            while let Some(part) = framing.decode(&mut bytes)? {
                match part {
                    Part::Data(bytes) => data.extend_from_slice(&bytes),
                    Part::Trailers(fields) => trailers = Some(fields),
                }
            }
        }
        assert!(framing.is_done());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((text(&data), trailers, text(&bytes)))
    }

    #[test]
    fn chunks_are_decoded_however_they_arrive() {
        let body = "5\r\nhello\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\nSum: abc\r\n\r\n";
        for piece in 1..body.len() {
            let (data, trailers, rest) = decode(body, piece).expect("no error");
            assert_eq!((&data[..], &rest[..]), ("hello0123456789", ""));
            assert_eq!(trailers.expect("trailers")["sum"], "abc");
        }
        let (data, trailers, rest) = decode("1\r\na\r\n0\r\n\r\nHTTP", 1000).expect("no error");
        assert_eq!((&data[..], trailers, &rest[..]), ("a", None, "HTTP"));
    }

    proptest! {
        #[test]
        fn any_data_arrives_whole_by_chunks(parts in prop::collection::vec("[a-z\r\n]{1,30}", 0..8), piece in 1usize..40) {
            let chunks: String = parts.iter().map(|part| format!("{:x}\r\n{part}\r\n", part.len())).collect();
            let (data, _, rest) = decode(&format!("{chunks}0\r\n\r\nrest"), piece).expect("no error");
            prop_assert_eq!((data, &rest[..]), (parts.concat(), "rest"));
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let (mut framing, mut bytes) = (Framing::Chunked(Chunk::Size), Bytes::from(bytes));
            while let Ok(Some(_)) = framing.decode(&mut bytes) {}
        }
    }

    #[test]
    fn broken_chunks_are_an_error() {
        for body in ["x\r\n", "1\r\nab\r\n", "1\r\na\r\n0\r\nA B: c\r\n\r\n"] {
            assert!(decode(body, 1000).is_err(), "{body}");
        }
        let mut framing = Framing::Chunked(Chunk::Trailers);
        assert!(framing.decode(&mut vec![b'a'; MOST_LINES + 1].into()).is_err());
    }
}
