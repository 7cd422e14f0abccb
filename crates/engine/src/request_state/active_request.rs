//! The request that a thread of the application is answering, as other threads and signal handlers see it.
//!
//! Whether the application or the helper answers the client is decided by one compare-and-swap on `claim`. The
//! application's thread makes it before the first byte of a response, after the last one, and at the request's end; the
//! helper, which [takes](TAKEN) the request, when the time limit is over. The claim contains the request's number, so the
//! helper cannot take a later request than the one whose deadline it has read.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fastrack_http::Head;
use fastrack_sys::{borrow_fd, monotonic_millis, SharedMemory};

use super::board::{State, ThreadSlot, NEVER};
use super::counters::Counters;
use super::counts::Count;
use super::scoreboard::Scoreboard;
use super::settings::RequestSettings;
use super::unsent::SendUnsent;

const NO_FD: RawFd = -1;

/// How far the response to a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Claim {
    /// There is no request.
    None = 0,
    /// Nothing has been sent.
    Open = 1,
    /// The application's thread has begun to send.
    Begun = 2,
    /// It has sent all of it.
    Complete = 3,
}

/// The bits of [`ActiveRequest::claim`] that are a [`Claim`].
const CLAIM: u64 = 3;

/// Another thread ends the request, and then the process: nobody changes how far the response is any more.
const TAKEN: u64 = 1 << 2;

/// Where the request's number begins.
const NUMBER: u32 = 3;

impl Claim {
    fn of(number: u64) -> Self {
        match number & CLAIM {
            0 => Claim::None,
            1 => Claim::Open,
            2 => Claim::Begun,
            _ => Claim::Complete,
        }
    }

    /// That of a request which begins.
    fn of_new(self, request: u64) -> u64 {
        request << NUMBER | self as u64
    }

    /// `number` with its claim replaced by this one.
    fn with_number_of(self, number: u64) -> u64 {
        number & !CLAIM | self as u64
    }
}

/// Whether there is a request, and nobody has taken it.
fn is_takeable(number: u64) -> bool {
    Claim::of(number) != Claim::None && number & TAKEN == 0
}

/// One request in progress.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    fd: AtomicI32,
    /// That of the thread's responses.
    unsent: OnceLock<Arc<dyn SendUnsent>>,
    slot: SharedMemory<ThreadSlot>,
    counters: Counters,
    timeout: u64,
    /// A [`Claim`], whether it was [`TAKEN`], and the request's number.
    claim: AtomicU64,
    /// What is left of the time limit while it is [stopped](Self::while_stopped), in milliseconds.
    left: AtomicU64,
}

/// `left` while the limit runs.
const RUNNING: u64 = u64::MAX - 1;

impl ActiveRequest {
    /// One for each thread of the application.
    pub fn for_threads(settings: &RequestSettings, threads: usize) -> io::Result<Box<[Arc<Self>]>> {
        let slot = match &settings.slot {
            Some(slot) => slot.clone(),
            None => Scoreboard::new()?.slot(0).ok_or(io::ErrorKind::NotFound)?,
        };
        let counters = slot.counters();
        let new = |slot| ActiveRequest {
            fd: AtomicI32::new(NO_FD),
            unsent: OnceLock::new(),
            counters: counters.clone(),
            slot,
            timeout: settings.timeout,
            claim: AtomicU64::new(0),
            left: AtomicU64::new(RUNNING),
        };
        Ok(slot.for_threads(threads).into_iter().map(new).map(Arc::new).collect())
    }

    // --- the application's thread

    /// A request begins on this socket. Returns the time, in milliseconds of the monotonic clock.
    pub fn begin(&self, fd: RawFd, head: &Head, bytes: &[u8]) -> u64 {
        self.fd.store(fd, Ordering::Relaxed);
        let now = monotonic_millis();
        let deadline = if self.timeout == 0 { NEVER } else { now + self.timeout };
        let number = self.slot.begin_request(head, bytes, now, deadline);
        self.claim.store(Claim::Open.of_new(number), Ordering::Release);
        now
    }

    /// To be called before the first byte is sent. False if another thread has taken the request.
    pub fn claim_response(&self) -> bool {
        self.change(Claim::Begun)
    }

    /// The response has been sent whole, whatever the application does from here on. After [`claim_response`](Self::claim_response).
    pub fn set_complete(&self) {
        // Another thread that has taken the request by now goes on as with one whose response has begun.
        self.change(Claim::Complete);
    }

