//! Headers of the app for the server, which clients never see: rack.hijack and rack.protocol.

use rb_sys::*;

use fastrack_http::ResponseHead;

use crate::ruby::{as_string, bytes, interned, is_array, raise, NIL};

/// The values of the server headers; nil for a header that the app has not set. Lives on the stack, where the GC sees the
/// values.
pub(crate) struct ServerHeaders {
    /// Called with the socket after the head (Rack SPEC, "Partial Hijack").
    pub hijack: VALUE,
    /// The protocol to switch to (Rack 3.1 SPEC, "The rack.protocol Header").
    pub protocol: VALUE,
}

impl ServerHeaders {
    pub const NONE: Self = ServerHeaders { hijack: NIL, protocol: NIL };

    /// Whether the header `name` is for the server.
    pub fn is_server_header(name: &[u8]) -> bool {
        name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"rack."))
    }

    /// Sets the value of a header for which [`is_server_header`](Self::is_server_header) is true.
    pub fn set(&mut self, name: &[u8], value: VALUE) {
        match &name[5..] {
            b"hijack" => self.hijack = value,
            b"protocol" => self.protocol = value,
            _ => {}
        }
    }
}

/// Makes a response switch to the app's `protocol` (RFC 9110 §7.8). Raises ArgumentError if the request with this `env` has
/// not offered the protocol.
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
