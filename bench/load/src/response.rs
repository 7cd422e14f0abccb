//! Reading responses, in whatever pieces they come.

/// What a finished response said.
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

/// The head's size is bounded: what is longer is no answer of the benchmark's apps.
const LONGEST_HEAD: usize = 64 * 1024;
/// Of a chunk's first line, or of the trailer's.
const LONGEST_LINE: usize = 1024;

/// A response that is being read, and how many came before it on the same requests.
#[derive(Debug, Default)]
pub struct Reader {
    head: Vec<u8>,
    said: Said,
    body: Option<Body>,
    answers: usize,
}

/// What of the body has still to come.
#[derive(Debug, PartialEq, Eq)]
enum Body {
    Bytes(usize),
    Chunks(Chunks),
}

/// A chunked body (RFC 9112, section 7.1).
#[derive(Debug, Default, PartialEq, Eq)]
struct Chunks {
    /// Of the chunk and its CRLF.
    left: usize,
    /// What has come of the line.
    line: Vec<u8>,
    /// The last chunk has come: this is the trailer.
    trailer: bool,
}

impl Reader {
    /// Whether nothing of the responses has come yet.
    pub fn is_untouched(&self) -> bool {
        self.head.is_empty() && self.body.is_none() && self.answers == 0
    }

    /// How many of several responses have come whole.
    pub fn answers(&self) -> usize {
        self.answers
    }

    /// Starts over with the next responses.
    pub fn reset(&mut self) {
        self.head.clear();
        self.body = None;
        self.answers = 0;
    }

    /// Takes the bytes that have come of so many responses. Bytes after the end are none of theirs: Nonsense.
    pub fn take(&mut self, mut bytes: &[u8], responses: usize) -> Progress {
        loop {
            let (progress, used) = self.one(bytes);
            let Progress::Complete(said) = progress else { return progress };
            bytes = &bytes[used..];
            self.answers += 1;
            if said.status != 200 {
                return Progress::Complete(said);
            }
            if self.answers == responses {
                return if bytes.is_empty() { Progress::Complete(said) } else { Progress::Nonsense };
            }
            self.head.clear();
            self.body = None;
            if !said.keeps {
                return Progress::Cut(self.answers);
            }
            if bytes.is_empty() {
                return Progress::Partial;
            }
        }
    }

    /// Returns too how many of the bytes belong to this response.
    fn one(&mut self, bytes: &[u8]) -> (Progress, usize) {
        let head = match self.body {
            Some(_) => Some(0),
            None => self.head(bytes),
        };
        let Some(head) = head else {
            let long = self.head.len() > LONGEST_HEAD;
            return (if long { Progress::Nonsense } else { Progress::Partial }, bytes.len());
        };
        let rest = &bytes[head..];
        match &mut self.body {
            Some(Body::Bytes(left)) => {
                let used = rest.len().min(*left);
                *left -= used;
                (if *left == 0 { Progress::Complete(self.said) } else { Progress::Partial }, head + used)
            }
            Some(Body::Chunks(chunks)) => match chunks.take(rest) {
                Ok(Some(used)) => (Progress::Complete(self.said), head + used),
                Ok(None) => (Progress::Partial, bytes.len()),
                Err(()) => (Progress::Nonsense, bytes.len()),
            },
            None => (Progress::Nonsense, bytes.len()),
        }
    }

    /// Reads the head. When it is whole, returns how many of the bytes belong to it; there is no body if it is nonsense.
    fn head(&mut self, bytes: &[u8]) -> Option<usize> {
        // Nearly always the whole head comes at once, and need not be copied.
        if self.head.is_empty() {
            if let Some(end) = end_of_head(bytes) {
                self.after_head(parsed(&bytes[..end]));
                return Some(end);
            }
        }
        let before = self.head.len();
        let searched = before.saturating_sub(3);
        self.head.extend_from_slice(bytes);
        let end = searched + end_of_head(&self.head[searched..])?;
        let parsed = parsed(&self.head[..end]);
        self.after_head(parsed);
        Some(end - before)
    }

    fn after_head(&mut self, parsed: Option<(Said, Body)>) {
        if let Some((said, body)) = parsed {
            self.said = said;
            self.body = Some(body);
        }
    }
}

impl Chunks {
    /// How many of the bytes belong to the body when this was its end, nothing when more has to come.
    fn take(&mut self, bytes: &[u8]) -> Result<Option<usize>, ()> {
        let mut at = 0;
        while at < bytes.len() {
            if self.left > 0 {
                let used = self.left.min(bytes.len() - at);
                self.left -= used;
                at += used;
                continue;
            }
            at += 1;
            match bytes[at - 1] {
                b'\n' => {
                    if self.end_of_line()? {
                        return Ok(Some(at));
                    }
                }
                _ if self.line.len() == LONGEST_LINE => return Err(()),
                byte => self.line.push(byte),
            }
        }
        Ok(None)
    }

