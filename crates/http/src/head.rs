//! The head of a request: request line and field lines (RFC 9112 §3, §5).

use std::mem::MaybeUninit;

use memchr::memchr;

use crate::error::Error;
use crate::field_name::{KnownName, MAX_NAME};
use crate::framing::{self, Expectation, Framing};
use crate::limits::{as_http_11, incomplete, Limits, FEW_FIELDS, MAX_METHOD};
use crate::span::Span;
use crate::status::Status;
use crate::target::{self, Target};

/// The supported versions of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
}

/// One field line.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name as it was sent.
    pub name: Span,
    /// The value, trimmed.
    pub value: Span,
    /// Set for common names.
    pub known: Option<KnownName>,
}

/// What the Connection fields ask for (RFC 9110 §7.6.1). Of several options, the last of these applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionOption {
    #[default]
    None,
    KeepAlive,
    Close,
}

impl ConnectionOption {
    fn parse(value: &[u8]) -> Self {
        let parse = |option: &[u8]| match option.trim_ascii() {
            option if option.eq_ignore_ascii_case(b"close") => Self::Close,
            option if option.eq_ignore_ascii_case(b"keep-alive") => Self::KeepAlive,
            _ => Self::None,
        };
        value.split(|byte| *byte == b',').map(parse).max().unwrap_or_default()
    }
}

/// A parsed head.
///
/// It holds positions in the buffer rather than slices, so that a connection can keep it while it waits for the body,
/// and reuse its memory for the next request.
#[derive(Debug, Default)]
pub struct Head {
    /// The method.
    pub method: Span,
    /// The request target as it was sent, without a fragment.
    pub target: Span,
    /// The path of the target, still percent-encoded; empty for `/`.
    path: Span,
    /// The query of the target, without its question mark.
    pub query: Span,
    /// The authority of an absolute-form target; it overrides Host (RFC 9112 §3.2.2).
    pub authority: Option<Span>,
    /// The version in the request line.
    pub version: Version,
    /// The field lines in the order in which they were sent.
    pub fields: Vec<Field>,
    /// How the end of the body is found.
    pub framing: Framing,
    /// What the client waits for before it sends the body.
    pub expectation: Expectation,
    connection: ConnectionOption,
    /// The known names among the fields, one bit each.
    known: u64,
    /// The length of the head in bytes, including its empty line: the body starts here.
    pub len: usize,
    /// Whether two fields may have the same environment key: a name is repeated, or contains an underscore. If not, the
    /// environment can be filled without looking for earlier values.
    pub clashes: bool,
}

impl Head {
    /// Parses the head at the start of `buffer`.
    ///
    /// Stricter than httparse: accepts only what has one meaning, see [`rules`](crate::rules). A prefix of a request is
    /// Partial, or is rejected for the same reason as the whole. After an error the contents of the head are undefined.
    pub fn parse(&mut self, buffer: &[u8], limits: Limits) -> Result<Status, Error> {
        let mut few = [const { MaybeUninit::uninit() }; FEW_FIELDS];
        let parsed = match few.get_mut(..limits.fields) {
            Some(fields) => self.parse_into(fields, buffer, limits),
            None => self.parse_into(&mut vec![MaybeUninit::uninit(); limits.fields], buffer, limits),
        };
        match parsed {
            Err(Error::Version) => match as_http_11(buffer) {
                Some(copy) => self.parse_into(&mut vec![MaybeUninit::uninit(); limits.fields], &copy, limits),
                None => parsed,
            },
            parsed => parsed,
        }
    }

    fn parse_into<'b>(
        &mut self,
        fields: &mut [MaybeUninit<httparse::Header<'b>>],
        buffer: &'b [u8],
        limits: Limits,
    ) -> Result<Status, Error> {
        // Bytes past the limit cannot complete a valid head.
        let window = &buffer[..buffer.len().min(limits.head)];
        let mut request = httparse::Request::new(&mut []);
        // Checks the grammar of RFC 9112 §3 and §5, except for the ends of lines.
        let parsed =
            httparse::ParserConfig::default().parse_request_with_uninit_headers(&mut request, window, fields);
        let (Ok(httparse::Status::Complete(len)), Some(method), Some(target), Some(version)) =
            (parsed, request.method, request.path, request.version)
        else {
            return incomplete(parsed, &request, window, limits);
        };
        self.len = len;
        self.method = Span::of(method.as_bytes(), buffer);
        if !matches!(&buffer[..self.method.start()], b"" | b"\r\n") {
            return Err(Error::Syntax);
        }
        if method.len() > MAX_METHOD {
            return Err(Error::NotImplemented);
        }
        if target.len() > limits.target {
            return Err(Error::TargetTooLong);
        }
        // For the ends of the other lines, see take_fields.
        if !window[..len].ends_with(b"\r\n\r\n") {
            return Err(Error::Syntax);
        }
        self.take_target(target.as_bytes(), buffer)?;
        self.version = if version == 0 { Version::Http10 } else { Version::Http11 };
        self.take_fields(request.headers, buffer)?;
        Ok(Status::Complete)
    }

