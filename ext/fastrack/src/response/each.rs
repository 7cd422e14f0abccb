//! Sends a body that yields its parts (Rack SPEC, "Enumerable Body").

use std::ffi::c_int;
use std::io::IoSlice;

use rb_sys::*;

use fastrack_http::{chunk_size_line, CHUNK_END, LAST_CHUNK};

use crate::request::BodyEnd;
use crate::response::sender::{limit, send_waiting, Batch, Encoding, Sender};
use crate::ruby::{as_string, bytes, callback, interned, raise, ScopedRef, NIL};

/// The state of the iteration over a body.
struct Parts<'s, 'a, 'r, 'e> {
    sender: &'s mut Sender<'a, 'r, 'e>,
    chunked: bool,
    started: bool,
    panicked: bool,
    /// The server ends the body.
    is_over: bool,
    /// The body is not a valid series of chunks, although the app's Transfer-Encoding says so.
    has_bad_chunks: bool,
}

impl Sender<'_, '_, '_> {
    /// Sends each part when the body yields it, and the head with the first part.
    pub unsafe fn send_each(&mut self, body: VALUE) {
        let chunked = self.frame_chunked(self.mode.chunked || self.in_flight.writer.is_persistent());
        let thread = self.in_flight.thread;
        // SAFETY: as this function's. The block uses `parts` until each has returned or raised. Then this function, or the
        // caller, ends the scope.
        unsafe {
            self.in_flight.writer.set_more_follows(true);
            let block = ScopedRef::new();
            self.in_flight.block = block;
            let mut parts = Parts {
                sender: self,
                chunked,
                started: false,
                panicked: false,
                is_over: false,
                has_bad_chunks: false,
            };
            let data = block.begin(&mut parts);
            thread.set_body_called(true);
            rb_block_call(body, interned().id.each, 0, std::ptr::null(), Some(yielded_part), data);
            thread.set_body_called(false);
            let Parts { started, panicked, has_bad_chunks, .. } = parts;
            self.in_flight.end_block();
            if panicked {
                self.in_flight.writer.abandon();
            }
            self.in_flight.writer.set_more_follows(false);
            if self.in_flight.writer.is_broken() {
                return;
            }
            if has_bad_chunks
                || self.encoding != Encoding::Plain && started && !self.buffers.app_chunks.is_complete()
            {
                // The body is cut off, so that the client notices.
                raise(
                    rb_eRuntimeError,
                    c"a body with Transfer-Encoding: chunked must be in chunks, with the last one",
                );
            }
            if !started {
                if self.encoding != Encoding::Plain {
                    // The body has no chunks, not even a last one.
                    self.buffers.head.drop_codings();
                }
                self.frame_length(0);
                self.encode_head();
                self.send_encoded_head();
            }
            if chunked {
                send_waiting(self.in_flight, &[IoSlice::new(LAST_CHUNK)]);
            }
        }
    }

    /// Sends one part. Returns false if the app's chunks are invalid.
    unsafe fn send_part(&mut self, part: VALUE, chunked: bool, first: bool) -> bool {
        // SAFETY: under protect, and owning nothing; the part is on the stack.
        unsafe {
            let whole = bytes(part);
            let mut size_line = [0; 18];
            if first {
                self.encode_head();
            }
            let chunks = &mut self.buffers.app_chunks;
            let part = match self.encoding {
                Encoding::Plain => Ok(limit(&mut self.remaining, whole)),
                Encoding::Checked => chunks.check(whole),
                Encoding::Decoded => chunks.decode(whole),
            };
            let Ok(part) = part else { return false };
            if part.len() < whole.len() {
                self.in_flight.writer.close();
            }
            if self.remaining == Some(0) {
                self.in_flight.writer.set_more_follows(false);
            }
            let mut batch: Batch<'_, 4> = Batch::new();
            if first {
                batch.push(&self.buffers.encoded);
            }
            if chunked {
                batch.push(chunk_size_line(part.len() as u64, &mut size_line));
            }
            batch.push(part);
            if chunked {
                batch.push(CHUNK_END);
            }
            send_waiting(self.in_flight, batch.slices());
            if first && self.remaining.is_none() {
                self.in_flight.writer.note_follows(false);
                if self.encoding == Encoding::Plain {
                    self.in_flight.body_end = Some(if chunked { BodyEnd::LastChunk } else { BodyEnd::Close });
                }
            }
            true
        }
    }
}

unsafe extern "C" fn yielded_part(
    part: VALUE,
    data: VALUE,
    _argc: c_int,
    _argv: *const VALUE,
    _block: VALUE,
) -> VALUE {
    let mut stop = false;
    // SAFETY: `send_each` has passed `data`; under protect.
    unsafe {
        let part = as_string(part);
        ScopedRef::with(data, |parts: &mut Parts<'_, '_, '_, '_>| {
            let sent = callback(|| {
                let in_flight = &mut *parts.sender.in_flight;
                if in_flight.thread.is_body_over() {
                    parts.is_over = true;
                    // A cut tells the client that the body is incomplete. Without a cut the body ends here, as if it had no more parts.
                    if in_flight.body_end.is_none() || !in_flight.thread.is_retired() {
                        in_flight.writer.abandon();
                    }
                } else if RSTRING_LEN(part) > 0 {
                    let first = !std::mem::replace(&mut parts.started, true);
                    parts.has_bad_chunks = !parts.sender.send_part(part, parts.chunked, first);
                }
            });
            parts.panicked = sent.is_none();
            stop = parts.panicked
                || parts.has_bad_chunks
                || parts.is_over
                || parts.sender.in_flight.writer.is_broken();
        });
        if stop {
            // Returns from each, as `break` in a block does.
            rb_iter_break();
        }
    }
    NIL
}
