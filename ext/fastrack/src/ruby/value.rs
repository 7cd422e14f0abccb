//! Short forms of Ruby constants, type checks and method calls.

use rb_sys::*;

pub(crate) const NIL: VALUE = Qnil as VALUE;
pub(crate) const UNDEF: VALUE = Qundef as VALUE;

/// Needs the GVL only.
pub(crate) unsafe fn is_string(object: VALUE) -> bool {
    // SAFETY: as this function's.
    unsafe { RB_TYPE_P(object, ruby_value_type::RUBY_T_STRING) }
}

/// Needs the GVL only.
pub(crate) unsafe fn is_array(object: VALUE) -> bool {
    // SAFETY: as this function's.
    unsafe { RB_TYPE_P(object, ruby_value_type::RUBY_T_ARRAY) }
}

/// Calls a method.
pub(crate) unsafe fn call(receiver: VALUE, method: ID, arguments: &[VALUE]) -> VALUE {
    // SAFETY: as this function's; the pointer is valid for the number of arguments.
    unsafe { rb_funcallv(receiver, method, arguments.len() as _, arguments.as_ptr()) }
}

/// Calls a method without arguments if the object responds to it.
pub(crate) unsafe fn call_if_defined(receiver: VALUE, method: ID) {
    // SAFETY: as this function's; an Array is an object on the heap, which starts with an RBasic.
    unsafe {
        // respond_to? is slow on a plain Array: it also asks respond_to_missing?.
        let is_plain_array = is_array(receiver) && (*(receiver as *const RBasic)).klass == rb_cArray;
        if is_plain_array && rb_method_boundp(rb_cArray, method, 0) == 0 {
            return;
        }
        if rb_respond_to(receiver, method) != 0 {
            call(receiver, method, &[]);
        }
    }
}
