//! The only place where Ruby's global lock is let go.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;

use rb_sys::{rb_thread_call_without_gvl2, rb_unblock_function_t};

struct Call<'a> {
    work: &'a mut (dyn FnMut() + Send),
    panic: Option<Box<dyn Any + Send>>,
}

/// Runs blocking work while other Ruby threads may run.
///
/// The work is not run when this thread has an interrupt pending, and a system
/// call in it ends with EINTR when one comes: whoever calls this checks
/// interrupts afterwards and tries again. Never raises.
pub(crate) fn without_gvl(work: &mut (dyn FnMut() + Send)) {
    let mut call = Call { work, panic: None };
    // SAFETY: `trampoline` gets a pointer to `call`, which outlives it; it neither
    // calls Ruby nor unwinds. The unblock function interrupts system calls of this
    // thread by a signal. This variant of the call returns instead of raising.
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
    // SAFETY: `data` is what without_gvl passed: a Call that nobody else touches meanwhile.
    let call = unsafe { &mut *data.cast::<Call<'_>>() };
    call.panic = catch_unwind(AssertUnwindSafe(|| (call.work)())).err();
    ptr::null_mut()
}

/// RUBY_UBF_IO, which the headers define as a cast of -1 and so is not in the bindings (ruby/thread.h).
fn interrupt_system_call() -> rb_unblock_function_t {
    // SAFETY: a function pointer is as wide as usize, and not null here; Ruby
    // compares it with this constant and never calls it.
    unsafe { std::mem::transmute::<usize, rb_unblock_function_t>(usize::MAX) }
}
