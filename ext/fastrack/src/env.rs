//! The Rack environment of a request (Rack SPEC, "The Environment").

mod body_source;
mod build;
mod forwarded;
mod headers;
mod input;
mod leading_values;
mod protocol;
mod remote_addr;
mod request_bound;
mod server_name;
mod templates;
mod times;

use magnus::{Error, RModule, Ruby};

pub(crate) use body_source::SourceScope;
pub(crate) use build::EnvBuilder;
pub(crate) use input::input;
pub(crate) use request_bound::{bound_request, request_bound_keys, Offered};
pub(crate) use templates::{callback_keys, make_template};

pub(crate) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    leading_values::init(ruby)?;
    body_source::init(ruby, module)?;
    request_bound::init(ruby, module)
}
