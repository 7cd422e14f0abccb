//! The values of an env's first entries.
//!
//! Values are written directly into the entries of the Hash's table. Through the table's functions, each value would cost
//! sixty instructions more: together a fourteenth of a short request. The layout of an entry is the same from Ruby 2.4 to
//! 4.0 (st.c). [`init`] checks the layout when the extension is loaded.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use magnus::{Error, Ruby};
use rb_sys::*;

use crate::env::request_bound::REQUEST_BOUND;
use crate::env::templates::{CALLBACK_KEYS, MAX_HEADERS, OPTIONAL_KEYS, REQUEST_KEYS};
use crate::ruby::{protect, UNDEF};

/// Maximum number of entries with a value of the request.
const MAX_VALUES: usize = CALLBACK_KEYS + REQUEST_BOUND + REQUEST_KEYS + MAX_HEADERS + OPTIONAL_KEYS;

/// Values for the first entries of a template's copy. Lives on the stack, where the GC sees the values.
pub(crate) struct LeadingValues {
    values: [VALUE; MAX_VALUES],
    len: usize,
    /// Index after the last value that is not [`KEEP`].
    end: usize,
    written: usize,
}

/// Stands for the template's value.
const KEEP: VALUE = UNDEF;

/// An entry of a table (`struct st_table_entry` in st.c).
#[repr(C)]
struct Entry {
    hash: st_index_t,
    key: st_data_t,
    record: st_data_t,
}

/// Whether this Ruby's tables have entries of type [`Entry`].
static HAS_KNOWN_LAYOUT: AtomicBool = AtomicBool::new(false);

pub(super) fn init(ruby: &Ruby) -> Result<(), Error> {
    // SAFETY: under protect; the closure owns nothing.
    let found = protect(|| unsafe { has_known_layout() }).map_err(|raised| raised.into_error(ruby))?;
    // The portable build uses the table's functions, to test them.
    HAS_KNOWN_LAYOUT.store(found && !cfg!(feature = "portable"), Ordering::Relaxed);
    Ok(())
}

/// Whether the entries of a copied Hash have the expected layout.
unsafe fn has_known_layout() -> bool {
    // SAFETY: as this function's; the Hash is on the stack. Nothing is allocated after the copy, so that the table does not
    // move. The table has room for more entries than are read here, even if an entry has only two words.
    unsafe {
        let number = |number: usize| LONG2FIX(number as _);
        let hash = rb_hash_new();
        for nr in 0..32 {
            rb_hash_aset(hash, number(1000 + nr), number(2000 + nr));
        }
        let entries = first_entry(rb_hash_tbl(rb_hash_dup(hash), c"".as_ptr(), 0));
        (0..20).all(|nr| {
            let Entry { key, record, .. } = &*entries.add(nr);
            *key == number(1000 + nr) as st_data_t && *record == number(2000 + nr) as st_data_t
        })
    }
}

/// # Safety
/// The table has entries, and none was deleted.
unsafe fn first_entry(table: *mut st_table) -> *mut Entry {
    // SAFETY: as this function's.
    unsafe { (*table).entries.cast::<Entry>().add((*table).entries_start as usize) }
}

impl LeadingValues {
    pub fn new() -> Self {
        LeadingValues { values: [KEEP; MAX_VALUES], len: 0, end: 0, written: 0 }
    }

    /// Adds a value for the next entry.
    pub fn push(&mut self, value: VALUE) {
        self.values[self.len] = value;
        self.len += 1;
        self.end = self.len;
    }

    /// Keeps the template's value in the next entry.
    pub fn keep_template_value(&mut self) {
        self.len += 1;
    }

    /// A copy of a [template](crate::env::templates) with these values in its first entries.
    pub unsafe fn copy_into_dup(&mut self, template: VALUE) -> VALUE {
        // SAFETY: as this function's. rb_hash_tbl (RHASH_TBL) adds a table to a Hash without one, and makes the GC mark the
        // whole Hash at each collection, since the writes below have no write barrier. A template has an entry for each value,
        // and no entry was deleted. While the entries are written, no Ruby code and no GC runs.
        unsafe {
            let copy = rb_hash_dup(template);
            let table = rb_hash_tbl(copy, c"".as_ptr(), 0);
            if HAS_KNOWN_LAYOUT.load(Ordering::Relaxed) {
                let first = first_entry(table);
                for (index, value) in self.values[..self.end].iter().enumerate() {
                    if *value != KEEP {
                        (*first.add(index)).record = *value as st_data_t;
                    }
                }
            } else {
                let data = (&raw mut *self) as st_data_t;
                rb_st_foreach_with_replace(table, Some(is_next), Some(write_next), data);
            }
            copy
        }
    }
}

/// Called for each entry in order, until all values are written.
unsafe extern "C" fn is_next(_key: st_data_t, _value: st_data_t, data: st_data_t, _error: c_int) -> c_int {
    // SAFETY: `copy_into_dup` passes `data`, and does not use the values until the loop is over.
    let values = unsafe { &*(data as *const LeadingValues) };
    let is_next = values.written < values.end;
    (if is_next { st_retval::ST_REPLACE } else { st_retval::ST_STOP }) as c_int
}

unsafe extern "C" fn write_next(
    _key: *mut st_data_t,
    value: *mut st_data_t,
    data: st_data_t,
    _existing: c_int,
) -> c_int {
    // SAFETY: as in `is_next`; the table passes a valid pointer for the value.
    unsafe {
        let values = &mut *(data as *mut LeadingValues);
        match values.values.get(values.written) {
            Some(&new) if new != KEEP => *value = new as st_data_t,
            _ => {}
        }
        values.written += 1;
    }
    st_retval::ST_CONTINUE as c_int
}
