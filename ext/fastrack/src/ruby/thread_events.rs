//! Tells whether a Ruby thread waits or computes: by the events of Ruby's lock (GVL), which Ruby 3.2 and later report.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Once;

use fastrack_engine::Activity;

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

thread_local! {
    /// The current thread's, while it serves.
    static ACTIVITY: Cell<*const Activity> = const { Cell::new(null()) };
}

/// From now on the events of this thread's go to `activity`, until [`forget_activity`]. Nothing happens with Ruby 3.1.
///
/// # Safety
/// `activity` lives until then.
pub(crate) unsafe fn report_activity(activity: *const Activity) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let events = Event::Ready as u32 | Event::Resumed as u32 | Event::Suspended as u32;
        if let Some(address) = fastrack_sys::exported(c"rb_internal_thread_add_event_hook") {
            // SAFETY: the function has this type in each Ruby that exports it; the callback takes any event.
            unsafe {
                let add_hook = std::mem::transmute::<*mut c_void, AddHook>(address.as_ptr());
                add_hook(on_event, events, null_mut());
            }
        }
    });
    ACTIVITY.set(activity);
}

pub(crate) fn forget_activity() {
    ACTIVITY.set(null());
}

/// Runs in the thread that the event is about, with or without the lock: it stores a number, and may set a timer.
unsafe extern "C" fn on_event(event: u32, _: *const c_void, _: *mut c_void) {
    // A thread that ends may have no such variable any more.
    let activity = ACTIVITY.try_with(Cell::get).unwrap_or(null());
    // SAFETY: report_activity's caller keeps it alive while it is set.
    if let Some(activity) = unsafe { activity.as_ref() } {
        activity.set_waiting(event == Event::Suspended as u32);
    }
}
