//! Sends a body that is a file: with sendfile(2), so that Ruby never sees its bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rb_sys::*;

use fastrack_http::{chunk_size_line, Length};

use crate::response::sender::{Encoding, Sender};
use crate::ruby::{bytes, call, interned, is_string, without_gvl, NIL};

/// A file of no more bytes than this is sent with the GVL. A longer one may take the disk as long as other threads could use that.
const QUICK: u64 = 64 * 1024;

impl Sender<'_, '_, '_> {
    /// Sends the file that the body's `to_path` names (Rack SPEC, "Enumerable Body"). False if that is not possible:
    /// nothing was sent then, and the body's each must be called.
    pub unsafe fn send_file(&mut self, body: VALUE) -> bool {
        let to_path = interned().id.to_path;
        // SAFETY: as this function's; nothing calls Ruby while the path's bytes are borrowed.
        let opened = unsafe {
            if rb_respond_to(body, to_path) == 0 {
                return false;
            }
            let mut path = call(body, to_path, &[]);
            if !is_string(path) && path != NIL && rb_respond_to(path, to_path) != 0 {
                // A Pathname.
                path = call(path, to_path, &[]);
            }
            if !is_string(path) {
                return false;
            }
            fastrack_sys::open_regular(Path::new(OsStr::from_bytes(bytes(path))))
        };
        // A file that cannot be opened here may be open already in the body's own object.
        let Ok(Some((file, length))) = opened else { return false };
        if !self.is_whole_body(length) {
            return false;
        }
        // From here on nothing calls Ruby: the file is owned.
        let chunked = self.frame_chunked(self.mode.chunked);
        self.frame_length(length);
        self.encode_head();
        self.remaining = None;
        if chunked {
            self.buffers.encoded.extend_from_slice(chunk_size_line(length, &mut [0; 18]));
        }
        let writer = &mut *self.in_flight.writer;
        if !writer.is_broken() && writer.push_file(&self.buffers.encoded, file, length, chunked).is_ok() {
            if length > QUICK {
                // If that does not run, because of an interrupt, the engine sends all of it.
                without_gvl(&mut || writer.send_pushed());
            } else {
                writer.send_pushed();
            }
        }
        // What is left is in the file.
        let _ = writer.finish();
        true
    }

    /// Whether a file of this length is the whole body, as far as the head says. Nothing is left of an empty one to send.
    fn is_whole_body(&self, length: u64) -> bool {
        let head = &self.buffers.head;
        let agrees = match head.length() {
            Length::Known(known) => known == length,
            // A part, unless it says its length, may be any (RFC 9110 §15.3.7).
            Length::Unknown => head.is_unframed() && self.encoding == Encoding::Plain && head.code() != 206,
        };
        agrees && length > 0
    }
}
