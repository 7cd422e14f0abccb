//! Signals.

use std::io;

use nix::libc;
use nix::sys::signal::SigSet;

/// Runs `work` with all signals blocked in this thread. A thread that is started meanwhile has them blocked for good:
/// the application's handlers run in the application's thread.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    // Neither call fails with valid arguments (pthread_sigmask(3)).
    let before = SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
    let result = work();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    result
}

/// A signal that nothing else sends, `which` being 0 or 1: one that C libraries, debuggers and languages leave alone.
pub fn spare_signal(which: i32) -> i32 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return libc::SIGRTMIN() + 9 + which;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return [libc::SIGIO, libc::SIGURG][which as usize % 2];
}

/// Sends a signal to this process: any thread that does not block it gets it.
pub fn signal_self(signal: i32) {
    // SAFETY: kill(2) takes any number. It fails for one that is no signal, and then nothing happens.
    unsafe { libc::kill(libc::getpid(), signal) };
}

/// From now on a signal calls `handler`, whatever it did before. Interrupted system calls are restarted.
///
/// The handler may interrupt anything, wherever it is: only what signal-safety(7) lists may be done there.
pub fn handle_signal(signal: i32, handler: extern "C" fn(i32)) -> io::Result<()> {
    // SAFETY: all zeroes are a sigaction without handler, flags and mask; the handler has the type that is called
    // where SA_SIGINFO is not set; the old action is not asked for.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        // The alternate stack is there where the thread has one: its own may be full.
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(signal, &action, std::ptr::null_mut())
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The threads of this process but the one that asks, the first one first; none where the system does not tell.
pub fn other_threads() -> Vec<i32> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let own = nix::unistd::gettid().as_raw();
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let mut threads: Vec<i32> =
            tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
        threads.retain(|thread| *thread != own);
        threads.sort_unstable();
        threads
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    Vec::new()
}

/// Sends a signal to one thread of this process (tgkill(2)); false when it is not there any more.
pub fn signal_thread(thread: i32, signal: i32) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    // SAFETY: tgkill takes any numbers, and reaches threads of this process only.
    return unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) } == 0;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = (thread, signal);
        false
    }
}

/// Writes to a descriptor where this thread's native code is, a line for each frame. For signal handlers, too, unless
/// it is the first call in the process: see [`prepare_native_frames`].
pub fn write_native_frames(fd: i32) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const MOST: usize = 48;
        let mut frames = [std::ptr::null_mut(); MOST];
        // SAFETY: the array has that many places; backtrace(3) fills as many as it returns.
        unsafe {
            let found = libc::backtrace(frames.as_mut_ptr(), MOST as i32);
            libc::backtrace_symbols_fd(frames.as_ptr(), found, fd);
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = fd;
}

/// Has the library loaded that finds native frames, which no signal handler may do (backtrace(3), "Notes").
pub fn prepare_native_frames() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let mut frame = [std::ptr::null_mut(); 1];
        // SAFETY: the array has one place.
        unsafe { libc::backtrace(frame.as_mut_ptr(), 1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI32, Ordering};
    use std::sync::mpsc;

    static HANDLED_BY: AtomicI32 = AtomicI32::new(0);

    extern "C" fn note(_: i32) {
        HANDLED_BY.store(nix::unistd::gettid().as_raw(), Ordering::SeqCst);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_signal_to_a_thread_is_handled_there_and_nowhere_else() {
        handle_signal(spare_signal(1), note).expect("a handler");
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(nix::unistd::gettid().as_raw()).expect("tell");
            let _ = ended.recv();
        });
        let id = told.recv().expect("its id");
        assert!(other_threads().contains(&id));
        assert!(signal_thread(id, spare_signal(1)));
        let start = std::time::Instant::now();
        while HANDLED_BY.load(Ordering::SeqCst) == 0 && start.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        assert_eq!(HANDLED_BY.load(Ordering::SeqCst), id);
        drop(end);
        thread.join().expect("the thread");
    }
}
