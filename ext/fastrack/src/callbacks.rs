//! What the application wants called after the response: rack.after_reply, as Puma and unicorn have it, and
//! rack.response_finished (Rack 3 SPEC).

use rb_sys::*;

use crate::names::names;
use crate::protect::{protect, Raised};

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
    /// # Safety
    /// Under protect, with the GVL.
    pub unsafe fn collect(&mut self, env: VALUE, template: VALUE, outcome: &mut Outcome, is_broken: bool) {
        // SAFETY: as this function's.
        unsafe {
            let replies = callables(env, names().after_reply);
            let finished = callables(env, names().response_finished);
            if replies == Qnil as VALUE && finished == Qnil as VALUE {
                return;
            }
            renew(template, names().after_reply, replies);
            renew(template, names().response_finished, finished);
            if is_broken && outcome.error == Qnil as VALUE {
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

/// The Array under a key, if there is something in it; else nil.
unsafe fn callables(env: VALUE, key: VALUE) -> VALUE {
    // SAFETY: under protect; a Hash, and a String that is frozen.
    unsafe {
        let list = rb_hash_lookup(env, key);
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
