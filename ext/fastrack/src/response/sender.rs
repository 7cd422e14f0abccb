//! Sends the parts of a response: the head, and bytes of the body.

use std::io::IoSlice;

use fastrack_engine::{Progress, ResponseWriter};
use fastrack_http::{has_no_body, AppChunks, DateCache, Length, Persistence, ResponseHead, LAST_CHUNK};
use fastrack_sys::epoch_seconds;

use crate::request::{BodyEnd, InFlight};
use crate::response::server_timing;
use crate::ruby::without_gvl;

/// Memory for the responses of one thread.
#[derive(Default)]
pub(crate) struct ResponseBuffers {
    pub head: ResponseHead,
    /// The encoded head.
    pub encoded: Vec<u8>,
    /// Parses a body that the app has encoded in chunks.
    pub app_chunks: AppChunks,
    date: DateCache,
}

/// The ways of sending a body that the request and the settings allow.
#[derive(Clone, Copy)]
pub(crate) struct BodyMode {
    /// The request was HEAD.
    pub head_only: bool,
    /// ChunkedTransfer: a body is sent in chunks unless the app has set its length, even if the server knows the length.
    pub chunked: bool,
    /// The head tells the client where the request's time has gone.
    pub server_timing: bool,
    /// The client understands chunks.
    pub http_11: bool,
    /// The Rack 3 SPEC applies: bodies may have to_ary, or be callable.
    pub rack_3: bool,
}

/// A response being sent. Owns nothing, so that a raise leaks nothing.
pub(crate) struct Sender<'a, 'r, 'e> {
    pub in_flight: &'a mut InFlight<'r, 'e>,
    pub buffers: &'a mut ResponseBuffers,
    pub mode: BodyMode,
    /// Bytes of the body that have not been sent, if the head has a length.
    pub remaining: Option<u64>,
    pub encoding: Encoding,
}

/// The encoding of the app's body, and its treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// The app has not encoded the body in chunks.
    Plain,
    /// The app's chunks are sent up to the first invalid byte.
    Checked,
    /// The app's chunks are decoded for a client of HTTP/1.0. The close of the connection ends the body.
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
        if self.mode.server_timing {
            server_timing::add(encoded, self.in_flight.writer.timings());
        }
        self.in_flight.writer.describe(head.code(), encoded.len());
    }

    /// Frames the body in chunks if `wanted` and possible. Returns whether it did.
    pub fn frame_chunked(&mut self, wanted: bool) -> bool {
        let chunked = wanted && self.mode.http_11 && self.buffers.head.is_unframed();
        if chunked {
            self.buffers.head.frame_chunked();
        }
        chunked
    }

    /// Adds a Content-Length if the body has no framing yet.
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

/// Sends slices, and waits without the GVL for a slow client. Does not raise if the client has gone: then the writer is
/// broken.
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
        // SAFETY: as this function's. Traps run here, and their exceptions pass through.
        unsafe { thread.check_interrupts() };
        if writer.is_broken() {
            return;
        }
        progress = writer.flush().unwrap_or(Progress::Sent);
    }
}

/// Ends a response. The engine sends the unsent bytes later. Bytes beyond the response buffer are first written to a file,
/// without the GVL. If that is not possible, this function waits for the client.
///
/// # Safety
/// The request may be over if this raises.
pub(crate) unsafe fn finish_waiting(in_flight: &mut InFlight<'_, '_>) {
    let thread = in_flight.thread;
    let writer = &mut *in_flight.writer;
    let mut has_waited = false;
    while writer.finish() == Progress::Blocked {
        if has_waited {
            // SAFETY: as this function's.
            unsafe { thread.check_interrupts() };
        }
        without_gvl(&mut || {
            // A failure marks the writer as broken.
            let _ = writer.wait().and_then(|()| writer.flush());
        });
        has_waited = true;
    }
}

/// Ends the body of a stream whose worker ends, as if the app had come to its end.
///
/// # Safety
/// As [`send_waiting`].
pub(crate) unsafe fn end_body(in_flight: &mut InFlight<'_, '_>) {
    let Some(end) = in_flight.body_end.take() else { return };
    in_flight.writer.set_more_follows(false);
    // SAFETY: as this function's.
    unsafe {
        if end == BodyEnd::LastChunk {
            send_waiting(in_flight, &[IoSlice::new(LAST_CHUNK)]);
        }
        finish_waiting(in_flight);
    }
}

/// Sends slices without waiting. The engine sends later any bytes that the socket does not accept now. Does not raise if the
/// client has gone.
pub(crate) fn send_buffered(writer: &mut ResponseWriter<'_>, slices: &[IoSlice<'_>]) {
    if !writer.is_broken() {
        // A failure marks the writer as broken.
        let _ = writer.send(slices);
    }
}

/// The start of a part, as long as the head's length allows. The client would read further bytes as the next response.
pub(crate) fn limit<'p>(remaining: &mut Option<u64>, part: &'p [u8]) -> &'p [u8] {
    let Some(remaining) = remaining else { return part };
    let fits = usize::try_from(*remaining).map_or(part.len(), |remaining| remaining.min(part.len()));
    *remaining -= fits as u64;
    &part[..fits]
}

/// Slices that are sent together. On the stack, so that a raise leaks nothing.
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

    /// Whether the batch has no room for another part and the end of the last chunk.
    pub fn is_full(&self) -> bool {
        self.len + 2 >= CAPACITY
    }

    pub fn slices(&self) -> &[IoSlice<'a>] {
        &self.slices[..self.len]
    }
}
