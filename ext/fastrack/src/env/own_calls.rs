//! What env offers for its own request: rack.hijack, rack.early_hints, fastrack.client_gone and fastrack.timeout.
//!
//! The app may keep these objects, and call them at any time and in any thread. So each knows the number of its request, and a
//! call compares that with the requests in progress.
//!
//! To make them takes as long as a fiftieth of a short request. So while the app has one thread, and calls none of them, requests
//! take turns with a few sets of them.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use magnus::{prelude::*, Error, RModule, Ruby};
use rb_sys::*;

use crate::ruby::{interned, NIL};

/// How many of them there are.
pub(crate) const OWN_CALLS: usize = 4;

/// Sets that requests share, one after the other.
pub(super) const SHARED_SETS: usize = 4;

/// Requests that get objects of their own after one that has called one of these, or had other threads beside it.
const OWN_SETS: u32 = 1_000;

/// Which of them a listener's template has.
pub(crate) type Offered = [bool; OWN_CALLS];

/// Grows with each call of any.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// The keys, in the order of [`classes`].
pub(crate) fn own_call_keys() -> [VALUE; OWN_CALLS] {
    let interned = interned();
    [interned.hijack, interned.early_hints, interned.client_gone, interned.timeout]
}

fn classes() -> [VALUE; OWN_CALLS] {
    let interned = interned();
    [interned.hijack_call, interned.early_hints_call, interned.client_gone_call, interned.timeout_call]
}

pub(super) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let base = module.define_class("OwnCall", ruby.class_object())?;
    base.undef_default_alloc_func();
    for name in ["Hijack", "EarlyHints", "ClientGone", "Timeout"] {
        base.define_class(name, base)?;
    }
    Ok(())
}

/// The number of the request that an object is for, from a call of it.
///
/// # Safety
/// Needs the GVL only; `object` is one of these.
pub(crate) unsafe fn own_request(object: VALUE) -> usize {
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as this function's, so that this does not raise.
    let data = unsafe { rb_check_typeddata(object, &raw const TYPE.0) } as usize;
    if data & OWN == OWN {
        return data >> 1;
    }
    // SAFETY: not OWN, so `shared` has made it, and the object keeps the number alive.
    unsafe { &*(data as *const AtomicUsize) }.load(Ordering::Relaxed)
}

/// A set that requests share.
struct Shared {
    objects: [VALUE; OWN_CALLS],
    /// The number of the request that has it.
    request: Arc<AtomicUsize>,
}

/// Which objects a request gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The shared set with this number.
    Shared(usize),
    /// The same, which is new.
    New(usize),
    /// Some that are made for it.
    Own,
}

/// INVARIANT: lives on the stack, where the GC sees the values in it.
pub(super) struct OwnCalls {
    offered: Offered,
    sets: [Option<Shared>; SHARED_SETS],
    /// What [`CALLS`] was at the last request.
    calls: u64,
    /// Requests that still get objects of their own.
    left: u32,
}

impl OwnCalls {
    pub fn new(offered: Offered) -> Self {
        OwnCalls { offered, sets: [const { None }; SHARED_SETS], calls: 0, left: OWN_SETS }
    }

    /// A request with this number begins; whether its thread is the only one.
    pub unsafe fn begin(&mut self, request: usize, alone: bool) -> Turn {
        let calls = CALLS.load(Ordering::Relaxed);
        if !alone || calls != self.calls {
            (self.calls, self.left) = (calls, OWN_SETS);
            // Somebody may have kept them.
            self.sets = [const { None }; SHARED_SETS];
        }
        if self.left > 0 {
            self.left -= 1;
            return Turn::Own;
        }
        let index = request % SHARED_SETS;
        if let Some(set) = &self.sets[index] {
            set.request.store(request, Ordering::Relaxed);
            return Turn::Shared(index);
        }
        // SAFETY: as this function's; the Arc is the set's at once, which `self` owns outside of protect.
        unsafe {
            let set = self.sets[index]
                .insert(Shared { objects: [NIL; OWN_CALLS], request: Arc::new(request.into()) });
            for (place, class) in set.objects.iter_mut().zip(classes()) {
                *place = shared(class, &set.request);
            }
        }
        Turn::New(index)
    }

    /// Makes objects for this request alone, and passes them on in the order of their keys.
    pub unsafe fn for_each_own(&self, request: usize, mut take: impl FnMut(VALUE)) {
        let offered = classes().into_iter().zip(self.offered);
        for (class, _) in offered.filter(|(_, is_offered)| *is_offered) {
            // SAFETY: as this function's. Such a number takes years to reach the highest bit.
            let object = unsafe { wrap(class, (request << 1 | OWN) as *mut c_void) };
            take(object);
        }
    }

    /// Puts a shared set into a template.
    pub unsafe fn put(&self, index: usize, template: VALUE) {
        let Some(set) = &self.sets[index] else { return };
        let entries = own_call_keys().into_iter().zip(set.objects).zip(self.offered);
        for ((key, object), _) in entries.filter(|(_, is_offered)| *is_offered) {
            // SAFETY: as this function's; `template` is a Hash.
            unsafe { rb_hash_aset(template, key, object) };
        }
    }
}

/// Says that the data is a request's number and no address, which is even.
const OWN: usize = 1;

unsafe fn shared(class: VALUE, request: &Arc<AtomicUsize>) -> VALUE {
    // SAFETY: as this function's. `free` takes this reference back; if there is no memory for the object it is lost.
    unsafe { wrap(class, Arc::into_raw(Arc::clone(request)).cast_mut().cast()) }
}

unsafe fn wrap(class: VALUE, data: *mut c_void) -> VALUE {
    // SAFETY: as this function's.
    unsafe { rb_data_typed_object_wrap(class, data, &raw const TYPE.0) }
}

unsafe extern "C" fn free(data: *mut c_void) {
    if data as usize & OWN != OWN {
        // SAFETY: it is the reference of `shared`, and the object is freed once.
        drop(unsafe { Arc::from_raw(data.cast::<AtomicUsize>().cast_const()) });
    }
}

struct DataType(rb_data_type_t);

// SAFETY: nobody writes to it.
unsafe impl Sync for DataType {}

static TYPE: DataType = DataType({
    // SAFETY: a C structure of pointers and numbers, for which 0 is a value; Ruby wants 0 for what it does not know yet.
    let mut data_type: rb_data_type_t = unsafe { std::mem::zeroed() };
    data_type.wrap_struct_name = c"Fastrack::OwnCall".as_ptr();
    data_type.function.dfree = Some(free);
    data_type.flags = (rbimpl_typeddata_flags::RUBY_TYPED_FREE_IMMEDIATELY as VALUE)
        | (rbimpl_typeddata_flags::RUBY_TYPED_WB_PROTECTED as VALUE);
    data_type
});
