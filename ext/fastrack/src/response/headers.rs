//! The application's response, taken apart (Rack SPEC, "The Response").

use std::ffi::{c_int, CStr};

use rb_sys::*;

use fastrack_http::{FieldError, ResponseHead};

use crate::ruby::interned::names;
use crate::ruby::protect::callback;
use crate::ruby::scoped_ref::{self as loan, Loan};
use crate::ruby::strings::all_strings;

/// What the application tells the server by headers that no client sees; nil where it says nothing.
pub(crate) struct Orders {
    /// What is to be called with the socket, after the head: rack.hijack.
    pub hijack: VALUE,
    /// The protocol to switch to: rack.protocol.
    pub protocol: VALUE,
}

impl Orders {
    pub fn none() -> Self {
        Orders { hijack: Qnil as VALUE, protocol: Qnil as VALUE }
    }
}

/// The three parts of a response.
pub(crate) struct Triple {
    pub status: VALUE,
    pub code: u16,
    pub headers: VALUE,
    pub body: VALUE,
}

/// Takes apart what the application returned; raises TypeError or RangeError if it is no response.
///
/// `unclosed` gets the body as soon as there is one: whatever goes wrong from
/// there on, close is called on it.
///
/// # Safety
/// Under protect, with the GVL.
pub(crate) unsafe fn triple(result: VALUE, unclosed: &mut VALUE) -> Triple {
    // SAFETY: as this function's.
    unsafe {
        let array = rb_check_array_type(result);
        if array == Qnil as VALUE || RARRAY_LEN(array) != 3 {
            raise(rb_eTypeError, c"the application must return [status, headers, body]");
        }
        let (status, headers, body) = (RARRAY_AREF(array, 0), RARRAY_AREF(array, 1), RARRAY_AREF(array, 2));
        *unclosed = body;
        Triple { status, code: code(status), headers, body }
    }
}

/// The body of a response that is not sent, because the application has the connection; nil if there is none.
///
/// # Safety
/// Under protect, with the GVL.
pub(crate) unsafe fn unsent_body(result: VALUE) -> VALUE {
    // SAFETY: as this function's.
    unsafe {
        if RB_TYPE_P(result, ruby_value_type::RUBY_T_ARRAY) && RARRAY_LEN(result) == 3 {
            RARRAY_AREF(result, 2)
        } else {
            Qnil as VALUE
        }
    }
}

unsafe fn code(status: VALUE) -> u16 {
    // SAFETY: under protect, and owning nothing.
    unsafe {
        let number =
            if FIXNUM_P(status) { status } else { rb_funcallv(status, names().id_to_i, 0, std::ptr::null()) };
        match u16::try_from(NUM2LONG(number)) {
            Ok(code @ 100..=999) => code,
            _ => raise(rb_eRangeError, c"a status must be an Integer from 100 to 999"),
        }
    }
}

/// Raises an exception with a fixed message.
///
/// # Safety
/// Under protect; the caller's frames own nothing.
pub(crate) unsafe fn raise(class: VALUE, message: &CStr) -> ! {
    // SAFETY: as this function's; the message is the only argument that its format takes.
    unsafe { rb_raise(class, c"%s".as_ptr(), message.as_ptr()) }
}

/// What the iteration over the headers carries along.
struct Fields<'a> {
    head: &'a mut ResponseHead,
    orders: &'a mut Orders,
    /// The first field that cannot be sent, and why.
    refused: Option<(VALUE, FieldError)>,
    panicked: bool,
}

