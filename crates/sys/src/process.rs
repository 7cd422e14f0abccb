//! Processes: their state, their heap, and their orphans.

use nix::libc;

use crate::proc_stat::ProcStat;

/// Ends this process at once, without destructors or exit handlers (_exit(2)).
pub fn exit_at_once(status: i32) -> ! {
    // SAFETY: _exit accepts any status, and does not return.
    unsafe { libc::_exit(status) }
}

/// The effective user of this thread (geteuid(2)).
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a process with this pid runs. On systems with proc(5), a process that has ended but was not reaped does not
/// count.
pub fn is_alive(pid: u32) -> bool {
    is_running(pid) && !stat(pid).is_some_and(|stat| stat.has_ended())
}

/// Whether this process and the other one have the same parent; false if unknown.
pub fn is_sibling(pid: u32) -> bool {
    let parent = std::os::unix::process::parent_id();
    stat(pid).is_some_and(|stat| stat.number(4) == Some(parent.into()))
}

/// None in the portable build, because other systems have no proc(5).
fn stat(pid: u32) -> Option<ProcStat> {
    (!cfg!(portable)).then(|| ProcStat::of_process(pid)).flatten()
}

/// The address of a function or variable that this program or one of its libraries exports (dlsym(3)).
pub fn exported(name: &std::ffi::CStr) -> Option<std::ptr::NonNull<libc::c_void>> {
    // SAFETY: dlsym(3) accepts any name that ends with NUL.
    std::ptr::NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// Returns free memory of the heap to the system. For allocators that do not do so by themselves: glibc, and jemalloc
/// without its background thread.
pub fn trim_heap() {
    // 4096 in the command below is MALLCTL_ARENAS_ALL of jemalloc 5.
    if let Some(mallctl) = exported(c"mallctl") {
        type Mallctl = unsafe extern "C" fn(
            *const libc::c_char,
            *mut libc::c_void,
            *mut libc::size_t,
            *mut libc::c_void,
            libc::size_t,
        ) -> libc::c_int;
        // SAFETY: only jemalloc exports mallctl(3), which has this type.
        let mallctl = unsafe { std::mem::transmute::<*mut libc::c_void, Mallctl>(mallctl.as_ptr()) };
        let null = std::ptr::null_mut();
        // SAFETY: the command has no input and no output, and any thread may run it at any time.
        unsafe { mallctl(c"arena.4096.purge".as_ptr(), null, null.cast(), null, 0) };
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: any thread may call malloc_trim at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes all threads except the main one share one arena of glibc's malloc (M_ARENA_MAX, mallopt(3)), unless the
/// environment sets the number of arenas. The GVL lets one thread run at a time, so further arenas would only waste
/// memory.
pub fn share_malloc_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let is_set = |name, word: &str| {
            std::env::var_os(name).is_some_and(|value| value.to_string_lossy().contains(word))
        };
        if is_set("MALLOC_ARENA_MAX", "") || is_set("GLIBC_TUNABLES", "malloc.arena_max") {
            return;
        }
        // SAFETY: mallopt(3) takes numbers, and locks glibc's main arena.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 2);
        }
    }
}

/// Whether a process with this pid exists, of any user.
pub fn is_running(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) != Err(nix::errno::Errno::ESRCH)
}

/// Whether this process is the new parent of the orphans among its descendants, as process 1 of its namespace or as a
/// subreaper (PR_SET_CHILD_SUBREAPER, prctl(2)).
pub fn adopts_orphans() -> bool {
    std::process::id() == 1 || is_subreaper()
}

/// Makes this process the new parent of the orphans among its descendants (PR_SET_CHILD_SUBREAPER, prctl(2)). Returns
/// false on systems without subreapers.
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
    // SAFETY: PR_GET_CHILD_SUBREAPER writes one int to the address of `on`.
    let result = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut on) };
    result == 0 && on != 0
}

#[cfg(portable)]
fn is_subreaper() -> bool {
    false
}

/// The size of a page, in bytes.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
