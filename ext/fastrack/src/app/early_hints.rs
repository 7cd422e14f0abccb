//! rack.early_hints: sends 103 Early Hints (RFC 8297).

use magnus::{Error, Ruby};
use rb_sys::VALUE;

use fastrack_http::{ResponseHead, Version};

use crate::request::{no_request, InFlight};
use crate::response::read_headers;
use crate::ruby::{io_error, protect, ScopedRef, NIL};

/// Sends a 103 with these headers. Returns an ArgumentError for invalid headers, any exception of the headers' methods, and
/// an IOError if the app has hijacked the connection.
pub(crate) fn send_early_hints(
    in_flight: &mut InFlight<'_, '_>,
    ruby: &Ruby,
    headers: VALUE,
) -> Result<(), Error> {
    if in_flight.hijacked != NIL {
        return Err(io_error(ruby, "the response has begun"));
    }
    // HTTP/1.0 has no interim responses (RFC 9110 §15.2).
    if in_flight.request.head.version != Version::Http11 || !in_flight.writer.is_untouched() {
        return Ok(());
    }
    let scope = in_flight.thread.scope();
    // Not the thread's ResponseBuffers: the response may begin while Ruby code runs here.
    let mut head = ResponseHead::default();
    head.start(103);
    let mut block = ScopedRef::NONE;
    let taken = protect(|| {
        // SAFETY: under protect; the closure owns nothing.
        unsafe { read_headers(headers, &mut head, &mut block) };
    });
    block.end();
    taken.map_err(|raised| raised.into_error(ruby))?;
    if scope.is_over() {
        return Err(no_request(ruby));
    }
    let mut encoded = Vec::new();
    head.write_interim(&mut encoded);
    if !encoded.is_empty() {
        in_flight.writer.send_interim(&encoded);
    }
    Ok(())
}
