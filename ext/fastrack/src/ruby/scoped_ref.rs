//! A Rust value lent to the block of a Ruby iteration.
//!
//! Whoever runs the iteration can keep the block, call it when `each` has long
//! returned, or call it from another thread. So the block does not get a
//! pointer: it gets a Ruby object that holds one for as long as the iteration
//! lasts, and only for the thread that lent it.

use std::sync::atomic::{AtomicU64, Ordering};

use rb_sys::*;

use crate::response::headers::raise;

const POINTER: isize = 0;
const THREAD: isize = 1;

/// How many loans have ended in this process, those of bodies under way too.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// A loan is over.
pub(crate) fn note_end() {
    ENDED.fetch_add(1, Ordering::Relaxed);
}

/// Runs traps, and whatever other threads want of this one, in the middle of something that works on a loan. A trap may
/// leave the Fiber that it runs in, which may be resumed when the request is over: then this raises, and nothing that was
/// lent may be touched any more.
///
/// # Safety
/// Under protect, with the GVL; the caller's frames own nothing.
pub(crate) unsafe fn check_interrupts() {
    let before = ENDED.load(Ordering::Relaxed);
    // SAFETY: as this function's.
    unsafe { rb_thread_check_ints() };
    if ENDED.load(Ordering::Relaxed) != before {
        // SAFETY: as this function's.
        unsafe { raise(rb_eThreadError, c"the server's block was left, and came back after its iteration") }
    }
}

/// A loan, as the lender sees it: a hidden Array, or nil when there is none.
///
/// Lives on the stack, where the GC sees it.
pub(crate) struct Loan(VALUE);

impl Loan {
    pub fn none() -> Self {
        Loan(Qnil as VALUE)
    }

    /// Lends `value` until [`end`](Self::end). The result is what the callback gets as its data.
    ///
    /// # Safety
    /// Under protect, with the GVL. The value is touched by nobody else before the end of the loan, which
    /// comes before the value's own.
    pub unsafe fn begin<T>(&mut self, value: &mut T) -> VALUE {
        self.end();
        // SAFETY: as this function's. An address of user space fits into a Fixnum.
        unsafe {
            let array = rb_ary_new_capa(2);
            rb_ary_push(array, LONG2FIX((&raw mut *value) as _));
            rb_ary_push(array, rb_thread_current());
            self.0 = rb_obj_hide(array);
        }
        self.0
    }

    /// From now on the block finds nothing. To be called whether the iteration returned or raised.
    pub fn end(&mut self) {
        if self.0 != Qnil as VALUE {
            // SAFETY: the Array is alive, not frozen and has this slot.
            unsafe { RARRAY_ASET(self.0, POINTER, Qnil as VALUE) };
            self.0 = Qnil as VALUE;
            note_end();
        }
    }
}

/// Does something with a lent value, from a block. Raises when the loan is over, is another thread's, or the value
/// is in use by a call of the same block further out.
///
/// # Safety
/// Under protect, with the GVL; `loan` is what [`Loan::begin`] of the same type returned. `work` may raise: then
/// the value stays out of reach, for the iteration is being left.
pub(crate) unsafe fn with<T>(loan: VALUE, work: impl FnOnce(&mut T)) {
    // SAFETY: as this function's. The slot is empty while the value is borrowed, so that it is borrowed once.
    unsafe {
        let pointer = RARRAY_AREF(loan, POINTER);
        if !FIXNUM_P(pointer) || RARRAY_AREF(loan, THREAD) != rb_thread_current() {
            raise(rb_eThreadError, c"the server's block was called outside its iteration");
        }
        RARRAY_ASET(loan, POINTER, Qnil as VALUE);
        work(&mut *(FIX2LONG(pointer) as *mut T));
        // The work may have let other threads run, but ending the loan is for this one.
        RARRAY_ASET(loan, POINTER, pointer);
    }
}
