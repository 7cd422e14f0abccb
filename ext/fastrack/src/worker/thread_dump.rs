//! Dumps Ruby's threads for the watchdog, which runs in the helper thread: no Ruby thread, and never with the GVL.
//!
//! Ruby is asked first, by a signal that it traps: the trap runs on the main thread as soon as that checks interrupts.
//! If it does not (native code that keeps the GVL, or that nothing interrupts), a second signal makes each thread write
//! its own frames, in a handler that allocates nothing and takes no lock.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rb_sys::*;

use fastrack_engine::ThreadDumper;
use fastrack_sys as sys;

use crate::ruby::{bytes, format_into, is_string, NIL};

/// The most frames shown of a thread.
const MAX_FRAMES: usize = 100;

/// How often to check whether a thread has written its frames, in milliseconds.
const POLL_INTERVAL: u64 = 2;

/// How long to wait for one thread: some system calls let no signal through.
const THREAD_TIMEOUT: Duration = Duration::from_millis(100);

/// The longest line that is written, in bytes.
const MAX_LINE_LEN: usize = 1024;

/// The signal on which Ruby must call `Engine#thread_dump`.
pub(super) fn thread_dump_signal() -> i32 {
    sys::spare_signal(0)
}

/// Gets dumps from Ruby.
#[derive(Debug, Default)]
pub(super) struct RubyThreads {
    dump: Mutex<Dump>,
    answered: Condvar,
}

/// What the watchdog has asked Ruby for.
#[derive(Debug, Default)]
enum Dump {
    #[default]
    Nothing,
    /// It waits for that, or has given up.
    Asked,
    Answered(String),
}

impl RubyThreads {
    /// Ruby's answer, from its trap. False if the watchdog has not asked.
    pub fn answer(&self, dump: String) -> bool {
        let mut asked = self.lock();
        if matches!(*asked, Dump::Nothing) {
            return false;
        }
        *asked = Dump::Answered(dump);
        self.answered.notify_all();
        true
    }

    fn lock(&self) -> MutexGuard<'_, Dump> {
        self.dump.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ThreadDumper for RubyThreads {
    fn dump(&self, millis: u64) -> Option<String> {
        let mut dump = self.lock();
        *dump = Dump::Asked;
        sys::signal_self(thread_dump_signal());
        let timeout = Duration::from_millis(millis);
        let waited = self.answered.wait_timeout_while(dump, timeout, |dump| matches!(dump, Dump::Asked));
        let mut dump = waited.unwrap_or_else(PoisonError::into_inner).0;
        let Dump::Answered(text) = std::mem::take(&mut *dump) else {
            // With several threads the process may go on, and the master may ask. A late answer would be taken for its.
            *dump = Dump::Asked;
            return None;
        };
        Some(text)
    }

    fn dump_frames(&self, millis: u64) {
        sys::load_backtrace();
        let deadline = Instant::now() + Duration::from_millis(millis);
        let signal = sys::spare_signal(1);
        // SAFETY: it does only what signal-safety(7) allows, see there.
        if unsafe { sys::handle_signal(signal, write_frames) }.is_err() {
            return;
        }
        for thread in sys::other_threads() {
            WRITTEN.store(false, Ordering::SeqCst);
            let deadline = (Instant::now() + THREAD_TIMEOUT).min(deadline);
            let mut waiting = sys::signal_thread(thread, signal);
            while waiting && Instant::now() < deadline {
                sys::sleep(POLL_INTERVAL);
                waiting = !WRITTEN.load(Ordering::SeqCst);
            }
        }
    }
}

/// Whether the thread that was signalled last has written its frames.
static WRITTEN: AtomicBool = AtomicBool::new(false);

/// The handler of the second signal: does only what signal-safety(7) allows, and calls Ruby functions that only read.
extern "C" fn write_frames(_signal: i32) {
    // SAFETY: the arrays have as many places as is said. These are the current thread's frames, and it is in this
    // handler: nothing changes them.
    unsafe {
        if ruby_native_thread_p() != 0 {
            let (mut frames, mut lines) = ([NIL; MAX_FRAMES], [0; MAX_FRAMES]);
            let found = rb_profile_frames(0, MAX_FRAMES as _, frames.as_mut_ptr(), lines.as_mut_ptr());
            let found = usize::try_from(found).unwrap_or(0).min(MAX_FRAMES);
            write_line(&[b"  a thread of Ruby's:"]);
            for (frame, line) in frames.iter().zip(lines).take(found) {
                write_frame(*frame, line);
            }
            write_line(&[b"  in native code:"]);
        } else {
            write_line(&[b"  a native thread:"]);
        }
    }
    sys::write_backtrace();
    WRITTEN.store(true, Ordering::SeqCst);
}

unsafe fn write_frame(frame: VALUE, line: i32) {
    let mut digits = [0; 12];
    // SAFETY: these look up Strings that belong to the frame's code, and make none.
    let (path, label) = unsafe { (rb_profile_frame_path(frame), rb_profile_frame_label(frame)) };
    // SAFETY: they live as long as the code, which runs.
    let (path, label) = unsafe { (text(path, b"(native)"), text(label, b"?")) };
    write_line(&[b"    ", path, b":", format_into(&mut digits, line), b": in ", label]);
}

unsafe fn text(value: VALUE, default: &[u8]) -> &[u8] {
    // SAFETY: as the caller's; only a String's bytes are read.
    unsafe {
        if is_string(value) {
            bytes(value)
        } else {
            default
        }
    }
}

/// Writes a line with one system call, so that the lines of several processes do not mix.
fn write_line(parts: &[&[u8]]) {
    let mut line = [0; MAX_LINE_LEN];
    let mut rest = &mut line[..MAX_LINE_LEN - 1];
    for part in parts {
        // What does not fit is cut off.
        let _ = rest.write_all(part);
    }
    let length = MAX_LINE_LEN - 1 - rest.len();
    line[length] = b'\n';
    // A log that cannot be written to goes without.
    let _ = sys::write_stderr(&line[..=length]);
}
