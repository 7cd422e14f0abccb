//! Writing to stderr without buffers and locks, which another or a crashed thread may hold.

use std::io;

use rustix::stdio::stderr;

use crate::socket::wait_writable;

/// Writes to stderr (write(2)), without SIGPIPE if its reader is gone. Async-signal-safe.
pub fn write_stderr(bytes: &[u8]) -> io::Result<usize> {
    #[cfg(not(portable))]
    return Ok(crate::signals::without_sigpipe(|| rustix::io::write(stderr(), bytes))?);
    #[cfg(portable)]
    Ok(rustix::io::write(stderr(), bytes)?)
}

/// Time for the reader of a full pipe to make room, in milliseconds.
const READER_TIMEOUT: u64 = 200;

/// Writes all of `text` to stderr. Gives up if the reader is gone or reads nothing for 200 milliseconds.
pub fn write_stderr_all(text: &[u8]) {
    // A writable pipe accepts this many bytes without blocking (PIPE_BUF, pipe(7)).
    const AT_ONCE: usize = 4096;
    for piece in text.chunks(AT_ONCE) {
        if !wait_writable(stderr(), READER_TIMEOUT).unwrap_or(false) || write_stderr(piece).is_err() {
            return;
        }
    }
}

/// Writes the native backtrace of this thread to stderr, one frame per line. Async-signal-safe after
/// [`load_backtrace`].
pub fn write_backtrace() {
    #[cfg(any(target_env = "gnu", target_vendor = "apple"))]
    {
        const MAX_FRAMES: usize = 48;
        let mut frames = [std::ptr::null_mut(); MAX_FRAMES];
        // SAFETY: backtrace(3) fills at most MAX_FRAMES elements of the array, and returns their number.
        unsafe {
            let found = nix::libc::backtrace(frames.as_mut_ptr(), MAX_FRAMES as i32);
            nix::libc::backtrace_symbols_fd(frames.as_ptr(), found, nix::libc::STDERR_FILENO);
        }
    }
}

/// Loads the library that backtraces need, because a signal handler must not load it (backtrace(3), "Notes").
pub fn load_backtrace() {
    #[cfg(any(target_env = "gnu", target_vendor = "apple"))]
    {
        let mut frame = [std::ptr::null_mut(); 1];
        // SAFETY: the array has one element.
        unsafe { nix::libc::backtrace(frame.as_mut_ptr(), 1) };
    }
}
