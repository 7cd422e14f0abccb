//! The request target (RFC 9112 §3.2).

use std::net::Ipv6Addr;

use memchr::{memchr, memchr2};

use crate::bytes::is_in_host;
use crate::error::Error;

/// The parts of a request target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// The path, still percent-encoded; `*` for the asterisk-form.
    pub path: &'a [u8],
    /// The part between `?` and `#`; may be empty.
    pub query: &'a [u8],
    /// Length of the fragment with its `#`, in bytes.
    pub fragment_len: usize,
    /// The authority of an absolute-form target. Overrides Host (RFC 9112 §3.2.2).
    pub authority: Option<&'a [u8]>,
}

impl<'a> Target<'a> {
    /// Splits a target. A target must not have a fragment; as in Puma and Unicorn, a fragment is dropped. Fails with
    /// [`Error::Target`].
    pub fn parse(raw: &'a [u8]) -> Result<Self, Error> {
        match raw {
            [b'/', ..] => Ok(Self::split(raw, None)),
            b"*" => Ok(Target { path: raw, query: b"", fragment_len: 0, authority: None }),
            _ => Self::absolute(raw),
        }
    }

    fn split(raw: &'a [u8], authority: Option<&'a [u8]>) -> Self {
        let Some(at) = memchr2(b'?', b'#', raw) else {
            return Target { path: raw, query: b"", fragment_len: 0, authority };
        };
        let (path, rest) = raw.split_at(at);
        let query = if rest[0] == b'?' {
            let rest = &rest[1..];
            &rest[..memchr(b'#', rest).unwrap_or(rest.len())]
        } else {
            b""
        };
        let has_query = usize::from(rest[0] == b'?');
        Target { path, query, fragment_len: rest.len() - has_query - query.len(), authority }
    }

    fn absolute(raw: &'a [u8]) -> Result<Self, Error> {
        let scheme = [&b"http://"[..], b"https://"]
            .into_iter()
            .find(|scheme| raw.len() > scheme.len() && raw[..scheme.len()].eq_ignore_ascii_case(scheme))
            .ok_or(Error::Target)?;
        let rest = &raw[scheme.len()..];
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        // User information is an error in http URIs (RFC 9110 §4.2.4).
        if !is_authority(authority) {
            return Err(Error::Target);
        }
        let mut target = Self::split(path, Some(authority));
        if target.path.is_empty() {
            target.path = b"/";
        }
        Ok(target)
    }
}

/// Whether `bytes` are a host with an optional port (RFC 9110 §7.2, RFC 3986 §3.2.2 and §3.2.3). An empty host is an error
/// in http URIs (RFC 9110 §4.2.1). In brackets, only an IPv6 address without a zone is accepted.
pub fn is_authority(bytes: &[u8]) -> bool {
    let (host_is_valid, port) = match bytes {
        [b'[', rest @ ..] => match memchr(b']', rest) {
            Some(end) => (is_ipv6(&rest[..end]), &rest[end + 1..]),
            None => return false,
        },
        _ => {
            let end = bytes.iter().position(|byte| !is_in_host(*byte)).unwrap_or(bytes.len());
            let port = &bytes[end..];
            if port.first() == Some(&b'%') {
                return is_escaped_authority(bytes);
            }
            (end > 0, port)
        }
    };
    host_is_valid && is_port(port)
}

/// Host and port of a valid authority. A missing port is empty. An IPv6 address keeps its brackets.
pub fn split_authority(bytes: &[u8]) -> (&[u8], &[u8]) {
    // Digits at the end, after a colon, are a port: an IPv6 address ends in a bracket.
    match bytes.iter().rposition(|byte| !byte.is_ascii_digit()) {
        Some(colon) if bytes[colon] == b':' => (&bytes[..colon], &bytes[colon + 1..]),
        _ => (bytes, b""),
    }
}

