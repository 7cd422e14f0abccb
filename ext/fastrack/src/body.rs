//! The response on its way out: head and body to the writer.

use std::ffi::c_int;
use std::io::IoSlice;

use rb_sys::*;

use fastrack_engine::{Content, Progress, Request, ResponseWriter};
use fastrack_http::{
    chunk_size_line, has_no_body, Length, Persistence, ResponseHead, CHUNK_END, DATE_LEN, LAST_CHUNK,
};

use crate::body_source::read_ahead;
use crate::gvl::without_gvl;
use crate::loan::{self, Loan};
use crate::names::names;
use crate::protect::callback;
use crate::response::{as_string, bytes, raise};
use crate::socket::socket_object;
use crate::strings::{all_strings, total_length};

/// A body of no more bytes is copied behind its head: it leaves by the cheapest of calls, and nothing has to be laid out.
const SHORT: usize = 8 * 1024;

/// What the request and the settings say about the way a body is sent.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// The request was HEAD.
    pub head_only: bool,
    /// Bodies whose length the application does not say are sent in chunks, even where it is known.
    pub chunked: bool,
    /// The client knows chunks.
    pub http_11: bool,
    /// Rack 3: to_ary and callable bodies mean what its SPEC says.
    pub rack_3: bool,
}

/// A response being sent. Borrows all that owns something.
pub(crate) struct Sender<'a, 'e> {
    pub writer: &'a mut ResponseWriter<'e>,
    pub request: &'a Request<'a>,
    pub head: &'a mut ResponseHead,
    /// The encoded head, until it has left.
    pub encoded: &'a mut Vec<u8>,
    pub date: &'a [u8; DATE_LEN],
    pub manner: Manner,
    /// The body, as long as close is still to be called on it; else nil.
    pub unclosed: &'a mut VALUE,
    /// Lends this to the block of an iteration.
    pub loan: &'a mut Loan,
    /// The socket object that a streaming body was given, until its call has returned.
    pub stream: &'a mut VALUE,
    /// How much of the body is still to come, where the head says how long it is.
    pub left: Option<u64>,
}

impl Sender<'_, '_> {
    /// Sends the head and the body; or the head alone, and what `hijack` is called for, unless that is nil.
    ///
    /// # Safety
    /// Under protect, with the GVL; the caller's frames own nothing, and end the loan and close the stream
    /// when this raises.
    pub unsafe fn send(&mut self, body: VALUE, hijack: VALUE) {
        let names = names();
        // SAFETY: as this function's.
        unsafe {
            if self.is_bodiless() {
                // Another protocol is no body.
                if self.head.code() < 200 && hijack != Qnil as VALUE {
                    return self.take_over(hijack);
                }
                if self.head.code() == 101 && self.manner.rack_3 && is_streaming(body) {
                    return self.take_over(body);
                }
                self.encode();
                self.transmit_head();
            } else if hijack != Qnil as VALUE {
                return self.take_over(hijack);
            } else if RB_TYPE_P(body, ruby_value_type::RUBY_T_ARRAY) {
                self.send_array(body);
            } else if self.manner.rack_3 && rb_respond_to(body, names.id_to_ary) != 0 {
                // By the SPEC to_ary closes the body itself.
                *self.unclosed = Qnil as VALUE;
                let parts = rb_check_array_type(body);
                if parts == Qnil as VALUE {
                    raise(rb_eTypeError, c"to_ary of a body must return an Array");
                }
                self.send_array(parts);
            } else if self.send_file(body) {
                return;
            } else if rb_respond_to(body, names.id_each) != 0 {
                self.send_each(body);
            } else if self.manner.rack_3 && is_streaming(body) {
                return self.hand_over(body);
            } else {
                raise(rb_eTypeError, c"a body must respond to each");
            }
        }
        if self.left.is_some_and(|left| left > 0) {
            // Less than was announced: on a connection that went on, the next response would be taken for the rest.
            return self.writer.abandon();
        }
        self.writer.finish();
    }

    fn is_bodiless(&self) -> bool {
        self.manner.head_only || has_no_body(self.head.code())
    }

    /// Makes the head.
    pub fn encode(&mut self) {
        let bodiless = self.is_bodiless();
        let foreign = self.head.has_coding && !self.manner.http_11;
        let unframed = self.head.is_unframed() || foreign;
        if self.head.wants_close || self.head.code() < 200 || !bodiless && unframed {
            self.writer.close();
        }
        self.left = match self.head.length() {
            Length::Known(length) if !bodiless => Some(length),
            _ => None,
        };
        let persistence = self.writer.persistence();
        self.write_head(persistence);
    }

