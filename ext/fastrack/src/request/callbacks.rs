//! What the application wants called after the response: rack.after_reply, as Puma and unicorn have it, and
//! rack.response_finished (Rack 3 SPEC).

use std::ffi::c_int;

use rb_sys::*;

use crate::ruby::interned::names;
use crate::ruby::protect::{protect, Raised};

/// The callables of one request, until they are called.
///
/// INVARIANT: lives on the stack, where the GC sees the values in it.
pub(crate) struct Callbacks {
    /// nil: there is nothing to call.
    env: VALUE,
    status: VALUE,
    headers: VALUE,
    error: VALUE,
    /// rack.after_reply; nil or an Array, as the other one.
    replies: VALUE,
    /// rack.response_finished
    finished: VALUE,
}

/// What [`Callbacks::collect`] has to know besides.
#[derive(Clone, Copy)]
pub(crate) struct How {
    /// Rack 3: rack.response_finished means what its SPEC says.
    pub rack_3: bool,
    /// The response has not been sent whole.
    pub is_broken: bool,
}

/// How a request has ended, for those who wait for that; all nil where there is none.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    pub status: VALUE,
    pub headers: VALUE,
    pub error: VALUE,
}

impl Callbacks {
    pub fn none() -> Self {
        let nil = Qnil as VALUE;
        Callbacks { env: nil, status: nil, headers: nil, error: nil, replies: nil, finished: nil }
    }

    /// Looks what there is to call, and keeps it. The Arrays that are in the environments from the start, and so in
    /// `template`, are every request's own as long as they are empty: one that is used goes with its request.
    ///
    /// Of Rack 2 there is one of them only.
    ///
    /// # Safety
    /// Under protect, with the GVL.
    pub unsafe fn collect(&mut self, env: VALUE, template: VALUE, outcome: &mut Outcome, how: How) {
        // SAFETY: as this function's.
        unsafe {
            let Lists { replies, finished } = Lists::of(env);
            let replies = used(replies, env, names().after_reply);
            let finished = if finished == Qundef as VALUE && !how.rack_3 {
                Qnil as VALUE
            } else {
                used(finished, env, names().response_finished)
            };
            if replies == Qnil as VALUE && finished == Qnil as VALUE {
                return;
            }
            renew(template, names().after_reply, replies);
            renew(template, names().response_finished, finished);
            if how.is_broken && outcome.error == Qnil as VALUE {
                let message = c"the response was not sent whole";
                outcome.error = rb_exc_new_cstr(rb_eIOError, message.as_ptr());
            }
            let Outcome { status, headers, error } = *outcome;
            *self = Callbacks { env, status, headers, error, replies, finished };
        }
    }

    /// Calls them all, whatever some of them raise: `settle` gets that, and the environment.
    pub fn call(&mut self, mut settle: impl FnMut(Result<VALUE, Raised>, VALUE)) {
        if self.env == Qnil as VALUE {
            return;
        }
        let due = std::mem::replace(self, Callbacks::none());
        for index in 0..length(due.replies) {
            settle(call(due.replies, index, &[]), due.env);
        }
        // The last one that was added comes first (Rack 3 SPEC).
        for index in (0..length(due.finished)).rev() {
            settle(call(due.finished, index, &[due.env, due.status, due.headers, due.error]), due.env);
        }
    }
}

/// What the first entries of an environment have for callables; Qundef where such an entry is not among them. They are
/// where [`shapes`](crate::env::templates) has put them, unless the application has deleted one. To look two keys up in a Hash
/// would cost ten times as much.
struct Lists {
    replies: VALUE,
    finished: VALUE,
}

impl Lists {
    /// # Safety
    /// Under protect, with the GVL.
    unsafe fn of(env: VALUE) -> Self {
        let mut lists = Lists { replies: Qundef as VALUE, finished: Qundef as VALUE };
        // SAFETY: as this function's. rb_hash_tbl is for the environment what it is in `Values::copy_of`, and the
        // callback calls nothing.
        unsafe {
            let table = rb_hash_tbl(env, c"".as_ptr(), 0);
            rb_st_foreach(table, Some(note_list), (&raw mut lists) as st_data_t);
        }
        lists
    }
}

/// Given each entry from the first one on, until one is no list.
unsafe extern "C" fn note_list(key: st_data_t, value: st_data_t, lists: st_data_t) -> c_int {
    // SAFETY: `Lists::of` passes this, and nothing else uses it meanwhile.
    let lists = unsafe { &mut *(lists as *mut Lists) };
    let [after_reply, response_finished] = names().callbacks();
    let slot = match key as VALUE {
        key if key == after_reply => &mut lists.replies,
        key if key == response_finished => &mut lists.finished,
        _ => return st_retval::ST_STOP as c_int,
    };
    *slot = value as VALUE;
    st_retval::ST_CONTINUE as c_int
}

/// A list, or what is under the key if it was not found, provided that it is an Array with something in it; else nil.
unsafe fn used(list: VALUE, env: VALUE, key: VALUE) -> VALUE {
    // SAFETY: under protect; a Hash, and a String that is frozen.
    unsafe {
        let list = if list == Qundef as VALUE { rb_hash_lookup(env, key) } else { list };
        let used = RB_TYPE_P(list, ruby_value_type::RUBY_T_ARRAY) && RARRAY_LEN(list) > 0;
        if used {
            list
        } else {
            Qnil as VALUE
        }
    }
}

/// Puts a new Array in the place of one that was used.
unsafe fn renew(template: VALUE, key: VALUE, used: VALUE) {
    // SAFETY: under protect; the template is a Hash that is not frozen.
    unsafe {
        if used != Qnil as VALUE && rb_hash_lookup(template, key) == used {
            rb_hash_aset(template, key, rb_ary_new());
        }
    }
}

fn length(list: VALUE) -> isize {
    if list == Qnil as VALUE {
        return 0;
    }
    // SAFETY: not nil means an Array, see `callables`.
    unsafe { RARRAY_LEN(list) as isize }
}

fn call(list: VALUE, index: isize, arguments: &[VALUE]) -> Result<VALUE, Raised> {
    protect(|| {
        // SAFETY: under protect, and owning nothing; rb_ary_entry allows for an Array that has become shorter.
        unsafe {
            let callable = rb_ary_entry(list, index as _);
            rb_funcallv(callable, names().id_call, arguments.len() as _, arguments.as_ptr())
        }
    })
}
