//! Limits of a request's head, and the result for an incomplete head: partial, too large or invalid.

use crate::bytes::{is_in_target, is_tchar};
use crate::error::{Error, Status};

/// Number of fields that the stack has room for. With a higher limit, fields are parsed on the heap.
pub(crate) const STACK_FIELDS: usize = 128;

/// Maximum length of a method, in bytes: more than twice the longest registered method.
pub(crate) const MAX_METHOD_LEN: usize = 32;

/// Limits of a request's head. For the status codes see [`rules`](crate::rules).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The request target, in bytes.
    pub target: usize,
    /// Request line and header section together, in bytes.
    pub head: usize,
    /// Number of field lines.
    pub fields: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { target: 16 * 1024, head: 64 * 1024, fields: STACK_FIELDS }
    }
}

impl Limits {
    /// Limits for a request that the server's own proxy has judged by these ones, and to which it has added fields, and the target once more.
    pub fn behind_proxy(self) -> Self {
        let head = self.head.saturating_mul(3).saturating_add(4096);
        Limits { target: self.target.saturating_mul(3), head, fields: self.fields.saturating_add(8) }
    }
}

/// The result for a head that httparse did not complete.
///
/// A limit exceeded before the first syntax error takes precedence over the error: the bytes up to the error would have
/// had the same result.
#[cold]
pub(crate) fn incomplete(
    parsed: httparse::Result<usize>,
    request: &httparse::Request<'_, '_>,
    window: &[u8],
    limits: Limits,
) -> Result<Status, Error> {
    let empty = window.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    // A lone CR may be the start of an empty line.
    if !matches!(&window[..empty], b"" | b"\r\n") && window != b"\r" {
        return Err(Error::Syntax);
    }
    let method = request.method.map(str::len);
    if method.map_or_else(|| is_longer(window, empty, MAX_METHOD_LEN, is_tchar), |len| len > MAX_METHOD_LEN) {
        return Err(Error::NotImplemented);
    }
    let target = empty + method.unwrap_or(0) + 1;
    let path = request.path.map(str::len);
    let is_too_long = || method.is_some() && is_longer(window, target, limits.target, is_in_target);
    if path.map_or_else(is_too_long, |len| len > limits.target) {
        return Err(Error::TargetTooLong);
    }
    match parsed {
        Err(httparse::Error::TooManyHeaders) => Err(Error::HeadTooLarge),
        Err(httparse::Error::Version) => {
            match VersionText::of(window.get(target + path.unwrap_or(0) + 1..).unwrap_or_default()) {
                VersionText::Major | VersionText::HigherMinor => Err(Error::Version),
                VersionText::Prefix if window.len() < limits.head => Ok(Status::Partial),
                _ => Err(Error::Syntax),
            }
        }
        Err(_) => Err(Error::Syntax),
        Ok(_) if window.len() < limits.head => Ok(Status::Partial),
        Ok(_) if path.is_none() => Err(Error::TargetTooLong),
        Ok(_) => Err(Error::HeadTooLarge),
    }
}

/// Whether the word that starts at `start` has more than `max` bytes.
fn is_longer(buffer: &[u8], start: usize, max: usize, is_in_word: fn(u8) -> bool) -> bool {
    buffer.get(start..=start + max).is_some_and(|word| word.iter().all(|byte| is_in_word(*byte)))
}

/// The text in the place of the version. A version is `HTTP/`, a digit, a point, a digit (RFC 9112 §2.3).
#[derive(Debug, PartialEq, Eq)]
enum VersionText {
    /// HTTP/1.2 to HTTP/1.9: read as HTTP/1.1 (RFC 9110 §2.5).
    HigherMinor,
    /// Another major version.
    Major,
    /// An incomplete version.
    Prefix,
    /// Not a version.
    Other,
}

impl VersionText {
    fn of(text: &[u8]) -> Self {
        let fits = |(byte, expected): (&u8, &u8)| match expected {
            b'0' => byte.is_ascii_digit(),
            _ => byte == expected,
        };
        match text {
            _ if !text.iter().zip(b"HTTP/0.0").all(fits) => VersionText::Other,
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', ..] if text.len() >= 8 => VersionText::HigherMinor,
            _ if text.len() >= 8 => VersionText::Major,
            _ => VersionText::Prefix,
        }
    }
}

/// A copy of a head of HTTP/1.2 to HTTP/1.9, with HTTP/1.1 as its version (RFC 9110 §2.5); None for other versions. Only
/// test suites send such heads.
#[cold]
pub(crate) fn as_http_11(buffer: &[u8]) -> Option<Vec<u8>> {
    let mut spaces = buffer.iter().enumerate().filter(|(_, byte)| **byte == b' ');
    let version = spaces.nth(1)?.0 + 1;
    if VersionText::of(&buffer[version..]) != VersionText::HigherMinor {
        return None;
    }
    let mut copy = buffer.to_vec();
    copy[version + 7] = b'1';
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Head;

    fn answer(text: &str, limits: Limits) -> Result<Status, Error> {
        Head::default().parse(text.as_bytes(), limits)
    }

    fn refused(text: &str) -> Option<Error> {
        answer(text, Limits::default()).err()
    }

    #[test]
    fn limits_hold_for_whole_and_for_unfinished_heads() {
        let long = "a".repeat(16 * 1024);
        let wide = "a".repeat(64 * 1024);
        assert_eq!(refused(&format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")), Some(Error::TargetTooLong));
        assert_eq!(refused(&format!("GET /{long}{long}")), Some(Error::TargetTooLong));
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {wide}")), Some(Error::HeadTooLarge));
        assert_eq!(
            refused(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {wide}\r\n\r\n")),
            Some(Error::HeadTooLarge)
        );
        let many = "X: y\r\n".repeat(128);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")), Some(Error::HeadTooLarge));
        let fits = "X: y\r\n".repeat(127);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fits}\r\n")), None);
    }

    #[test]
    fn limits_are_configurable() {
        let head = |fields| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(fields));
        for fields in [1, 3, 128, 129, 300] {
            let limits = Limits { fields, ..Limits::default() };
            assert_eq!(answer(&head(fields - 1), limits), Ok(Status::Complete), "{fields}");
            assert_eq!(answer(&head(fields), limits), Err(Error::HeadTooLarge), "{fields}");
        }
        let whole = head(5);
        let limits = |head| Limits { head, ..Limits::default() };
        assert_eq!(answer(&whole, limits(whole.len())), Ok(Status::Complete));
        assert_eq!(answer(&whole, limits(whole.len() - 1)), Err(Error::HeadTooLarge));
        let limits = |target| Limits { target, ..Limits::default() };
        assert_eq!(answer("GET /abc HTTP/1.0\r\n\r\n", limits(4)), Ok(Status::Complete));
        assert_eq!(answer("GET /abcd HTTP/1.0\r\n\r\n", limits(4)), Err(Error::TargetTooLong));
        assert_eq!(answer("GET /abc", limits(4)), Ok(Status::Partial));
        assert_eq!(answer("GET /abcd", limits(4)), Err(Error::TargetTooLong));
    }
}
