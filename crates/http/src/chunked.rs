//! Chunked bodies (RFC 9112 §7.1): a strict decoder, and the bytes around an encoded chunk.

use crate::bytes::is_tchar;
use crate::chunk_extension::Extension;
use crate::error::{Error, Status};

/// Limit of the bytes of a body besides its data, in bytes: size lines with their extensions, and trailers.
const MAX_OVERHEAD: usize = 8 * 1024;

/// Overhead that each chunk may add to [`MAX_OVERHEAD`], in bytes: a long upload in small chunks is valid.
const OVERHEAD_PER_CHUNK: usize = 16;

/// The part of the body that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The hexadecimal size; true after its first digit.
    Size(bool),
    /// A chunk extension, which is ignored.
    Extension(Extension),
    /// The LF that ends the size line.
    SizeEnd,
    /// The data of a chunk.
    Data,
    /// The CR after the data.
    DataCr,
    /// The LF after the data.
    DataLf,
    /// The start of a trailer line or of the empty last line.
    TrailerStart,
    /// The name of a trailer field, which is ignored.
    TrailerName,
    /// The value of a trailer field, which is ignored.
    Trailer,
    /// The LF that ends a trailer line.
    TrailerLf,
    /// The LF that ends the body.
    LastLf,
    Done,
}

/// Decodes a chunked body piece by piece.
///
/// Lines must end in CRLF, and size lines must have no white space. Trailers are ignored: merged into the headers, trailers
/// would let a client set any field late (RFC 9110 §6.5.1).
#[derive(Debug)]
pub struct ChunkedDecoder {
    state: State,
    /// Bytes of the current chunk that have not arrived.
    left: u64,
    /// Bytes besides the data, less [`OVERHEAD_PER_CHUNK`] for each chunk.
    overhead: usize,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        ChunkedDecoder { state: State::Size(false), left: 0, overhead: 0 }
    }
}

impl ChunkedDecoder {
    /// Decodes `input` and passes the data to `sink`. Returns whether the body is complete, and the number of bytes consumed.
    pub fn decode<E: From<Error>>(
        &mut self,
        input: &[u8],
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(Status, usize), E> {
        let mut at = 0;
        while self.state != State::Done {
            let Some(byte) = input.get(at) else {
                return Ok((Status::Partial, at));
            };
            if self.state == State::Data {
                let run = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len() - at);
                sink(&input[at..at + run])?;
                at += run;
                self.left -= run as u64;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
            } else {
                self.state = self.step(*byte)?;
                at += 1;
            }
        }
        Ok((Status::Complete, at))
    }

    /// Bytes that bring a new decoder, in another process, to the state of this one; with at most one byte of data. None if
    /// the body is complete. The new decoder counts its overhead from 0.
    pub fn replay(&self) -> Option<Vec<u8>> {
        let sized = |end: &str| format!("{:x}{end}", self.left);
        let text = match self.state {
            State::Size(false) => String::new(),
            State::Size(true) => sized(""),
            State::Extension(extension) => sized(&format!(";{}", extension.replay())),
            State::SizeEnd => sized("\r"),
            State::Data => sized("\r\n"),
            State::DataCr => "1\r\nx".into(),
            State::DataLf => "1\r\nx\r".into(),
            State::TrailerStart => "0\r\n".into(),
            State::TrailerName => "0\r\na".into(),
            State::Trailer => "0\r\na:".into(),
            State::TrailerLf => "0\r\na:\r".into(),
            State::LastLf => "0\r\n\r".into(),
            State::Done => return None,
        };
        Some(text.into_bytes())
    }

    /// Consumes one byte outside the data.
    fn step(&mut self, byte: u8) -> Result<State, Error> {
        self.overhead += 1;
        if self.overhead > MAX_OVERHEAD {
            return Err(Error::HeadTooLarge);
        }
        match (self.state, byte) {
            (State::Size(_), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                self.left =
                    self.left.checked_mul(16).ok_or(Error::BodyTooLarge)?.saturating_add(u64::from(digit));
                Ok(State::Size(true))
            }
            (State::Size(true), b';') => Ok(State::Extension(Extension::Start)),
            (State::Size(true), b'\r') => Ok(State::SizeEnd),
            (State::Extension(extension), b'\r') if extension.may_end() => Ok(State::SizeEnd),
            (State::Extension(extension), byte) => {
                extension.step(byte).map(State::Extension).ok_or(Error::Chunk)
            }
            (State::SizeEnd, b'\n') if self.left == 0 => Ok(State::TrailerStart),
            (State::SizeEnd, b'\n') => Ok(State::Data),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => {
                self.overhead = self.overhead.saturating_sub(OVERHEAD_PER_CHUNK);
                Ok(State::Size(false))
            }
            (State::TrailerStart, b'\r') => Ok(State::LastLf),
            (State::TrailerStart | State::TrailerName, byte) if is_tchar(byte) => Ok(State::TrailerName),
            (State::TrailerName, b':') => Ok(State::Trailer),
            (State::Trailer, b'\t' | b' '..=b'~' | 0x80..=0xff) => Ok(State::Trailer),
            (State::Trailer, b'\r') => Ok(State::TrailerLf),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::LastLf, b'\n') => Ok(State::Done),
            _ => Err(Error::Chunk),
        }
    }
}

