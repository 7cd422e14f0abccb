//! Ruby Strings and Arrays of Strings.

use std::fmt::Display;
use std::io::Write;

use rb_sys::*;

use crate::ruby::value::{is_array, is_string};

/// A new binary String.
pub(crate) unsafe fn string(bytes: &[u8]) -> VALUE {
    // The pointer of an empty Rust slice is dangling, and Ruby 3.1 reads through it.
    let pointer = if bytes.is_empty() { c"".as_ptr() } else { bytes.as_ptr().cast() };
    // SAFETY: the pointer is valid for the length.
    unsafe { rb_str_new(pointer, bytes.len() as _) }
}

/// The bytes of a String.
///
/// # Safety
/// Needs the GVL only. `string` is a String. No Ruby code, which could change the String, runs while the slice is in use.
pub(crate) unsafe fn bytes<'a>(string: VALUE) -> &'a [u8] {
    // SAFETY: as this function's; Ruby's pointer is never null.
    unsafe { std::slice::from_raw_parts(RSTRING_PTR(string).cast(), RSTRING_LEN(string) as usize) }
}

/// The bytes of a String, or `default` for another object.
///
/// # Safety
/// As [`bytes`]. Also without the GVL, if the object is alive and no String that changes.
pub(crate) unsafe fn bytes_or(object: VALUE, default: &[u8]) -> &[u8] {
    // SAFETY: as this function's.
    unsafe {
        if is_string(object) {
            bytes(object)
        } else {
            default
        }
    }
}

/// The text of a value, in a buffer on the stack, cut off at the buffer's size.
pub(crate) fn format_into<const SIZE: usize>(buffer: &mut [u8; SIZE], value: impl Display) -> &[u8] {
    let mut rest = &mut buffer[..];
    let _ = write!(rest, "{value}");
    let unused = rest.len();
    &buffer[..SIZE - unused]
}

/// The object itself if it is a String, else its `to_s`.
pub(crate) unsafe fn as_string(object: VALUE) -> VALUE {
    // SAFETY: as this function's.
    unsafe {
        if is_string(object) {
            object
        } else {
            rb_obj_as_string(object)
        }
    }
}

/// `array` itself if all elements are Strings, else a new Array with the `to_s` of each element.
pub(crate) unsafe fn all_strings(array: VALUE) -> VALUE {
    // SAFETY: as this function's. Both Arrays are on the stack; a `to_s` may change the length of the first.
    unsafe {
        if (0..RARRAY_LEN(array)).all(|index| is_string(RARRAY_AREF(array, index as _))) {
            return array;
        }
        let strings = rb_ary_new_capa(RARRAY_LEN(array));
        let mut index = 0;
        while index < RARRAY_LEN(array) as isize {
            rb_ary_push(strings, as_string(RARRAY_AREF(array, index)));
            index += 1;
        }
        strings
    }
}

/// As [`as_string`], or [`all_strings`] for an Array.
pub(crate) unsafe fn as_string_or_strings(object: VALUE) -> VALUE {
    // SAFETY: as this function's.
    unsafe {
        if is_array(object) {
            all_strings(object)
        } else {
            as_string(object)
        }
    }
}

/// The total length of the Strings in an Array, in bytes. Needs the GVL only.
pub(crate) unsafe fn total_length(strings: VALUE) -> usize {
    // SAFETY: as this function's; nothing here calls Ruby.
    unsafe {
        (0..RARRAY_LEN(strings)).map(|index| RSTRING_LEN(RARRAY_AREF(strings, index as _)) as usize).sum()
    }
}
