//! Arrays of Strings: parts of a body, values of a header.

use rb_sys::*;

use crate::response::headers::as_string;

/// The Array itself when there are only Strings in it, else one of their `to_s`.
///
/// # Safety
/// Under protect, with the GVL.
pub(crate) unsafe fn all_strings(parts: VALUE) -> VALUE {
    // SAFETY: under protect; both Arrays are on the stack.
    unsafe {
        let mut index = 0;
        while index < RARRAY_LEN(parts) as isize {
            if !RB_TYPE_P(RARRAY_AREF(parts, index), ruby_value_type::RUBY_T_STRING) {
                break;
            }
            index += 1;
        }
        if index == RARRAY_LEN(parts) as isize {
            return parts;
        }
        let strings = rb_ary_new_capa(RARRAY_LEN(parts));
        index = 0;
        while index < RARRAY_LEN(parts) as isize {
            rb_ary_push(strings, as_string(RARRAY_AREF(parts, index)));
            index += 1;
        }
        strings
    }
}

/// How many bytes they have together.
///
/// # Safety
/// With the GVL; an Array of Strings.
pub(crate) unsafe fn total_length(strings: VALUE) -> usize {
    let mut total = 0;
    // SAFETY: an Array of Strings; nothing here calls Ruby.
    unsafe {
        for index in 0..RARRAY_LEN(strings) as isize {
            total += RSTRING_LEN(RARRAY_AREF(strings, index)) as usize;
        }
    }
    total
}