/// Fills `head` with the headers, and `orders` with those that are none; raises ArgumentError on one that cannot be
/// sent.
///
/// # Safety
/// Under protect, with the GVL; `loan` is ended when this has returned or raised.
pub(crate) unsafe fn take_headers(
    headers: VALUE,
    head: &mut ResponseHead,
    loan: &mut Loan,
    orders: &mut Orders,
) {
    let mut fields = Fields { head, orders, refused: None, panicked: false };
    // SAFETY: as this function's. rb_hash_foreach calls back while it runs and not later, and
    // nobody else touches `fields` meanwhile; a block of Ruby's gets a loan.
    unsafe {
        if RB_TYPE_P(headers, ruby_value_type::RUBY_T_HASH) {
            rb_hash_foreach(headers, Some(hash_entry), (&raw mut fields) as VALUE);
        } else {
            let lent = loan.begin(&mut fields);
            rb_block_call(headers, names().id_each, 0, std::ptr::null(), Some(yielded_pair), lent);
            loan.end();
        }
        if fields.panicked {
            raise(rb_eRuntimeError, c"the headers could not be taken in");
        }
        if let Some((name, error)) = fields.refused {
            refuse(name, error);
        }
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
    // SAFETY: `data` is what take_headers passed; under its protect.
    let fields = unsafe { &mut *(data as *mut Fields<'_>) };
    // SAFETY: as above.
    if callback(|| unsafe { take(fields, name, value) }).is_none() {
        fields.panicked = true;
    }
    st_retval::ST_CONTINUE as c_int
}

/// For headers that are no Hash: each yields a pair, or two values.
unsafe extern "C" fn yielded_pair(
    first: VALUE,
    loan: VALUE,
    argc: c_int,
    argv: *const VALUE,
    _block: VALUE,
) -> VALUE {
    // SAFETY: `loan` is what take_headers passed, `argv` has `argc` values; under its protect.
    unsafe {
        let (name, value) = if argc >= 2 {
            (first, *argv.add(1))
        } else {
            let pair = rb_check_array_type(first);
            if pair == Qnil as VALUE || RARRAY_LEN(pair) != 2 {
                raise(rb_eTypeError, c"headers must be a Hash, or yield pairs");
            }
            (RARRAY_AREF(pair, 0), RARRAY_AREF(pair, 1))
        };
        // Here, for their to_s may leave the iteration (Fiber.yield) and come back when it is over: while the loan is in
        // use, Ruby code must not run.
        let name = as_string(name);
        let value = if is_order(name) { value } else { as_strings(value) };
        loan::with(loan, |fields: &mut Fields<'_>| {
            if callback(|| take(fields, name, value)).is_none() {
                fields.panicked = true;
            }
        });
    }
    Qnil as VALUE
}

/// Whether a header is a message from the application to the server.
unsafe fn is_order(name: VALUE) -> bool {
    // SAFETY: a String, alive on the stack.
    unsafe { bytes(name).get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"rack.")) }
}

/// Takes in one header, whose value may be an Array of several.
unsafe fn take(fields: &mut Fields<'_>, name: VALUE, value: VALUE) {
    // SAFETY: under protect.
    unsafe {
        let name = as_string(name);
        if is_order(name) {
            match &bytes(name)[5..] {
                b"hijack" => fields.orders.hijack = value,
                b"protocol" => fields.orders.protocol = value,
                _ => {}
            }
            return;
        }
        if RB_TYPE_P(value, ruby_value_type::RUBY_T_ARRAY) {
            let mut index = 0;
            while index < RARRAY_LEN(value) as isize {
                add(fields, name, RARRAY_AREF(value, index));
                index += 1;
            }
        } else {
            add(fields, name, value);
        }
    }
}

unsafe fn add(fields: &mut Fields<'_>, name: VALUE, value: VALUE) {
    // SAFETY: both are Strings, alive on the stack; nothing calls Ruby while their bytes are borrowed.
    unsafe {
        let value = as_string(value);
        if let Err(error) = fields.head.field(bytes(name), bytes(value)) {
            fields.refused.get_or_insert((name, error));
        }
    }
}

/// The object itself if it is a String or an Array of Strings, else its `to_s`, or those of what is in it.
unsafe fn as_strings(object: VALUE) -> VALUE {
    // SAFETY: under protect.
    unsafe {
        if RB_TYPE_P(object, ruby_value_type::RUBY_T_ARRAY) {
            all_strings(object)
        } else {
            as_string(object)
        }
    }
}

/// The object itself if it is a String, else its `to_s`.
///
/// # Safety
/// Under protect, with the GVL.
pub(crate) unsafe fn as_string(object: VALUE) -> VALUE {
    // SAFETY: as this function's.
    unsafe {
        if RB_TYPE_P(object, ruby_value_type::RUBY_T_STRING) {
            object
        } else {
            rb_obj_as_string(object)
        }
    }
}

/// The bytes of a String.
///
/// # Safety
/// The value is a String that stays alive, and unchanged, while the slice is
/// used: no Ruby code may run meanwhile.
pub(crate) unsafe fn bytes<'a>(string: VALUE) -> &'a [u8] {
    // SAFETY: as this function's; Ruby's pointer is never null.
    unsafe { std::slice::from_raw_parts(RSTRING_PTR(string).cast(), RSTRING_LEN(string) as usize) }
}
