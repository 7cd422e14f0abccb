//! The Rack environment of a request (Rack SPEC, "The Environment").

mod body_source;
mod build;
mod headers;
mod input;
mod leading_values;
mod own_calls;
mod protocol;
mod remote_addr;
mod server_name;
mod templates;

use magnus::{Error, RModule, Ruby};

pub(crate) use body_source::SourceScope;
pub(crate) use build::EnvBuilder;
pub(crate) use input::input;
pub(crate) use own_calls::{own_call_keys, own_request, Offered};
pub(crate) use templates::{callback_keys, make_template};

pub(crate) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    leading_values::init(ruby)?;
    body_source::init(ruby, module)?;
    own_calls::init(ruby, module)
}
