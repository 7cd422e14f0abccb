//! The Ruby frames of one thread at this moment, whether the thread computes, waits, or is in native code that keeps the GVL.
//!
//! A signal's handler in that thread writes its frames to memory. The asking thread is no Ruby thread, and waits for that.

use std::cell::UnsafeCell;
use std::io::Write;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rb_sys::*;

use fastrack_sys as sys;

use crate::ruby::{bytes_or, format_into, NIL};

/// Maximum number of frames.
const MAX_FRAMES: usize = 200;

/// Maximum length of all frames as text, in bytes.
const MAX_TEXT: usize = 32 * 1024;

/// Interval of checks whether the thread has answered.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Nobody waits for frames.
const IDLE: u8 = 0;
/// A thread was signalled.
const ASKED: u8 = 1;
/// The handler writes.
const WRITING: u8 = 2;
/// The text is complete.
const WRITTEN: u8 = 3;

static STATE: AtomicU8 = AtomicU8::new(IDLE);

/// The number of the thread that was signalled. Another one may answer a capture that nobody waits for any more.
static TARGET: AtomicU64 = AtomicU64::new(0);

/// The frame of each thread during a garbage collection, which may move what the frames are read from.
const COLLECTION: &[u8] = b"(native):0:in (garbage collection)\n";

struct Text(UnsafeCell<(usize, [u8; MAX_TEXT])>);

// SAFETY: the handler has it while STATE is WRITING, and `of` while STATE is WRITTEN.
unsafe impl Sync for Text {}

static TEXT: Text = Text(UnsafeCell::new((0, [0; MAX_TEXT])));

/// One capture at a time.
static CAPTURES: Mutex<()> = Mutex::new(());

/// The frames of a thread, innermost first, each as `path:line:in label` and a line feed. None if the thread has not answered within
/// `millis` milliseconds: it is in a system call that cannot be interrupted, or has ended.
pub(super) fn of(thread: i32, millis: u64) -> Option<Vec<u8>> {
    let _one = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
    let signal = sys::spare_signal(3);
    // SAFETY: `write_frames` is async-signal-safe, see there.
    unsafe { sys::handle_signal(signal, write_frames) }.ok()?;
    TARGET.store(u64::try_from(thread).unwrap_or(0), Ordering::SeqCst);
    STATE.store(ASKED, Ordering::SeqCst);
    let deadline = Instant::now() + Duration::from_millis(millis);
    let mut waits = sys::signal_thread(thread, signal);
    while STATE.load(Ordering::SeqCst) != WRITTEN && waits {
        waits = Instant::now() < deadline;
        std::thread::sleep(POLL_INTERVAL);
    }
    // A handler that has begun comes to its end soon.
    while STATE.load(Ordering::SeqCst) == WRITING {
        std::thread::sleep(POLL_INTERVAL);
    }
    if STATE.swap(IDLE, Ordering::SeqCst) != WRITTEN {
        return None;
    }
    // SAFETY: STATE was WRITTEN, and the next handler writes when the next capture has asked.
    let (length, text) = unsafe { &*TEXT.0.get() };
    Some(text[..*length].to_vec())
}

/// The handler. Calls only functions that signal-safety(7) allows, and Ruby functions that only read.
extern "C" fn write_frames(_signal: i32) {
    if sys::ThreadId::current().is_some_and(|own| own.number() != TARGET.load(Ordering::SeqCst)) {
        return;
    }
    if STATE.compare_exchange(ASKED, WRITING, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        return;
    }
    // SAFETY: STATE is WRITING, so that nobody else uses the text.
    let (length, text) = unsafe { &mut *TEXT.0.get() };
    let mut rest = &mut text[..];
    // SAFETY: the arrays have MAX_FRAMES elements. The frames of the current thread do not change during its handler, and no collection
    // frees the code of running methods. Only a compaction (GC.compact, GC.auto_compact) moves it. A compaction that has begun is seen. What
    // remains is one that another thread begins, and that comes to this code, while this handler runs in a thread without the GVL.
    unsafe {
        if rb_during_gc() != 0 {
            let _ = rest.write(COLLECTION);
        } else if ruby_native_thread_p() != 0 {
            let (mut frames, mut lines) = ([NIL; MAX_FRAMES], [0; MAX_FRAMES]);
            let found = rb_profile_frames(0, MAX_FRAMES as _, frames.as_mut_ptr(), lines.as_mut_ptr());
            let found = usize::try_from(found).unwrap_or(0).min(MAX_FRAMES);
            for (frame, line) in frames.iter().zip(lines).take(found) {
                write_frame(*frame, line, &mut rest);
            }
        }
    }
    *length = MAX_TEXT - rest.len();
    STATE.store(WRITTEN, Ordering::SeqCst);
}

/// Writes a whole frame, or nothing. A frame's text has no control characters.
unsafe fn write_frame(frame: VALUE, line: i32, rest: &mut &mut [u8]) {
    let mut digits = [0; 12];
    // SAFETY: both functions return existing Strings of the frame's code, which live as long as the running code.
    let (path, label) = unsafe {
        (bytes_or(rb_profile_frame_path(frame), b"(native)"), bytes_or(rb_profile_frame_label(frame), b"?"))
    };
    let parts = [path, b":", format_into(&mut digits, line), b":in ", label];
    if parts.iter().map(|part| part.len()).sum::<usize>() < rest.len() {
        for part in parts {
            part.iter().for_each(|byte| put(if *byte < b' ' { b'?' } else { *byte }, rest));
        }
        put(b'\n', rest);
    }
}

fn put(byte: u8, rest: &mut &mut [u8]) {
    // There is room, see `write_frame`.
    let _ = rest.write(&[byte]);
}
