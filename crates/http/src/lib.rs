//! HTTP/1.x without I/O: bytes in, values out.
//!
//! Nothing here reads a socket, knows Ruby or holds a connection: a caller
//! feeds bytes and gets a parsed head, decoded body bytes, an encoded
//! response, or an error that names its status code. "Not enough bytes yet"
//! is a value ([`Status::Partial`]), never an error. Which requests are taken
//! and which are refused: [`rules`].

#![forbid(unsafe_code)]

mod bytes;
mod chunk_encoder;
mod chunked;
mod date;
mod error;
mod error_response;
mod expect;
mod field_lines;
mod field_name;
mod framing;
mod head;
mod limits;
mod response;
mod response_field;
mod span;
mod status;
mod target;

#[doc = include_str!("rules.md")]
pub mod rules {}

pub use chunk_encoder::{chunk_size_line, CHUNK_END, LAST_CHUNK};
pub use chunked::ChunkedDecoder;
pub use date::{DateCache, DATE_LEN};
pub use error::Error;
pub use error_response::error_response;
pub use expect::Expectation;
pub use field_name::{env_key, KnownName, MAX_NAME};
pub use framing::Framing;
pub use head::{Field, Head, Status, Version};
pub use limits::Limits;
pub use response::{Length, Persistence, ResponseHead};
pub use response_field::FieldError;
pub use span::Span;
pub use status::{has_no_body, reason};
pub use target::{percent_decode, Target};
