//! Lines about requests that take too long: `LogSlow`.
//!
//! A thread in the middle of a system call, or without a processor, takes its time to say where it is. So a thread of its own waits for that
//! and writes the line: the helper goes on.

use std::cell::Cell;
use std::fmt::Write;
use std::sync::Arc;

use fastrack_sys::{monotonic_micros, monotonic_millis, spawn_thread, write_stderr_all};

use crate::claim::{ActiveRequest, RequestSettings, ThreadDumper};
use crate::control::Control;

/// Least time between two lines, in milliseconds.
const LINE_INTERVAL: u64 = 1_000;

/// Time in which the request's thread says where it is, in milliseconds.
const FRAMES_TIME: u64 = 5_000;

/// The longest line, in bytes. A pipe takes a write of this size as a whole (PIPE_BUF, pipe(7)).
const LONGEST_LINE: usize = 4_096;

/// Writes a line for each request that lasts for longer than the limit, while it lasts.
#[derive(Debug)]
pub(super) struct SlowRequests {
    /// In milliseconds; 0: nobody asked for these lines.
    limit: u64,
    dumper: Option<Arc<dyn ThreadDumper>>,
    /// When the next line may come, in milliseconds of the monotonic clock.
    next_line: Cell<u64>,
    /// Requests that have no line of their own, and that no line has counted yet.
    untold: Cell<u64>,
}

impl SlowRequests {
    pub fn new(settings: &RequestSettings) -> Self {
        SlowRequests {
            limit: settings.log_slow,
            dumper: settings.dumper.clone(),
            next_line: Cell::new(0),
            untold: Cell::new(0),
        }
    }

    /// Looks at the requests in progress.
    pub fn look(&self, control: &Control) {
        if self.limit == 0 {
            return;
        }
        let now = monotonic_millis();
        for request in control.all_requests() {
            if request.note_slow(now, self.limit) {
                self.tell(request, now);
            }
        }
    }

    fn tell(&self, request: &Arc<ActiveRequest>, now: u64) {
        if now < self.next_line.get() {
            self.untold.set(self.untold.get() + 1);
            return;
        }
        self.next_line.set(now + LINE_INTERVAL);
        let begun = line(request, now, self.untold.take());
        let (request, dumper) = (Arc::clone(request), self.dumper.clone());
        let complete = move || write_stderr_all(&with_frames(begun, &request, dumper.as_deref()));
        // Without a thread there is no such line: the system lacks memory, which other lines say.
        drop(spawn_thread("fastrack slow", complete));
    }
}

/// The line without the place in the application.
fn line(request: &ActiveRequest, now: u64, untold: u64) -> String {
    let mut text = format!("fastrack: {} (worker {})", request.describe(now), std::process::id());
    let timings = request.times().and_then(|times| times.at(monotonic_micros()));
    let mut before = ": ";
    for (name, micros) in timings.iter().flat_map(|timings| timings.named()) {
        // Writing to memory does not fail.
        let _ = write!(text, "{before}{name} {}.{:03}", micros / 1_000_000, micros / 1_000 % 1_000);
        before = ", ";
    }
    if untold > 0 {
        let _ = write!(text, "; {untold} more since the last such line");
    }
    text
}

/// The whole line, the innermost frame first. Frames that have no room are left out.
fn with_frames(mut text: String, request: &ActiveRequest, dumper: Option<&dyn ThreadDumper>) -> Vec<u8> {
    let frames = dumper.zip(request.thread());
    let frames = frames.and_then(|(dumper, thread)| dumper.frames(thread, FRAMES_TIME)).unwrap_or_default();
    let frames = String::from_utf8_lossy(&frames);
    // The frames may be those of the thread's next request.
    let is_still_slow = request.is_still_slow();
    let mut before = "; at ";
    for frame in frames.lines().take_while(|_| is_still_slow) {
        if text.len() + before.len() + frame.len() >= LONGEST_LINE {
            break;
        }
        text.extend([before, frame]);
        before = ", ";
    }
    if !is_still_slow {
        text.push_str("; it has ended since");
    }
    text.push('\n');
    text.into_bytes()
}
