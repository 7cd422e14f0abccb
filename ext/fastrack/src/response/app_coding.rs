//! Bodies with a Transfer-Encoding set by the app.

use rb_sys::*;

use fastrack_http::Coding;

use crate::response::body::is_streaming;
use crate::response::sender::{Encoding, Sender};
use crate::ruby::{raise, NIL};

impl Sender<'_, '_, '_> {
    /// Decides whether to send, check or decode the app's [codings](Coding). HTTP/1.0 clients must not receive a
    /// Transfer-Encoding (RFC 9112 §6.1): the server decodes chunks for them. Raises ArgumentError for other codings and for
    /// bodies that write to the socket themselves: an HTTP/1.0 client would read the coded bytes as content.
    ///
    /// # Safety
    /// As [`send`](Self::send).
    #[cold]
    pub unsafe fn settle_coding(&mut self, body: VALUE, hijack: VALUE) {
        let head = &mut self.buffers.head;
        let coding = head.coding();
        let is_chunked = coding == Coding::Chunked;
        if self.mode.http_11 && coding == Coding::UntilClose {
            return;
        }
        self.encoding = if self.mode.http_11 { Encoding::Checked } else { Encoding::Decoded };
        self.buffers.app_chunks.start();
        if self.mode.http_11 {
            return;
        }
        head.drop_codings();
        if self.has_no_body() {
            return;
        }
        // SAFETY: as this function's.
        let writes_itself = hijack != NIL || self.mode.rack_3 && unsafe { is_streaming(body) };
        if !is_chunked || writes_itself {
            // SAFETY: under protect, and owning nothing.
            unsafe {
                raise(rb_eArgError, c"this Transfer-Encoding cannot be undone for a client of HTTP/1.0")
            }
        }
    }
}
