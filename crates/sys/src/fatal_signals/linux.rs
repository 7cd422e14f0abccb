//! Tells by the registers.

use std::ffi::c_void;

use nix::libc;

pub const KNOWS_OVERFLOWS: bool = true;

/// Whether a fault is a stack overflow: its address is where the stack would grow. This is Ruby's own rule.
///
/// # Safety
/// The kernel passed both to a signal handler that has not returned.
pub unsafe fn is_overflow(info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
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
    // Signals sent by a process have codes up to 0 (sigaction(2)).
    code > 0 && is_beyond(address / PAGE, stack / PAGE, base / PAGE)
}

/// Ruby assumes pages of this size everywhere.
const PAGE: usize = 4096;

/// A push faults one page below the stack pointer. A large frame moves the pointer first.
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
}
