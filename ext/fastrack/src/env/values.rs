//! The values of an env's first entries.

use std::ffi::c_int;

use rb_sys::*;

use crate::env::own_calls::OWN_CALLS;
use crate::env::templates::{CALLBACK_KEYS, MAX_HEADERS, RARE_KEYS, REQUEST_KEYS};
use crate::ruby::UNDEF;

const MOST: usize = CALLBACK_KEYS + OWN_CALLS + REQUEST_KEYS + MAX_HEADERS + RARE_KEYS;

/// Values for the first entries of a template's copy. On the stack, where the GC sees them.
pub(crate) struct FirstValues {
    values: [VALUE; MOST],
    len: usize,
    /// After the last that changes an entry.
    end: usize,
    written: usize,
}

/// Stands for the template's own value.
const UNCHANGED: VALUE = UNDEF;

impl FirstValues {
    pub fn new() -> Self {
        FirstValues { values: [UNCHANGED; MOST], len: 0, end: 0, written: 0 }
    }

    /// The next entry's value.
    pub fn push(&mut self, value: VALUE) {
        self.values[self.len] = value;
        self.len += 1;
        self.end = self.len;
    }

    /// The next entry keeps the template's value.
    pub fn push_unchanged(&mut self) {
        self.len += 1;
    }

    /// A copy of a [template](crate::env::templates) with these values in its first entries.
    pub unsafe fn copy_into_dup(&mut self, template: VALUE) -> VALUE {
        // SAFETY: as this function's. rb_hash_tbl (RHASH_TBL) gives the Hash a table if it has none yet, and makes the
        // GC look at the whole Hash whenever it marks, since no write barrier runs for the new values. The callbacks
        // call nothing: the table stays as it is, and the GC does not run.
        unsafe {
            let copy = rb_hash_dup(template);
            let table = rb_hash_tbl(copy, c"".as_ptr(), 0);
            let data = (&raw mut *self) as st_data_t;
            rb_st_foreach_with_replace(table, Some(is_next), Some(write_next), data);
            copy
        }
    }
}

/// Called for each entry from the first one on, until all values are written.
unsafe extern "C" fn is_next(_key: st_data_t, _value: st_data_t, data: st_data_t, _error: c_int) -> c_int {
    // SAFETY: `copy_into_dup` passes this, and does not use it until the loop is over.
    let values = unsafe { &*(data as *const FirstValues) };
    let is_next = values.written < values.end;
    (if is_next { st_retval::ST_REPLACE } else { st_retval::ST_STOP }) as c_int
}

unsafe extern "C" fn write_next(
    _key: *mut st_data_t,
    value: *mut st_data_t,
    data: st_data_t,
    _existing: c_int,
) -> c_int {
    // SAFETY: as in `is_next`; the table passes a place for the value.
    unsafe {
        let values = &mut *(data as *mut FirstValues);
        match values.values.get(values.written) {
            Some(&new) if new != UNCHANGED => *value = new as st_data_t,
            _ => {}
        }
        values.written += 1;
    }
    st_retval::ST_CONTINUE as c_int
}
