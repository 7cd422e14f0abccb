//! Processes.

use nix::libc;

/// Ends this process at once, without destructors or exit handlers (_exit(2)).
pub fn exit_at_once(status: i32) -> ! {
    // SAFETY: it takes any status, and does not return.
    unsafe { libc::_exit(status) }
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
