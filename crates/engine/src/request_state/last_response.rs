//! What a client gets when the process ends in the middle of its request.

use std::os::fd::BorrowedFd;

use fastrack_http::{error_response, Date, DateCache, Error};
use fastrack_sys::{
    discard_input, epoch_seconds, is_readable, is_writable, reset_on_close, send, shutdown_write,
};

use super::active_request::{ActiveRequest, Claim};

/// The most that is read of what a client has sent, in bytes: it may go on sending.
const DRAINED: usize = 64 * 1024;

/// No prepared response is longer, in bytes: it is dated in a copy on the stack.
const LONGEST: usize = 512;

/// An error response that a signal handler can send: it is prepared in advance.
#[derive(Debug)]
pub(crate) struct LastResponse {
    head: Vec<u8>,
    whole: Vec<u8>,
}

impl LastResponse {
    pub fn new(error: Error) -> Self {
        let response = |with_body| {
            let mut bytes = Vec::new();
            error_response(error, DateCache::default().at(0), with_body, &mut bytes);
            bytes
        };
        LastResponse { head: response(false), whole: response(true) }
    }

    /// Sends it to the client of a taken request; resets it if a response has begun. Async-signal-safe.
    pub fn send(&self, request: &ActiveRequest, claim: Claim) {
        if claim == Claim::Begun {
            // A reset would discard it.
            request.send_last();
        }
        let prepared = if request.is_head_request() { &self.head } else { &self.whole };
        request.with_client(|client| {
            if claim == Claim::Begun {
                // If it fails the client sees an orderly close; nothing better is possible.
                let _ = reset_on_close(client);
                return;
            }
            if claim == Claim::Open {
                send_dated(client, prepared);
            }
            // Fails for a client that is gone.
            let _ = shutdown_write(client);
        });
    }

    /// Sends it on a connection of which no more is known than that nobody looks after it, if its client has sent something
    /// that nobody has read. If a part of a response `is_unsent`, or on its way, it is reset. Async-signal-safe.
    pub fn send_unseen(&self, client: BorrowedFd<'_>, is_unsent: bool) {
        if is_unsent || !is_writable(client) {
            let _ = reset_on_close(client);
        } else if is_readable(client) {
            send_dated(client, &self.whole);
            let _ = shutdown_write(client);
            drain(client);
        }
    }

    /// [Drains](drain) the client of a taken request.
    pub fn drain(request: &ActiveRequest) {
        request.with_client(drain);
    }
}

fn send_dated(client: BorrowedFd<'_>, prepared: &[u8]) {
    let mut bytes = [0; LONGEST];
    let bytes = &mut bytes[..prepared.len().min(LONGEST)];
    bytes.copy_from_slice(&prepared[..bytes.len()]);
    set_date(bytes);
    // It fits into any socket's send buffer. A client whose buffer is full gets nothing.
    let _ = send(client, bytes);
}

/// Reads what is there: a close with unread data could lose the response. Async-signal-safe.
pub(crate) fn drain(client: BorrowedFd<'_>) {
    let mut left = DRAINED;
    while left > 0 {
        match discard_input(client) {
            Ok(got) if got > 0 => left = left.saturating_sub(got),
            _ => return,
        }
    }
}

fn set_date(response: &mut [u8]) {
    const FIELD: &[u8] = b"\r\nDate: ";
    let Some(at) = response.windows(FIELD.len()).position(|window| window == FIELD) else { return };
    let old: Option<&mut Date> = response[at + FIELD.len()..].first_chunk_mut();
    if let Some(old) = old {
        *old = *DateCache::default().at(epoch_seconds());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_the_date_of_its_second() {
        assert!(LastResponse::new(Error::Overdue).whole.len() < LONGEST);
        let mut bytes = LastResponse::new(Error::Ended).whole;
        assert!(bytes.len() < LONGEST);
        let before = bytes.len();
        set_date(&mut bytes);
        let text = String::from_utf8(bytes).expect("text");
        let today = String::from_utf8(DateCache::default().at(epoch_seconds()).to_vec()).expect("text");
        assert!(text.starts_with("HTTP/1.1 502 Bad Gateway\r\nDate: ") && !text.contains("1970"), "{text}");
        assert_eq!((text.len(), text.contains(&today[..16])), (before, true));
    }
}