    fn take_target(&mut self, raw: &[u8], buffer: &[u8]) -> Result<(), Error> {
        let method = self.method.of_buffer(buffer);
        // Tunnels are for proxies (RFC 9110 §9.3.6).
        if method == b"CONNECT" {
            return Err(Error::NotImplemented);
        }
        let target = Target::parse(raw)?;
        // Only OPTIONS may address the server as a whole (RFC 9112 §3.2.4).
        if target.path == b"*" && method != b"OPTIONS" {
            return Err(Error::Target);
        }
        self.target = Span::of(&raw[..raw.len() - target.fragment], buffer);
        self.path = Span::of(target.path, buffer);
        self.query = Span::of(target.query, buffer);
        self.authority = target.authority.map(|authority| Span::of(authority, buffer));
        Ok(())
    }

    /// One pass over the fields: positions, known names and framing.
    fn take_fields(&mut self, fields: &[httparse::Header<'_>], buffer: &[u8]) -> Result<(), Error> {
        self.fields.clear();
        self.framing = Framing::None;
        self.expectation = Expectation::None;
        self.clashes = false;
        self.connection = ConnectionOption::None;
        self.known = 0;
        for field in fields {
            let name = field.name.as_bytes();
            let place = Span::of(name, buffer);
            // httparse lets the previous line end in a bare LF; RFC 9112 §2.2 wants a CR before it.
            if buffer.get(place.start().wrapping_sub(2)) != Some(&b'\r') {
                return Err(Error::Syntax);
            }
            let known = KnownName::find(name);
            match known {
                Some(known) => {
                    let repeated = self.has(known);
                    self.known |= known.bit();
                    self.clashes |= repeated;
                    self.take_known(known, field.value, repeated)?;
                }
                None if name.len() > MAX_NAME => return Err(Error::HeadTooLarge),
                None => self.clashes |= memchr(b'_', name).is_some() || self.has_unknown(name, buffer),
            }
            self.fields.push(Field { name: place, value: Span::of(field.value, buffer), known });
        }
        let is_chunked = self.has(KnownName::TransferEncoding);
        if is_chunked && (self.has(KnownName::ContentLength) || self.version == Version::Http10) {
            return Err(Error::Framing);
        }
        if !self.has(KnownName::Host) && self.version == Version::Http11 {
            return Err(Error::Host);
        }
        Ok(())
    }

    fn take_known(&mut self, known: KnownName, value: &[u8], repeated: bool) -> Result<(), Error> {
        match known {
            KnownName::ContentLength if repeated => return Err(Error::Framing),
            KnownName::TransferEncoding if repeated => return Err(Error::Framing),
            KnownName::Host if repeated || !target::is_authority(value) => return Err(Error::Host),
            KnownName::ContentLength => self.framing = Framing::Length(framing::content_length(value)?),
            KnownName::TransferEncoding => self.framing = framing::transfer_encoding(value)?,
            KnownName::Connection => self.connection = self.connection.max(ConnectionOption::parse(value)),
            // In HTTP/1.0, Expect has no meaning (RFC 9110 §10.1.1).
            KnownName::Expect if self.version == Version::Http11 => {
                let expectation = Expectation::parse(value).ok_or(Error::Expectation)?;
                self.expectation = self.expectation.max(expectation);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the head has a field of this name.
    pub fn has(&self, name: KnownName) -> bool {
        self.known & name.bit() != 0
    }

    /// The value of the first field of this name.
    pub fn value(&self, name: KnownName) -> Option<Span> {
        if !self.has(name) {
            return None;
        }
        self.fields.iter().find(|field| field.known == Some(name)).map(|field| field.value)
    }

    fn has_unknown(&self, name: &[u8], buffer: &[u8]) -> bool {
        self.fields
            .iter()
            .filter(|field| field.known.is_none())
            .any(|field| field.name.of_buffer(buffer).eq_ignore_ascii_case(name))
    }

    /// Whether the client wants to keep the connection open after the response (RFC 9112 §9.3).
    pub fn is_persistent(&self) -> bool {
        match self.version {
            Version::Http11 => self.connection != ConnectionOption::Close,
            Version::Http10 => self.connection == ConnectionOption::KeepAlive,
        }
    }

    /// The request line as it was sent, without its line end.
    pub fn request_line<'b>(&self, buffer: &'b [u8]) -> &'b [u8] {
        let end = self.fields.first().map_or(self.len - 4, |field| field.name.start() - 2);
        buffer.get(self.method.start()..end).unwrap_or_default()
    }

    /// The path of the target, still percent-encoded.
    pub fn path<'b>(&self, buffer: &'b [u8]) -> &'b [u8] {
        match self.path.of_buffer(buffer) {
            // An absolute-form target may have no path (RFC 9110 §4.2.3).
            b"" => b"/",
            path => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(Status, Head), Error> {
        let mut head = Head::default();
        head.parse(text.as_bytes(), Limits::default()).map(|status| (status, head))
    }

    fn refused(text: &str) -> Option<Error> {
        parse(text).err()
    }

    const BROWSER: &str =
        "GET /a?b HTTP/1.1\r\nHost: h\r\nX-One:  two \r\nAccept: */*\r\nX-One: 3\r\n\r\nrest";

    #[test]
    fn a_whole_head_gives_its_parts() {
        let (status, head) = parse(BROWSER).expect("valid");
        let at = |span: Span| std::str::from_utf8(span.of_buffer(BROWSER.as_bytes())).expect("utf-8");
        assert_eq!(status, Status::Complete);
        assert_eq!((at(head.method), at(head.target)), ("GET", "/a?b"));
        assert_eq!(head.request_line(BROWSER.as_bytes()), b"GET /a?b HTTP/1.1");
        assert_eq!(head.version, Version::Http11);
        assert_eq!(&BROWSER[head.len..], "rest");
        let fields: Vec<_> =
            head.fields.iter().map(|field| (at(field.name), at(field.value), field.known)).collect();
        assert_eq!(fields[0], ("Host", "h", Some(KnownName::Host)));
        assert_eq!(fields[1], ("X-One", "two", None));
        assert_eq!(fields[2], ("Accept", "*/*", Some(KnownName::Accept)));
        assert!(head.clashes);
    }

    #[test]
    fn the_target_is_taken_apart() {
        let parts = |target: &str| {
            let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
            let (_, head) = parse(&text).expect("valid");
            let at = |span: Span| String::from_utf8(span.of_buffer(text.as_bytes()).to_vec()).expect("utf-8");
            let path = String::from_utf8(head.path(text.as_bytes()).to_vec()).expect("utf-8");
            (path, at(head.query), head.authority.map(at))
        };
        assert_eq!(parts("/a%20b?c=d"), ("/a%20b".into(), "c=d".into(), None));
        assert_eq!(parts("http://a:1?c"), ("/".into(), "c".into(), Some("a:1".into())));
        for (sent, target) in [("/a?b#c?d", "/a?b"), ("/#", "/"), ("/?#", "/?"), ("http://a#b", "http://a")] {
            let text = format!("\r\nGET {sent} HTTP/1.0\r\n\r\n");
            let (_, head) = parse(&text).expect("valid");
            assert_eq!(head.target.of_buffer(text.as_bytes()), target.as_bytes());
            assert_eq!(head.request_line(text.as_bytes()), format!("GET {sent} HTTP/1.0").as_bytes());
        }
        assert_eq!(refused("GET a HTTP/1.1\r\nHost: h\r\n\r\n"), Some(Error::Target));
    }

    #[test]
    fn a_field_name_too_long_for_a_key_is_refused() {
        let long = "a".repeat(MAX_NAME + 1);
        assert_eq!(
            refused(&format!("GET / HTTP/1.1\r\nHost: h\r\n{long}: b\r\n\r\n")),
            Some(Error::HeadTooLarge)
        );
    }

    #[test]
    fn every_prefix_of_a_valid_head_is_partial() {
        let end = BROWSER.len() - "rest".len();
        for cut in 0..end {
            let (status, _) = parse(&BROWSER[..cut]).expect("a prefix is never an error");
            assert_eq!(status, Status::Partial, "{cut}");
        }
    }

    #[test]
    fn fields_without_repeats_or_underscores_do_not_clash() {
        assert!(!parse("GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nX-B: 2\r\n\r\n").expect("valid").1.clashes);
        assert!(parse("GET / HTTP/1.1\r\nHost: a\r\nX_A: 1\r\n\r\n").expect("valid").1.clashes);
        assert!(parse("GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a: 1\r\n\r\n").expect("valid").1.clashes);
        assert!(
            parse("GET / HTTP/1.1\r\nHost: a\r\nCookie: 1\r\ncookie: 1\r\n\r\n").expect("valid").1.clashes
        );
    }

    #[test]
    fn a_connection_lasts_as_its_version_and_its_fields_say() {
        let persistent = |version: &str, fields: &str| {
            let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
            parse(&text).expect(fields).1.is_persistent()
        };
        assert!(persistent("1.1", ""));
        assert!(!persistent("1.0", ""));
        assert!(persistent("1.0", "Connection: Keep-Alive\r\n"));
        assert!(persistent("1.1", "Connection: Upgrade, HTTP2-Settings\r\n"));
        for version in ["1.0", "1.1"] {
            assert!(!persistent(version, "Connection: foo ,CLOSE\r\n"));
            assert!(!persistent(version, "Connection: close\r\nConnection: keep-alive\r\n"));
            assert!(!persistent(version, "Connection: keep-alive\r\nConnection: close\r\n"));
        }
    }

    #[test]
    fn framing_and_expectation_are_read_without_case() {
        let framing =
            |fields: &str| parse(&format!("POST / HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n")).expect(fields).1;
        assert_eq!(framing("content-LENGTH: 12").framing, Framing::Length(12));
        assert_eq!(framing("transfer-encoding: Chunked").framing, Framing::Chunked);
        assert_eq!(framing("EXPECT: 100-Continue").expectation, Expectation::Continue);
        assert_eq!(framing("X: y").framing, Framing::None);
    }

    #[test]
    fn what_could_mean_two_things_is_refused() {
        let request = |fields: &str| refused(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
        assert_eq!(request("Content-Length: 1\r\nTransfer-Encoding: chunked"), Some(Error::Framing));
        assert_eq!(request("Transfer-Encoding: chunked\r\nContent-Length: 1"), Some(Error::Framing));
        assert_eq!(request("Content-Length: 1\r\nContent-Length: 2"), Some(Error::Framing));
        assert_eq!(request("Content-Length: 1\r\nContent-Length: 1"), Some(Error::Framing));
        assert_eq!(request("Content-Length: 1, 1"), Some(Error::Framing));
        assert_eq!(request("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), Some(Error::Framing));
        assert_eq!(request("Transfer-Encoding: gzip, chunked"), Some(Error::NotImplemented));
        assert_eq!(request("Host: b"), Some(Error::Host));
        for host in ["", ":80", "a b", "a/b", "a@b", "<a>", "a\\b", "a,b#"] {
            assert_eq!(
                refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")),
                Some(Error::Host),
                "{host}"
            );
        }
        for host in ["a", "a.b:80", "[::1]:80", "a_b-c~%41!$&'()*+,;="] {
            assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")), None, "{host}");
        }
        assert_eq!(refused("GET * HTTP/1.1\r\nHost: a\r\n\r\n"), Some(Error::Target));
        assert_eq!(refused("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), None);
        assert_eq!(request("Expect: the-unexpected"), Some(Error::Expectation));
        assert_eq!(request("Content-Length : 1"), Some(Error::Syntax));
        assert_eq!(request("X: a\rb"), Some(Error::Syntax));
        assert_eq!(request("X: a\0b"), Some(Error::Syntax));
        assert_eq!(request("X: a\r\n folded"), Some(Error::Syntax));
        assert_eq!(refused("GET / HTTP/1.1\r\nX: y\r\n\r\n"), Some(Error::Host));
        assert_eq!(refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Some(Error::Framing));
        assert_eq!(refused("GET / HTTP/1.0\r\n\r\n"), None);
        assert_eq!(refused("GET / HTTP/1.0\r\nExpect: the-unexpected\r\n\r\n"), None);
    }

    #[test]
    fn versions_and_garbage_are_told_apart() {
        assert_eq!(refused("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), Some(Error::Version));
        for other in ["2.0", "0.9", "3.1"] {
            assert_eq!(refused(&format!("GET / HTTP/{other}\r\nHost: a\r\n\r\n")), Some(Error::Version));
        }
        for bad in ["1", "1.", "01.01", "1.x", "1.10", "2", "2.", "x"] {
            assert_eq!(
                refused(&format!("GET / HTTP/{bad}\r\nHost: a\r\n\r\n")),
                Some(Error::Syntax),
                "{bad}"
            );
        }
        let (_, head) = parse("GET /a?b HTTP/1.7\r\nHost: a\r\n\r\n").expect("as HTTP/1.1");
        assert_eq!((head.version, head.len, head.fields.len()), (Version::Http11, 30, 1));
        assert_eq!(refused("GET / FTP/1.1\r\nHost: a\r\n\r\n"), Some(Error::Syntax));
        assert_eq!(refused("\x16\x03\x01\x02\x00"), Some(Error::Syntax));
        assert_eq!(refused("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), Some(Error::Syntax));
    }
}
