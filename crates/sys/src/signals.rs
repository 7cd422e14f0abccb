//! Signals.

use std::io;

use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow};

#[cfg(not(portable))]
mod linux;
#[cfg(not(portable))]
use linux as backend;

#[cfg(portable)]
mod portable;
#[cfg(portable)]
use portable as backend;

/// Runs `work` with all signals blocked in this thread. Threads that `work` starts inherit the mask, so that signal
/// handlers of the application run in its own thread.
pub(crate) fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    // Both calls succeed with valid arguments (pthread_sigmask(3)).
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let result = work();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    result
}

/// Runs a system call without SIGPIPE, for calls that have no MSG_NOSIGNAL: the application may have set SIGPIPE to its
/// default action, which ends the process. Async-signal-safe if `call` is.
#[cfg(not(portable))]
pub(crate) fn without_sigpipe<T>(
    call: impl FnOnce() -> Result<T, rustix::io::Errno>,
) -> Result<T, rustix::io::Errno> {
    let pipe = SigSet::from(nix::sys::signal::Signal::SIGPIPE);
    let before = pipe.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let result = call();
    let Ok(before) = before else { return result };
    let is_pending = matches!(result, Err(rustix::io::Errno::PIPE));
    if is_pending && !before.contains(nix::sys::signal::Signal::SIGPIPE) {
        backend::discard_pending(&pipe);
    }
    let _ = before.thread_set_mask();
    result
}

/// Whether there are more than two [spare signals](spare_signal).
pub const HAS_SPARE_SIGNALS: bool = cfg!(not(portable));

/// A signal that C libraries, debuggers and languages do not use; `which` is 0 or 1, or up to 3 where there are more.
pub fn spare_signal(which: i32) -> i32 {
    backend::spare_signal(which)
}

/// The number of a signal, by its name without SIG; None if there is no such signal.
pub fn signal_number(name: &str) -> Option<i32> {
    let signal: nix::sys::signal::Signal = format!("SIG{name}").parse().ok()?;
    Some(signal as i32)
}

/// Sends a signal to this process. Any thread that does not block it may get it.
pub fn signal_self(signal: i32) {
    // SAFETY: kill(2) accepts any number, and fails for one that is not a signal.
    unsafe { libc::kill(libc::getpid(), signal) };
}

/// Installs a signal handler. Interrupted system calls are restarted.
///
/// # Safety
/// The handler may run at any point of any thread, so it may only make calls that signal-safety(7) allows.
pub unsafe fn handle_signal(signal: i32, handler: extern "C" fn(i32)) -> io::Result<()> {
    // SAFETY: zeroes are a sigaction without flags and mask. Without SA_SIGINFO the handler has this type.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        // The handler runs on the alternate stack, if there is one, because the thread's own stack may be full.
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(signal, &action, std::ptr::null_mut())
    };
    (result == 0).then_some(()).ok_or_else(io::Error::last_os_error)
}

/// Notes that this thread runs the application. On systems that do not list threads, [`signal_thread`] signals this
/// thread, and is called only while the thread runs the application.
pub fn note_application_thread() {
    backend::note_thread();
}

/// The other threads of this process, oldest first. On systems that do not list threads, one number that stands for the
/// [application's thread](note_application_thread).
pub fn other_threads() -> Vec<i32> {
    backend::other_threads()
}

/// Sends a signal to one thread of this process. Returns false if the thread has ended.
pub fn signal_thread(thread: i32, signal: i32) -> bool {
    backend::signal_thread(thread, signal)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::patience::until;
    use std::sync::atomic::{AtomicI32, Ordering};
    use std::sync::mpsc;

    static HANDLED_BY: AtomicI32 = AtomicI32::new(0);

    extern "C" fn note(_: i32) {
        HANDLED_BY.store(nix::unistd::gettid().as_raw(), Ordering::SeqCst);
    }

    #[test]
    fn a_signal_to_a_thread_is_handled_there_and_nowhere_else() {
        // SAFETY: the handler makes one system call and stores a number.
        unsafe { handle_signal(spare_signal(1), note) }.expect("a handler");
        let (send_id, thread_id) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            note_application_thread();
            send_id.send(nix::unistd::gettid().as_raw()).expect("send");
            let _ = ended.recv();
        });
        let id = thread_id.recv().expect("its id");
        let one = if cfg!(portable) { other_threads()[0] } else { id };
        assert!(other_threads().contains(&one));
        assert!(signal_thread(one, spare_signal(1)));
        until(|| HANDLED_BY.load(Ordering::SeqCst) != 0);
        assert_eq!(HANDLED_BY.load(Ordering::SeqCst), id);
        drop(end);
        thread.join().expect("the thread");
    }
}
