//! The app's result: status, headers, body (Rack SPEC, "The Response").

use std::ffi::CStr;

use rb_sys::*;

use crate::request::InFlight;
use crate::ruby::{call, interned, is_array, raise, NIL};

/// The status by which an app asks the server to send 100 Continue, and to call the app again.
pub(crate) const CONTINUE: u16 = 100;

pub(crate) const NO_FINAL_STATUS: &CStr = c"a status of 100, or of 102 to 199, is no final one";

/// Stores the parts of the app's result in `in_flight`. Returns the status code. Raises TypeError or RangeError for an
/// invalid result.
pub(crate) unsafe fn read_triple(result: VALUE, in_flight: &mut InFlight<'_, '_>) -> u16 {
    // SAFETY: as this function's.
    unsafe {
        let array = rb_check_array_type(result);
        if array == NIL || RARRAY_LEN(array) != 3 {
            raise(rb_eTypeError, c"the application must return [status, headers, body]");
        }
        let [status, headers, body] = [0, 1, 2].map(|index| RARRAY_AREF(array, index));
        // Stored before `to_i` is called, so that the body is closed even if `to_i` raises.
        in_flight.body = body;
        // `to_i` may change the Array. All elements have been read.
        let code = code(status);
        in_flight.status = status;
        in_flight.headers = headers;
        code
    }
}

/// The body to close in the result of an app after a full hijack; nil if the result has no body.
pub(crate) unsafe fn unsent_body(result: VALUE) -> VALUE {
    // SAFETY: as this function's.
    unsafe {
        if is_array(result) && RARRAY_LEN(result) == 3 {
            RARRAY_AREF(result, 2)
        } else {
            NIL
        }
    }
}

unsafe fn code(status: VALUE) -> u16 {
    // SAFETY: under protect, and owning nothing.
    unsafe {
        let number = if FIXNUM_P(status) { status } else { call(status, interned().id.to_i, &[]) };
        match u16::try_from(NUM2LONG(number)) {
            Ok(code @ (CONTINUE | 101 | 200..=999)) => code,
            Ok(100..=199) => raise(rb_eRangeError, NO_FINAL_STATUS),
            _ => raise(rb_eRangeError, c"a status must be an Integer from 100 to 999"),
        }
    }
}
