//! The request that a thread of the application answers, as other threads see it.
//!
//! One compare-and-swap on `claim` decides whether the application or the helper answers the client. The application's thread changes the
//! claim before the first byte of a response, after the last one, and at the request's end. The helper changes it when the time limit
//! is over: it [seizes](SEIZED) the request. The claim contains the request's number, so that the helper cannot seize a later request
//! than the one whose deadline it has read.

mod limit;
mod slow;
mod stream;

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use fastrack_http::Head;
use fastrack_sys::{borrow_fd, monotonic_millis, SharedMemory};

use super::settings::RequestSettings;
use super::FlushLent;
use crate::scoreboard::{Count, Counters, Scoreboard, State, ThreadSlot, NEVER};
use crate::times::Times;

pub use stream::StreamEnd;

const NO_FD: RawFd = -1;

/// How far the response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Claim {
    /// There is no request.
    None = 0,
    /// No byte of the response has been sent.
    Open = 1,
    /// The application's thread has begun to send.
    Begun = 2,
    /// The application's thread has sent the whole response.
    Complete = 3,
}

/// The bits of [`ActiveRequest::claim`] that are a [`Claim`].
const CLAIM: u64 = 3;

/// The bit that says that the helper ends the request, and then the process. The claim does not change any more.
const SEIZED: u64 = 1 << 2;

/// The bit that says that the head has left and the body's end is not known: the response may become a [stream](STREAM).
const FOLLOWS: u64 = 1 << 3;

/// The bit that says that the response is a stream. It stays until the thread's next request.
const STREAM: u64 = 1 << 4;

/// The bit that says that the time limit is [stopped](ActiveRequest::while_stopped).
const STOPPED: u64 = 1 << 5;

/// The bit that says that the application has set the time limit itself.
const ALLOWED: u64 = 1 << 6;

/// The bit that says that the application wants the request to hold no seat from now on.
const IO_BOUND: u64 = 1 << 7;

/// The bit at which the request's number begins.
const NUMBER: u32 = 8;

/// Bits of the request's number that have the seat.
const SEAT: u32 = 7;

impl Claim {
    fn of(number: u64) -> Self {
        match number & CLAIM {
            0 => Claim::None,
            1 => Claim::Open,
            2 => Claim::Begun,
            _ => Claim::Complete,
        }
    }

    /// The number of a request that begins.
    fn of_new(self, request: u64) -> u64 {
        request << NUMBER | self as u64
    }

    /// `number` with its claim replaced by this one.
    fn with_number_of(self, number: u64) -> u64 {
        number & !CLAIM | self as u64
    }
}

/// Whether there is a request that the helper has not seized.
fn is_seizable(number: u64) -> bool {
    Claim::of(number) != Claim::None && number & SEIZED == 0
}

/// State that all requests of one worker share.
#[derive(Debug)]
pub(crate) struct Seats {
    /// The parts of the scoreboard, one for each seat.
    slots: Box<[SharedMemory<ThreadSlot>]>,
    counters: Counters,
    timeout: u64,
    stream_timeout: u64,
    timings: bool,
}

impl Seats {
    pub fn new(settings: &RequestSettings, seats: usize) -> io::Result<Arc<Self>> {
        let slot = match &settings.slot {
            Some(slot) => slot.clone(),
            None => Scoreboard::new()?.slot(0).ok_or(io::ErrorKind::NotFound)?,
        };
        Ok(Arc::new(Seats {
            counters: slot.counters(),
            slots: slot.for_seats(seats).into(),
            timeout: settings.timeout,
            stream_timeout: settings.stream_timeout,
            timings: settings.timings,
        }))
    }

    /// The counters of the worker.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The deadline of a request that begins at this time.
    fn deadline(&self, now: u64) -> u64 {
        if self.timeout == 0 {
            NEVER
        } else {
            now + self.timeout
        }
    }
}

/// One request in progress.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    fd: AtomicI32,
    /// The buffer of the thread's responses.
    lent: OnceLock<Arc<dyn FlushLent>>,
    seats: Arc<Seats>,
    /// The seat of the thread. It changes between requests only.
    seat: AtomicUsize,
    /// The slot while the response is a stream. The seat's slot is another thread's then.
    own_slot: ThreadSlot,
    /// When the head had left, in milliseconds of the monotonic clock, if the claim has [`FOLLOWS`].
    follows: AtomicU64,
    /// When the stream's time limit is over.
    stream_ends: AtomicU64,
    /// Whether the stream is to end because its worker does.
    is_retired: AtomicBool,
    /// Whether the connection has switched to another protocol. Then the end of the client's input says nothing.
    is_upgrade: AtomicBool,
    /// A [`Claim`], whether it was [`SEIZED`] and other bits, and the request's number.
    claim: AtomicU64,
    /// The rest of the time limit while the limit is [stopped](Self::while_stopped), in milliseconds. Else [`RUNNING`].
    left: AtomicU64,
    /// The system's number of the thread; 0 if the system does not tell.
    thread: AtomicI32,
    /// The claim, without its lower bits, of the last request that [`note_slow`](Self::note_slow) has found.
    slow: AtomicU64,
    /// None if nobody asked for them.
    times: Option<Arc<Times>>,
}

