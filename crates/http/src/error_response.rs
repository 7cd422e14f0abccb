//! The response to a rejected request.

use crate::date::Date;
use crate::error::Error;
use crate::response::{Persistence, ResponseHead};
use crate::status_code::reason;

/// Retry-After of an overloaded server, in seconds (RFC 9110 §10.2.3).
const RETRY_AFTER: &[u8] = b"1";

/// Appends a complete response for `error` to `out`.
pub fn error_response(error: Error, date: &Date, with_body: bool, out: &mut Vec<u8>) {
    let body = error_body(error);
    let mut head = ResponseHead::default();
    head.start(error.status());
    // The constants are valid fields: `field` cannot fail.
    let _ = head.field(b"Content-Type", b"text/plain");
    if error == Error::Overload {
        let _ = head.field(b"Retry-After", RETRY_AFTER);
    }
    head.frame_length(body.len() as u64);
    head.write(date, Persistence::Close, out);
    if with_body {
        out.extend_from_slice(body.as_bytes());
    }
}

/// The body of the response for `error`.
pub fn error_body(error: Error) -> String {
    let code = error.status();
    format!("{code} {}: {error}\n", reason(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_response_says_its_length_and_closes() {
        let mut out = Vec::new();
        error_response(Error::HeadTooLarge, b"Sun, 06 Nov 1994 08:49:37 GMT", true, &mut out);
        let text = String::from_utf8(out).expect("utf-8");
        let (head, body) = text.split_once("\r\n\r\n").expect("a whole head");
        assert!(head.starts_with("HTTP/1.1 431 "), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        assert!(head.ends_with("Connection: close"), "{head}");
    }
}
