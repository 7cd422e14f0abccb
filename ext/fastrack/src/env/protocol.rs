//! rack.protocol: switching to another protocol (Rack 3.1 SPEC, "The rack.protocol Header"; RFC 9110 §7.8).

use rb_sys::*;

use fastrack_engine::Request;
use fastrack_http::{KnownName, ResponseHead, Version};

use crate::env::build::string;
use crate::response::headers::{as_string, bytes, raise};
use crate::ruby::interned::names;

/// The protocols that a request offers to switch to, which is an Array of Strings; nil if it offers none. Upgrade alone
/// is no offer: a proxy may have passed it on without knowing it, so Connection has to name it.
///
/// # Safety
/// Under protect, with the GVL.
pub(crate) unsafe fn offered(request: &Request<'_>) -> VALUE {
    let head = request.head;
    let values = |name| {
        let fields = head.fields.iter().filter(move |field| field.known == Some(name));
        fields
            .flat_map(|field| field.value.of_buffer(request.bytes).split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
    };
    let is_meant = values(KnownName::Connection).any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    if head.version != Version::Http11 || !is_meant {
        return Qnil as VALUE;
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

/// Makes a response one that switches to the protocol which the application has chosen; raises ArgumentError when the
/// client has not offered that.
///
/// # Safety
/// Under protect, with the GVL; `env` is the environment of the request.
pub(crate) unsafe fn switch(protocol: VALUE, env: VALUE, head: &mut ResponseHead) {
    // SAFETY: as this function's; nothing calls Ruby while the bytes are borrowed.
    unsafe {
        let protocol = as_string(protocol);
        let offered = rb_hash_lookup(env, names().rack_protocol);
        let is_offered = RB_TYPE_P(offered, ruby_value_type::RUBY_T_ARRAY)
            && rb_ary_includes(offered, protocol) != Qfalse as VALUE;
        if !is_offered || head.switch_protocol(bytes(protocol)).is_err() {
            raise(rb_eArgError, c"rack.protocol must be one that the client has offered");
        }
    }
}
