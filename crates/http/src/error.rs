//! The results of parsing: complete, partial, or an error with its status code.

use std::fmt;

/// Whether a parser has all the bytes it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The value is parsed.
    Complete,
    /// Valid so far; read more bytes and try again.
    Partial,
}

/// Why the server responds to a request itself, instead of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The request line or a field line breaks the grammar of RFC 9112 §3 or §5.
    Syntax,
    /// The body's length is missing or ambiguous (RFC 9112 §6.3).
    Framing,
    /// A chunk header, chunk end or trailer breaks RFC 9112 §7.1.
    Chunk,
    /// Host is missing, repeated or malformed (RFC 9112 §3.2).
    Host,
    /// The request target has none of the forms of RFC 9112 §3.2, or a broken percent triplet.
    Target,
    /// The client took too long to send its request.
    Timeout,
    /// The body is longer than the limit.
    BodyTooLarge,
    /// The request target is longer than the limit.
    TargetTooLong,
    /// The header section is larger, or has more fields, than the limit.
    HeadTooLarge,
    /// An expectation other than `100-continue` (RFC 9110 §10.1.1).
    Expectation,
    /// An unsupported transfer coding or method (RFC 9112 §6.1).
    NotImplemented,
    /// An unsupported major version of HTTP.
    Version,
    /// The request's body could not be stored: no space for the temporary file.
    Storage,
    /// The request's body could not be stored: no file descriptor is free.
    Descriptors,
    /// There is no memory for the request.
    Memory,
    /// The request waited too long for the application.
    Overload,
    /// The application raised before it responded.
    Application,
    /// The worker ends before the request has arrived whole, and no other worker takes the rest.
    Ended,
    /// The application exceeded the request timeout.
    Overdue,
}

impl Error {
    /// The status code of the response (RFC 9110 §15).
    pub fn status(self) -> u16 {
        match self {
            Error::Syntax | Error::Framing | Error::Chunk | Error::Host | Error::Target => 400,
            Error::Timeout => 408,
            Error::BodyTooLarge => 413,
            Error::TargetTooLong => 414,
            Error::Expectation => 417,
            Error::HeadTooLarge => 431,
            Error::NotImplemented => 501,
            Error::Application => 500,
            Error::Ended => 502,
            Error::Storage | Error::Descriptors | Error::Memory | Error::Overload => 503,
            Error::Overdue => 504,
            Error::Version => 505,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Error::Syntax => "malformed request line or header",
            Error::Framing => "ambiguous body length",
            Error::Chunk => "malformed chunked body",
            Error::Host => "missing or repeated Host",
            Error::Target => "malformed request target",
            Error::Timeout => "request took too long",
            Error::BodyTooLarge => "body too large",
            Error::TargetTooLong => "request target too long",
            Error::Expectation => "unknown expectation",
            Error::HeadTooLarge => "header section too large",
            Error::NotImplemented => "unknown transfer coding or method",
            Error::Storage | Error::Descriptors => "no room for the request body",
            Error::Memory => "no memory for the request",
            Error::Overload => "the server is overloaded",
            Error::Application => "the application failed",
            Error::Ended => "the application has ended",
            Error::Overdue => "the application took too long",
            Error::Version => "unsupported HTTP version",
        };
        out.write_str(text)
    }
}

impl std::error::Error for Error {}

/// Why a response field of the application cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// The name is not a token (RFC 9110 §5.6.2).
    Name,
    /// The value contains a control byte, such as CR, LF or NUL (RFC 9110 §5.5).
    Value,
}

impl FieldError {
    /// The problem, worded to follow the field's name.
    pub fn text(self) -> &'static str {
        match self {
            FieldError::Name => "is not a valid header name",
            FieldError::Value => "has a value with CR, LF or another control byte in it",
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.text())
    }
}

impl std::error::Error for FieldError {}
