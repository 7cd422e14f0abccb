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
        self.head.is_empty()
    }

    /// Takes the bytes that have come. Bytes after the end are none of this response: Nonsense.
    pub fn take(&mut self, bytes: &[u8]) -> Progress {
        match self.left {
            Some(left) => self.body(left, bytes.len()),
            None => self.head(bytes),
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Progress {
        let searched = self.head.len().saturating_sub(3);
        self.head.extend_from_slice(bytes);
        let Some(end) = self.head[searched..].windows(4).position(|four| four == b"\r\n\r\n") else {
            return if self.head.len() > LONGEST_HEAD { Progress::Nonsense } else { Progress::Partial };
        };
        let end = searched + end + 4;
        match std::str::from_utf8(&self.head[..end]).ok().and_then(parsed) {
            Some((said, length)) => {
                self.said = said;
                self.body(length, self.head.len() - end)
            }
            None => Progress::Nonsense,
        }
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

/// What a whole head says, and the length of the body.
fn parsed(head: &str) -> Option<(Said, usize)> {
    let mut lines = head.split("\r\n");
    let (version, rest) = lines.next()?.split_once(' ')?;
    let status = rest.get(..3)?.parse().ok()?;
    let mut said = Said { status, service_us: None, keeps: version == "HTTP/1.1" };
    let mut length = None;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok(),
            "x-service-time" => said.service_us = value.parse().ok(),
            "connection" => said.keeps = kept(value, said.keeps),
            _ => {}
        }
    }
    Some((said, length?))
}

fn kept(connection: &str, default: bool) -> bool {
    match connection.to_ascii_lowercase().as_str() {
        "close" => false,
        "keep-alive" => true,
        _ => default,
    }
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
        let keeps = |head: &str| parsed(head).map(|(said, _)| said.keeps);
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
