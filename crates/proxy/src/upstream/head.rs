//! Heads of HTTP/1.1 between this process and a worker.

use std::fmt;
use std::mem::MaybeUninit;

use hyper::body::Bytes;
use hyper::ext::ReasonPhrase;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request;
use hyper::http::response::Parts;
use hyper::{Response, StatusCode, Version};

use super::framing::Framing;

/// Fields of a response, at most.
const MOST_FIELDS: usize = 1024;

/// Why a response makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// The head of a request, as a worker gets it.
pub fn encode(parts: &request::Parts) -> Bytes {
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let fields = &parts.headers;
    let length: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let mut head = Vec::with_capacity(parts.method.as_str().len() + target.len() + length + 16);
    for part in [parts.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    fields.iter().for_each(|(name, value)| write_field(&mut head, name, value));
    head.extend_from_slice(b"\r\n");
    head.into()
}

/// Writes a line of a head, or a trailer.
pub fn write_field(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// The head of a response.
#[derive(Debug)]
pub struct Head {
    /// Its status and fields.
    pub parts: Parts,
    /// Where its body ends.
    pub framing: Framing,
    /// Whether the connection can carry another request after the body.
    pub persists: bool,
}

impl Head {
    /// The head at the beginning of these bytes, and its length; None: it is not whole. `is_head`: the request was HEAD.
    pub fn parse(bytes: &Bytes, is_head: bool) -> Result<Option<(Self, usize)>, Malformed> {
        let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(&mut response, bytes, &mut fields)
            .map_err(|error| Malformed(reason(error)))?;
        let httparse::Status::Complete(length) = parsed else { return Ok(None) };
        let mut parts = Response::new(()).into_parts().0;
        parts.status = status(response.code)?;
        parts.version = if response.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
        let phrase = response.reason.filter(|phrase| Some(*phrase) != parts.status.canonical_reason());
        if let Some(Ok(phrase)) = phrase.map(|phrase| ReasonPhrase::try_from(phrase.as_bytes())) {
            parts.extensions.insert(phrase);
        }
        parts.headers = field_map(response.headers, bytes)?;
        let framing = Framing::of(&parts, is_head)?;
        let is_tunnel = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        let persists = persists(&parts) && framing != Framing::Close && !is_tunnel;
        Ok(Some((Head { parts, framing, persists }, length)))
    }
}

fn status(code: Option<u16>) -> Result<StatusCode, Malformed> {
    code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(Malformed("invalid status"))
}

/// The fields of a parsed head or of trailers, as parts of these bytes.
pub fn field_map(fields: &[httparse::Header<'_>], bytes: &Bytes) -> Result<HeaderMap, Malformed> {
    let mut map = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        let (Ok(name), Ok(value)) = (name, value) else { return Err(Malformed("invalid field")) };
        map.append(name, value);
    }
    Ok(map)
}

fn reason(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::TooManyHeaders => "too many fields",
        httparse::Error::Status => "invalid status",
        httparse::Error::Version => "invalid version",
        _ => "invalid field",
    }
}

/// Whether the connection stays open (RFC 9112 §9.3).
fn persists(parts: &Parts) -> bool {
    let has = |option: &str| {
        let values = parts.headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(option))
    };
    !has("close") && (parts.version == Version::HTTP_11 || has("keep-alive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &'static str) -> Result<Option<(Head, usize)>, Malformed> {
        Head::parse(&Bytes::from_static(head.as_bytes()), false)
    }

    #[test]
    fn a_head_is_whole_after_its_empty_line() {
        let text = "HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nA: b\r\n\r\nhi";
        for end in 0..text.len() - 2 {
            assert!(parse(&text[..end]).expect("no error").is_none(), "{end}");
        }
        let (head, length) = parse(text).expect("no error").expect("whole");
        assert_eq!(length, text.len() - 2);
        assert_eq!(head.parts.headers["a"], "b");
        assert_eq!(
            head.parts.extensions.get::<ReasonPhrase>().map(ReasonPhrase::as_bytes),
            Some(&b"Fine"[..])
        );
        assert!(head.persists);
    }

    #[test]
    fn a_connection_persists_unless_the_head_says_otherwise() {
        for (head, persists) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", true),
            ("HTTP/1.1 204 No Content\r\nConnection: a, Close\r\n\r\n", false),
            ("HTTP/1.0 204 No Content\r\n\r\n", false),
            ("HTTP/1.0 204 No Content\r\nConnection: keep-alive\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\n\r\n", false),
        ] {
            let (parsed, _) = parse(head).expect("no error").expect("whole");
            assert_eq!(parsed.persists, persists, "{head}");
        }
    }

    #[test]
    fn what_is_no_response_is_an_error() {
        for head in [
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA B: c\r\n\r\n",
            "hello\r\n\r\n",
        ] {
            assert!(parse(head).is_err(), "{head}");
        }
    }
}
