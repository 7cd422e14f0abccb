//! Environments that have the keys of a client's fields in them already.
//!
//! Clients send the same fields in the same order again and again. The environment of a request is therefore a copy of a
//! Hash that was made for such fields once: its first entries are the request's, in an order that is known, so their
//! values are written over one after the other. No key is hashed, no entry looked for, no table grows.

use std::os::raw::c_int;

use rb_sys::*;

use fastrack_http::{Head, KnownName};

use crate::ruby::interned::names;
use crate::ruby::roots::Roots;

/// The entries that each environment begins with, behind those of [`callbacks`](crate::request::callbacks): REQUEST_METHOD,
/// REQUEST_URI, PATH_INFO, QUERY_STRING, SERVER_PROTOCOL, REMOTE_ADDR and REMOTE_PORT. Those of the fields follow.
pub(crate) const LEADING: usize = 7;

/// The most fields that a shape has; requests with more are not worth one.
const FIELDS: usize = 32;

/// How many shapes are kept. A client that sends another order of fields each time gains nothing, and costs no memory.
const PLACES: usize = 16;

/// The common fields of a request in their order, without those that get no entry.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    listener: usize,
    names: [u8; FIELDS],
    len: usize,
}

impl Shape {
    /// A request's shape; one without fields if names come twice, or there are too many.
    pub fn of(listener: usize, head: &Head) -> Self {
        let mut shape = Shape { listener, names: [0; FIELDS], len: 0 };
        if head.clashes || head.fields.len() > FIELDS {
            return shape;
        }
        for known in head.fields.iter().filter_map(|field| field.known) {
            if known != KnownName::TransferEncoding {
                shape.names[shape.len] = known as u8;
                shape.len += 1;
            }
        }
        shape
    }

    fn names(&self) -> &[u8] {
        &self.names[..self.len]
    }

    fn is(&self, other: &Shape) -> bool {
        self.listener == other.listener && self.names() == other.names()
    }

    /// Where it is kept: any mix of what it consists of will do, for two that share a place only miss more often.
    fn place(&self) -> usize {
        let mix = |sum: usize, name: &u8| sum.wrapping_mul(31).wrapping_add(usize::from(*name) + 1);
        let sum = self.names().iter().fold(self.listener, mix);
        (sum ^ (sum >> 8)) % PLACES
    }
}

/// The shapes that were seen last. Their Hashes are kept alive by the roots, each in the place of its shape.
pub(crate) struct Shapes {
    places: [Option<Shape>; PLACES],
    /// Places whose last request was of another shape.
    missed: [bool; PLACES],
}

impl Shapes {
    /// How many Hashes the roots have to keep for it.
    pub const HASHES: usize = PLACES;

    /// What the environment of a request of this shape is a copy of, and whether it has the shape's entries: the
    /// listener's own has none of any field.
    ///
    /// # Safety
    /// Under protect, with the GVL. Owns nothing while it calls Ruby.
    pub unsafe fn template(&mut self, shape: &Shape, roots: Roots) -> (VALUE, bool) {
        let place = shape.place();
        // SAFETY: as this function's; there are as many Hashes as places, and the new one is on the stack until it is
        // among them.
        unsafe {
            let base = roots.template(shape.listener);
            if shape.len == 0 {
                return (base, false);
            }
            match &self.places[place] {
                Some(kept) if kept.is(shape) => {
                    self.missed[place] = false;
                    return (RARRAY_AREF(roots.shapes(), place as isize), true);
                }
                // To make one costs as much as some requests: it takes two in a row to drive one out.
                Some(_) if !std::mem::replace(&mut self.missed[place], true) => return (base, false),
                _ => {}
            }
            let made = make(base, shape.names());
            RARRAY_ASET(roots.shapes(), place as isize, made);
            self.places[place] = Some(*shape);
            self.missed[place] = false;
            (made, true)
        }
    }
}

impl Default for Shapes {
    fn default() -> Self {
        Shapes { places: [None; PLACES], missed: [false; PLACES] }
    }
}

/// A Hash that begins with the entries for callbacks, the leading ones and those of the names, and has all that `base` has.
///
/// # Safety
/// Under protect, with the GVL.
pub(crate) unsafe fn make(base: VALUE, fields: &[u8]) -> VALUE {
    let names = names();
    // SAFETY: as this function's; the Hash is on the stack.
    unsafe {
        let made = rb_hash_new();
        let callbacks = names.callbacks();
        let callbacks = callbacks.iter().filter(|key| rb_hash_lookup(base, **key) != Qnil as VALUE);
        for key in callbacks.clone() {
            rb_hash_aset(made, *key, Qnil as VALUE);
        }
        for key in names.leading().into_iter().chain(fields.iter().map(|name| names.known(*name))) {
            rb_hash_aset(made, key, Qnil as VALUE);
        }
        rb_hash_update_by(made, base, None);
        // A request that uses one of these Arrays takes it with it: it must be in no other Hash.
        for key in callbacks {
            rb_hash_aset(made, *key, rb_ary_new());
        }
        made
    }
}

/// The values of the first entries of an environment, on the stack, where the GC sees them.
pub(crate) struct Values {
    list: [VALUE; LEADING + FIELDS],
    filled: usize,
    written: usize,
}

/// Stands for the value that is there.
const LEFT: VALUE = Qundef as VALUE;

impl Values {
    pub fn none() -> Self {
        Values { list: [LEFT; LEADING + FIELDS], filled: 0, written: 0 }
    }

    /// The next entry's value.
    pub fn add(&mut self, value: VALUE) {
        self.list[self.filled] = value;
        self.filled += 1;
    }

    /// The next entry keeps the value that the template has.
    pub fn leave(&mut self) {
        self.add(LEFT);
    }

    /// A copy of a Hash of [`make`]'s with these values in its first entries.
    ///
    /// # Safety
    /// Under protect, with the GVL.
    pub unsafe fn copy_of(&mut self, template: VALUE) -> VALUE {
        // SAFETY: as this function's. rb_hash_tbl (RHASH_TBL) makes a table of the Hash if it is none yet, and tells the
        // GC to look at all of it whenever it marks it, for nobody will say which values are new. The callbacks call
        // nothing: the table stays as it is, and nothing is collected meanwhile.
        unsafe {
            let copy = rb_hash_dup(template);
            let table = rb_hash_tbl(copy, c"".as_ptr(), 0);
            rb_st_foreach_with_replace(
                table,
                Some(is_next),
                Some(write_next),
                (self as *mut Self) as st_data_t,
            );
            copy
        }
    }
}

/// Asked of each entry from the first one on, until all values are in.
unsafe extern "C" fn is_next(key: st_data_t, _value: st_data_t, values: st_data_t, _error: c_int) -> c_int {
    // SAFETY: `copy_of` passes this, and nothing else uses it meanwhile.
    let values = unsafe { &*(values as *const Values) };
    let answer = match values.written {
        0 if names().callbacks().contains(&(key as VALUE)) => st_retval::ST_CONTINUE,
        written if written < values.filled => st_retval::ST_REPLACE,
        _ => st_retval::ST_STOP,
    };
    answer as c_int
}

unsafe extern "C" fn write_next(
    _key: *mut st_data_t,
    value: *mut st_data_t,
    values: st_data_t,
    _existing: c_int,
) -> c_int {
    // SAFETY: as in `is_next`; the table passes a place for the value.
    unsafe {
        let values = &mut *(values as *mut Values);
        match values.list.get(values.written) {
            Some(&new) if new != LEFT => *value = new as st_data_t,
            _ => {}
        }
        values.written += 1;
    }
    st_retval::ST_CONTINUE as c_int
}
