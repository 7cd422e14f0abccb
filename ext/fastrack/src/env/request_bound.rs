//! The request-bound objects of env: rack.hijack, rack.early_hints, fastrack.client_gone, fastrack.timeout and puma.mark_as_io_bound.
//!
//! The app may keep these objects, and call them at any time and in any thread. So each request gets its own objects with
//! the number of the request, and a call looks for the number among the requests in progress.

use std::ffi::c_void;

use magnus::{prelude::*, Error, RModule, Ruby};
use rb_sys::*;

use crate::ruby::{interned, NIL};

/// Number of request-bound objects.
pub(crate) const REQUEST_BOUND: usize = 5;

/// Whether a listener's template offers each object, in the order of [`request_bound_keys`].
pub(crate) type Offered = [bool; REQUEST_BOUND];

/// The keys, in the order of [`classes`].
pub(crate) fn request_bound_keys() -> [VALUE; REQUEST_BOUND] {
    let interned = interned();
    [interned.hijack, interned.early_hints, interned.client_gone, interned.timeout, interned.io_bound]
}

fn classes() -> [VALUE; REQUEST_BOUND] {
    let interned = interned();
    [
        interned.hijack_call,
        interned.early_hints_call,
        interned.client_gone_call,
        interned.timeout_call,
        interned.io_bound_call,
    ]
}

pub(super) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let base = module.define_class("RequestBound", ruby.class_object())?;
    for name in ["Hijack", "EarlyHints", "ClientGone", "Timeout", "IoBound"] {
        // Undefined in each class: Ruby looks for the allocator at each new object, from the class upwards.
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

    /// Makes the objects for the request with this number, and passes each to `store`, in the order of the keys.
    ///
    /// # Safety
    /// Under protect, and `store` puts the objects where the GC sees them.
    pub unsafe fn make(&self, request: usize, mut store: impl FnMut(VALUE)) {
        // The number is stored as an address. 0 would mean no data to Ruby.
        let data = (request + 1) as *mut c_void;
        for class in &self.classes[..self.len] {
            // SAFETY: as this function's; the type has no function that would follow the address.
            store(unsafe { rb_data_typed_object_wrap(*class, data, &raw const TYPE.0) });
        }
    }
}

/// The number of an object's request.
///
/// # Safety
/// Needs the GVL only; [`RequestBoundObjects::make`] has made `object`.
pub(crate) unsafe fn bound_request(object: VALUE) -> usize {
    // SAFETY: as this function's, so that this does not raise.
    unsafe { rb_check_typeddata(object, &raw const TYPE.0) as usize - 1 }
}

struct DataType(rb_data_type_t);

// SAFETY: the type is constant.
unsafe impl Sync for DataType {}

static TYPE: DataType = DataType({
    // SAFETY: a C structure of pointers and numbers, for which 0 is valid. Ruby requires 0 in unused and reserved members.
    let mut data_type: rb_data_type_t = unsafe { std::mem::zeroed() };
    data_type.wrap_struct_name = c"Fastrack::RequestBound".as_ptr();
    data_type.flags = (rbimpl_typeddata_flags::RUBY_TYPED_FREE_IMMEDIATELY as VALUE)
        | (rbimpl_typeddata_flags::RUBY_TYPED_WB_PROTECTED as VALUE);
    data_type
});
