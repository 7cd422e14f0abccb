//! Processes.

use nix::libc;

/// Ends this process at once, without destructors or exit handlers (_exit(2)).
pub fn exit_at_once(status: i32) -> ! {
    // SAFETY: it takes any status, and does not return.
    unsafe { libc::_exit(status) }
}

/// Whether a process with this pid runs: one that has ended and was not reaped does not.
pub fn is_alive(pid: u32) -> bool {
    // State is the first field after the name, which is in parentheses and may contain some (proc(5)).
    let is_zombie = |stat: Vec<u8>| {
        let name_end = stat.iter().rposition(|byte| *byte == b')');
        name_end.is_some_and(|at| matches!(stat.get(at + 2), Some(b'Z' | b'X')))
    };
    is_running(pid) && !std::fs::read(format!("/proc/{pid}/stat")).is_ok_and(is_zombie)
}

/// The address of a function or variable that this program or one of its libraries exports (dlsym(3)).
pub fn exported(name: &std::ffi::CStr) -> Option<std::ptr::NonNull<libc::c_void>> {
    // SAFETY: RTLD_DEFAULT takes any name that ends with NUL.
    std::ptr::NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// Gives what is free of the heap back to the system, where the C library does not do so by itself.
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Whether a process with this pid exists, whoever owns it.
pub fn is_running(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) != Err(nix::errno::Errno::ESRCH)
}

/// Whether the kernel gives this process the orphans among its descendants: it is process 1 of its namespace, or a
/// subreaper (PR_SET_CHILD_SUBREAPER, prctl(2)).
pub fn adopts_orphans() -> bool {
    std::process::id() == 1 || is_subreaper()
}

#[cfg(target_os = "linux")]
fn is_subreaper() -> bool {
    let mut on: libc::c_int = 0;
    // SAFETY: PR_GET_CHILD_SUBREAPER writes one int to the address, which is that of `on`.
    let result = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut on) };
    result == 0 && on != 0
}

#[cfg(not(target_os = "linux"))]
fn is_subreaper() -> bool {
    false
}
