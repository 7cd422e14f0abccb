//! Reports whether a Ruby thread waits or computes, by the events of Ruby's lock (GVL) in Ruby 3.2 and later.

use std::cell::Cell;
use std::ffi::{c_int, c_void, CStr};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use fastrack_engine::{Activity, GvlEvent};
use rb_sys::{rb_thread_current, VALUE};

use crate::ruby::protect::protect;

/// RUBY_INTERNAL_THREAD_EVENT_*. The bindings may lack the constants: Ruby 3.1 has no such header.
#[repr(u32)]
enum Event {
    /// The thread waits for the GVL.
    Ready = 1 << 1,
    /// The thread has acquired the GVL.
    Resumed = 1 << 2,
    /// The thread has released the GVL.
    Suspended = 1 << 3,
}

const READY: u32 = Event::Ready as u32;
const SUSPENDED: u32 = Event::Suspended as u32;

type OnEvent = unsafe extern "C" fn(u32, *const c_void, *mut c_void);

/// rb_internal_thread_add_event_hook.
type AddHook = unsafe extern "C" fn(OnEvent, u32, *mut c_void) -> *mut c_void;

/// The functions rb_internal_thread_specific_* (include/ruby/thread.h), with the extension's key. Ruby 3.3 and later have
/// them: there a Ruby thread may move to another native thread (RUBY_MN_THREADS=1).
struct Specific {
    key: c_int,
    get: unsafe extern "C" fn(VALUE, c_int) -> *mut c_void,
    set: unsafe extern "C" fn(VALUE, c_int, *mut c_void),
}

/// Whether this Ruby reports events.
static HAS_EVENTS: AtomicBool = AtomicBool::new(false);

/// None for a Ruby without these functions, where each Ruby thread has its own native thread.
static SPECIFIC: OnceLock<Option<Specific>> = OnceLock::new();

thread_local! {
    /// The activity of the current native thread, if [`SPECIFIC`] is None.
    static ACTIVITY: Cell<*const Activity> = const { Cell::new(null()) };
}

/// Reports this thread's events to `activity` until [`forget_activity`]. Ruby 3.1 has no events.
///
/// # Safety
/// Needs the GVL. `activity` lives until [`forget_activity`].
pub(crate) unsafe fn report_activity(activity: *const Activity) {
    SPECIFIC.get_or_init(|| {
        let specific = find_specific();
        let events = Event::Ready as u32 | Event::Resumed as u32 | Event::Suspended as u32;
        let on_event = if specific.is_some() { on_ruby_thread } else { on_native_thread };
        // SAFETY: the function has this type in each Ruby that exports it. The callbacks accept any event.
        unsafe {
            if let Some(add_hook) = exported::<AddHook>(c"rb_internal_thread_add_event_hook") {
                add_hook(on_event, events, null_mut());
                HAS_EVENTS.store(true, Ordering::Relaxed);
            }
        }
        specific
    });
    if HAS_EVENTS.load(Ordering::Relaxed) {
        // SAFETY: as this function's.
        unsafe { (*activity).note_events() };
    }
    set_activity(activity);
}

pub(crate) fn forget_activity() {
    set_activity(null());
}

fn set_activity(activity: *const Activity) {
    match SPECIFIC.get() {
        // SAFETY: the callers have the GVL; Ruby has created the key.
        Some(Some(specific)) => unsafe {
            (specific.set)(rb_thread_current(), specific.key, activity.cast_mut().cast());
        },
        _ => ACTIVITY.set(activity),
    }
}

/// The functions with a new key. None if Ruby lacks the functions, or has no key left.
fn find_specific() -> Option<Specific> {
    type Create = unsafe extern "C" fn() -> c_int;
    // SAFETY: the functions have these types in each Ruby that exports them. `create` may raise: it is under protect, and its
    // closure owns nothing.
    unsafe {
        let create = exported::<Create>(c"rb_internal_thread_specific_key_create")?;
        let get = exported(c"rb_internal_thread_specific_get")?;
        let set = exported(c"rb_internal_thread_specific_set")?;
        Some(Specific { key: protect(|| create()).ok()?, get, set })
    }
}

/// A function that only some versions of Ruby export.
///
/// # Safety
/// `F` is the function's type.
unsafe fn exported<F>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: as this function's; a pointer to a function is as large as one to data.
    fastrack_sys::exported(name).map(|address| unsafe { std::mem::transmute_copy(&address) })
}

/// The hook for a Ruby with one native thread per Ruby thread.
///
/// Ruby calls the hooks in the thread of the event, with or without the GVL. The hooks store a number, and may set a timer.
unsafe extern "C" fn on_native_thread(event: u32, _: *const c_void, _: *mut c_void) {
    // A thread that is ending may have dropped the variable.
    let activity = ACTIVITY.try_with(Cell::get).unwrap_or(null());
    // SAFETY: the caller of report_activity keeps the activity alive while it is set.
    unsafe { note(event, activity) };
}

/// The hook for a Ruby with [`Specific`].
unsafe extern "C" fn on_ruby_thread(event: u32, data: *const c_void, _: *mut c_void) {
    // The first events may come before SPECIFIC is set.
    let Some(Some(specific)) = SPECIFIC.get() else { return };
    // SAFETY: a Ruby with these functions passes a structure that starts with the thread
    // (rb_internal_thread_event_data_t). The look-up is safe without the GVL. The caller of report_activity keeps the
    // activity alive.
    unsafe {
        let thread = *data.cast::<VALUE>();
        note(event, (specific.get)(thread, specific.key).cast());
    }
}

unsafe fn note(event: u32, activity: *const Activity) {
    // SAFETY: as this function's; the activity is null or alive.
    if let Some(activity) = unsafe { activity.as_ref() } {
        activity.note(match event {
            SUSPENDED => GvlEvent::Suspended,
            READY => GvlEvent::Ready,
            _ => GvlEvent::Resumed,
        });
    }
}
