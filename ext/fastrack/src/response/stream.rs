//! Passes the socket to the app after the head: streaming bodies and partial hijacks (Rack SPEC, "Streaming Body",
//! "Partial Hijack").

use rb_sys::*;

use fastrack_http::Persistence;

use crate::request::{read_ahead, socket_object, BodyEnd};
use crate::response::sender::Sender;
use crate::ruby::{call, interned, NIL};

impl Sender<'_, '_, '_> {
    /// As [`stream`](Self::stream), but first receives the whole request body: the callable reads the bytes after the body.
    pub unsafe fn hijack(&mut self, callable: VALUE) {
        // SAFETY: as this function's.
        unsafe {
            read_ahead(&self.in_flight.request.content, self.in_flight.thread);
            self.stream(callable);
        }
    }

    /// Sends the head, and calls `callable` with the socket.
    pub unsafe fn stream(&mut self, callable: VALUE) {
        let is_upgrade = self.buffers.head.code() == 101;
        if is_upgrade {
            self.in_flight.writer.close();
        } else {
            self.in_flight.writer.end_by_close();
        }
        self.in_flight.writer.unbuffer();
        self.write_head(if is_upgrade { Persistence::Upgraded } else { Persistence::Close });
        // SAFETY: as this function's.
        unsafe {
            self.send_encoded_head();
            if self.in_flight.writer.is_broken() {
                return;
            }
            self.in_flight.stream = socket_object(self.in_flight);
            self.in_flight.writer.note_follows(is_upgrade);
            self.in_flight.body_end = Some(BodyEnd::Close);
            self.in_flight.thread.set_body_called(true);
            call(callable, interned().id.call, &[self.in_flight.stream]);
            self.in_flight.thread.set_body_called(false);
        }
        // The app owns the socket now, and may use it in another thread.
        self.in_flight.stream = NIL;
        self.in_flight.writer.hand_over();
    }
}
