//! Sending the app's response.

mod app_coding;
mod body;
mod each;
mod file;
mod headers;
mod sender;
mod server_headers;
mod server_timing;
mod stream;
mod triple;

pub(crate) use headers::read_headers;
pub(crate) use sender::{end_body, BodyMode, Encoding, ResponseBuffers, Sender};
pub(crate) use server_headers::switch_protocol;
pub(crate) use triple::{read_triple, unsent_body, CONTINUE, NO_FINAL_STATUS};
