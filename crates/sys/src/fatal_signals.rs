//! Running code when a signal is about to end the process, mostly because native code has crashed.

use std::ffi::c_void;
use std::sync::OnceLock;

use nix::libc;

#[cfg(all(not(portable), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod linux;
#[cfg(all(not(portable), any(target_arch = "x86_64", target_arch = "aarch64")))]
use linux as backend;

#[cfg(any(portable, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod portable;
#[cfg(any(portable, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
use portable as backend;

/// The signals of crashes: invalid memory accesses, instructions and arithmetic, and abort(3).
const SIGNALS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
type PlainHandler = extern "C" fn(i32);

static WORK: OnceLock<fn()> = OnceLock::new();

/// The previous actions of the signals whose handler was replaced.
static PREVIOUS: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; SIGNALS.len()];

/// Runs `work` when a fatal signal arrives, before the signal's previous action. Stack overflows are left out: Ruby makes
/// them exceptions. Only the first call in a process has an effect.
///
/// A signal that is ignored stays so, and so does one whose handler is in another program or library than the address `anchor`:
/// some libraries handle faults that they cause on purpose. SIGABRT is taken over from its default action only: Ruby has no
/// handler of its own for it, so one in Ruby is that of a `trap`, after which the process lives on. (The other signals cannot
/// be trapped.)
///
/// # Safety
/// `work` may run at any point of any thread: it does only what signal-safety(7) allows.
pub unsafe fn run_before_fatal_signals(anchor: usize, work: fn()) {
    if WORK.set(work).is_err() {
        return;
    }
    for (signal, previous) in SIGNALS.iter().zip(&PREVIOUS) {
        if backend::KNOWS_OVERFLOWS || !is_fault(*signal) {
            replace_handler(*signal, previous, anchor);
        }
    }
}

fn replace_handler(signal: i32, previous: &OnceLock<libc::sigaction>, anchor: usize) {
    // SAFETY: all zeroes are a sigaction, and the call only fills it.
    let (found, old) = unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &mut old), old)
    };
    let is_rubys = || signal != libc::SIGABRT && object_of(old.sa_sigaction) == object_of(anchor);
    let is_others = old.sa_sigaction != libc::SIG_DFL && !is_rubys();
    if found != 0 || is_others || previous.set(old).is_err() {
        return;
    }
    let mut new = old;
    new.sa_sigaction = handle as Handler as *const () as usize;
    // On the alternate stack, if the thread has one: its own may be full.
    new.sa_flags |= libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: with SA_SIGINFO the handler has this type.
    unsafe { libc::sigaction(signal, &new, std::ptr::null_mut()) };
}

/// The base address of the program or library that contains an address; 0 if none does.
fn object_of(address: usize) -> usize {
    // SAFETY: all zeroes are a Dl_info. dladdr(3) takes any address.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(address as *const c_void, &mut info) != 0;
        if found {
            info.dli_fbase as usize
        } else {
            0
        }
    }
}

/// Whether the signal reports an invalid memory access.
fn is_fault(signal: i32) -> bool {
    signal == libc::SIGSEGV || signal == libc::SIGBUS
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: both are from the kernel, for this handler.
    let overflow = is_fault(signal) && unsafe { backend::is_overflow(info, context) };
    if !overflow {
        WORK.get().into_iter().for_each(|work| work());
    }
    let index = SIGNALS.iter().position(|number| *number == signal);
    let Some(previous) = index.and_then(|index| PREVIOUS[index].get()) else { return };
    // SAFETY: the previous handler has the type that its flags say, and gets its own arguments. It may not return: Ruby
    // turns a stack overflow into an exception. The default action ends the process when this handler returns and the
    // signal is no longer blocked.
    unsafe {
        match previous.sa_sigaction {
            libc::SIG_IGN => {}
            libc::SIG_DFL => {
                libc::sigaction(signal, previous, std::ptr::null_mut());
                libc::raise(signal);
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => std::mem::transmute::<usize, PlainHandler>(handler)(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_by_the_object_that_it_is_in() {
        let here = object_of(run_before_fatal_signals as *const () as usize);
        assert_ne!(here, 0);
        assert_eq!(object_of(is_fault as *const () as usize), here);
        // No sanitizer puts one of its own in its place.
        assert_ne!(object_of(libc::getppid as *const () as usize), here);
    }
}
