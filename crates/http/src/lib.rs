//! HTTP/1.x without I/O: bytes in, values out.
//!
//! The caller reads the socket, passes the bytes in, and gets a parsed head,
//! decoded body bytes, an encoded response, or an error with its status code.
//! An incomplete request is [`Status::Partial`], not an error. [`rules`] lists
//! the accepted and the rejected requests.

#![forbid(unsafe_code)]

mod app_chunks;
mod bytes;
mod chunk_extension;
mod chunked;
mod connection_options;
mod date;
mod error;
mod error_response;
mod field_lines;
mod field_name;
mod forwarded;
mod framing;
mod head;
mod judge;
mod limits;
mod response;
mod status_code;
mod target;
mod transfer_codings;

#[doc = include_str!("rules.md")]
pub mod rules {}

pub use app_chunks::AppChunks;
pub use chunked::{chunk_size_line, ChunkedDecoder, CHUNK_END, LAST_CHUNK};
pub use date::{Date, DateCache};
pub use error::{Error, FieldError, Status};
pub use error_response::{error_body, error_response};
pub use field_name::{env_key, KnownName, MAX_FIELD_NAME_LEN};
pub use forwarded::{Forwarded, FORWARDED_FIELD};
pub use framing::{Expectation, Framing};
pub use head::{Field, Head, Span, Version};
pub use judge::{Judge, Judged};
pub use limits::Limits;
pub use response::{Length, Persistence, ResponseHead};
pub use status_code::{has_no_body, reason};
pub use target::{is_authority, percent_decode, split_authority, Target};
pub use transfer_codings::Coding;