/// `left` while the time limit runs.
const RUNNING: u64 = u64::MAX - 1;

impl ActiveRequest {
    /// The requests of a thread in this seat.
    pub fn new(seats: &Arc<Seats>, seat: usize) -> Self {
        ActiveRequest {
            fd: AtomicI32::new(NO_FD),
            lent: OnceLock::new(),
            seats: Arc::clone(seats),
            seat: AtomicUsize::new(seat),
            own_slot: ThreadSlot::default(),
            follows: AtomicU64::new(0),
            stream_ends: AtomicU64::new(NEVER),
            is_retired: AtomicBool::new(false),
            is_upgrade: AtomicBool::new(false),
            claim: AtomicU64::new(0),
            left: AtomicU64::new(RUNNING),
            thread: AtomicI32::new(0),
            slow: AtomicU64::new(0),
            times: seats.timings.then(Arc::default),
        }
    }

    /// The slot of a request with this claim.
    #[inline]
    fn slot_of(&self, claim: u64) -> &ThreadSlot {
        if claim & STREAM == 0 {
            &self.seats.slots[self.seat.load(Ordering::Relaxed)]
        } else {
            &self.own_slot
        }
    }

    fn slot(&self) -> &ThreadSlot {
        self.slot_of(self.claim.load(Ordering::Acquire))
    }

    /// How the time of the thread's requests is divided; None if nobody asked for that.
    #[inline]
    pub fn times(&self) -> Option<&Arc<Times>> {
        self.times.as_ref()
    }

    /// The thread takes this seat. It has no request.
    pub fn set_seat(&self, seat: usize) {
        self.seat.store(seat, Ordering::Relaxed);
    }

    // --- the application's thread

    /// A request begins on this socket. Returns the time, in milliseconds of the monotonic clock.
    pub fn begin(&self, fd: RawFd, head: &Head, bytes: &[u8]) -> u64 {
        self.fd.store(fd, Ordering::Relaxed);
        let now = monotonic_millis();
        let seat = self.seat.load(Ordering::Relaxed);
        let number = self.seats.slots[seat].begin_request(head, bytes, now, self.seats.deadline(now));
        self.claim.store(Claim::Open.of_new(number << SEAT | seat as u64), Ordering::Release);
        now
    }

    /// Claims the response for the application, before the first byte is sent. False if the helper has seized the request.
    pub fn claim_response(&self) -> bool {
        self.change(Claim::Begun)
    }

    /// The response has been sent whole. [`claim_response`](Self::claim_response) comes before.
    pub fn set_complete(&self) {
        // If the helper has seized the request by now, the response counts as begun.
        self.change(Claim::Complete);
    }

    /// The application is done. Returns false if the helper has seized the request: then the helper answers the client, and the caller must
    /// not go on.
    pub fn end(&self) -> bool {
        let ended = self.change(Claim::None);
        if ended {
            self.slot().end_request();
            self.forget_client();
        }
        ended
    }

    /// The application's callbacks after the response begin. The callbacks get the time of a request anew. They have no client.
    pub fn begin_callbacks(&self) {
        let now = monotonic_millis();
        let is_stream = self.claim.load(Ordering::Relaxed) & STREAM;
        let number = self.slot().begin_callbacks(now, self.seats.deadline(now));
        let seat = self.seat.load(Ordering::Relaxed) as u64;
        self.claim.store(Claim::Complete.of_new(number << SEAT | seat) | is_stream, Ordering::Release);
    }

    /// The callbacks are done. Returns false if the helper has seized the request, as [`end`](Self::end) does.
    pub fn end_callbacks(&self) -> bool {
        let ended = self.change(Claim::None);
        if ended {
            self.slot().state.set(State::Waiting);
        }
        ended
    }

    /// Forgets the client, and leaves the scoreboard alone: a forked child returns from the application.
    pub fn forget_client(&self) {
        self.fd.store(NO_FD, Ordering::Relaxed);
    }

    /// Fails if the helper has seized the request.
    fn change(&self, claim: Claim) -> bool {
        let mut number = self.claim.load(Ordering::Relaxed);
        // The response may become a stream at this moment.
        while number & SEIZED == 0 {
            let next = claim.with_number_of(number);
            match self.claim.compare_exchange(number, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => number = other,
            }
        }
        false
    }

    /// From now on the helper also flushes this buffer.
    pub fn share_lent(&self, lent: Arc<dyn FlushLent>) {
        // The buffer is set once.
        let _ = self.lent.set(lent);
    }

