//! Reading one response, in whatever pieces it comes.

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

/// How far a response has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// More has to come.
    Partial,
    /// This was the last byte.
    Complete(Said),
    /// It is no response, or has no Content-Length: the benchmark's apps always send one.
    Nonsense,
}

/// The head's size is bounded: what is longer is no answer of the benchmark's apps.
const LONGEST_HEAD: usize = 64 * 1024;

/// A response that is being read.
#[derive(Debug, Default)]
pub struct Reader {
    head: Vec<u8>,
    said: Said,
    left: Option<usize>,
}

impl Reader {
    /// Whether nothing of the response has come yet.
    pub fn is_untouched(&self) -> bool {
        self.head.is_empty() && self.left.is_none()
    }

    /// Starts over with the next response.
    pub fn reset(&mut self) {
        self.head.clear();
        self.left = None;
    }

    /// Takes the bytes that have come. Bytes after the end are none of this response: Nonsense.
    pub fn take(&mut self, bytes: &[u8]) -> Progress {
        match self.left {
            Some(left) => self.body(left, bytes.len()),
            None => self.head(bytes),
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Progress {
        // Nearly always the whole head comes at once, and need not be copied.
        if self.head.is_empty() {
            if let Some(end) = end_of_head(bytes) {
                return self.after_head(parsed(&bytes[..end]), bytes.len() - end);
            }
        }
        let searched = self.head.len().saturating_sub(3);
        self.head.extend_from_slice(bytes);
        match end_of_head(&self.head[searched..]) {
            Some(end) => {
                let end = searched + end;
                self.after_head(parsed(&self.head[..end]), self.head.len() - end)
            }
            None if self.head.len() > LONGEST_HEAD => Progress::Nonsense,
            None => Progress::Partial,
        }
    }

    fn after_head(&mut self, parsed: Option<(Said, usize)>, came: usize) -> Progress {
        let Some((said, length)) = parsed else { return Progress::Nonsense };
        self.said = said;
        self.body(length, came)
    }

    fn body(&mut self, left: usize, came: usize) -> Progress {
        self.left = left.checked_sub(came);
        match self.left {
            Some(0) => Progress::Complete(self.said),
            Some(_) => Progress::Partial,
            None => Progress::Nonsense,
        }
    }
}

/// Where the body begins.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// What a whole head says, and the length of the body.
fn parsed(head: &[u8]) -> Option<(Said, usize)> {
    let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
    let (version, rest) = lines.next()?.split_once(' ')?;
    let status = rest.get(..3)?.parse().ok()?;
    let mut said = Said { status, service_us: None, keeps: version == "HTTP/1.1" };
    let mut length = None;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().ok();
        } else if name.eq_ignore_ascii_case("x-service-time") {
            said.service_us = value.parse().ok();
        } else if name.eq_ignore_ascii_case("connection") {
            said.keeps = kept(value, said.keeps);
        }
    }
    Some((said, length?))
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
            assert_eq!(reader.take(&WHOLE[..cut]), Progress::Partial, "{cut}");
            assert_eq!(reader.take(&WHOLE[cut..]), Progress::Complete(said), "{cut}");
        }
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
        ] {
            assert_eq!(Reader::default().take(bytes), Progress::Nonsense);
        }
    }
}
