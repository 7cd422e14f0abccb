//! rack.hijack: gives the app its client's connection (Rack SPEC, "Full Hijack").

use magnus::{Error, Ruby};
use rb_sys::*;

use crate::request::{no_request, read_ahead, socket_object, InFlight};
use crate::ruby::{interned, io_error, protect, NIL};

/// The socket; an IOError if the response has begun.
pub(crate) fn hijack(in_flight: &mut InFlight<'_, '_>, ruby: &Ruby) -> Result<VALUE, Error> {
    if in_flight.hijacked != NIL {
        return Ok(in_flight.hijacked);
    }
    let scope = in_flight.thread.scope();
    if in_flight.writer.is_untouched() {
        // SAFETY: under protect; the closure borrows everything and owns nothing.
        protect(|| unsafe { read_ahead(&in_flight.request.content, in_flight.thread) })
            .map_err(|raised| raised.into_error(ruby))?;
    }
    if !in_flight.writer.claim() {
        return Err(io_error(ruby, "the response has begun"));
    }
    let env = in_flight.env;
    let socket = protect(|| {
        // SAFETY: under protect; the closure borrows everything and owns nothing.
        unsafe { rb_hash_aset(env, interned().hijack_io, socket_object(in_flight)) }
    })
    .map_err(|raised| raised.into_error(ruby))?;
    if scope.is_over() {
        return Err(no_request(ruby));
    }
    in_flight.hijacked = socket;
    in_flight.writer.hand_over();
    Ok(socket)
}
