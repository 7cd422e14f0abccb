//! SERVER_NAME and SERVER_PORT: the host that the request names (RFC 3875 §4.1.14, §4.1.15).

use rb_sys::*;

use fastrack_engine::Request;
use fastrack_http::{split_authority, KnownName};

use crate::env::leading_values::LeadingValues;
use crate::ruby::{interned, string, NIL};

/// Adds both values, in the order of a template's optional keys. If the request names no host, the template's values stay.
/// `host` is the String already added for Host, or nil.
pub(super) unsafe fn add(values: &mut LeadingValues, request: &Request<'_>, host: VALUE) {
    let head = request.head;
    // An absolute target overrides Host (RFC 9112 §3.2.2).
    let Some(authority) = head.authority.or_else(|| head.value(KnownName::Host)) else {
        values.keep_template_value();
        return values.keep_template_value();
    };
    let authority = authority.of_buffer(request.bytes);
    let (name, port) = split_authority(authority);
    let is_host = host != NIL && head.authority.is_none();
    // SAFETY: as this function's; all values are on the stack.
    unsafe {
        // As in Puma and Unicorn, a Host without a port shares its String with SERVER_NAME.
        values.push(if is_host && name.len() == authority.len() { host } else { string(name) });
        match port {
            b"" if is_host => values.keep_template_value(),
            b"" => values.push(if names_https(request) { interned().port_443 } else { interned().port_80 }),
            port => values.push(string(port)),
        }
    }
}

/// Whether the target has the scheme https.
fn names_https(request: &Request<'_>) -> bool {
    let target = request.head.target.of_buffer(request.bytes);
    target.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https:"))
}
