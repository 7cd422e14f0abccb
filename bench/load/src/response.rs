//! Reading responses, in whatever pieces they come.

use httparse::{parse_chunk_size, parse_headers, Status, EMPTY_HEADER};

/// The facts of a finished response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Said {
    /// The status code.
    pub status: u16,
    /// `X-Service-Time`: microseconds that the app took, as it says itself.
    pub service_us: Option<u64>,
    /// Whether another request may follow on the connection (RFC 9112, section 9.3).
    pub keeps: bool,
}

/// How far the responses have come.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// More has to come.
    Partial,
    /// This was the last byte of the last one, or that of one whose status is not 200.
    Complete(Said),
    /// So many of them have come whole; the last one says that no other follows on the connection.
    Cut(usize),
    /// It is no response, or nothing says where its body ends.
    Nonsense,
}

/// The most bytes of a head, a trailer or a chunk's first line. No app of the benchmark answers with more.
const LONGEST: usize = 64 * 1024;
const MOST_FIELDS: usize = 64;

/// The part of the response that comes next.
#[derive(Debug, Default, Clone, Copy)]
enum Part {
    #[default]
    Head,
    Bytes(usize),
    ChunkSize,
    /// With the CRLF after it.
    Chunk(usize),
    Trailer,
}

/// A response that is being read, and how many came before it on the same requests.
#[derive(Debug, Default)]
pub struct Reader {
    part: Part,
    said: Said,
    /// The bytes so far of a part that must be whole to be read.
    rest: Vec<u8>,
    answers: usize,
    touched: bool,
}

impl Reader {
    /// Whether nothing of the responses has come yet.
    pub fn is_untouched(&self) -> bool {
        !self.touched
    }

    /// How many of several responses have come whole.
    pub fn answers(&self) -> usize {
        self.answers
    }

    /// Takes the bytes that have come of so many responses. Bytes after their end are Nonsense.
    pub fn take(&mut self, mut bytes: &[u8], responses: usize) -> Progress {
        self.touched |= !bytes.is_empty();
        loop {
            let said = match self.one(&mut bytes) {
                Ok(Some(said)) => said,
                Ok(None) => return Progress::Partial,
                Err(()) => return Progress::Nonsense,
            };
            self.answers += 1;
            if said.status != 200 {
                return Progress::Complete(said);
            }
            if self.answers == responses {
                return if bytes.is_empty() { Progress::Complete(said) } else { Progress::Nonsense };
            }
            if !said.keeps {
                return Progress::Cut(self.answers);
            }
        }
    }

    /// Takes what belongs to this response off the bytes.
    fn one(&mut self, bytes: &mut &[u8]) -> Result<Option<Said>, ()> {
        loop {
            if let Part::Bytes(left) | Part::Chunk(left) = &mut self.part {
                let used = bytes.len().min(*left);
                *left -= used;
                *bytes = &bytes[used..];
                match self.part {
                    Part::Bytes(0) => return Ok(Some(self.end())),
                    Part::Chunk(0) => self.part = Part::ChunkSize,
                    _ => return Ok(None),
                }
            }
            let before = self.rest.len();
            self.rest.extend_from_slice(bytes);
            let read = match self.part {
                Part::ChunkSize => chunk_size(&self.rest)?,
                Part::Trailer => trailer(&self.rest)?,
                _ => head(&self.rest, &mut self.said)?,
            };
            let Some((used, part)) = read else {
                *bytes = &[];
                return if self.rest.len() > LONGEST { Err(()) } else { Ok(None) };
            };
            *bytes = &bytes[used - before..];
            self.rest.clear();
            match part {
                Some(part) => self.part = part,
                None => return Ok(Some(self.end())),
            }
        }
    }

    fn end(&mut self) -> Said {
        self.part = Part::Head;
        self.said
    }
}

/// How many bytes it has and what comes next (None: the end), when all of it is there.
type Read = Result<Option<(usize, Option<Part>)>, ()>;

fn head(bytes: &[u8], said: &mut Said) -> Read {
    let mut fields = [EMPTY_HEADER; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let Status::Complete(used) = response.parse(bytes).map_err(drop)? else { return Ok(None) };
    *said = Said { status: response.code.unwrap_or(0), service_us: None, keeps: response.version == Some(1) };
    let mut body = None;
    for field in response.headers {
        let value = std::str::from_utf8(field.value).map_err(drop)?.trim();
        match field.name.to_ascii_lowercase().as_str() {
            "content-length" => body = value.parse().ok().map(Part::Bytes),
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => body = Some(Part::ChunkSize),
            "x-service-time" => said.service_us = value.parse().ok(),
            "connection" => {
                said.keeps = !value.eq_ignore_ascii_case("close")
                    && (said.keeps || value.eq_ignore_ascii_case("keep-alive"))
            }
            _ => {}
        }
    }
    body.map(|body| Some((used, Some(body)))).ok_or(())
}

fn chunk_size(bytes: &[u8]) -> Read {
    let Status::Complete((used, size)) = parse_chunk_size(bytes).map_err(drop)? else { return Ok(None) };
    let size = usize::try_from(size).map_err(drop)?;
    Ok(Some((used, Some(if size == 0 { Part::Trailer } else { Part::Chunk(size.saturating_add(2)) }))))
}

fn trailer(bytes: &[u8]) -> Read {
    let mut fields = [EMPTY_HEADER; MOST_FIELDS];
    let Status::Complete((used, _)) = parse_headers(bytes, &mut fields).map_err(drop)? else {
        return Ok(None);
    };
    Ok(Some((used, None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\nX-Service-Time: 2003\r\ncontent-length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\none\r\nB\r\nlo 0\r\n\r\nyou\r\n0\r\nmore: yes\r\n\r\n";
    const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

    #[test]
    fn reads_responses_cut_anywhere() {
        let said = |service_us| Said { status: 200, service_us, keeps: true };
        for (bytes, responses, last) in [
            (WHOLE.to_vec(), 1, Some(2003)),
            (CHUNKED.to_vec(), 1, None),
            ([WHOLE, CHUNKED, WHOLE].concat(), 3, Some(2003)),
        ] {
            for cut in 0..bytes.len() {
                let mut reader = Reader::default();
                assert_eq!(reader.take(&bytes[..cut], responses), Progress::Partial, "{cut}");
                assert_eq!(reader.take(&bytes[cut..], responses), Progress::Complete(said(last)), "{cut}");
            }
        }
    }

    #[test]
    fn sees_after_how_many_of_several_the_connection_ends() {
        let mut reader = Reader::default();
        assert_eq!(reader.take(&[WHOLE, LAST].concat(), 4), Progress::Cut(2));
        // The rest comes on another one.
        assert_eq!(reader.take(WHOLE, 4), Progress::Partial);
        assert!(matches!(reader.take(LAST, 4), Progress::Complete(said) if !said.keeps));
    }

    #[test]
    fn takes_the_first_of_several_that_is_an_error_for_all() {
        let bytes = [WHOLE, b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", WHOLE].concat();
        assert!(matches!(Reader::default().take(&bytes, 3), Progress::Complete(said) if said.status == 503));
    }

    #[test]
    fn takes_nothing_for_a_response_that_is_none() {
        for bytes in [
            &b"hello\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nab",
        ] {
            assert_eq!(Reader::default().take(bytes, 1), Progress::Nonsense);
        }
    }
}
