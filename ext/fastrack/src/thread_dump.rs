//! What Ruby's threads are at, for the helper, which is no Ruby thread and
//! never has Ruby's lock.
//!
//! First Ruby is asked: a signal that it traps, whose handler runs on the main
//! thread as soon as that comes by. Where it does not (native code that keeps
//! the lock, or that nothing interrupts), a second signal makes each thread
//! write down its own frames, there and then, in a handler that allocates
//! nothing and takes no lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rb_sys::*;

use fastrack_engine::ThreadDumper;
use fastrack_sys as sys;

/// Frames of one thread that are shown.
const MOST_FRAMES: usize = 100;

/// How often to look whether a thread has written its frames, in milliseconds.
const STEP: u64 = 2;

/// How long one thread is waited for: in some system calls no signal reaches it.
const FOR_ONE: Duration = Duration::from_millis(100);

/// The longest line that is written, in bytes.
const LINE: usize = 1024;

/// The signal on which Ruby is to call `Engine#testify`.
pub(crate) fn inquiry_signal() -> i32 {
    sys::spare_signal(0)
}

/// Ruby, when it is asked what its threads are at.
#[derive(Debug, Default)]
pub(crate) struct RubyThreads {
    text: Mutex<Option<String>>,
    given: Condvar,
}

impl RubyThreads {
    /// Ruby's answer. From its signal handler, on its main thread.
    pub fn give(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        self.given.notify_all();
    }
}

impl ThreadDumper for RubyThreads {
    fn dump(&self, millis: u64) -> Option<String> {
        sys::signal_self(inquiry_signal());
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let time = Duration::from_millis(millis);
        let waited = self.given.wait_timeout_while(text, time, |text| text.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }

    fn dump_frames(&self, millis: u64) {
        sys::load_backtrace();
        let end = Instant::now() + Duration::from_millis(millis);
        let signal = sys::spare_signal(1);
        // SAFETY: it does only what signal-safety(7) allows, see there.
        if unsafe { sys::handle_signal(signal, write_frames) }.is_err() {
            return;
        }
        for thread in sys::other_threads() {
            WRITTEN.store(false, Ordering::SeqCst);
            let until = (Instant::now() + FOR_ONE).min(end);
            let mut waiting = sys::signal_thread(thread, signal);
            while waiting && Instant::now() < until {
                sys::sleep(STEP);
                waiting = !WRITTEN.load(Ordering::SeqCst);
            }
        }
    }
}

/// The thread that was signalled last has written its frames.
static WRITTEN: AtomicBool = AtomicBool::new(false);

/// The handler of the second signal: only what signal-safety(7) allows, and calls of Ruby's that read and nothing else.
extern "C" fn write_frames(_signal: i32) {
    // SAFETY: it asks for the current thread's own frames, if it is one of Ruby's; the arrays have as many places as
    // is said. The frames are read while nothing changes them, because the thread that would is in this handler.
    unsafe {
        if ruby_native_thread_p() != 0 {
            let (mut frames, mut lines) = ([Qnil as VALUE; MOST_FRAMES], [0; MOST_FRAMES]);
            let found = rb_profile_frames(0, MOST_FRAMES as _, frames.as_mut_ptr(), lines.as_mut_ptr());
            let found = usize::try_from(found).unwrap_or(0).min(MOST_FRAMES);
            write(&[b"  a thread of Ruby's:\n"]);
            for (frame, line) in frames.iter().zip(lines).take(found) {
                write_frame(*frame, line);
            }
            write(&[b"  in native code:\n"]);
        } else {
            write(&[b"  a native thread:\n"]);
        }
    }
    sys::write_backtrace();
    WRITTEN.store(true, Ordering::SeqCst);
}

unsafe fn write_frame(frame: VALUE, line: i32) {
    let mut digits = [0; 12];
    // SAFETY: these two look up Strings that the code of the frame has, and make none.
    let (path, label) = unsafe { (rb_profile_frame_path(frame), rb_profile_frame_label(frame)) };
    // SAFETY: they live as long as the code, which runs.
    let (path, label) = unsafe { (text(path, b"(native)"), text(label, b"?")) };
    write(&[b"    ", path, b":", decimal(line, &mut digits), b": in ", label, b"\n"]);
}

unsafe fn text(value: VALUE, otherwise: &[u8]) -> &[u8] {
    // SAFETY: as the caller's; a String's bytes are read.
    unsafe {
        if RB_TYPE_P(value, ruby_value_type::RUBY_T_STRING) {
            crate::response::bytes(value)
        } else {
            otherwise
        }
    }
}

fn decimal(number: i32, digits: &mut [u8; 12]) -> &[u8] {
    let (mut rest, mut at) = (number.unsigned_abs(), digits.len());
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &digits[at..];
        }
    }
}

/// One line at once, so that lines of several processes do not mix.
fn write(parts: &[&[u8]]) {
    let (mut line, mut length) = ([0; LINE], 0);
    for part in parts {
        let fits = part.len().min(LINE - length);
        line[length..][..fits].copy_from_slice(&part[..fits]);
        length += fits;
    }
    // A log that takes nothing gets nothing.
    let _ = sys::write_stderr(&line[..length]);
}
