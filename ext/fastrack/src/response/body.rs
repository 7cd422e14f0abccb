//! Chooses how to send a body; sends Arrays.

use std::io::IoSlice;

use rb_sys::*;

use fastrack_http::{chunk_size_line, Coding, Length, LAST_CHUNK};

use crate::response::sender::{finish_waiting, limit, send_buffered, Batch, Encoding, Sender};
use crate::ruby::{all_strings, bytes, call, interned, is_array, raise, total_length, NIL};

/// Maximum length of a body that is copied behind its head, in bytes: one plain write(2) is cheapest.
const MAX_COPIED_BODY: usize = 8 * 1024;

impl Sender<'_, '_, '_> {
    /// Sends head and body. If `hijack` is not nil, sends the head, and calls `hijack` with the socket.
    ///
    /// # Safety
    /// If this raises, the caller ends the request's scopes and closes the open objects.
    pub unsafe fn send(&mut self, body: VALUE, hijack: VALUE) {
        let id = &interned().id;
        let (code, rack_3) = (self.buffers.head.code(), self.mode.rack_3);
        // SAFETY: as this function's.
        unsafe {
            if self.buffers.head.coding() != Coding::None {
                self.settle_coding(body, hijack);
            }
            if self.has_no_body() {
                // After a 101, bytes of the other protocol follow the head, and no body.
                if code < 200 && hijack != NIL {
                    return self.hijack(hijack);
                }
                if code == 101 {
                    return self.switch(body);
                }
                if code == 205 {
                    // Without a length, clients would wait for a body (RFC 9110 §15.3.6).
                    self.frame_length(0);
                }
                self.encode_head();
                self.send_encoded_head();
            } else if hijack != NIL {
                return self.hijack(hijack);
            } else if is_array(body) {
                self.send_parts(body);
            } else if let Some(parts) = self.whole_body(body) {
                self.send_parts(parts);
            } else if self.send_file(body) {
                return;
            } else if rb_respond_to(body, id.each) != 0 {
                self.send_each(body);
            } else if rack_3 && is_streaming(body) {
                return self.stream(body);
            } else {
                raise(rb_eTypeError, c"a body must respond to each");
            }
        }
        if self.remaining.is_some_and(|bytes| bytes > 0) {
            // On a persistent connection, the client would read the next response as part of this body.
            return self.in_flight.writer.abandon();
        }
        // SAFETY: as this function's.
        unsafe { finish_waiting(self.in_flight) };
    }

    /// The Array returned by the body's `to_ary`. If None, the body's `each` must be called.
    ///
    /// As in Puma, `to_ary` is called only to learn the length, and a result other than an Array is ignored: Rails'
    /// `Response::Buffer` always has the method, and returns the Enumerator of an action that streams.
    ///
    /// An exception is ignored, too: Rails 7.1 to 8.0 raises for each body with a custom `each`. Puma would answer 500.
    unsafe fn whole_body(&mut self, body: VALUE) -> Option<VALUE> {
        // SAFETY: as this function's.
        unsafe {
            let asks = self.mode.rack_3 && self.buffers.head.is_unframed();
            if !asks || rb_respond_to(body, interned().id.to_ary) == 0 {
                return None;
            }
            let end = 0 as VALUE;
            let parts = rb_rescue2(Some(to_ary), body, Some(no_array), NIL, rb_eStandardError, end);
            if !is_array(parts) {
                return None;
            }
            // to_ary has closed the body (Rack SPEC).
            self.in_flight.body = NIL;
            Some(parts)
        }
    }

    /// Switches to the protocol of a 101. Raises TypeError if the body is not a callable for that protocol.
    unsafe fn switch(&mut self, body: VALUE) {
        // SAFETY: as this function's.
        unsafe {
            if !self.mode.rack_3 || !is_streaming(body) {
                raise(rb_eTypeError, c"101 takes rack.hijack, or (Rack 3) a body that can only be called");
            }
            self.hijack(body);
        }
    }

    unsafe fn send_parts(&mut self, parts: VALUE) {
        // SAFETY: as this function's.
        unsafe {
            match self.encoding {
                Encoding::Plain => self.send_array(parts),
                Encoding::Checked | Encoding::Decoded => self.send_each(parts),
            }
        }
    }

    /// Sends the head and all parts together. Bytes that the socket does not accept at once are copied.
    unsafe fn send_array(&mut self, parts: VALUE) {
        // SAFETY: under protect. The Array is on the stack and keeps the parts alive; nothing calls Ruby while their
        // bytes are borrowed.
        unsafe {
            let parts = all_strings(parts);
            let total = total_length(parts);
            let chunked = self.frame_chunked(self.mode.chunked);
            self.frame_length(total as u64);
            if matches!(self.buffers.head.length(), Length::Known(length) if length < total as u64) {
                self.in_flight.writer.close();
            }
            self.encode_head();
            if total <= MAX_COPIED_BODY && !chunked {
                for index in 0..RARRAY_LEN(parts) as isize {
                    let part = limit(&mut self.remaining, bytes(RARRAY_AREF(parts, index)));
                    self.buffers.encoded.extend_from_slice(part);
                }
                return send_buffered(self.in_flight.writer, &[IoSlice::new(&self.buffers.encoded)]);
            }
            let mut size_line = [0; 18];
            let mut batch: Batch<'_, 64> = Batch::new();
            batch.push(&self.buffers.encoded);
            if chunked && total > 0 {
                // One chunk for all parts has fewer bytes than a chunk per part.
                batch.push(chunk_size_line(total as u64, &mut size_line));
            }
            for index in 0..RARRAY_LEN(parts) as isize {
                batch.push(limit(&mut self.remaining, bytes(RARRAY_AREF(parts, index))));
                if batch.is_full() {
                    send_buffered(self.in_flight.writer, batch.slices());
                    batch = Batch::new();
                }
            }
            if chunked {
                batch.push(if total > 0 { b"\r\n0\r\n\r\n" } else { LAST_CHUNK });
            }
            send_buffered(self.in_flight.writer, batch.slices());
        }
    }
}

unsafe extern "C" fn to_ary(body: VALUE) -> VALUE {
    // SAFETY: under the protect of `whole_body`'s caller, and owning nothing.
    unsafe { call(body, interned().id.to_ary, &[]) }
}

unsafe extern "C" fn no_array(_: VALUE, _exception: VALUE) -> VALUE {
    NIL
}

/// Whether a body responds to `call`, but not to `each`.
pub(super) unsafe fn is_streaming(body: VALUE) -> bool {
    let id = &interned().id;
    // SAFETY: under protect.
    unsafe { rb_respond_to(body, id.each) == 0 && rb_respond_to(body, id.call) != 0 }
}
