//! The end of a body, and the bytes that may follow.

use std::os::fd::BorrowedFd;

use fastrack_http::{ChunkedDecoder, Error, Framing, Head, Status};
use fastrack_sys::append;

use crate::conn::read_buf::ReadBuf;
use crate::settings::Settings;

/// The size of one receive of a long body, in bytes.
const LONG_READ_SIZE: usize = 64 * 1024;

/// Bytes after the end of a body that a receive asks for, to notice more than the CRLF that may follow.
pub(super) const TRAILING_PEEK: usize = 3;

/// The framing of a body, with the decoder's position.
#[derive(Debug)]
pub(in crate::conn) enum Frame {
    /// The body ends after this number of further bytes.
    Length(u64),
    /// The body ends with the last chunk. The number is the decoded length so far, in bytes.
    Chunked(Box<ChunkedDecoder>, u64),
}

impl Frame {
    pub(super) fn of(head: &Head) -> Self {
        match head.framing {
            Framing::None => Frame::Length(0),
            Framing::Length(length) => Frame::Length(length),
            Framing::Chunked => Frame::Chunked(Box::default(), 0),
        }
    }

    /// Fails if the known length of the body exceeds `max`.
    pub(super) fn check_length(&self, max: Option<u64>) -> Result<(), Error> {
        let (Frame::Length(length) | Frame::Chunked(_, length)) = self;
        check_length(*length, max)
    }

    /// The input for [`resume`](Self::resume) that brings another frame to this position; None at the end of the body.
    pub(in crate::conn) fn replay(&self) -> Option<Vec<u8>> {
        match self {
            Frame::Length(0) => None,
            Frame::Length(_) => Some(Vec::new()),
            Frame::Chunked(decoder, _) => decoder.replay(),
        }
    }

    /// Whether the body is complete.
    pub(super) fn is_at_end(&self) -> bool {
        self.replay().is_none()
    }

    /// Continues after another process has received `taken` bytes of the body's data.
    pub(super) fn resume(&mut self, taken: u64, replay: &[u8]) -> Result<(), Error> {
        match self {
            Frame::Length(left) => *left = left.checked_sub(taken).ok_or(Error::Framing)?,
            Frame::Chunked(decoder, length) => {
                *length = taken;
                decoder.decode(replay, |_| Ok::<_, Error>(()))?;
            }
        }
        Ok(())
    }

    pub(super) fn next_read(&self) -> usize {
        match self {
            Frame::Length(left) => usize::try_from(*left)
                .unwrap_or(LONG_READ_SIZE)
                .saturating_add(TRAILING_PEEK)
                .min(LONG_READ_SIZE),
            Frame::Chunked(..) => LONG_READ_SIZE,
        }
    }

    /// Appends the body's data in `bytes` to `out`. Returns whether the body is complete, and the number of used bytes.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        max: Option<u64>,
        out: &mut Vec<u8>,
    ) -> Result<(Status, usize), Error> {
        match self {
            Frame::Length(left) => {
                let used = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                append(out, &bytes[..used]).map_err(|_| Error::Memory)?;
                *left -= used as u64;
                Ok((if *left == 0 { Status::Complete } else { Status::Partial }, used))
            }
            Frame::Chunked(decoder, length) => decoder.decode(bytes, |data| {
                *length += data.len() as u64;
                check_length(*length, max)?;
                append(out, data).map_err(|_| Error::Memory)
            }),
        }
    }
}

fn check_length(length: u64, max: Option<u64>) -> Result<(), Error> {
    match max {
        Some(max) if length > max => Err(Error::BodyTooLarge),
        _ => Ok(()),
    }
}

/// Whether the client may send another request on this connection (RFC 9112 §9.3.2), even if the server will close the
/// connection after this response.
pub(super) fn may_be_followed(buf: &ReadBuf) -> bool {
    buf.head.is_persistent()
}

/// Checks the bytes after a body. On a persistent connection they are the next request. Before a close they could be a
/// smuggled request, so only a CRLF is allowed, which old clients send (RFC 9112 §2.2).
pub(super) fn check_after_body(after: &[u8], may_be_followed: bool) -> Result<(), Error> {
    if may_be_followed || matches!(after, b"" | b"\r" | b"\r\n") {
        Ok(())
    } else {
        Err(Error::Framing)
    }
}

/// Whether a part of the body has not arrived. Fails if the received part is invalid.
pub(in crate::conn) fn will_stream(buf: &ReadBuf, settings: &Settings) -> Result<bool, Error> {
    let received = &buf.bytes[buf.head.len..];
    let mut frame = Frame::of(&buf.head);
    frame.check_length(settings.max_body)?;
    let (status, _) = frame.take(received, settings.max_body, &mut Vec::new())?;
    Ok(status == Status::Partial)
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Sends 100 Continue (RFC 9110 §15.2.1). After a failure the client sends the body anyway after a while, or
/// disconnects.
pub(in crate::conn) fn send_continue(fd: BorrowedFd<'_>) {
    end_if_cut(fd, fastrack_sys::send(fd, CONTINUE).unwrap_or(0));
}

/// Ends the connection if the socket accepted only a part of 100 Continue: the client would read the start of the
/// response as its rest.
fn end_if_cut(fd: BorrowedFd<'_>, sent: usize) {
    if (1..CONTINUE.len()).contains(&sent) {
        // This fails if the client is gone.
        let _ = fastrack_sys::shutdown_both(fd);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn nothing_follows_a_part_of_100_continue() {
        for sent in 0..=CONTINUE.len() {
            let (mut client, server) = UnixStream::pair().expect("a pair");
            client.set_nonblocking(true).expect("nonblocking");
            end_if_cut(server.as_fd(), sent);
            let ended = matches!(client.read(&mut [0]), Ok(0));
            assert_eq!(ended, sent > 0 && sent < CONTINUE.len(), "{sent} bytes");
            if !ended {
                send_continue(server.as_fd());
                let mut bytes = [0; CONTINUE.len()];
                client.read_exact(&mut bytes).expect("all of it");
                assert_eq!(bytes, CONTINUE);
                assert_eq!(client.read(&mut [0]).expect_err("no more").kind(), ErrorKind::WouldBlock);
            }
        }
    }
}
