//! Callable objects in env that act on one request: rack.hijack, rack.early_hints, fastrack.client_gone and fastrack.timeout.
//!
//! The app may keep such an object, and may call it at any time and in any thread. So each request gets objects that hold the request's
//! number. A call compares that number with the requests in progress.

use std::ffi::c_void;

use magnus::{prelude::*, Error, RModule, Ruby};
use rb_sys::*;

use crate::ruby::{interned, NIL};

/// Number of these objects.
pub(crate) const REQUEST_BOUND: usize = 4;

/// Whether a listener's template has each of these objects.
pub(crate) type Offered = [bool; REQUEST_BOUND];

/// The keys, in the order of [`classes`].
pub(crate) fn request_bound_keys() -> [VALUE; REQUEST_BOUND] {
    let interned = interned();
    [interned.hijack, interned.early_hints, interned.client_gone, interned.timeout]
}

fn classes() -> [VALUE; REQUEST_BOUND] {
    let interned = interned();
    [interned.hijack_call, interned.early_hints_call, interned.client_gone_call, interned.timeout_call]
}

pub(super) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let base = module.define_class("RequestBound", ruby.class_object())?;
    for name in ["Hijack", "EarlyHints", "ClientGone", "Timeout"] {
        // In each class: Ruby looks an allocator up whenever it makes an object, first in the class, then in its ancestors.
        base.define_class(name, base)?.undef_default_alloc_func();
    }
    base.undef_default_alloc_func();
    Ok(())
}

/// Makes the objects that a template offers.
///
/// INVARIANT: lives on the stack, where the GC sees the values in it.
pub(super) struct RequestBoundObjects {
    classes: [VALUE; REQUEST_BOUND],
    len: usize,
}

impl RequestBoundObjects {
    pub fn new(offered: &Offered) -> Self {
        let mut objects = RequestBoundObjects { classes: [NIL; REQUEST_BOUND], len: 0 };
        for (class, _) in classes().into_iter().zip(offered).filter(|(_, is_offered)| **is_offered) {
            objects.classes[objects.len] = class;
            objects.len += 1;
        }
        objects
    }

    /// Makes the objects for the request with this number, and passes each to `take`, in the order of the keys.
    ///
    /// # Safety
    /// Under protect, and `take` keeps them where the GC sees them.
    pub unsafe fn make(&self, request: usize, mut take: impl FnMut(VALUE)) {
        // The number stands in the place of an address. Ruby takes 0 for no data.
        let data = (request + 1) as *mut c_void;
        for class in &self.classes[..self.len] {
            // SAFETY: as this function's; the type has no function that would follow the address.
            take(unsafe { rb_data_typed_object_wrap(*class, data, &raw const TYPE.0) });
        }
    }
}

/// The number of the request that an object is for.
///
/// # Safety
/// Needs the GVL only; `object` is one of these.
pub(crate) unsafe fn bound_request(object: VALUE) -> usize {
    // SAFETY: as this function's, so that this does not raise.
    unsafe { rb_check_typeddata(object, &raw const TYPE.0) as usize - 1 }
}

struct DataType(rb_data_type_t);

// SAFETY: nobody writes to it.
unsafe impl Sync for DataType {}

static TYPE: DataType = DataType({
    // SAFETY: a C structure of pointers and numbers, for which 0 is a value; Ruby wants 0 for what it does not know yet.
    let mut data_type: rb_data_type_t = unsafe { std::mem::zeroed() };
    data_type.wrap_struct_name = c"Fastrack::RequestBound".as_ptr();
    data_type.flags = (rbimpl_typeddata_flags::RUBY_TYPED_FREE_IMMEDIATELY as VALUE)
        | (rbimpl_typeddata_flags::RUBY_TYPED_WB_PROTECTED as VALUE);
    data_type
});
