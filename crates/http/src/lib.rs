//! HTTP/1.x without I/O: bytes in, values out.
//!
//! The caller reads the socket and passes the bytes in. It gets a parsed head,
//! decoded body bytes, an encoded response, or an error with its status code.
//! An incomplete request is [`Status::Partial`], not an error. [`rules`] lists
//! which requests are accepted and which are rejected.

#![forbid(unsafe_code)]

mod app_chunks;
mod bytes;
mod chunk_encoder;
mod chunk_extension;
mod chunked;
mod connection_options;
mod date;
mod error;
mod error_response;
mod field_lines;
mod field_name;
mod framing;
mod head;
mod limits;
mod reason;
mod response;
mod span;
mod status;
mod target;
mod transfer_codings;

#[doc = include_str!("rules.md")]
pub mod rules {}

pub use app_chunks::AppChunks;
pub use chunk_encoder::{chunk_size_line, CHUNK_END, LAST_CHUNK};
pub use chunked::ChunkedDecoder;
pub use date::{Date, DateCache};
pub use error::{Error, FieldError};
pub use error_response::{error_body, error_response};
pub use field_name::{env_key, KnownName, MAX_NAME};
pub use framing::{Expectation, Framing};
pub use head::{Field, Head, Version};
pub use limits::Limits;
pub use reason::{has_no_body, reason};
pub use response::{Length, Persistence, ResponseHead};
pub use span::Span;
pub use status::Status;
pub use target::{percent_decode, split_authority, Target};
pub use transfer_codings::Coding;
