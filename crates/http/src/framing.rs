//! The framing of a request's body (RFC 9112 §6.3), and the client's expectation of `100 Continue`.

use crate::error::Error;

/// How the server finds the end of a request's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    #[default]
    None,
    /// The Content-Length, in bytes; may be 0.
    Length(u64),
    /// A chunked body.
    Chunked,
}

/// The interim response that the client expects before it sends the body (RFC 9110 §10.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expectation {
    /// No interim response.
    #[default]
    None,
    /// `100-continue`.
    Continue,
}

impl Expectation {
    /// Parses an Expect field, a list. Returns None for a list with an unknown expectation. Empty list elements are ignored
    /// (RFC 9110 §5.6.1.2).
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let members = value.split(|byte| *byte == b',').map(|member| member.trim_ascii());
        members.filter(|member| !member.is_empty()).try_fold(Expectation::None, |_, member| {
            member.eq_ignore_ascii_case(b"100-continue").then_some(Expectation::Continue)
        })
    }
}

/// Parses a Content-Length: digits only (RFC 9110 §8.6). Lists, signs and blanks are rejected, because parsers disagree
/// about them.
pub(crate) fn content_length(value: &[u8]) -> Result<u64, Error> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Error::Framing);
    }
    value.iter().try_fold(0_u64, |sum, digit| {
        sum.checked_mul(10)
            .and_then(|sum| sum.checked_add(u64::from(digit - b'0')))
            .ok_or(Error::BodyTooLarge)
    })
}

/// Parses a Transfer-Encoding: only `chunked` alone, in any case, is accepted (RFC 9112 §6.1). Empty list elements are
/// ignored (RFC 9110 §5.6.1.2).
///
/// Without `chunked` as the last coding, the length is unknown: 400. Other codings before `chunked` are unsupported: 501.
pub(crate) fn transfer_encoding(value: &[u8]) -> Result<Framing, Error> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(Framing::Chunked);
    }
    let codings = value.split(|byte| *byte == b',').map(|coding| coding.trim_ascii());
    let mut codings = codings.filter(|coding| !coding.is_empty());
    let last_is_chunked = codings.next_back().is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    let (mut before, mut repeated) = (0, false);
    for coding in codings {
        before += 1;
        repeated |= coding.eq_ignore_ascii_case(b"chunked");
    }
    match (last_is_chunked && !repeated, before) {
        (false, _) => Err(Error::Framing),
        (true, 0) => Ok(Framing::Chunked),
        (true, _) => Err(Error::NotImplemented),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expectation_is_a_list_in_which_only_100_continue_counts() {
        for nothing in [&b""[..], b",", b" ,\t, "] {
            assert_eq!(Expectation::parse(nothing), Some(Expectation::None), "{nothing:?}");
        }
        for good in [&b"100-continue"[..], b"100-Continue,", b", 100-continue", b"100-continue ,100-CONTINUE"]
        {
            assert_eq!(Expectation::parse(good), Some(Expectation::Continue), "{good:?}");
        }
        for bad in [&b"x"[..], b"100-continue, x", b"x,100-continue", b"100-continue;a=b", b"100-continue=1"]
        {
            assert_eq!(Expectation::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn content_length_is_digits_only() {
        assert_eq!(content_length(b"0"), Ok(0));
        assert_eq!(content_length(b"00042"), Ok(42));
        assert_eq!(content_length(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(content_length(b"18446744073709551616"), Err(Error::BodyTooLarge));
        for bad in [&b""[..], b"+1", b"-1", b"1 ", b"1,1", b"0x10", b"1_0", b"5;"] {
            assert_eq!(content_length(bad), Err(Error::Framing), "{bad:?}");
        }
    }

    #[test]
    fn chunked_alone_is_accepted_whatever_its_case() {
        assert_eq!(transfer_encoding(b"chunked"), Ok(Framing::Chunked));
        for good in [&b"ChUnKeD"[..], b", chunked", b"chunked,", b" ,\t,chunked , "] {
            assert_eq!(transfer_encoding(good), Ok(Framing::Chunked), "{good:?}");
        }
    }

    #[test]
    fn other_codings_are_refused() {
        assert_eq!(transfer_encoding(b"gzip, chunked"), Err(Error::NotImplemented));
        assert_eq!(transfer_encoding(b"gzip,,chunked,"), Err(Error::NotImplemented));
        for bad in [&b""[..], b",", b"gzip", b"identity", b"chunked, gzip", b"chunked, chunked", b"xchunked"]
        {
            assert_eq!(transfer_encoding(bad), Err(Error::Framing), "{bad:?}");
        }
    }
}