    // --- the helper

    /// Sends the bytes of the response that the client has not taken, as many as the socket takes. Returns whether there were any. The
    /// caller keeps the connection from being closed.
    pub fn flush_lent(&self) -> bool {
        let mut was_any = false;
        if let Some(lent) = self.lent.get() {
            self.with_client(|client| was_any = lent.flush(client));
        }
        was_any
    }

    /// Whether there is no request, and no callbacks of one.
    pub fn is_none(&self) -> bool {
        Claim::of(self.claim.load(Ordering::Acquire)) == Claim::None
    }

    /// The request's deadline. [`NEVER`] if there is none.
    pub fn deadline(&self) -> u64 {
        if self.is_seizable() {
            self.slot().deadline.get()
        } else {
            NEVER
        }
    }

    /// Seizes the request if its deadline has passed. Returns how far the response was.
    pub fn seize_overdue(&self, now: u64) -> Option<Claim> {
        let number = self.claim.load(Ordering::Acquire);
        if !is_seizable(number) || self.slot_of(number).deadline.get() > now {
            return None;
        }
        let claim = self.try_seize(number).ok()?;
        self.seats.counters.add(Count::TimedOut, 1);
        self.slot().state.set(State::Ending);
        Some(claim)
    }

    /// Shows on the scoreboard of a seized request whether the process ends now, or other requests have time to finish.
    pub fn set_ending(&self, ends: bool) {
        self.slot().state.set(if ends { State::Ending } else { State::Waiting });
    }

    pub fn is_seized(&self) -> bool {
        self.claim.load(Ordering::Acquire) & SEIZED != 0
    }

    /// Whether the request is in progress, and the helper has not seized it.
    pub fn is_seizable(&self) -> bool {
        is_seizable(self.claim.load(Ordering::Acquire))
    }

    fn try_seize(&self, number: u64) -> Result<Claim, u64> {
        self.claim.compare_exchange(number, number | SEIZED, Ordering::AcqRel, Ordering::Acquire)?;
        let claim = Claim::of(number);
        if !self.slot().is_in_callbacks() {
            let millis = monotonic_millis().saturating_sub(self.slot().started.get());
            self.seats.counters.count_lost(claim == Claim::Open, millis);
        }
        Ok(claim)
    }

    /// Describes the request, or its callbacks, for the log: method and path, time taken, request id.
    pub fn describe(&self, now: u64) -> String {
        let (line, id) = self.slot().texts_without_query();
        let seconds = now.saturating_sub(self.slot().started.get()) as f64 / 1000.0;
        let id = if id.is_empty() { String::new() } else { format!(", request id {}", id.escape_ascii()) };
        let (prefix, has) =
            if self.slot().is_in_callbacks() { ("callbacks of ", "have") } else { ("", "has") };
        format!("{prefix}{} {has} taken {seconds:.1} s{id}", line.escape_ascii())
    }

    /// When the request began, in milliseconds of the monotonic clock.
    pub fn started(&self) -> u64 {
        self.slot().started.get()
    }

    /// Whether the request was answered, and its callbacks run.
    pub fn is_in_callbacks(&self) -> bool {
        self.slot().is_in_callbacks()
    }

    /// A request head, made of the parts that the scoreboard has.
    pub fn as_head(&self) -> Vec<u8> {
        let (line, id) = self.slot().texts();
        let id = if id.is_empty() { Vec::new() } else { [b"X-Request-ID: ", &id[..], b"\r\n"].concat() };
        [&line[..], b" HTTP/1.1\r\nHost: -\r\n", &id, b"\r\n"].concat()
    }

    /// Seizes the request, if there is one that the helper has not seized. Returns how far the response was.
    pub fn seize(&self) -> Option<Claim> {
        let mut number = self.claim.load(Ordering::Acquire);
        while is_seizable(number) {
            match self.try_seize(number) {
                Ok(claim) => return Some(claim),
                Err(other) => number = other,
            }
        }
        None
    }

    /// Whether the method is HEAD, whose responses have no body.
    pub fn is_head_request(&self) -> bool {
        self.slot().is_head_request()
    }

    pub fn fd(&self) -> RawFd {
        self.fd.load(Ordering::Relaxed)
    }

    /// Runs `work` with the client's socket. The request cannot end meanwhile: it was [seized](Self::seize), or the caller keeps the
    /// connections from being closed.
    pub fn with_client(&self, work: impl FnMut(BorrowedFd<'_>)) {
        // SAFETY: the socket stays open until the request ends, which a seized request does not, or until the connection is closed,
        // which the caller prevents.
        let client = unsafe { borrow_fd(self.fd()) };
        client.into_iter().for_each(work);
    }
}

#[cfg(test)]
mod tests;
