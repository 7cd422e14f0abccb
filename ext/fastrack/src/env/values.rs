//! The values of an env's first entries.
//!
//! They are written to their places in the Hash's table. Through the table's functions it would be sixty instructions more for each, a
//! fourteenth of a short request. So this goes by the layout of a table's entries, which is the same from Ruby 2.4 to 4.0 (st.c);
//! when the extension is loaded, it looks whether this Ruby has it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use magnus::{Error, Ruby};
use rb_sys::*;

use crate::env::request_bound::REQUEST_BOUND;
use crate::env::templates::{CALLBACK_KEYS, MAX_HEADERS, OPTIONAL_KEYS, REQUEST_KEYS};
use crate::ruby::{protect, UNDEF};

const MOST: usize = CALLBACK_KEYS + REQUEST_BOUND + REQUEST_KEYS + MAX_HEADERS + OPTIONAL_KEYS;

/// Values for the first entries of a template's copy. On the stack, where the GC sees them.
pub(crate) struct LeadingValues {
    values: [VALUE; MOST],
    len: usize,
    /// After the last that changes an entry.
    end: usize,
    written: usize,
}

/// Stands for the template's own value.
const UNCHANGED: VALUE = UNDEF;

/// An entry of a table.
#[repr(C)]
struct Entry {
    hash: st_index_t,
    key: st_data_t,
    record: st_data_t,
}

/// Whether this Ruby's tables have such entries.
static HAS_ENTRIES: AtomicBool = AtomicBool::new(false);

pub(super) fn init(ruby: &Ruby) -> Result<(), Error> {
    // SAFETY: under protect; the closure owns nothing.
    let found = protect(|| unsafe { has_entries() }).map_err(|raised| raised.into_error(ruby))?;
    // The portable build goes through the table's functions, so that their way is tested.
    HAS_ENTRIES.store(found && !cfg!(feature = "portable"), Ordering::Relaxed);
    Ok(())
}

/// Whether the entries of a copied Hash are found where they should be.
unsafe fn has_entries() -> bool {
    // SAFETY: as this function's; the Hash is on the stack. Nothing is allocated after its copy, so that this stays where it is. The
    // table has room for more entries than are looked at, even if they are of two words each.
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
        LeadingValues { values: [UNCHANGED; MOST], len: 0, end: 0, written: 0 }
    }

    /// The next entry's value.
    pub fn push(&mut self, value: VALUE) {
        self.values[self.len] = value;
        self.len += 1;
        self.end = self.len;
    }

    /// The next entry keeps the template's value.
    pub fn keep_template_value(&mut self) {
        self.len += 1;
    }

    /// A copy of a [template](crate::env::templates) with these values in its first entries.
    pub unsafe fn copy_into_dup(&mut self, template: VALUE) -> VALUE {
        // SAFETY: as this function's. rb_hash_tbl (RHASH_TBL) gives the Hash a table if it has none yet, and makes the
        // GC look at the whole Hash whenever it marks, since no write barrier runs for the new values. A template has an entry for each
        // value, and none was deleted. Nothing is called, or callbacks that call nothing: the table stays as it is, and the GC does
        // not run.
        unsafe {
            let copy = rb_hash_dup(template);
            let table = rb_hash_tbl(copy, c"".as_ptr(), 0);
            if HAS_ENTRIES.load(Ordering::Relaxed) {
                let first = first_entry(table);
                for (index, value) in self.values[..self.end].iter().enumerate() {
                    if *value != UNCHANGED {
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

/// Called for each entry from the first one on, until all values are written.
unsafe extern "C" fn is_next(_key: st_data_t, _value: st_data_t, data: st_data_t, _error: c_int) -> c_int {
    // SAFETY: `copy_into_dup` passes this, and does not use it until the loop is over.
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
    // SAFETY: as in `is_next`; the table passes a place for the value.
    unsafe {
        let values = &mut *(data as *mut LeadingValues);
        match values.values.get(values.written) {
            Some(&new) if new != UNCHANGED => *value = new as st_data_t,
            _ => {}
        }
        values.written += 1;
    }
    st_retval::ST_CONTINUE as c_int
}
