//! An app's own 100 Continue: it answers a request that expects one with status 100, and is called again, as by Unicorn.

use rb_sys::*;

use fastrack_engine::Content;
use fastrack_http::Version;

use crate::request::InFlight;
use crate::ruby::{call_if_defined, interned, NIL};

/// Sends 100 Continue, and takes HTTP_EXPECT out of env: the app sees by that that its client has been told.
///
/// # Safety
/// As [`call_if_defined`]: the caller ends the request's scopes if this raises.
pub(super) unsafe fn go_on(in_flight: &mut InFlight<'_, '_>) {
    let body = std::mem::replace(&mut in_flight.body, NIL);
    // SAFETY: as this function's.
    unsafe {
        call_if_defined(body, interned().id.close);
        rb_hash_delete(in_flight.env, rb_str_new_cstr(c"HTTP_EXPECT".as_ptr()));
    }
    // A client of HTTP/1.0 knows no interim responses (RFC 9110 §15.2).
    if in_flight.request.head.version == Version::Http11 {
        in_flight.writer.send_interim(b"HTTP/1.1 100 Continue\r\n\r\n");
    }
    if let Content::Stream(stream) = &in_flight.request.content {
        stream.set_continued();
    }
}