/// Whether `bytes` are a colon and digits, or empty.
fn is_port(bytes: &[u8]) -> bool {
    match bytes {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// [`is_authority`] for a percent-encoded host, which is rare.
#[cold]
fn is_escaped_authority(bytes: &[u8]) -> bool {
    let mut decoded = Vec::new();
    let end = memchr(b':', bytes).unwrap_or(bytes.len());
    let (name, port) = bytes.split_at(end);
    let is_name = name.iter().all(|byte| is_in_host(*byte) || *byte == b'%');
    is_name && percent_decode(name, &mut decoded).is_ok() && is_port(port)
}

fn is_ipv6(address: &[u8]) -> bool {
    std::str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// Replaces the contents of `out` by the percent-decoded `path` (RFC 3986 §2.1). Fails with [`Error::Target`] if two
/// hexadecimal digits do not follow a `%`.
pub fn percent_decode(path: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    out.clear();
    let mut rest = path;
    while let Some(at) = memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        let digit = |index: usize| rest.get(index).and_then(|byte| (*byte as char).to_digit(16));
        let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else {
            return Err(Error::Target);
        };
        out.push((high * 16 + low) as u8);
        rest = &rest[at + 3..];
    }
    out.extend_from_slice(rest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(raw: &str) -> (&str, &str, Option<&str>) {
        let text = |bytes| std::str::from_utf8(bytes).expect("utf-8");
        let target = Target::parse(raw.as_bytes()).expect(raw);
        (text(target.path), text(target.query), target.authority.map(text))
    }

    #[test]
    fn origin_form_is_split_at_the_question_mark() {
        assert_eq!(parts("/"), ("/", "", None));
        assert_eq!(parts("/a%20b?c=d?e"), ("/a%20b", "c=d?e", None));
        assert_eq!(parts("//x"), ("//x", "", None));
        assert_eq!(parts("/a#b?c"), ("/a", "", None));
        assert_eq!(parts("/a?b#c"), ("/a", "b", None));
        assert_eq!(parts("/?"), ("/", "", None));
    }

    #[test]
    fn absolute_form_gives_its_path_and_authority() {
        assert_eq!(parts("http://a:80/b?c"), ("/b", "c", Some("a:80")));
        assert_eq!(parts("HTTPS://a"), ("/", "", Some("a")));
        assert_eq!(parts("http://a?b"), ("/", "b", Some("a")));
    }

    #[test]
    fn an_authority_is_split_at_the_colon_before_its_port() {
        for (authority, host, port) in [
            ("a", "a", ""),
            ("a:", "a", ""),
            ("a.b:80", "a.b", "80"),
            ("80", "80", ""),
            ("127.0.0.1", "127.0.0.1", ""),
            ("127.0.0.1:1", "127.0.0.1", "1"),
            ("[::1]", "[::1]", ""),
            ("[::1]:", "[::1]", ""),
            ("[2001:db8::192.0.2.1]:443", "[2001:db8::192.0.2.1]", "443"),
            ("a%20b:8", "a%20b", "8"),
        ] {
            assert!(is_authority(authority.as_bytes()), "{authority}");
            assert_eq!(
                split_authority(authority.as_bytes()),
                (host.as_bytes(), port.as_bytes()),
                "{authority}"
            );
        }
    }

    #[test]
    fn an_authority_is_a_host_and_a_port() {
        for good in [
            "a",
            "a:",
            "a:80",
            "127.0.0.1:1",
            "[::1]",
            "[2001:db8::192.0.2.1]:443",
            "a%20b",
            "a%C3%A9:80",
            "a_b,c",
            "%41",
        ] {
            assert!(is_authority(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":",
            ":80",
            "a:b",
            "a:80:80",
            "[::1",
            "::1",
            "[::1]a",
            "[a]",
            "[::1%25eth0]",
            "[]",
            "a]",
            "a%",
            "a%2",
            "a%zz",
            "a%41/b",
            "a%41\u{e9}",
            "a%41:b",
            "u@a",
            "a/b",
            "a b",
            "a\\b",
            "caf\u{e9}",
            "a:8 0",
            "a:+80",
        ] {
            assert!(!is_authority(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn asterisk_form_stands_for_itself() {
        assert_eq!(parts("*"), ("*", "", None));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "a",
            "a:80",
            "http://",
            "http:///a",
            "ftp://a/",
            "http://u@a/",
            "http://:80/",
            "http://a,b\\c/",
            "*a",
            "?a",
        ] {
            assert_eq!(Target::parse(bad.as_bytes()), Err(Error::Target), "{bad}");
        }
    }

    #[test]
    fn triplets_are_decoded_and_broken_ones_refused() {
        let mut out = Vec::new();
        percent_decode(b"/a%2Fb%e3%81", &mut out).expect("valid");
        assert_eq!(out, b"/a/b\xe3\x81");
        for bad in ["/%", "/%2", "/%zz", "/%2g"] {
            assert_eq!(percent_decode(bad.as_bytes(), &mut out), Err(Error::Target), "{bad}");
        }
    }
}
