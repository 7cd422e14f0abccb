//! Dumps Ruby's threads for the watchdog. The watchdog runs in the helper thread, which is not a Ruby thread and never has
//! the GVL.
//!
//! The first signal asks Ruby: a trap runs on the main thread as soon as the main thread checks interrupts. In native code
//! that holds the GVL or cannot be interrupted, the main thread checks none. Then a second signal makes each thread write
//! its own frames, in a handler that allocates nothing and locks nothing.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rb_sys::*;

use fastrack_engine::ThreadDumper;
use fastrack_sys as sys;

use crate::ruby::{bytes_or, format_into, NIL};
use crate::worker::stack_capture;

/// Maximum number of frames in the dump of a thread.
const MAX_FRAMES: usize = 100;

/// Interval of checks whether a thread has written its frames, in milliseconds.
const POLL_INTERVAL: u64 = 2;

/// Maximum wait for one thread: a thread in an uninterruptible system call handles no signal.
const THREAD_TIMEOUT: Duration = Duration::from_millis(100);

/// Maximum length of a line of the dump, in bytes.
const MAX_LINE_LEN: usize = 1024;

/// The signal on which Ruby must call `Engine#thread_dump`.
pub(super) fn thread_dump_signal() -> i32 {
    sys::spare_signal(0)
}

/// The signal that begins and ends a profile of a worker. None where no such signal is left.
pub(super) fn profile_signal() -> Option<i32> {
    sys::HAS_SPARE_SIGNALS.then(|| sys::spare_signal(2))
}

/// Gets dumps from Ruby.
#[derive(Debug, Default)]
pub(super) struct RubyThreads {
    dump: Mutex<Dump>,
    answered: Condvar,
}

/// The watchdog's question to Ruby.
#[derive(Debug, Default)]
enum Dump {
    /// The watchdog has not asked.
    #[default]
    Nothing,
    /// The watchdog waits for the dump, or has given up.
    Asked,
    /// Ruby has sent the dump.
    Answered(String),
}

impl RubyThreads {
    /// Passes the dump from Ruby's trap to the watchdog. Returns false if the watchdog has not asked.
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
            // With several threads the process may continue, and the master may ask for a dump, too. As long as the state is
            // Asked, a late answer to the watchdog is not mistaken for an answer to the master.
            *dump = Dump::Asked;
            return None;
        };
        Some(text)
    }

    fn frames(&self, thread: i32, millis: u64) -> Option<Vec<u8>> {
        stack_capture::of(thread, millis)
    }

    fn dump_frames(&self, millis: u64) {
        sys::load_backtrace();
        let deadline = Instant::now() + Duration::from_millis(millis);
        let signal = sys::spare_signal(1);
        // SAFETY: `write_frames` is async-signal-safe, see there.
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

/// Whether the last signalled thread has written its frames.
static WRITTEN: AtomicBool = AtomicBool::new(false);

/// The handler of the second signal. Calls only functions that signal-safety(7) allows, and Ruby functions that only read.
extern "C" fn write_frames(_signal: i32) {
    // SAFETY: the arrays have MAX_FRAMES elements. The frames of the current thread do not change during its handler.
    unsafe {
        if ruby_native_thread_p() != 0 {
            let (mut frames, mut lines) = ([NIL; MAX_FRAMES], [0; MAX_FRAMES]);
            let found = rb_profile_frames(0, MAX_FRAMES as _, frames.as_mut_ptr(), lines.as_mut_ptr());
            let found = usize::try_from(found).unwrap_or(0).min(MAX_FRAMES);
            write_line(&[b"  a Ruby thread:"]);
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
    // SAFETY: both functions return existing Strings of the frame's code.
    let (path, label) = unsafe { (rb_profile_frame_path(frame), rb_profile_frame_label(frame)) };
    // SAFETY: the Strings live as long as the running code.
    let (path, label) = unsafe { (bytes_or(path, b"(native)"), bytes_or(label, b"?")) };
    write_line(&[b"    ", path, b":", format_into(&mut digits, line), b": in ", label]);
}

/// Writes a line with one system call, so that the lines of several processes do not mix.
fn write_line(parts: &[&[u8]]) {
    let mut line = [0; MAX_LINE_LEN];
    let mut rest = &mut line[..MAX_LINE_LEN - 1];
    for part in parts {
        // A longer line is cut off.
        let _ = rest.write_all(part);
    }
    let length = MAX_LINE_LEN - 1 - rest.len();
    line[length] = b'\n';
    // A failed write to the log is ignored.
    let _ = sys::write_stderr(&line[..=length]);
}
