//! Tells whether a Ruby thread waits or computes: by the events of Ruby's lock (GVL), which Ruby 3.2 and later report.

use std::cell::Cell;
use std::ffi::{c_int, c_void, CStr};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use fastrack_engine::Activity;
use rb_sys::{rb_thread_current, VALUE};

use crate::ruby::protect::protect;

/// RUBY_INTERNAL_THREAD_EVENT_*. Ruby 3.1 has no such header.
#[repr(u32)]
enum Event {
    /// The thread wants the lock.
    Ready = 1 << 1,
    /// It has it.
    Resumed = 1 << 2,
    /// It has given it up.
    Suspended = 1 << 3,
}

type OnEvent = unsafe extern "C" fn(u32, *const c_void, *mut c_void);

/// rb_internal_thread_add_event_hook.
type AddHook = unsafe extern "C" fn(OnEvent, u32, *mut c_void) -> *mut c_void;

/// The functions rb_internal_thread_specific_* of Ruby 3.3 and later (include/ruby/thread.h), and a key of this extension's. There a
/// Ruby thread may go on in another native thread (RUBY_MN_THREADS=1).
struct Specific {
    key: c_int,
    get: unsafe extern "C" fn(VALUE, c_int) -> *mut c_void,
    set: unsafe extern "C" fn(VALUE, c_int, *mut c_void),
}

/// None for a Ruby whose threads are native ones.
static SPECIFIC: OnceLock<Option<Specific>> = OnceLock::new();

thread_local! {
    /// The current thread's, while it serves, with such a Ruby.
    static ACTIVITY: Cell<*const Activity> = const { Cell::new(null()) };
}

/// From now on the events of this thread's go to `activity`, until [`forget_activity`]. Nothing happens with Ruby 3.1.
///
/// # Safety
/// Needs the GVL. `activity` lives until then.
pub(crate) unsafe fn report_activity(activity: *const Activity) {
    SPECIFIC.get_or_init(|| {
        let specific = find_specific();
        let events = Event::Ready as u32 | Event::Resumed as u32 | Event::Suspended as u32;
        let on_event = if specific.is_some() { on_ruby_thread } else { on_native_thread };
        // SAFETY: the function has this type in each Ruby that exports it; the callbacks take any event.
        unsafe {
            if let Some(add_hook) = exported::<AddHook>(c"rb_internal_thread_add_event_hook") {
                add_hook(on_event, events, null_mut());
            }
        }
        specific
    });
    set_activity(activity);
}

pub(crate) fn forget_activity() {
    set_activity(null());
}

fn set_activity(activity: *const Activity) {
    match SPECIFIC.get() {
        // SAFETY: the callers have the GVL; the key is Ruby's.
        Some(Some(specific)) => unsafe {
            (specific.set)(rb_thread_current(), specific.key, activity.cast_mut().cast());
        },
        _ => ACTIVITY.set(activity),
    }
}

/// None too where Ruby has no key left.
fn find_specific() -> Option<Specific> {
    type Create = unsafe extern "C" fn() -> c_int;
    // SAFETY: the functions have these types in each Ruby that exports them. The one that may raise is under protect, which owns
    // nothing.
    unsafe {
        let create = exported::<Create>(c"rb_internal_thread_specific_key_create")?;
        let get = exported(c"rb_internal_thread_specific_get")?;
        let set = exported(c"rb_internal_thread_specific_set")?;
        Some(Specific { key: protect(|| create()).ok()?, get, set })
    }
}

/// A function of Ruby's that not each version has.
///
/// # Safety
/// `F` is the function's type.
unsafe fn exported<F>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: as this function's; a pointer to a function is as large as one to data.
    fastrack_sys::exported(name).map(|address| unsafe { std::mem::transmute_copy(&address) })
}

/// Both run in the thread that the event is about, with or without the lock: they store a number, and may set a timer.
unsafe extern "C" fn on_native_thread(event: u32, _: *const c_void, _: *mut c_void) {
    // A thread that ends may have no such variable any more.
    let activity = ACTIVITY.try_with(Cell::get).unwrap_or(null());
    // SAFETY: report_activity's caller keeps it alive while it is set.
    unsafe { note(event, activity) };
}

unsafe extern "C" fn on_ruby_thread(event: u32, data: *const c_void, _: *mut c_void) {
    // The first may come before the key is there for all to see.
    let Some(Some(specific)) = SPECIFIC.get() else { return };
    // SAFETY: a Ruby that has these functions passes a structure that begins with the thread
    // (rb_internal_thread_event_data_t); the look-up is safe without the lock. For the rest see report_activity.
    unsafe {
        let thread = *data.cast::<VALUE>();
        note(event, (specific.get)(thread, specific.key).cast());
    }
}

unsafe fn note(event: u32, activity: *const Activity) {
    // SAFETY: as this function's: it is null, or alive.
    if let Some(activity) = unsafe { activity.as_ref() } {
        activity.set_waiting(event == Event::Suspended as u32);
    }
}
