//! The Rack environment of a request (Rack SPEC, "The Environment").

pub(crate) mod body_source;
pub(crate) mod build;
pub(crate) mod headers;
pub(crate) mod input;
pub(crate) mod protocol;
pub(crate) mod remote_addr;
pub(crate) mod templates;
pub(crate) mod values;
