//! Sends a body that is a file with sendfile(2): the bytes never reach Ruby.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rb_sys::*;

use fastrack_http::{chunk_size_line, Length};

use crate::response::sender::{Encoding, Sender};
use crate::ruby::{bytes, call, interned, is_string, without_gvl, NIL};

/// Maximum length of a file that is sent with the GVL held, in bytes. Reading a longer file from disk may take so long that
/// other threads could use the GVL.
const MAX_SENT_WITH_GVL: u64 = 64 * 1024;

impl Sender<'_, '_, '_> {
    /// Sends the file named by the body's `to_path` (Rack SPEC, "Enumerable Body"). Returns false if that is not possible:
    /// then nothing was sent, and the body's each must be called.
    pub unsafe fn send_file(&mut self, body: VALUE) -> bool {
        let to_path = interned().id.to_path;
        // SAFETY: as this function's; nothing calls Ruby while the path's bytes are borrowed.
        let opened = unsafe {
            if rb_respond_to(body, to_path) == 0 {
                return false;
            }
            let mut path = call(body, to_path, &[]);
            if !is_string(path) && path != NIL && rb_respond_to(path, to_path) != 0 {
                // The path is a Pathname.
                path = call(path, to_path, &[]);
            }
            if !is_string(path) {
                return false;
            }
            fastrack_sys::open_regular(Path::new(OsStr::from_bytes(bytes(path))))
        };
        // The body's object may have opened a file that cannot be opened here.
        let Ok(Some((file, length))) = opened else { return false };
        if !self.is_whole_body(length) {
            return false;
        }
        // From here on Ruby is not called, because this frame owns the file.
        let chunked = self.frame_chunked(self.mode.chunked);
        self.frame_length(length);
        self.encode_head();
        self.remaining = None;
        if chunked {
            self.buffers.encoded.extend_from_slice(chunk_size_line(length, &mut [0; 18]));
        }
        let writer = &mut *self.in_flight.writer;
        if !writer.is_broken() && writer.push_file(&self.buffers.encoded, file, length, chunked).is_ok() {
            if length > MAX_SENT_WITH_GVL {
                // If an interrupt prevents this call, the engine sends the whole file.
                without_gvl(&mut || writer.send_pushed());
            } else {
                writer.send_pushed();
            }
        }
        // The unsent bytes are already in the file: finish does not have to wait.
        let _ = writer.finish();
        true
    }

    /// Whether a file of this length can be the whole body, by the head. False for an empty file, which needs no sendfile(2).
    fn is_whole_body(&self, length: u64) -> bool {
        let head = &self.buffers.head;
        let agrees = match head.length() {
            Length::Known(known) => known == length,
            // A 206 without a length may be any part of the file (RFC 9110 §15.3.7).
            Length::Unknown => head.is_unframed() && self.encoding == Encoding::Plain && head.code() != 206,
        };
        agrees && length > 0
    }
}
