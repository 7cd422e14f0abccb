//! The app's response, and how it is sent.

mod body;
mod coded;
mod each;
mod file;
mod headers;
mod sender;
mod server_headers;
mod stream;
mod triple;

pub(crate) use headers::take_headers;
pub(crate) use sender::{BodyMode, Encoding, ResponseBuffers, Sender};
pub(crate) use server_headers::switch_protocol;
pub(crate) use triple::{take_triple, unsent_body, CONTINUE, NO_FINAL_STATUS};
