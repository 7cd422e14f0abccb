//! A response body that the application has encoded in chunks itself.

use crate::chunked::ChunkedDecoder;
use crate::error::{Error, Status};

/// Capacity of the buffer between bodies, in bytes.
const KEPT_CAPACITY: usize = 64 * 1024;

/// Parses the application's chunks, to know whether the client receives the last one.
#[derive(Debug, Default)]
pub struct AppChunks {
    decoder: ChunkedDecoder,
    /// The decoded data of the last part.
    data: Vec<u8>,
    is_complete: bool,
}

impl AppChunks {
    /// Starts a new body.
    pub fn start(&mut self) {
        self.data.clear();
        self.data.shrink_to(KEPT_CAPACITY);
        self.decoder = ChunkedDecoder::default();
        self.is_complete = false;
    }

    /// Whether the last chunk was complete.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Checks the next part of the body. Returns the bytes for a client of HTTP/1.1: all up to the end of the last chunk.
    /// Fails if the body is not a valid series of chunks.
    pub fn check<'p>(&mut self, part: &'p [u8]) -> Result<&'p [u8], Error> {
        let (status, length) = self.decoder.decode(part, |_| Ok::<(), Error>(()))?;
        self.is_complete = status == Status::Complete;
        Ok(&part[..length])
    }

    /// Decodes the next part of the body, and returns its data. Fails if the body is not a valid series of chunks.
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
    fn bytes_after_the_last_chunk_are_not_sent() {
        let mut chunks = AppChunks::default();
        assert_eq!(chunks.check(b"0\r\n\r\nHTTP/1.1 200 OK\r\n"), Ok(&b"0\r\n\r\n"[..]));
        assert_eq!(chunks.check(b"more"), Ok(&b""[..]));
        chunks.start();
        assert_eq!(chunks.decode(b"1\r\na\r\n0\r\n\r\n1\r\nb\r\n"), Ok(&b"a"[..]));
        assert!(chunks.is_complete());
    }

    #[test]
    fn a_body_that_is_not_in_chunks_is_refused() {
        for body in [&b"hello"[..], b"5\r\nhello world", b"5\nhello\n"] {
            let mut chunks = AppChunks::default();
            assert!(chunks.check(body).is_err());
            chunks.start();
            assert!(chunks.decode(body).is_err());
        }
    }
}