/// The end of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";
/// The last chunk, with the end of the body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The line before the data of a chunk of `len` bytes, written to `out`.
pub fn chunk_size_line(len: u64, out: &mut [u8; 18]) -> &[u8] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut at = out.len() - 2;
    out[at..].copy_from_slice(CHUNK_END);
    let mut rest = len;
    loop {
        at -= 1;
        out[at] = DIGITS[(rest % 16) as usize];
        rest /= 16;
        if rest == 0 {
            return &out[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_size_line_is_hexadecimal() {
        let mut out = [0; 18];
        assert_eq!(chunk_size_line(0, &mut out), b"0\r\n");
        assert_eq!(chunk_size_line(26, &mut out), b"1a\r\n");
        assert_eq!(chunk_size_line(u64::MAX, &mut out), b"ffffffffffffffff\r\n");
    }

    fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, Status, usize), Error> {
        let mut decoder = ChunkedDecoder::default();
        let (mut body, mut status, mut taken) = (Vec::new(), Status::Partial, 0);
        for piece in pieces {
            let (now, used) = decoder.decode(piece, |data| {
                body.extend_from_slice(data);
                Ok::<_, Error>(())
            })?;
            status = now;
            taken += used;
        }
        Ok((body, status, taken))
    }

    #[test]
    fn chunks_are_joined_and_bytes_after_the_body_are_not_consumed() {
        let input = b"5\r\nhello\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\nTrailer: dropped\r\n\r\nGET /";
        let (body, status, taken) = decode(&[input]).expect("valid");
        assert_eq!(body, b"hello0123456789");
        assert_eq!(status, Status::Complete);
        assert_eq!(&input[taken..], b"GET /");
    }

    #[test]
    fn every_prefix_is_partial_and_every_split_gives_the_same_body() {
        let input = b"3;e\r\nabc\r\n1\r\nd\r\n0\r\nA: b\r\n\r\n";
        for cut in 0..input.len() {
            let (_, status, _) = decode(&[&input[..cut]]).expect("a prefix is never an error");
            assert_eq!(status, Status::Partial, "{cut}");
            let (body, status, taken) = decode(&[&input[..cut], &input[cut..]]).expect("valid");
            assert_eq!((body.as_slice(), status, taken), (&b"abcd"[..], Status::Complete, input.len()));
        }
    }

    #[test]
    fn a_new_decoder_can_continue_at_every_byte() {
        let input = b"3;e\r\nabc\r\n1 \r\n".as_slice();
        assert_eq!(decode(&[input]), Err(Error::Chunk));
        let input =
            b"00b;e ; f=g ;h = \"i\\\"\" ;j\r\nhello world\r\n1\r\n!\r\n0\r\nA: b\r\nC:d\r\n\r\n".as_slice();
        for cut in 0..=input.len() {
            let mut before = ChunkedDecoder::default();
            let mut body = Vec::new();
            let mut sink = |data: &[u8]| {
                body.extend_from_slice(data);
                Ok::<_, Error>(())
            };
            before.decode(&input[..cut], &mut sink).expect("valid");
            let Some(replay) = before.replay() else {
                assert_eq!(cut, input.len());
                continue;
            };
            let mut after = ChunkedDecoder::default();
            after.decode(&replay, |_| Ok::<_, Error>(())).expect("valid");
            assert_eq!((after.state, after.left), (before.state, before.left), "{cut}");
            let end = after.decode(&input[cut..], &mut sink).expect("valid");
            assert_eq!(end, (Status::Complete, input.len() - cut));
            assert_eq!(body, b"hello world!");
        }
    }

    #[test]
    fn bad_framing_is_refused() {
        let bad = [
            "\r\n",
            "g\r\n",
            " 5\r\nhello",
            "5 \r\nhello",
            "5\nhello",
            "5\r\nhelloX",
            "5\r\nhello\n",
            "-1\r\n",
            "0x5\r\n",
            "5\r\nhello\r\n\r\n",
            "0\r\n\n",
            "0\r\nA: b\n",
            "5;a\0\r\n",
            "5;\r\n",
            "5;bad[=x\r\n",
            "5;a=\r\n",
            "5;a=\"b\r\n",
            "0\r\nA\0: b\r\n",
            "0\r\nA b\r\n",
            "0\r\nA\r\n",
            "0\r\n A: b\r\n",
            "0\r\n: b\r\n",
            "0\r\nA: b\r\n c\r\n",
            "5\rhello",
        ];
        for input in bad {
            assert_eq!(decode(&[input.as_bytes()]), Err(Error::Chunk), "{input:?}");
        }
        assert_eq!(decode(&[b"fffffffffffffffff\r\n"]), Err(Error::BodyTooLarge));
        assert_eq!(decode(&[format!("5;{}", "x".repeat(9000)).as_bytes()]), Err(Error::HeadTooLarge));
        assert_eq!(
            decode(&[format!("0\r\n{}", "A: b\r\n".repeat(2000)).as_bytes()]),
            Err(Error::HeadTooLarge)
        );
    }

    #[test]
    fn a_long_upload_in_small_chunks_is_not_mistaken_for_an_attack() {
        let input = "a\r\n0123456789\r\n".repeat(20_000) + "0\r\n\r\n";
        assert_eq!(decode(&[input.as_bytes()]).expect("valid").0.len(), 200_000);
    }

    proptest! {
        #[test]
        fn chunked_data_is_decoded_whole(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..9), cut in any::<prop::sample::Index>()) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\n");
            let cut = cut.index(wire.len());
            let (body, status, taken) = decode(&[&wire[..cut], &wire[cut..]]).expect("valid");
            prop_assert_eq!(body, chunks.concat());
            prop_assert_eq!((status, taken), (Status::Complete, wire.len()));
        }

        #[test]
        fn garbage_never_panics_and_never_depends_on_the_split(input in prop::collection::vec(any::<u8>(), 0..64), cut in any::<prop::sample::Index>()) {
            let cut = cut.index(input.len() + 1);
            prop_assert_eq!(decode(&[&input]), decode(&[&input[..cut], &input[cut..]]));
        }
    }
}
