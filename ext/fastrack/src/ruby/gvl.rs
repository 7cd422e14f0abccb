//! The only place that releases the GVL.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;

use rb_sys::{rb_thread_call_without_gvl2, rb_unblock_function_t};

struct Call<'a> {
    work: &'a mut (dyn FnMut() + Send),
    panic: Option<Box<dyn Any + Send>>,
}

/// Runs blocking work while other Ruby threads may run. Never raises.
///
/// The work does not run if this thread has an interrupt pending. A later interrupt makes the work's system call fail with
/// EINTR. So the caller checks interrupts afterwards and tries again.
pub(crate) fn without_gvl(work: &mut (dyn FnMut() + Send)) {
    let mut call = Call { work, panic: None };
    // SAFETY: `call` outlives the call of `trampoline`, which neither calls Ruby nor unwinds. This variant of the
    // function returns on an interrupt instead of raising.
    unsafe {
        rb_thread_call_without_gvl2(
            Some(trampoline),
            (&raw mut call).cast(),
            interrupt_system_call(),
            ptr::null_mut(),
        );
    }
    if let Some(payload) = call.panic {
        resume_unwind(payload);
    }
}

unsafe extern "C" fn trampoline(data: *mut c_void) -> *mut c_void {
    // SAFETY: `without_gvl` has passed `data`, and does not use the Call until the trampoline returns.
    let call = unsafe { &mut *data.cast::<Call<'_>>() };
    call.panic = catch_unwind(AssertUnwindSafe(|| (call.work)())).err();
    ptr::null_mut()
}

/// RUBY_UBF_IO. The bindings lack the constant, because ruby/thread.h defines it as a cast of -1.
fn interrupt_system_call() -> rb_unblock_function_t {
    // SAFETY: a function pointer is as wide as usize, and the pointer is not null. Ruby compares it with the constant and never
    // calls it.
    unsafe { std::mem::transmute::<usize, rb_unblock_function_t>(usize::MAX) }
}