    fn write_head(&mut self, persistence: Persistence) {
        self.encoded.clear();
        self.head.write(self.date, persistence, self.encoded);
    }

    /// Frames in chunks, if that is what is wanted.
    pub fn frame_chunked(&mut self, wanted: bool) -> bool {
        let chunked = wanted && self.manner.http_11 && self.head.is_unframed();
        if chunked {
            self.head.frame_chunked();
        }
        chunked
    }

    /// All parts are there: head and body leave together.
    unsafe fn send_array(&mut self, parts: VALUE) {
        // SAFETY: under protect. The parts are kept alive by the Array, which is on the stack.
        unsafe {
            let parts = all_strings(parts);
            let total = total_length(parts);
            let chunked = self.frame_chunked(self.manner.chunked);
            if self.head.is_unframed() {
                self.head.frame_length(total as u64);
            }
            if matches!(self.head.length(), Length::Known(length) if length < total as u64) {
                self.writer.close();
            }
            self.encode();
            if total <= SHORT && !chunked {
                for index in 0..RARRAY_LEN(parts) as isize {
                    let part = announced(&mut self.left, bytes(RARRAY_AREF(parts, index)));
                    self.encoded.extend_from_slice(part);
                }
                return post(self.writer, &[IoSlice::new(self.encoded)]);
            }
            let mut size_line = [0; 18];
            let mut batch: Batch<'_, 64> = Batch::new();
            batch.push(self.encoded);
            if chunked && total > 0 {
                batch.push(chunk_size_line(total as u64, &mut size_line));
            }
            // Nothing here waits, nor calls Ruby: what the client does not take at once is sent without the application.
            for index in 0..RARRAY_LEN(parts) as isize {
                batch.push(announced(&mut self.left, bytes(RARRAY_AREF(parts, index))));
                if batch.is_full() {
                    post(self.writer, batch.slices());
                    batch = Batch::new();
                }
            }
            if chunked {
                // One chunk for all: a client cannot tell, and it is less to send.
                batch.push(if total > 0 { b"\r\n0\r\n\r\n" } else { LAST_CHUNK });
            }
            post(self.writer, batch.slices());
        }
    }

    /// Each part is sent when it comes; the head with the first.
    unsafe fn send_each(&mut self, body: VALUE) {
        let chunked = self.frame_chunked(self.manner.chunked || self.writer.is_persistent());
        let loan: *mut Loan = self.loan;
        let mut parts = Parts { sender: self, chunked, started: false, panicked: false };
        // SAFETY: under protect. `parts` is lent until each has returned or raised; the loan is not
        // the sender's, which only holds it for whoever ends it then, and nothing else uses it here.
        unsafe {
            let lent = (*loan).begin(&mut parts);
            rb_block_call(body, names().id_each, 0, std::ptr::null(), Some(yielded_part), lent);
            (*loan).end();
        }
        let Parts { started, panicked, .. } = parts;
        if panicked {
            self.writer.abandon();
        }
        if self.writer.is_broken() {
            return;
        }
        if !started && self.head.is_unframed() {
            self.head.frame_length(0);
        }
        if !started {
            self.encode();
            // SAFETY: under protect, as before.
            unsafe { self.transmit_head() };
        }
        if chunked {
            // SAFETY: under protect, as before.
            unsafe { transmit(self.writer, &[IoSlice::new(LAST_CHUNK)]) };
        }
    }

    unsafe fn send_part(&mut self, part: VALUE, chunked: bool, first: bool) {
        // SAFETY: under protect; the part is alive on the stack.
        unsafe {
            let part = bytes(part);
            let mut size_line = [0; 18];
            let mut batch: Batch<'_, 4> = Batch::new();
            if first {
                self.encode();
                batch.push(self.encoded);
            }
            let announced = announced(&mut self.left, part);
            if announced.len() < part.len() {
                self.writer.close();
            }
            let part = announced;
            if chunked {
                batch.push(chunk_size_line(part.len() as u64, &mut size_line));
            }
            batch.push(part);
            if chunked {
                batch.push(CHUNK_END);
            }
            transmit(self.writer, batch.slices());
        }
    }

    /// As [`hand_over`](Self::hand_over), when the request's body has come whole: what follows it is the callable's.
    unsafe fn take_over(&mut self, callable: VALUE) {
        // SAFETY: under protect, and owning nothing.
        unsafe {
            if let Content::Stream(stream) = &self.request.content {
                read_ahead(stream);
            }
            self.hand_over(callable);
        }
    }

