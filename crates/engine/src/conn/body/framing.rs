//! Where a body ends, and what may follow it.

use std::os::fd::BorrowedFd;

use fastrack_http::{ChunkedDecoder, Error, Framing, Status};

use crate::conn::read_buf::ReadBuf;
use crate::settings::Settings;

/// What one receive of a long body asks for, in bytes.
pub(super) const LONG_READ: usize = 64 * 1024;

/// A receive asks for this much more than is left of the body, to notice what should not be there: more than a CRLF.
pub(super) const BEYOND: usize = 3;

/// What the next receive asks for when `left` bytes of the body are still to come.
pub(super) fn next_read(left: u64) -> usize {
    usize::try_from(left).unwrap_or(LONG_READ).saturating_add(BEYOND).min(LONG_READ)
}

pub(super) fn check_length(length: u64, most: Option<u64>) -> Result<(), Error> {
    match most {
        Some(most) if length > most => Err(Error::BodyTooLarge),
        _ => Ok(()),
    }
}

/// Decodes chunks and passes the data to `out`. Adds to `total` and checks it against the longest body allowed. Returns
/// how many bytes were used.
pub(super) fn decode(
    decoder: &mut ChunkedDecoder,
    bytes: &[u8],
    total: &mut u64,
    most: Option<u64>,
    mut out: impl FnMut(&[u8]),
) -> Result<(Status, usize), Error> {
    decoder.decode(bytes, |data| {
        *total += data.len() as u64;
        check_length(*total, most)?;
        out(data);
        Ok(())
    })
}

/// Whether another request may follow on this connection.
pub(super) fn may_be_followed(buf: &ReadBuf, settings: &Settings) -> bool {
    settings.keep_alive && buf.head.is_persistent()
}

/// Checks what was received after a body. On a connection that goes on it is the next request. On one that closes it is an
/// error: it could be a smuggled request. Only a CRLF is allowed, which old clients send (RFC 9112 §2.2).
pub(super) fn check_beyond(beyond: &[u8], may_be_followed: bool) -> Result<(), Error> {
    if may_be_followed || matches!(beyond, b"" | b"\r" | b"\r\n") {
        Ok(())
    } else {
        Err(Error::Framing)
    }
}

/// Whether the application is to read the body itself: at least part of it is still to come. Fails if what has come is
/// wrong.
pub(in crate::conn) fn will_stream(buf: &ReadBuf, settings: &Settings) -> Result<bool, Error> {
    let received = &buf.bytes[buf.head.len..];
    match buf.head.framing {
        Framing::None | Framing::Length(0) => Ok(false),
        Framing::Length(length) => {
            check_length(length, settings.max_body)?;
            Ok((received.len() as u64) < length)
        }
        Framing::Chunked => {
            let mut decoder = ChunkedDecoder::default();
            let (status, _) = decode(&mut decoder, received, &mut 0, settings.max_body, |_| {})?;
            Ok(status == Status::Partial)
        }
    }
}

/// Sends 100 Continue (RFC 9110 §15.2.1). If it fails, the client sends the body anyway after a while, or goes away.
pub(in crate::conn) fn send_continue(fd: BorrowedFd<'_>) {
    let _ = fastrack_sys::send(fd, b"HTTP/1.1 100 Continue\r\n\r\n");
}
