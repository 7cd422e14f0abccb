//! The head of a request: request line and field lines (RFC 9112 §3, §5).

use std::mem::MaybeUninit;
use std::ops::Range;

use memchr::memchr;

use crate::error::{Error, Status};
use crate::field_name::{KnownName, MAX_FIELD_NAME_LEN};
use crate::framing::{self, Expectation, Framing};
use crate::limits::{as_http_11, incomplete, Limits, MAX_METHOD_LEN, STACK_FIELDS};
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

/// The persistence that the Connection fields ask for (RFC 9110 §7.6.1). Of several options, the greatest variant applies.
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

/// Whether a Connection field names Upgrade.
fn names_upgrade(value: &[u8]) -> bool {
    // Most values are `keep-alive` or `close`.
    value.iter().any(|byte| byte.eq_ignore_ascii_case(&b'u'))
        && value
            .split(|byte| *byte == b',')
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

/// A range of the buffer that a head was parsed from. Unlike a slice, the range stays valid when the buffer grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The span of `part` in `whole`. Empty if `part` is not a slice of `whole`.
    pub(crate) fn of(part: &[u8], whole: &[u8]) -> Span {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        match (u32::try_from(start), u32::try_from(start.wrapping_add(part.len()))) {
            (Ok(start), Ok(end)) if end as usize <= whole.len() => Span { start, end },
            _ => Span::default(),
        }
    }

    /// The index of its first byte.
    pub fn start(self) -> usize {
        self.start as usize
    }

    /// The bytes of `buffer` in this span. Empty if `buffer` is too short.
    pub fn of_buffer(self, buffer: &[u8]) -> &[u8] {
        buffer.get(Range::from(self)).unwrap_or_default()
    }
}

impl From<Span> for Range<usize> {
    fn from(span: Span) -> Self {
        span.start as usize..span.end as usize
    }
}

/// A parsed head.
///
/// A head has spans of the buffer rather than slices: a connection can store the head until the body has arrived, and
/// reuse its memory for the next request.
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
    /// The authority of an absolute-form target. Overrides Host (RFC 9112 §3.2.2).
    pub authority: Option<Span>,
    /// The version in the request line.
    pub version: Version,
    /// The field lines in the order in which they were sent.
    pub fields: Vec<Field>,
    /// How the server finds the end of the body.
    pub framing: Framing,
    /// The interim response that the client expects before it sends the body.
    pub expectation: Expectation,
    connection: ConnectionOption,
    /// Whether a Connection field names Upgrade.
    names_upgrade: bool,
    /// The known names among the fields, one bit each.
    known: u64,
    /// The length of the head with its empty line, in bytes: the offset of the body.
    pub len: usize,
    /// Whether two fields may have the same environment key: a name is repeated, or contains an underscore. If false, no
    /// environment key is set twice.
    pub has_duplicate_env_keys: bool,
}

impl Head {
    /// Parses the head at the start of `buffer`.
    ///
    /// Stricter than httparse: accepts only heads with one possible meaning, see [`rules`](crate::rules). A prefix of a
    /// request is Partial, or is rejected for the same reason as the whole. After an error the contents of the head are
    /// undefined.
    pub fn parse(&mut self, buffer: &[u8], limits: Limits) -> Result<Status, Error> {
        let mut few = [const { MaybeUninit::uninit() }; STACK_FIELDS];
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
        if method.len() > MAX_METHOD_LEN {
            return Err(Error::NotImplemented);
        }
        if target.len() > limits.target {
            return Err(Error::TargetTooLong);
        }
        // read_fields checks the ends of the other lines.
        if !window[..len].ends_with(b"\r\n\r\n") {
            return Err(Error::Syntax);
        }
        self.read_target(target.as_bytes(), buffer)?;
        self.version = if version == 0 { Version::Http10 } else { Version::Http11 };
        self.read_fields(request.headers, buffer)?;
        Ok(Status::Complete)
    }

    /// Takes the target that the server's own proxy has received, which is a part of `buffer`, in place of the one that it has sent.
    pub fn replace_target(&mut self, raw: &[u8], buffer: &[u8]) -> Result<(), Error> {
        self.read_target(raw, buffer)
    }

    fn read_target(&mut self, raw: &[u8], buffer: &[u8]) -> Result<(), Error> {
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
        self.target = Span::of(&raw[..raw.len() - target.fragment_len], buffer);
        self.path = Span::of(target.path, buffer);
        self.query = Span::of(target.query, buffer);
        self.authority = target.authority.map(|authority| Span::of(authority, buffer));
        Ok(())
    }

    /// One pass over the fields: positions, known names and framing.
    fn read_fields(&mut self, fields: &[httparse::Header<'_>], buffer: &[u8]) -> Result<(), Error> {
        self.fields.clear();
        self.framing = Framing::None;
        self.expectation = Expectation::None;
        self.has_duplicate_env_keys = false;
        self.connection = ConnectionOption::None;
        self.names_upgrade = false;
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
                    self.has_duplicate_env_keys |= repeated;
                    self.read_known(known, field.value, repeated)?;
                }
                None if name.len() > MAX_FIELD_NAME_LEN => return Err(Error::HeadTooLarge),
                None => {
                    self.has_duplicate_env_keys |=
                        memchr(b'_', name).is_some() || self.has_unknown(name, buffer);
                }
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

    fn read_known(&mut self, known: KnownName, value: &[u8], repeated: bool) -> Result<(), Error> {
        match known {
            KnownName::ContentLength if repeated => return Err(Error::Framing),
            KnownName::TransferEncoding if repeated => return Err(Error::Framing),
            KnownName::Host if repeated || !target::is_authority(value) => return Err(Error::Host),
            KnownName::ContentLength => self.framing = Framing::Length(framing::content_length(value)?),
            KnownName::TransferEncoding => self.framing = framing::transfer_encoding(value)?,
            KnownName::Connection => {
                self.connection = self.connection.max(ConnectionOption::parse(value));
                self.names_upgrade |= names_upgrade(value);
            }
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

    /// Whether the client asks for another protocol on this connection (RFC 9110 §7.8), which HTTP/1.0 cannot.
    pub(crate) fn asks_for_change(&self) -> bool {
        self.version == Version::Http11 && self.has(KnownName::Upgrade) && self.names_upgrade
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
mod tests;