    /// Gives what is called the socket, after the head: a streaming body, or the header rack.hijack (Rack SPEC,
    /// "Streaming Body", "Partial Hijack").
    unsafe fn hand_over(&mut self, callable: VALUE) {
        self.writer.close();
        self.writer.unbuffer();
        let switched = self.head.code() == 101;
        self.write_head(if switched { Persistence::Upgraded } else { Persistence::Close });
        // SAFETY: under protect, and owning nothing.
        unsafe {
            self.transmit_head();
            if self.writer.is_broken() {
                return;
            }
            *self.stream = socket_object(&*self.writer, self.request);
            rb_funcallv(callable, names().id_call, 1, self.stream);
            // From here on it is the application's, which may go on with it in another thread.
            *self.stream = Qnil as VALUE;
            self.writer.hand_over();
        }
    }

    unsafe fn transmit_head(&mut self) {
        // SAFETY: under protect; the head's memory is the application object's, and stays.
        unsafe { transmit(self.writer, &[IoSlice::new(self.encoded)]) };
    }
}

/// Whether a body can only be called.
unsafe fn is_streaming(body: VALUE) -> bool {
    // SAFETY: under protect, as whoever calls this.
    unsafe { rb_respond_to(body, names().id_each) == 0 && rb_respond_to(body, names().id_call) != 0 }
}

/// Sends slices, waiting without the GVL for a client that takes its time.
/// A client that is gone leaves the writer broken, which is no exception.
///
/// The slices are copied before Ruby may run.
unsafe fn transmit(writer: &mut ResponseWriter<'_>, slices: &[IoSlice<'_>]) {
    if writer.is_broken() {
        return;
    }
    let mut progress = writer.send(slices).unwrap_or(Progress::Sent);
    while progress == Progress::Blocked {
        without_gvl(&mut || {
            // A failure marks the writer as broken.
            let _ = writer.wait();
        });
        // SAFETY: under protect, and owning nothing. Traps run here; what they raise goes through.
        unsafe { loan::check_interrupts() };
        if writer.is_broken() {
            return;
        }
        progress = writer.flush().unwrap_or(Progress::Sent);
    }
}

/// Sends slices; what the client does not take at once is sent when it does.
/// A client that is gone leaves the writer broken, which is no exception.
fn post(writer: &mut ResponseWriter<'_>, slices: &[IoSlice<'_>]) {
    if !writer.is_broken() {
        // A failure marks the writer as broken.
        let _ = writer.send(slices);
    }
}

/// As much of a part as the head has announced. What is beyond must not be sent: the client would take it for the
/// next response.
fn announced<'p>(left: &mut Option<u64>, part: &'p [u8]) -> &'p [u8] {
    let Some(left) = left else { return part };
    let fits = usize::try_from(*left).map_or(part.len(), |left| left.min(part.len()));
    *left -= fits as u64;
    &part[..fits]
}

/// What the iteration over a body carries along.
struct Parts<'s, 'a, 'e> {
    sender: &'s mut Sender<'a, 'e>,
    chunked: bool,
    started: bool,
    panicked: bool,
}

unsafe extern "C" fn yielded_part(
    part: VALUE,
    loan: VALUE,
    _argc: c_int,
    _argv: *const VALUE,
    _block: VALUE,
) -> VALUE {
    let mut over = false;
    // SAFETY: `loan` is what send_each passed; under its protect.
    unsafe {
        let part = as_string(part);
        loan::with(loan, |parts: &mut Parts<'_, '_, '_>| {
            let sent = callback(|| {
                if RSTRING_LEN(part) > 0 {
                    let first = !std::mem::replace(&mut parts.started, true);
                    parts.sender.send_part(part, parts.chunked, first);
                }
            });
            parts.panicked = sent.is_none();
            over = parts.panicked || parts.sender.writer.is_broken();
        });
        if over {
            // Leaves each, as `break` in a block does.
            rb_iter_break();
        }
    }
    Qnil as VALUE
}

/// Slices that are sent together: on the stack, so that a raise leaves nothing behind.
struct Batch<'a, const MOST: usize> {
    slices: [IoSlice<'a>; MOST],
    filled: usize,
}

impl<'a, const MOST: usize> Batch<'a, MOST> {
    fn new() -> Self {
        Batch { slices: [IoSlice::new(&[]); MOST], filled: 0 }
    }

    fn push(&mut self, bytes: &'a [u8]) {
        self.slices[self.filled] = IoSlice::new(bytes);
        self.filled += 1;
    }

    /// Whether another part, and what may come after the last one, would not fit.
    fn is_full(&self) -> bool {
        self.filled + 2 >= MOST
    }

    fn slices(&self) -> &[IoSlice<'a>] {
        &self.slices[..self.filled]
    }
}
