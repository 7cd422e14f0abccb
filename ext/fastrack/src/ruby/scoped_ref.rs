//! A reference to a Rust value that a Ruby block can use only during its iteration.
//!
//! An `each` can keep its block, and call the block after the iteration or in another thread. So the block gets no pointer,
//! but a Ruby object: the object contains the pointer during the iteration, for the thread of the iteration.

use rb_sys::*;

use crate::ruby::errors::raise;
use crate::ruby::value::NIL;

/// Indexes in the Array.
#[repr(isize)]
enum Slot {
    Pointer,
    Thread,
}

/// A hidden Array, or nil. Lives on the stack, where the GC sees the Array.
#[derive(Clone, Copy)]
pub(crate) struct ScopedRef(VALUE);

impl ScopedRef {
    pub const NONE: Self = ScopedRef(NIL);

    /// A reference to no value yet.
    pub unsafe fn new() -> Self {
        // SAFETY: as this function's.
        unsafe {
            let array = rb_ary_new_capa(2);
            rb_ary_push(array, NIL);
            rb_ary_push(array, rb_thread_current());
            ScopedRef(rb_obj_hide(array))
        }
    }

    /// Makes the reference point to `value` until [`end`](Self::end). Returns the data for the block's function.
    ///
    /// # Safety
    /// Needs the GVL only; the reference is new. Until the end, the value does not move, and no other code uses the value.
    pub unsafe fn begin<T>(self, value: &mut T) -> VALUE {
        // SAFETY: the Array is alive and has this index. An address of user space fits into a Fixnum.
        unsafe { RARRAY_ASET(self.0, Slot::Pointer as _, LONG2FIX((&raw mut *value) as _)) };
        self.0
    }

    /// From now on the block raises. To be called when the iteration has returned or raised.
    pub fn end(&mut self) {
        if self.0 != NIL {
            // SAFETY: the Array is alive, not frozen and has this index.
            unsafe { RARRAY_ASET(self.0, Slot::Pointer as _, NIL) };
            self.0 = NIL;
        }
    }

    /// Runs work on the value, from the block. Raises ThreadError if the iteration is over, if this is another thread, or if
    /// an outer call of the same block is using the value.
    ///
    /// # Safety
    /// [`begin`](Self::begin) has returned `data` for a value of the same type. `work` may raise, which leaves the iteration:
    /// then later calls of the block raise ThreadError.
    pub unsafe fn with<T>(data: VALUE, work: impl FnOnce(&mut T)) {
        // SAFETY: as this function's. The pointer is nil while the value is in use, so that no inner call gets the value.
        unsafe {
            let pointer = RARRAY_AREF(data, Slot::Pointer as _);
            if !FIXNUM_P(pointer) || RARRAY_AREF(data, Slot::Thread as _) != rb_thread_current() {
                raise(rb_eThreadError, c"the server's block was called outside its iteration");
            }
            RARRAY_ASET(data, Slot::Pointer as _, NIL);
            work(&mut *(FIX2LONG(pointer) as *mut T));
            // Other threads may have run, but only this thread ends the scope.
            RARRAY_ASET(data, Slot::Pointer as _, pointer);
        }
    }
}
