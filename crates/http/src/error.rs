//! What can be wrong with a request, and the status that answers it.

use std::fmt;

/// Why a request was refused before the application saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The request line or a field line breaks the grammar of RFC 9112 §3 or §5.
    Syntax,
    /// The body's length cannot be told for certain (RFC 9112 §6.3).
    Framing,
    /// A chunk header, chunk end or trailer breaks RFC 9112 §7.1.
    Chunk,
    /// Host is missing, repeated or not a host (RFC 9112 §3.2).
    Host,
    /// The request target has none of the forms of RFC 9112 §3.2, or a broken percent triplet.
    Target,
    /// The client took longer than the timeout to send its request.
    Timeout,
    /// The body is longer than the limit.
    BodyTooLarge,
    /// The request target is longer than the limit.
    TargetTooLong,
    /// The header section is larger, or has more fields, than the limit.
    HeadTooLarge,
    /// An expectation other than `100-continue` (RFC 9110 §10.1.1).
    Expectation,
    /// A transfer coding, or a method, that this server does not know (RFC 9112 §6.1).
    NotImplemented,
    /// A version of HTTP other than 1.0 and 1.1.
    Version,
    /// The server could not keep the request's body (no room for the temporary file).
    Storage,
    /// The application failed before it gave a response.
    Application,
    /// The application's process has come to its end before it gave a response.
    Ended,
    /// The application took longer than it may for a request.
    Overdue,
}

impl Error {
    /// The status code that answers this error (RFC 9110 §15).
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
            Error::Storage => 503,
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
            Error::Storage => "no room for the request body",
            Error::Application => "the application failed",
            Error::Ended => "the application has ended",
            Error::Overdue => "the application took too long",
            Error::Version => "unsupported HTTP version",
        };
        out.write_str(text)
    }
}

impl std::error::Error for Error {}
