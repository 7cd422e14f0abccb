//! rack.protocol: the protocols that a request offers to switch to (Rack 3.1 SPEC; RFC 9110 §7.8).

use rb_sys::*;

use fastrack_engine::Request;
use fastrack_http::{KnownName, Version};

use crate::ruby::{string, NIL};

/// An Array of Strings, or nil if the request offers no protocol. Upgrade is an offer only if Connection names it: a proxy
/// that does not know Upgrade may have forwarded the field.
pub(crate) unsafe fn offered(request: &Request<'_>) -> VALUE {
    let head = request.head;
    let values = |name| {
        let fields = head.fields.iter().filter(move |field| field.known == Some(name));
        fields
            .flat_map(|field| field.value.of_buffer(request.bytes).split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
    };
    let is_named = values(KnownName::Connection).any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    if head.version != Version::Http11 || !is_named {
        return NIL;
    }
    // SAFETY: as this function's; the Array is on the stack, and the iterators own nothing.
    unsafe {
        let protocols = rb_ary_new();
        for protocol in values(KnownName::Upgrade).filter(|protocol| !protocol.is_empty()) {
            rb_ary_push(protocols, string(protocol));
        }
        protocols
    }
}
