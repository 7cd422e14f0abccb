//! Callbacks of the app after the response: rack.after_reply (as in Puma and unicorn) and rack.response_finished (Rack 3
//! SPEC).

use std::ffi::c_int;

use rb_sys::*;

use crate::env::callback_keys;
use crate::request::in_flight::InFlight;
use crate::ruby::{call, interned, is_array, protect, Raised, NIL, UNDEF};

/// The callbacks of one request, before their call.
///
/// INVARIANT: lives on the stack, where the GC sees the values in it.
pub(crate) struct Callbacks {
    /// The request's env; nil without callbacks.
    env: VALUE,
    status: VALUE,
    headers: VALUE,
    error: VALUE,
    /// rack.after_reply: an Array, or nil.
    after_reply: VALUE,
    /// rack.response_finished: an Array, or nil.
    finished: VALUE,
}

impl Callbacks {
    pub const NONE: Self =
        Callbacks { env: NIL, status: NIL, headers: NIL, error: NIL, after_reply: NIL, finished: NIL };

    /// Collects a request's callbacks. With Rack 2, the server offers rack.after_reply only.
    pub unsafe fn collect(&mut self, in_flight: &mut InFlight<'_, '_>, rack_3: bool) {
        let env = in_flight.env;
        let interned = interned();
        // SAFETY: as this function's.
        unsafe {
            let [after_reply, finished] = first_entries(env);
            let after_reply = unless_empty(after_reply, env, interned.after_reply);
            let finished = if finished == UNDEF && !rack_3 {
                NIL
            } else {
                unless_empty(finished, env, interned.response_finished)
            };
            if after_reply == NIL && finished == NIL {
                return;
            }
            if in_flight.writer.is_broken() && in_flight.error == NIL {
                let message = c"the response was not sent whole";
                in_flight.error = rb_exc_new_cstr(rb_eIOError, message.as_ptr());
            }
            let InFlight { status, headers, error, .. } = *in_flight;
            *self = Callbacks { env, status, headers, error, after_reply, finished };
        }
    }

    pub fn are_any(&self) -> bool {
        self.env != NIL
    }

    /// Calls all callbacks, even if some raise. `done` receives the result of each, and env.
    pub fn call(self, mut done: impl FnMut(Result<VALUE, Raised>, VALUE)) {
        for index in 0..len(self.after_reply) {
            done(call_entry(self.after_reply, index, &[]), self.env);
        }
        // In reverse order (Rack 3 SPEC).
        for index in (0..len(self.finished)).rev() {
            let arguments = [self.env, self.status, self.headers, self.error];
            done(call_entry(self.finished, index, &arguments), self.env);
        }
    }
}

/// The values of [`callback_keys`] that are still env's first entries, as in the template; undef for other keys. Looking
/// two keys up in a Hash would take ten times as long.
unsafe fn first_entries(env: VALUE) -> [VALUE; 2] {
    let mut values = [UNDEF; 2];
    // SAFETY: under protect. rb_hash_tbl adds a table to a Hash without one (RHASH_TBL). The callback calls no Ruby code.
    unsafe {
        let table = rb_hash_tbl(env, c"".as_ptr(), 0);
        rb_st_foreach(table, Some(note_entry), (&raw mut values) as st_data_t);
    }
    values
}

/// Called for each entry in order, until an entry has another key.
unsafe extern "C" fn note_entry(key: st_data_t, value: st_data_t, data: st_data_t) -> c_int {
    // SAFETY: `first_entries` passes `data`, and does not use the values until the loop is over.
    let values = unsafe { &mut *(data as *mut [VALUE; 2]) };
    let Some(index) = callback_keys().iter().position(|known| *known == key as VALUE) else {
        return st_retval::ST_STOP as c_int;
    };
    values[index] = value as VALUE;
    let is_last = index + 1 == values.len();
    (if is_last { st_retval::ST_STOP } else { st_retval::ST_CONTINUE }) as c_int
}

/// `array`, or env's value of `key` if `array` is undef; nil if the value is not an Array, or empty.
unsafe fn unless_empty(array: VALUE, env: VALUE, key: VALUE) -> VALUE {
    // SAFETY: under protect; `env` is a Hash and `key` a frozen String.
    unsafe {
        let array = if array == UNDEF { rb_hash_lookup(env, key) } else { array };
        if is_array(array) && RARRAY_LEN(array) > 0 {
            array
        } else {
            NIL
        }
    }
}

fn len(array: VALUE) -> isize {
    if array == NIL {
        return 0;
    }
    // SAFETY: an Array, see `unless_empty`; the caller has the GVL.
    unsafe { RARRAY_LEN(array) as isize }
}

fn call_entry(array: VALUE, index: isize, arguments: &[VALUE]) -> Result<VALUE, Raised> {
    // SAFETY: under protect, and owning nothing. rb_ary_entry checks the index: the Array may have become shorter.
    protect(|| unsafe { call(rb_ary_entry(array, index as _), interned().id.call, arguments) })
}
