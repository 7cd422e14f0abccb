//! The response's headers (Rack SPEC, "The Headers").

use std::ffi::c_int;

use rb_sys::*;

use fastrack_http::{FieldError, ResponseHead};

use crate::response::server_headers::ServerHeaders;
use crate::ruby::{
    as_string, as_string_or_strings, bytes, callback, interned, is_array, raise, ScopedRef, NIL,
};

/// The state of the iteration over the headers.
struct Fields<'a> {
    head: &'a mut ResponseHead,
    server_headers: ServerHeaders,
    /// The first invalid field, and the reason.
    refused: Option<(VALUE, FieldError)>,
    panicked: bool,
}

/// Adds the headers to `head`. Returns the headers for the server. Raises ArgumentError for an invalid header.
///
/// # Safety
/// The caller ends `block` if this raises.
pub(crate) unsafe fn read_headers(
    headers: VALUE,
    head: &mut ResponseHead,
    block: &mut ScopedRef,
) -> ServerHeaders {
    let mut fields = Fields { head, server_headers: ServerHeaders::NONE, refused: None, panicked: false };
    // SAFETY: as this function's. rb_hash_foreach calls back only while it runs. The app can keep a Ruby block: the block
    // gets a scoped reference. No other code uses `fields` during the iteration.
    unsafe {
        if iterates_as_hash(headers) {
            rb_hash_foreach(headers, Some(hash_entry), (&raw mut fields) as VALUE);
        } else {
            *block = ScopedRef::new();
            let data = block.begin(&mut fields);
            rb_block_call(headers, interned().id.each, 0, std::ptr::null(), Some(yielded_pair), data);
            block.end();
        }
        if fields.panicked {
            raise(rb_eRuntimeError, c"the headers could not be taken in");
        }
        if let Some((name, error)) = fields.refused {
            refuse(name, error);
        }
    }
    fields.head.end_fields();
    fields.server_headers
}

/// Whether `headers` is a Hash with Ruby's own `each`.
unsafe fn iterates_as_hash(headers: VALUE) -> bool {
    // SAFETY: as this function's; a Hash is an object on the heap, which starts with an RBasic.
    unsafe {
        if !RB_TYPE_P(headers, ruby_value_type::RUBY_T_HASH) {
            return false;
        }
        let class = (*(headers as *const RBasic)).klass;
        class == rb_cHash || rb_method_basic_definition_p(class, interned().id.each) != 0
    }
}

unsafe fn refuse(name: VALUE, error: FieldError) -> ! {
    let text = error.text();
    // SAFETY: under protect, and owning nothing; the text is valid for its length.
    unsafe {
        let message = rb_str_dup(rb_inspect(name));
        rb_str_cat(message, c" ".as_ptr(), 1);
        rb_str_cat(message, text.as_ptr().cast(), text.len() as _);
        rb_exc_raise(rb_exc_new_str(rb_eArgError, message))
    }
}

unsafe extern "C" fn hash_entry(name: VALUE, value: VALUE, data: VALUE) -> c_int {
    // SAFETY: `read_headers` has passed `data`; under protect.
    unsafe { (*(data as *mut Fields<'_>)).add_or_note_panic(name, value) };
    st_retval::ST_CONTINUE as c_int
}

/// The block for headers with an `each` of their own, which yields a pair or two values.
unsafe extern "C" fn yielded_pair(
    first: VALUE,
    data: VALUE,
    argc: c_int,
    argv: *const VALUE,
    _block: VALUE,
) -> VALUE {
    // SAFETY: `read_headers` has passed `data`, and `argv` has `argc` values; under protect.
    unsafe {
        let (name, value) = if argc >= 2 {
            (first, *argv.add(1))
        } else {
            let pair = rb_check_array_type(first);
            if pair == NIL || RARRAY_LEN(pair) != 2 {
                raise(rb_eTypeError, c"headers must be a Hash, or yield pairs");
            }
            (RARRAY_AREF(pair, 0), RARRAY_AREF(pair, 1))
        };
        // `to_s` is called before the scoped reference is used: it may leave the iteration (Fiber.yield), and return when the
        // iteration is over.
        let name = as_string(name);
        let value =
            if ServerHeaders::is_server_header(bytes(name)) { value } else { as_string_or_strings(value) };
        ScopedRef::with(data, |fields: &mut Fields<'_>| fields.add_or_note_panic(name, value));
    }
    NIL
}

impl Fields<'_> {
    unsafe fn add_or_note_panic(&mut self, name: VALUE, value: VALUE) {
        // SAFETY: as this function's.
        if callback(|| unsafe { self.add_header(name, value) }).is_none() {
            self.panicked = true;
        }
    }

    /// Adds one header. The value may be an Array of several values.
    unsafe fn add_header(&mut self, name: VALUE, value: VALUE) {
        // SAFETY: as this function's; nothing calls Ruby while the name's bytes are borrowed.
        unsafe {
            let name = as_string(name);
            if ServerHeaders::is_server_header(bytes(name)) {
                self.server_headers.set(bytes(name), value);
            } else if is_array(value) {
                let mut index = 0;
                while index < RARRAY_LEN(value) as isize {
                    self.add_field(name, RARRAY_AREF(value, index));
                    index += 1;
                }
            } else {
                self.add_field(name, value);
            }
        }
    }

    unsafe fn add_field(&mut self, name: VALUE, value: VALUE) {
        // SAFETY: under protect; both are on the stack, and nothing calls Ruby while their bytes are borrowed.
        unsafe {
            let value = as_string(value);
            if let Err(error) = self.head.field(bytes(name), bytes(value)) {
                self.refused.get_or_insert((name, error));
            }
        }
    }
}
