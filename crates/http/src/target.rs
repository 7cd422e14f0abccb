//! The request target (RFC 9112 §3.2).

use memchr::{memchr, memchr2};

use crate::error::Error;

/// The parts of a request target, borrowed from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// The path, still percent-encoded; `*` for the asterisk-form.
    pub path: &'a [u8],
    /// What stands between `?` and `#`, without them; empty when there is none.
    pub query: &'a [u8],
    /// The authority of an absolute-form target, which outranks Host (RFC 9112 §3.2.2).
    pub authority: Option<&'a [u8]>,
}

impl<'a> Target<'a> {
    /// Takes a target apart.
    ///
    /// A fragment does not belong in a target; as Rhebok and Puma do, it is
    /// cut off rather than shown to the application.
    pub fn parse(raw: &'a [u8]) -> Result<Self, Error> {
        match raw {
            [b'/', ..] => Ok(Self::split(raw, None)),
            b"*" => Ok(Target { path: raw, query: b"", authority: None }),
            _ => Self::absolute(raw),
        }
    }

    fn split(raw: &'a [u8], authority: Option<&'a [u8]>) -> Self {
        let Some(at) = memchr2(b'?', b'#', raw) else {
            return Target { path: raw, query: b"", authority };
        };
        let (path, rest) = raw.split_at(at);
        let query = if rest[0] == b'?' {
            let rest = &rest[1..];
            &rest[..memchr(b'#', rest).unwrap_or(rest.len())]
        } else {
            b""
        };
        Target { path, query, authority }
    }

    fn absolute(raw: &'a [u8]) -> Result<Self, Error> {
        let scheme = [&b"http://"[..], b"https://"]
            .into_iter()
            .find(|scheme| raw.len() > scheme.len() && raw[..scheme.len()].eq_ignore_ascii_case(scheme))
            .ok_or(Error::Target)?;
        let rest = &raw[scheme.len()..];
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        // User information in an http URI is to be treated as an error (RFC 9110 §4.2.4).
        if authority.is_empty() || !is_authority(authority) {
            return Err(Error::Target);
        }
        let mut target = Self::split(path, Some(authority));
        if target.path.is_empty() {
            target.path = b"/";
        }
        Ok(target)
    }
}

/// Whether bytes can be a host and a port (RFC 3986 §3.2.2, §3.2.3): none stands outside their grammar, so that
/// nothing that is built from them means something else elsewhere. Empty is allowed (RFC 9110 §7.2).
pub(crate) fn is_authority(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| {
        matches!(byte,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'%' | b':' | b'[' | b']'
            | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
    })
}

/// Decodes percent triplets (RFC 3986 §2.1) into `out`, which is emptied first.
///
/// Fails on a `%` that is not followed by two hexadecimal digits.
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
    fn asterisk_form_stands_for_itself() {
        assert_eq!(parts("*"), ("*", "", None));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in
            ["", "a", "a:80", "http://", "http:///a", "ftp://a/", "http://u@a/", "http://a,b\\c/", "*a", "?a"]
        {
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
