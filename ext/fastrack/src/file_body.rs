//! Bodies that are files: the system sends them, and Ruby never sees their bytes.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rb_sys::*;

use fastrack_http::{chunk_size_line, Length};

use crate::body::Sender;
use crate::names::names;
use crate::response::bytes;

impl Sender<'_, '_> {
    /// Sends a body by the file that its `to_path` names (Rack SPEC, "Enumerable Body"). False when that cannot be, and
    /// nothing was sent: then the body has to be asked for its parts.
    ///
    /// # Safety
    /// Under protect, with the GVL.
    pub unsafe fn send_file(&mut self, body: VALUE) -> bool {
        // SAFETY: as this function's; the path is on the stack while its bytes are borrowed, and nothing calls Ruby then.
        let file = unsafe {
            if rb_respond_to(body, names().id_to_path) == 0 {
                return false;
            }
            let path = rb_funcallv(body, names().id_to_path, 0, std::ptr::null());
            if !RB_TYPE_P(path, ruby_value_type::RUBY_T_STRING) {
                return false;
            }
            open(bytes(path))
        };
        let Some((file, length)) = file.filter(|(_, length)| self.is_whole(*length)) else { return false };
        // From here on nothing calls Ruby: the file is owned.
        let chunked = self.frame_chunked(self.manner.chunked);
        if self.head.is_unframed() {
            self.head.frame_length(length);
        }
        self.encode();
        self.left = None;
        let mut end: &[u8] = b"";
        if chunked {
            self.encoded.extend_from_slice(chunk_size_line(length, &mut [0; 18]));
            end = b"\r\n0\r\n\r\n";
        }
        if !self.writer.is_broken() {
            // A failure marks the writer as broken.
            let _ = self.writer.send_file(self.encoded, file, length, end);
        }
        self.writer.finish();
        true
    }

    /// Whether a file of that length is all of the body, by what the head says. One without a length may be one that the
    /// system makes up when it is read (/proc).
    fn is_whole(&self, length: u64) -> bool {
        let announced = match self.head.length() {
            Length::Known(announced) => announced == length,
            Length::Unknown => !self.head.has_coding,
        };
        announced && length > 0
    }
}

fn open(path: &[u8]) -> Option<(File, u64)> {
    // What cannot be opened is the body's affair: it may have the file open already.
    fastrack_sys::open_regular(Path::new(OsStr::from_bytes(path))).ok().flatten()
}
