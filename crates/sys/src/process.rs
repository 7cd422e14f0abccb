//! Processes.

use nix::libc;

use crate::proc_stat::ProcStat;

/// Ends this process at once, without destructors or exit handlers (_exit(2)).
pub fn exit_at_once(status: i32) -> ! {
    // SAFETY: it takes any status, and does not return.
    unsafe { libc::_exit(status) }
}

/// The effective user of this thread (geteuid(2)).
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a process with this pid runs. One that has ended and was not reaped does not, where proc(5) tells.
pub fn is_alive(pid: u32) -> bool {
    is_running(pid) && !stat(pid).is_some_and(|stat| stat.has_ended())
}

/// Whether both processes have one parent; false where that cannot be known.
pub fn is_sibling(pid: u32) -> bool {
    let parent = std::os::unix::process::parent_id();
    stat(pid).is_some_and(|stat| stat.number(4) == Some(parent.into()))
}

/// None in the portable build: other systems have no proc(5).
fn stat(pid: u32) -> Option<ProcStat> {
    (!cfg!(portable)).then(|| ProcStat::of_process(pid)).flatten()
}

/// The address of a function or variable that this program or one of its libraries exports (dlsym(3)).
pub fn exported(name: &std::ffi::CStr) -> Option<std::ptr::NonNull<libc::c_void>> {
    // SAFETY: RTLD_DEFAULT takes any name that ends with NUL.
    std::ptr::NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// Gives what is free of the heap back to the system, where the allocator does not do so by itself: glibc, and jemalloc without
/// its background thread.
pub fn trim_heap() {
    // MALLCTL_ARENAS_ALL, of jemalloc 5.
    if let Some(mallctl) = exported(c"mallctl") {
        type Mallctl = unsafe extern "C" fn(
            *const libc::c_char,
            *mut libc::c_void,
            *mut libc::size_t,
            *mut libc::c_void,
            libc::size_t,
        ) -> libc::c_int;
        // SAFETY: this is jemalloc's mallctl(3), and so its type.
        let mallctl = unsafe { std::mem::transmute::<*mut libc::c_void, Mallctl>(mallctl.as_ptr()) };
        let null = std::ptr::null_mut();
        // SAFETY: a command that takes and gives nothing; any thread may call it at any time.
        unsafe { mallctl(c"arena.4096.purge".as_ptr(), null, null.cast(), null, 0) };
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Has all threads but the main one share one arena of glibc's malloc (M_ARENA_MAX, mallopt(3)), unless the environment says
/// how many there shall be. Where one lock lets one thread run at a time, arenas of their own only keep memory from each other.
pub fn share_malloc_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let is_set = |name, word: &str| {
            std::env::var_os(name).is_some_and(|value| value.to_string_lossy().contains(word))
        };
        if is_set("MALLOC_ARENA_MAX", "") || is_set("GLIBC_TUNABLES", "malloc.arena_max") {
            return;
        }
        // SAFETY: it takes numbers, and glibc holds the lock of its main arena meanwhile.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 2);
        }
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

/// Has the kernel give this process the orphans among its descendants from now on (PR_SET_CHILD_SUBREAPER, prctl(2)). Says whether it
/// does; it does not where there is no such thing.
pub fn adopt_orphans() -> bool {
    #[cfg(not(portable))]
    {
        let on: libc::c_ulong = 1;
        // SAFETY: PR_SET_CHILD_SUBREAPER takes one number.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, on) };
    }
    is_subreaper()
}

#[cfg(not(portable))]
fn is_subreaper() -> bool {
    let mut on: libc::c_int = 0;
    // SAFETY: PR_GET_CHILD_SUBREAPER writes one int to the address, which is that of `on`.
    let result = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut on) };
    result == 0 && on != 0
}

#[cfg(portable)]
fn is_subreaper() -> bool {
    false
}

/// In bytes.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
