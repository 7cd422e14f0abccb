//! The Rack environment of a request (Rack SPEC, "The Environment").

mod body_source;
mod build;
mod headers;
mod input;
mod protocol;
mod remote_addr;
mod templates;
mod values;

pub(crate) use body_source::{init, SourceScope};
pub(crate) use build::EnvBuilder;
pub(crate) use input::input;
pub(crate) use templates::{callback_keys, make_template};
