//! Signals that end a process, most of them because its native code has gone wrong.

use nix::libc;
use std::ffi::c_void;
use std::sync::OnceLock;

/// Signals of crashes: bad memory, bad code, bad arithmetic, abort(3).
const SIGNALS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
type PlainHandler = extern "C" fn(i32);

/// What is to be done before the process ends.
static WORK: OnceLock<fn()> = OnceLock::new();

/// What each of the signals did before, where that was taken over.
static BEFORE: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; SIGNALS.len()];

/// Has `work` done when a fatal signal comes, before what is done about it now. It runs in the signal handler: only what
/// signal-safety(7) lists may be done there. It is called for each such signal, and not for one by which the stack's
/// overflow is found out.
///
/// A signal stays as it is if it is ignored, or has a handler that is in another program or library than `anchor`: some
/// libraries work by catching faults of their own making.
pub fn precede_fatal_signals(anchor: *const (), work: fn()) {
    if WORK.set(work).is_err() {
        return;
    }
    for (signal, before) in SIGNALS.iter().zip(&BEFORE) {
        if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) && is_fault(*signal) {
            // There is no telling an overflow from a crash.
            continue;
        }
        precede(*signal, before, anchor);
    }
}

fn precede(signal: i32, before: &OnceLock<libc::sigaction>, anchor: *const ()) {
    // SAFETY: all zeroes are a sigaction, which the call fills; nothing is changed by it.
    let (found, old) = unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &mut old), old)
    };
    let others =
        old.sa_sigaction != libc::SIG_DFL && object_of(old.sa_sigaction) != object_of(anchor as usize);
    if found != 0 || others || before.set(old).is_err() {
        return;
    }
    let mut new = old;
    new.sa_sigaction = handle as Handler as *const () as usize;
    // The alternate stack is there where the thread has one: its own may be full.
    new.sa_flags |= libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler has the type that is called where SA_SIGINFO is set.
    unsafe { libc::sigaction(signal, &new, std::ptr::null_mut()) };
}

/// Where the program or library begins that an address is in; 0 for one that is in none.
fn object_of(address: usize) -> usize {
    // SAFETY: all zeroes are a Dl_info, and dladdr(3) takes any address.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address as *const c_void, &mut info) == 0 {
            0
        } else {
            info.dli_fbase as usize
        }
    }
}

/// Whether the signal says that an address could not be reached.
fn is_fault(signal: i32) -> bool {
    signal == libc::SIGSEGV || signal == libc::SIGBUS
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel has made both for this handler.
    let overflow = is_fault(signal) && unsafe { is_overflow(info, context) };
    if !overflow {
        WORK.get().into_iter().for_each(|work| work());
    }
    let before = SIGNALS.iter().zip(&BEFORE).find(|(number, _)| **number == signal);
    let Some(before) = before.and_then(|(_, before)| before.get()) else { return };
    // SAFETY: these are the handler that was there before, of the type that its flags say, and what it would have got.
    // It may never return: Ruby makes an exception of an overflow.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_IGN => {}
            libc::SIG_DFL => end_by(signal, before),
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => std::mem::transmute::<usize, PlainHandler>(handler)(signal),
        }
    }
}

/// Ends the process by a signal, once its handler has returned: it is blocked until then.
unsafe fn end_by(signal: i32, default: &libc::sigaction) {
    // SAFETY: the action is the default one.
    unsafe {
        libc::sigaction(signal, default, std::ptr::null_mut());
        libc::raise(signal);
    }
}

/// Whether a fault comes of the stack's overflow: it is where the stack goes on. Ruby's own rule, by which it makes an
/// exception of it.
#[cfg(all(
    any(target_os = "linux", target_os = "android"),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
unsafe fn is_overflow(info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: as the caller's.
    let (code, address, context) =
        unsafe { ((*info).si_code, (*info).si_addr() as usize, &*context.cast::<libc::ucontext_t>()) };
    #[cfg(target_arch = "x86_64")]
    let (stack, base) = {
        let registers = &context.uc_mcontext.gregs;
        (registers[libc::REG_RSP as usize] as usize, registers[libc::REG_RBP as usize] as usize)
    };
    #[cfg(target_arch = "aarch64")]
    let (stack, base) = (context.uc_mcontext.sp as usize, context.uc_mcontext.regs[29] as usize);
    // Signals that somebody has sent have codes up to 0 (sigaction(2)).
    code > 0 && is_beyond(address / PAGE, stack / PAGE, base / PAGE)
}

#[cfg(not(all(
    any(target_os = "linux", target_os = "android"),
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
unsafe fn is_overflow(_info: *mut libc::siginfo_t, _context: *mut c_void) -> bool {
    // Better no answer than one for what is no crash.
    true
}

/// What Ruby takes for a page's size, whatever it is.
const PAGE: usize = 4096;

/// A push fails one page below the stack's pointer; a larger frame is entered at once.
fn is_beyond(fault: usize, stack: usize, base: usize) -> bool {
    stack == fault || stack == fault + 1 || stack <= fault && fault <= base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_next_to_the_stacks_pointer_is_an_overflow() {
        assert!(is_beyond(100, 100, 120) && is_beyond(99, 100, 120) && is_beyond(110, 100, 120));
        assert!(!is_beyond(98, 100, 120) && !is_beyond(121, 100, 120) && !is_beyond(0, 100, 120));
        // A compiler may use the base pointer for something else.
        assert!(!is_beyond(110, 100, 7));
    }

    #[test]
    fn an_address_is_known_by_the_object_that_it_is_in() {
        let here = object_of(precede_fatal_signals as *const () as usize);
        assert_ne!(here, 0);
        assert_eq!(object_of(is_beyond as *const () as usize), here);
        // No sanitizer puts one of its own in its place.
        assert_ne!(object_of(libc::getppid as *const () as usize), here);
    }
}
