//! Headers by which the app tells the server something: rack.hijack and rack.protocol. No client sees them.

use rb_sys::*;

use fastrack_http::ResponseHead;

use crate::ruby::{as_string, bytes, interned, is_array, raise, NIL};

/// Their values; nil where the app did not set one. On the stack, where the GC sees them.
pub(crate) struct ServerHeaders {
    /// Called with the socket after the head (Rack SPEC, "Partial Hijack").
    pub hijack: VALUE,
    /// The protocol to switch to (Rack 3.1 SPEC, "The rack.protocol Header").
    pub protocol: VALUE,
}

impl ServerHeaders {
    pub const NONE: Self = ServerHeaders { hijack: NIL, protocol: NIL };

    /// Whether a header is for the server.
    pub fn is_one(name: &[u8]) -> bool {
        name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"rack."))
    }

    /// Takes in a header that [`is_one`](Self::is_one).
    pub fn take(&mut self, name: &[u8], value: VALUE) {
        match &name[5..] {
            b"hijack" => self.hijack = value,
            b"protocol" => self.protocol = value,
            _ => {}
        }
    }
}

/// Makes a response switch to the protocol that the app has chosen (RFC 9110 §7.8). Raises ArgumentError if the client
/// has not offered it. `env` is the request's.
pub(crate) unsafe fn switch_protocol(protocol: VALUE, env: VALUE, head: &mut ResponseHead) {
    // SAFETY: as this function's; nothing calls Ruby while the bytes are borrowed.
    unsafe {
        let protocol = as_string(protocol);
        let offered = rb_hash_lookup(env, interned().rack_protocol);
        let is_offered = is_array(offered) && rb_ary_includes(offered, protocol) != Qfalse as VALUE;
        if !is_offered || head.switch_protocol(bytes(protocol)).is_err() {
            raise(rb_eArgError, c"rack.protocol must be one that the client has offered");
        }
    }
}
