//! 100 Continue by the app: an app that returns status 100 is called again for the final response, as in Unicorn.

use rb_sys::*;

use fastrack_engine::Content;
use fastrack_http::Version;

use crate::request::InFlight;
use crate::ruby::{call_if_defined, interned, NIL};

/// Sends 100 Continue, and deletes HTTP_EXPECT from env to tell the app.
///
/// # Safety
/// As [`call_if_defined`]: the caller ends the request's scopes if this raises.
pub(super) unsafe fn send_continue(in_flight: &mut InFlight<'_, '_>) {
    let body = std::mem::replace(&mut in_flight.body, NIL);
    // SAFETY: as this function's.
    unsafe {
        call_if_defined(body, interned().id.close);
        rb_hash_delete(in_flight.env, rb_str_new_cstr(c"HTTP_EXPECT".as_ptr()));
    }
    // HTTP/1.0 has no interim responses (RFC 9110 §15.2).
    if in_flight.request.head.version == Version::Http11 {
        in_flight.writer.send_interim(b"HTTP/1.1 100 Continue\r\n\r\n");
    }
    if let Content::Stream(stream) = &in_flight.request.content {
        stream.set_continued();
    }
}