    /// The application is done. False if another thread has taken the request: its client is that thread's, and the caller must
    /// not go on.
    pub fn end(&self) -> bool {
        let ended = self.change(Claim::None);
        if ended {
            self.slot.end_request();
            self.forget_client();
        }
        ended
    }

    /// What the application wants called after its response begins: it gets the time of a request anew. There is
    /// nobody to answer.
    pub fn begin_callbacks(&self) {
        let now = monotonic_millis();
        let deadline = if self.timeout == 0 { NEVER } else { now + self.timeout };
        let number = self.slot.begin_callbacks(now, deadline);
        self.claim.store(Claim::Complete.of_new(number), Ordering::Release);
    }

    /// False if another thread has taken them, as [`end`](Self::end).
    pub fn end_callbacks(&self) -> bool {
        let ended = self.change(Claim::None);
        if ended {
            self.slot.state.set(State::Waiting);
        }
        ended
    }

    /// A forked child returns from the application: the scoreboard shows its parent.
    pub fn forget_client(&self) {
        self.fd.store(NO_FD, Ordering::Relaxed);
    }

    fn change(&self, claim: Claim) -> bool {
        let number = self.claim.load(Ordering::Relaxed);
        let next = claim.with_number_of(number);
        number & TAKEN == 0
            && self.claim.compare_exchange(number, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Runs `wait`, which waits for the client: that does not count towards the application's time limit.
    pub fn while_stopped<T>(&self, wait: impl FnOnce() -> T) -> T {
        let deadline = self.slot.deadline.get();
        let left = if deadline == NEVER { NEVER } else { deadline.saturating_sub(monotonic_millis()) };
        self.left.store(left, Ordering::SeqCst);
        self.slot.deadline.set(NEVER);
        let result = wait();
        // Another thread may set a limit at this moment: either that changes `left`, or it sees that the limit runs.
        loop {
            let left = self.left.load(Ordering::SeqCst);
            self.slot.deadline.set(monotonic_millis().saturating_add(left));
            if self.left.compare_exchange(left, RUNNING, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return result;
            }
        }
    }

    /// From now on the helper sends this as well.
    pub fn share_unsent(&self, unsent: Arc<dyn SendUnsent>) {
        // It is set once.
        let _ = self.unsent.set(unsent);
    }

    // --- any thread of the application

    /// Sets the request's time limit, in milliseconds from now; 0 is none. Does nothing between requests.
    pub fn allow(&self, millis: u64) {
        if !self.is_takeable() {
            return;
        }
        let millis = if millis == 0 { NEVER } else { millis };
        let change = |left| (left != RUNNING).then_some(millis);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).is_err() {
            self.slot.deadline.set(monotonic_millis().saturating_add(millis));
        }
    }

    /// Those of the worker.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    // --- the helper

    /// Sends what the client has not taken of the response. To be called while its connection cannot be closed. Whether there
    /// was anything.
    pub fn send_unsent(&self) -> bool {
        let mut was_any = false;
        if let Some(unsent) = self.unsent.get() {
            self.with_client(|client| was_any = unsent.send_unsent(client));
        }
        was_any
    }

    /// Whether there is no request, and no callbacks of one.
    pub fn is_none(&self) -> bool {
        Claim::of(self.claim.load(Ordering::Acquire)) == Claim::None
    }

    /// The request's deadline; `u64::MAX` if there is none.
    pub fn deadline(&self) -> u64 {
        if self.is_takeable() {
            self.slot.deadline.get()
        } else {
            NEVER
        }
    }

    /// Takes the request if its deadline has passed. Returns how far the response was.
    pub fn take_overdue(&self, now: u64) -> Option<Claim> {
        let number = self.claim.load(Ordering::Acquire);
        if !is_takeable(number) || self.slot.deadline.get() > now {
            return None;
        }
        let claim = self.try_take(number).ok()?;
        self.counters.add(Count::TimedOut, 1);
        self.slot.state.set(State::Ending);
        Some(claim)
    }

    /// Of a taken request: whether the process ends now, or other requests have time to finish.
    pub fn set_ending(&self, ends: bool) {
        self.slot.state.set(if ends { State::Ending } else { State::Waiting });
    }

    pub fn is_taken(&self) -> bool {
        self.claim.load(Ordering::Acquire) & TAKEN != 0
    }

    /// Whether it is in progress, and nobody has taken it.
    pub fn is_takeable(&self) -> bool {
        is_takeable(self.claim.load(Ordering::Acquire))
    }

    fn try_take(&self, number: u64) -> Result<Claim, u64> {
        self.claim.compare_exchange(number, number | TAKEN, Ordering::AcqRel, Ordering::Acquire)?;
        let claim = Claim::of(number);
        if !self.slot.is_in_callbacks() {
            let millis = monotonic_millis().saturating_sub(self.slot.started.get());
            self.counters.count_lost(claim == Claim::Open, millis);
        }
        Ok(claim)
    }

    /// Describes the request, or its callbacks, for the log: method and path, time taken, request id.
    pub fn describe(&self, now: u64) -> String {
        let (line, id) = self.slot.texts_without_query();
        let seconds = now.saturating_sub(self.slot.started.get()) as f64 / 1000.0;
        let id = if id.is_empty() { String::new() } else { format!(", request id {}", id.escape_ascii()) };
        let (prefix, has) = if self.slot.is_in_callbacks() { ("callbacks of ", "have") } else { ("", "has") };
        format!("{prefix}{} {has} taken {seconds:.1} s{id}", line.escape_ascii())
    }

    /// When it began, in milliseconds of the monotonic clock.
    pub fn started(&self) -> u64 {
        self.slot.started.get()
    }

    /// Whether it was answered, and its callbacks are running.
    pub fn is_in_callbacks(&self) -> bool {
        self.slot.is_in_callbacks()
    }

    /// What is known of its head, as a head.
    pub fn as_head(&self) -> Vec<u8> {
        let (line, id) = self.slot.texts();
        let id = if id.is_empty() { Vec::new() } else { [b"X-Request-ID: ", &id[..], b"\r\n"].concat() };
        [&line[..], b" HTTP/1.1\r\nHost: -\r\n", &id, b"\r\n"].concat()
    }

    /// Takes the request, if there is one that nobody has taken. Returns how far the response was.
    pub fn take(&self) -> Option<Claim> {
        let mut number = self.claim.load(Ordering::Acquire);
        while is_takeable(number) {
            match self.try_take(number) {
                Ok(claim) => return Some(claim),
                Err(other) => number = other,
            }
        }
        None
    }

    /// Whether the method is HEAD, whose responses have no body.
    pub fn is_head_request(&self) -> bool {
        self.slot.is_head_request()
    }

    pub fn fd(&self) -> RawFd {
        self.fd.load(Ordering::Relaxed)
    }

    /// The client of a request that cannot end meanwhile: one that was [taken](Self::take), or any while the caller keeps the
    /// connections from being closed.
    pub fn with_client(&self, work: impl FnMut(BorrowedFd<'_>)) {
        // SAFETY: its socket stays open until the request has ended, and that it cannot, or until a connection is closed, which
        // the caller prevents.
        let client = unsafe { borrow_fd(self.fd()) };
        client.into_iter().for_each(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_state::State;

    fn active(timeout: u64) -> (Scoreboard, ActiveRequest) {
        let board = Scoreboard::new().expect("memory");
        let slot = board.reserve().and_then(|index| board.slot(index));
        let settings = RequestSettings { timeout, slot, ..RequestSettings::default() };
        let active = ActiveRequest::for_threads(&settings, 1).expect("a slot");
        (board, active.into_vec().pop().and_then(Arc::into_inner).expect("one"))
    }

    fn begin(active: &ActiveRequest) {
        let bytes = b"HEAD /path HTTP/1.1\r\nHost: h\r\nX-Request-ID: 7\r\n\r\n";
        let mut head = Head::default();
        head.parse(bytes, fastrack_http::Limits::default()).expect("a good head");
        active.begin(7, &head, bytes);
    }

    /// The deadlines that are possible if one was set between `before` and now, for `millis` milliseconds.
    fn limits(millis: u64, before: u64) -> std::ops::RangeInclusive<u64> {
        before + millis..=monotonic_millis() + millis
    }

    #[test]
    fn a_request_that_is_overdue_is_taken_once_and_not_before() {
        let (board, active) = active(1000);
        let now = monotonic_millis();
        assert_eq!((active.take_overdue(NEVER), active.deadline()), (None, NEVER));
        begin(&active);
        assert!(limits(1000, now).contains(&active.deadline()));
        assert_eq!(active.take_overdue(active.deadline() - 1), None);
        let later = active.deadline() + 500;
        assert_eq!(active.take_overdue(later), Some(Claim::Open));
        assert_eq!(active.take_overdue(later), None);
        assert!(!active.claim_response() && active.is_head_request());
        assert_eq!(board.read(0).expect("an entry").state, State::Ending);
        let text = active.describe(later);
        assert!(text.starts_with("HEAD /path has taken 1.5") && text.ends_with("request id 7"), "{text}");
    }

    #[test]
    fn the_end_of_the_process_takes_a_request_before_its_deadline() {
        let (board, active) = active(0);
        assert_eq!(active.take(), None);
        begin(&active);
        assert_eq!((active.take(), active.take()), (Some(Claim::Open), None));
        assert!(!active.claim_response());
        assert_eq!(board.read(0).expect("an entry").state, State::Serving);
    }

    #[test]
    fn the_first_to_answer_has_the_client() {
        let (_board, active) = active(1000);
        begin(&active);
        assert!(active.claim_response());
        assert_eq!(active.take_overdue(NEVER - 1), Some(Claim::Begun));
        assert!(!active.change(Claim::None));
    }

    #[test]
    fn a_complete_response_is_distinguished_from_a_partial_one() {
        let (_board, active) = active(1000);
        begin(&active);
        assert!(active.claim_response());
        active.set_complete();
        assert!(active.end());
        begin(&active);
        assert!(active.claim_response());
        let part = active.claim.load(Ordering::SeqCst);
        assert_eq!(active.take_overdue(NEVER - 1), Some(Claim::Begun));
        // Too late.
        active.set_complete();
        assert!(active.is_taken());
        active.claim.store(part, Ordering::SeqCst);
        active.set_complete();
        assert_eq!(active.take_overdue(NEVER - 1), Some(Claim::Complete));
    }

    #[test]
    fn one_request_is_not_taken_for_another() {
        let (_board, active) = active(1000);
        begin(&active);
        let first = active.claim.load(Ordering::SeqCst);
        assert!(active.claim_response());
        active.end();
        assert_eq!(active.take_overdue(NEVER - 1), None);
        begin(&active);
        assert_ne!(active.claim.load(Ordering::SeqCst), first);
        assert_eq!(Claim::of(first), Claim::Open);
    }

    #[test]
    fn callbacks_have_a_time_limit_of_their_own_and_no_client() {
        let (board, active) = active(1000);
        begin(&active);
        active.end();
        let before = monotonic_millis();
        active.begin_callbacks();
        let entry = board.read(0).expect("an entry");
        assert_eq!((entry.state, entry.in_callbacks, entry.requests), (State::Serving, true, 1));
        assert!(limits(1000, before).contains(&active.deadline()) && active.fd() == NO_FD);
        active.end_callbacks();
        assert_eq!((active.take_overdue(NEVER - 1), active.deadline()), (None, NEVER));
        assert_eq!(board.read(0).map(|entry| (entry.state, entry.requests)), Some((State::Waiting, 1)));
        active.begin_callbacks();
        let later = active.deadline();
        assert_eq!(active.take_overdue(later), Some(Claim::Complete));
        let text = active.describe(later);
        assert!(
            text.starts_with("callbacks of HEAD /path have taken 1.0") && text.ends_with("request id 7"),
            "{text}"
        );
    }

    #[test]
    fn waiting_for_the_client_does_not_count() {
        let (board, active) = active(1_000_000);
        begin(&active);
        let (before, start) = (active.deadline(), monotonic_millis());
        active.while_stopped(|| {
            fastrack_sys::sleep(30);
            assert_eq!(
                (active.take_overdue(NEVER - 1), board.read(0).expect("an entry").deadline),
                (None, None)
            );
        });
        let stopped = active.deadline() - before;
        assert!((20..=monotonic_millis() - start).contains(&stopped), "{stopped}");
    }

    #[test]
    fn a_limit_that_is_set_while_the_client_is_waited_for_counts_from_then_on() {
        let (_board, active) = active(1000);
        begin(&active);
        for millis in [60_000, 0, 2_000] {
            let start = monotonic_millis();
            active.while_stopped(|| {
                active.allow(millis);
                assert_eq!(active.deadline(), NEVER);
            });
            let expected = if millis == 0 { NEVER..=NEVER } else { limits(millis, start) };
            assert!(expected.contains(&active.deadline()), "{millis}");
        }
    }

    #[test]
    fn an_application_sets_its_own_limit() {
        let (_board, active) = active(0);
        active.allow(50);
        assert_eq!(active.deadline(), NEVER);
        begin(&active);
        assert_eq!(active.deadline(), NEVER);
        let before = monotonic_millis();
        active.allow(50);
        assert!(limits(50, before).contains(&active.deadline()));
        active.allow(0);
        assert_eq!(active.deadline(), NEVER);
    }
}
