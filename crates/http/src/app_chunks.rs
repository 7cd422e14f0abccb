//! A response's body that the application has encoded in chunks itself.

use crate::chunked::ChunkedDecoder;
use crate::error::Error;
use crate::status::Status;

/// Capacity that is kept between bodies, in bytes.
const KEPT: usize = 64 * 1024;

/// Follows the application's chunks, so that it is known whether the client sees the end of them.
#[derive(Debug, Default)]
pub struct AppChunks {
    decoder: ChunkedDecoder,
    /// The data of the last part.
    data: Vec<u8>,
    is_complete: bool,
}

impl AppChunks {
    /// Begins a body.
    pub fn start(&mut self) {
        self.data.clear();
        self.data.shrink_to(KEPT);
        self.decoder = ChunkedDecoder::default();
        self.is_complete = false;
    }

    /// Whether the last chunk has come.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Takes in the next part of the body, and returns what of it a client of HTTP/1.1 gets: all but what follows the last
    /// chunk. Fails if it is not in chunks.
    pub fn check<'p>(&mut self, part: &'p [u8]) -> Result<&'p [u8], Error> {
        let (status, length) = self.decoder.decode(part, |_| Ok::<(), Error>(()))?;
        self.is_complete = status == Status::Complete;
        Ok(&part[..length])
    }

    /// Takes in the next part of the body, and returns the data in it. Fails if it is not in chunks.
    pub fn decode(&mut self, part: &[u8]) -> Result<&[u8], Error> {
        let AppChunks { decoder, data, .. } = self;
        data.clear();
        let (status, _) = decoder.decode(part, |bytes| {
            data.extend_from_slice(bytes);
            Ok::<(), Error>(())
        })?;
        self.is_complete = status == Status::Complete;
        Ok(&self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_checked_or_decoded_in_parts_of_any_length() {
        let body = b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nT: x\r\n\r\n";
        let mut chunks = AppChunks::default();
        for length in 1..=body.len() + 1 {
            chunks.start();
            let (mut checked, mut decoded) = (Vec::new(), Vec::new());
            for part in body.chunks(length) {
                assert!(!chunks.is_complete());
                checked.extend_from_slice(chunks.check(part).expect("chunks"));
            }
            assert!(chunks.is_complete());
            chunks.start();
            body.chunks(length)
                .for_each(|part| decoded.extend_from_slice(chunks.decode(part).expect("chunks")));
            assert!(chunks.is_complete());
            assert_eq!((&checked[..], &decoded[..]), (&body[..], &b"hello world"[..]));
        }
    }

    #[test]
    fn what_follows_the_last_chunk_is_not_sent() {
        let mut chunks = AppChunks::default();
        assert_eq!(chunks.check(b"0\r\n\r\nHTTP/1.1 200 OK\r\n"), Ok(&b"0\r\n\r\n"[..]));
        assert_eq!(chunks.check(b"more"), Ok(&b""[..]));
        chunks.start();
        assert_eq!(chunks.decode(b"1\r\na\r\n0\r\n\r\n1\r\nb\r\n"), Ok(&b"a"[..]));
        assert!(chunks.is_complete());
    }

    #[test]
    fn what_is_not_in_chunks_is_refused() {
        for body in [&b"hello"[..], b"5\r\nhello world", b"5\nhello\n"] {
            let mut chunks = AppChunks::default();
            assert!(chunks.check(body).is_err());
            chunks.start();
            assert!(chunks.decode(body).is_err());
        }
    }
}
