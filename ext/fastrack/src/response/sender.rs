//! Sends the parts of a response: the head, and bytes of the body.

use std::io::IoSlice;

use fastrack_engine::{Progress, ResponseWriter};
use fastrack_http::{has_no_body, AppChunks, DateCache, Length, Persistence, ResponseHead};
use fastrack_sys::epoch_seconds;

use crate::request::InFlight;
use crate::ruby::without_gvl;

/// Memory for responses, used by one after the other.
#[derive(Default)]
pub(crate) struct ResponseBuffers {
    pub head: ResponseHead,
    /// The encoded head.
    pub encoded: Vec<u8>,
    /// Follows a body that the app has encoded in chunks.
    pub app_chunks: AppChunks,
    date: DateCache,
}

/// How the request and the settings allow a body to be sent.
#[derive(Clone, Copy)]
pub(crate) struct BodyMode {
    /// The request was HEAD.
    pub head_only: bool,
    /// ChunkedTransfer: a body goes in chunks unless the app gave its length, even if this is known.
    pub chunked: bool,
    /// The client understands chunks.
    pub http_11: bool,
    /// to_ary and callable bodies mean what the Rack 3 SPEC says.
    pub rack_3: bool,
}

/// A response being sent. Borrows everything that owns something.
pub(crate) struct Sender<'a, 'r, 'e> {
    pub in_flight: &'a mut InFlight<'r, 'e>,
    pub buffers: &'a mut ResponseBuffers,
    pub mode: BodyMode,
    /// How many bytes of the body are still to come, if the head gives a length.
    pub remaining: Option<u64>,
    pub encoding: Encoding,
}

/// Whether the app has encoded the body in chunks itself, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// It has not.
    Plain,
    /// They are sent, as far as they are right.
    Checked,
    /// A client of HTTP/1.0 gets what is in them, and the close ends it.
    Decoded,
}

impl Sender<'_, '_, '_> {
    pub fn has_no_body(&self) -> bool {
        self.mode.head_only || has_no_body(self.buffers.head.code())
    }

    /// Encodes the head.
    pub fn encode_head(&mut self) {
        let has_body = !self.has_no_body();
        let ResponseBuffers { head, .. } = &self.buffers;
        let (code, ends_by_close) = (head.code(), has_body && head.ends_by_close());
        let must_close = head.wants_close() || code < 200;
        self.remaining = match head.length() {
            Length::Known(length) if has_body => Some(length),
            _ => None,
        };
        if ends_by_close {
            self.in_flight.writer.end_by_close();
        } else if must_close {
            self.in_flight.writer.close();
        }
        let persistence = self.in_flight.writer.persistence();
        self.write_head(persistence);
    }

    pub fn write_head(&mut self, persistence: Persistence) {
        let ResponseBuffers { head, encoded, date, .. } = self.buffers;
        encoded.clear();
        head.write(date.at(epoch_seconds()), persistence, encoded);
        self.in_flight.writer.describe(head.code(), encoded.len());
    }

    /// Frames the body in chunks if that is wanted and possible.
    pub fn frame_chunked(&mut self, wanted: bool) -> bool {
        let chunked = wanted && self.mode.http_11 && self.buffers.head.is_unframed();
        if chunked {
            self.buffers.head.frame_chunked();
        }
        chunked
    }

    /// Frames the body by its length unless something else frames it already.
    pub fn frame_length(&mut self, length: u64) {
        if self.buffers.head.is_unframed() {
            self.buffers.head.frame_length(length);
        }
    }

    pub unsafe fn send_encoded_head(&mut self) {
        // SAFETY: as this function's.
        unsafe { send_waiting(self.in_flight, &[IoSlice::new(&self.buffers.encoded)]) };
    }
}

/// Sends slices, and waits without the GVL for a slow client. If the client has gone this raises nothing: the writer is
/// broken then.
///
/// # Safety
/// The slices are copied before Ruby code may run. The request may be over if this raises.
pub(crate) unsafe fn send_waiting(in_flight: &mut InFlight<'_, '_>, slices: &[IoSlice<'_>]) {
    let thread = in_flight.thread;
    let writer = &mut *in_flight.writer;
    if writer.is_broken() {
        return;
    }
    let mut progress = writer.send(slices).unwrap_or(Progress::Sent);
    while progress == Progress::Blocked {
        without_gvl(&mut || {
            // A failure marks the writer as broken.
            let _ = writer.wait();
        });
        // SAFETY: as this function's. Traps run here, and what they raise passes through.
        unsafe { thread.check_interrupts() };
        if writer.is_broken() {
            return;
        }
        progress = writer.flush().unwrap_or(Progress::Sent);
    }
}

/// Sends slices without waiting: the engine sends later what the client does not take at once. Raises nothing, as
/// [`send_waiting`].
pub(crate) fn send_buffered(writer: &mut ResponseWriter<'_>, slices: &[IoSlice<'_>]) {
    if !writer.is_broken() {
        // A failure marks the writer as broken.
        let _ = writer.send(slices);
    }
}

/// As much of a part as the head's length allows: the client would take the rest for the next response.
pub(crate) fn limit<'p>(remaining: &mut Option<u64>, part: &'p [u8]) -> &'p [u8] {
    let Some(remaining) = remaining else { return part };
    let fits = usize::try_from(*remaining).map_or(part.len(), |remaining| remaining.min(part.len()));
    *remaining -= fits as u64;
    &part[..fits]
}

/// Slices that are sent together. On the stack, so that a raise leaves nothing behind.
pub(crate) struct Batch<'a, const CAPACITY: usize> {
    slices: [IoSlice<'a>; CAPACITY],
    len: usize,
}

impl<'a, const CAPACITY: usize> Batch<'a, CAPACITY> {
    pub fn new() -> Self {
        Batch { slices: [IoSlice::new(&[]); CAPACITY], len: 0 }
    }

    pub fn push(&mut self, bytes: &'a [u8]) {
        self.slices[self.len] = IoSlice::new(bytes);
        self.len += 1;
    }

    /// Whether there is no room for another part and the end of the last chunk.
    pub fn is_full(&self) -> bool {
        self.len + 2 >= CAPACITY
    }

    pub fn slices(&self) -> &[IoSlice<'a>] {
        &self.slices[..self.len]
    }
}