    /// Whether the body ends with this line.
    fn end_of_line(&mut self) -> Result<bool, ()> {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        if self.trailer {
            let ends = line.is_empty();
            self.line.clear();
            return Ok(ends);
        }
        let digits = line.split(|&byte| byte == b';').next().unwrap_or(line);
        let digits = std::str::from_utf8(digits).map_err(|_| ())?;
        let size = usize::from_str_radix(digits.trim(), 16).map_err(|_| ())?;
        self.line.clear();
        self.trailer = size == 0;
        // With the CRLF after it.
        self.left = if self.trailer { 0 } else { size.checked_add(2).ok_or(())? };
        Ok(false)
    }
}

/// Where the body begins.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// What a whole head says, and what body follows it.
fn parsed(head: &[u8]) -> Option<(Said, Body)> {
    let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
    let (version, rest) = lines.next()?.split_once(' ')?;
    let status = rest.get(..3)?.parse().ok()?;
    let mut said = Said { status, service_us: None, keeps: version == "HTTP/1.1" };
    let mut body = None;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            body = value.parse().ok().map(Body::Bytes);
        } else if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            body = Some(Body::Chunks(Chunks::default()));
        } else if name.eq_ignore_ascii_case("x-service-time") {
            said.service_us = value.parse().ok();
        } else if name.eq_ignore_ascii_case("connection") {
            said.keeps = kept(value, said.keeps);
        }
    }
    Some((said, body?))
}

fn kept(connection: &str, default: bool) -> bool {
    if connection.eq_ignore_ascii_case("close") {
        return false;
    }
    default || connection.eq_ignore_ascii_case("keep-alive")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\nX-Service-Time: 2003\r\ncontent-length: 5\r\n\r\nhello";

    #[test]
    fn reads_a_response_cut_anywhere() {
        let said = Said { status: 200, service_us: Some(2003), keeps: true };
        for cut in 0..WHOLE.len() {
            let mut reader = Reader::default();
            assert_eq!(reader.take(&WHOLE[..cut], 1), Progress::Partial, "{cut}");
            assert_eq!(reader.take(&WHOLE[cut..], 1), Progress::Complete(said), "{cut}");
        }
    }

    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nhel\r\nB\r\nlo 0\r\n\r\nyou\r\n0\r\nmore: yes\r\n\r\n";

    #[test]
    fn reads_a_chunked_response_cut_anywhere() {
        let said = Said { status: 200, service_us: None, keeps: true };
        for cut in 0..CHUNKED.len() {
            let mut reader = Reader::default();
            assert_eq!(reader.take(&CHUNKED[..cut], 1), Progress::Partial, "{cut}");
            assert_eq!(reader.take(&CHUNKED[cut..], 1), Progress::Complete(said), "{cut}");
        }
    }

    #[test]
    fn reads_several_responses_cut_anywhere() {
        let three = [WHOLE, CHUNKED, WHOLE].concat();
        for cut in 0..three.len() {
            let mut reader = Reader::default();
            assert_eq!(reader.take(&three[..cut], 3), Progress::Partial, "{cut}");
            let last = Said { status: 200, service_us: Some(2003), keeps: true };
            assert_eq!(reader.take(&three[cut..], 3), Progress::Complete(last), "{cut}");
            reader.reset();
            assert!(reader.is_untouched());
        }
    }

    #[test]
    fn sees_after_how_many_of_several_the_connection_ends() {
        let last = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let mut reader = Reader::default();
        assert_eq!(reader.take(&[WHOLE, last].concat(), 4), Progress::Cut(2));
        // The rest comes on another one.
        assert_eq!(reader.take(WHOLE, 4), Progress::Partial);
        assert!(matches!(reader.take(last, 4), Progress::Complete(said) if !said.keeps));
    }

    #[test]
    fn takes_the_first_of_several_that_is_an_error_for_all() {
        let error = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";
        let bytes = [WHOLE, error, WHOLE].concat();
        let Progress::Complete(said) = Reader::default().take(&bytes, 3) else { panic!() };
        assert_eq!(said.status, 503);
    }

    #[test]
    fn sees_whether_the_connection_is_kept() {
        let keeps = |head: &str| parsed(head.as_bytes()).map(|(said, _)| said.keeps);
        assert_eq!(keeps("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), Some(false));
        assert_eq!(keeps("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"), Some(false));
        assert_eq!(
            keeps("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n"),
            Some(true)
        );
    }

    #[test]
    fn takes_nothing_for_a_response_that_is_none() {
        for bytes in [
            &b"hello\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nab",
        ] {
            assert_eq!(Reader::default().take(bytes, 1), Progress::Nonsense);
        }
    }
}
