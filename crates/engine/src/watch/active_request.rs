//! The request that the application is at: until when it may be, and who
//! answers it, the application's thread or the helper.
//!
//! One number decides. The application's thread changes it before the first
//! byte of a response leaves, and when the request is over; the helper changes
//! it to *taken* when the time is over. Whoever's compare-and-swap comes first
//! has the client. The number has the request's own in it, so that the helper
//! can never take another one than that whose time it has looked at.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use fastrack_sys::monotonic_millis;

use crate::conn::request::Request;
use crate::watch::scoreboard::{Scoreboard, Slot, NEVER};

/// What the helper asks of the application's side when a request has passed its time. Called from the helper's thread.
pub trait ThreadDumper: Send + Sync + std::fmt::Debug {
    /// What the application's threads are at, in their own words; None when they do not get to it within `millis`.
    fn dump(&self, millis: u64) -> Option<String>;

    /// Has each thread write to stderr where it is, whatever it is in the middle of; takes at most `millis`.
    fn dump_frames(&self, millis: u64);
}

/// How requests are watched.
#[derive(Clone, Debug, Default)]
pub struct WatchSettings {
    /// How long the application may take for a request, in milliseconds; 0 is no limit.
    pub timeout: u64,
    /// Where the master sees what this worker is at; None where there is no master.
    pub slot: Option<Slot>,
    /// Who is asked what the application is at, once it has taken too long.
    pub dumper: Option<Arc<dyn ThreadDumper>>,
}

/// How far the answer to a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Claim {
    /// There is no request.
    None = 0,
    /// Nobody has answered.
    Open = 1,
    /// The application's thread has begun to.
    Begun = 2,
    /// The helper has it.
    Taken = 3,
    /// The client has all of the answer. Found out when it is taken, and never in the number.
    Answered,
}

const BITS: u32 = 2;

impl Claim {
    fn of(number: u64) -> Self {
        match number & ((1 << BITS) - 1) {
            0 => Claim::None,
            1 => Claim::Open,
            2 => Claim::Begun,
            _ => Claim::Taken,
        }
    }

    /// The number that says this of the same request.
    fn in_place_of(self, number: u64) -> u64 {
        number >> BITS << BITS | self as u64
    }
}

/// The request that a worker is at.
#[derive(Debug)]
pub(crate) struct Watch {
    slot: Slot,
    timeout: u64,
    claim: AtomicU64,
    /// What the claim was when the client had all of the answer.
    answered: AtomicU64,
    pub dumper: Option<Arc<dyn ThreadDumper>>,
}

impl Watch {
    pub fn new(watch: &WatchSettings) -> io::Result<Self> {
        let slot = match &watch.slot {
            Some(slot) => slot.clone(),
            None => Scoreboard::new()?.slot(0).ok_or(io::ErrorKind::NotFound)?,
        };
        Ok(Watch {
            slot,
            timeout: watch.timeout,
            claim: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            dumper: watch.dumper.clone(),
        })
    }

    // --- the application's thread

    /// The request begins, at the time that is returned: milliseconds of the steady clock.
    pub fn begin(&self, request: &Request<'_>) -> u64 {
        let now = monotonic_millis();
        let deadline = if self.timeout == 0 { NEVER } else { now + self.timeout };
        let number = self.slot.begin(request, now, deadline);
        self.claim.store(Claim::Open.in_place_of(number << BITS), Ordering::Release);
        now
    }

    /// Before the first byte leaves: false when the helper has answered instead.
    pub fn answer(&self) -> bool {
        self.change(Claim::Begun)
    }

    /// The client has it all, whatever the application does from here on.
    pub fn answered(&self) {
        self.answered.store(self.claim.load(Ordering::Relaxed), Ordering::Release);
    }

    /// The application is done. Does not return when the helper has the request: the process is ending.
    pub fn end(&self) {
        while !self.change(Claim::None) {
            std::thread::park();
        }
        self.slot.end();
    }

    fn change(&self, claim: Claim) -> bool {
        let number = self.claim.load(Ordering::Relaxed);
        let next = claim.in_place_of(number);
        Claim::of(number) != Claim::Taken
            && self.claim.compare_exchange(number, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// From now on the client is waited for, which is not the application's time. What is returned is for
    /// [`resume`](Self::resume).
    pub fn pause(&self) -> u64 {
        let deadline = self.slot.deadline();
        self.slot.set_deadline(NEVER);
        if deadline == NEVER {
            NEVER
        } else {
            deadline.saturating_sub(monotonic_millis())
        }
    }

    pub fn resume(&self, left: u64) {
        self.slot.set_deadline(monotonic_millis().saturating_add(left));
    }

    // --- any thread of the application's

    /// The request may take so many milliseconds from now on; 0 is any time. Nothing happens when there is none.
    pub fn allow(&self, millis: u64) {
        if matches!(Claim::of(self.claim.load(Ordering::Acquire)), Claim::None | Claim::Taken) {
            return;
        }
        self.slot.set_deadline(if millis == 0 { NEVER } else { monotonic_millis().saturating_add(millis) });
    }

    // --- the helper

    /// When the request is to be done; [`NEVER`] if there is none.
    pub fn deadline(&self) -> u64 {
        match Claim::of(self.claim.load(Ordering::Acquire)) {
            Claim::None | Claim::Taken => NEVER,
            _ => self.slot.deadline(),
        }
    }

    /// Takes the request if its time is over: how far the answer had come.
    pub fn take_overdue(&self, now: u64) -> Option<Claim> {
        let number = self.claim.load(Ordering::Acquire);
        if matches!(Claim::of(number), Claim::None | Claim::Taken) || self.slot.deadline() > now {
            return None;
        }
        let claim = self.take_as_is(number).ok()?;
        self.slot.give_up();
        Some(claim)
    }

    fn take_as_is(&self, number: u64) -> Result<Claim, u64> {
        let (claim, taken) = (Claim::of(number), Claim::Taken.in_place_of(number));
        self.claim.compare_exchange(number, taken, Ordering::AcqRel, Ordering::Acquire)?;
        let answered = claim == Claim::Begun && self.answered.load(Ordering::Acquire) == number;
        Ok(if answered { Claim::Answered } else { claim })
    }

    // --- whoever ends the process

    /// Takes the request, if there is one that nobody has taken: how far the answer had come. For signal handlers, too.
    pub fn take(&self) -> Option<Claim> {
        let mut number = self.claim.load(Ordering::Acquire);
        while !matches!(Claim::of(number), Claim::None | Claim::Taken) {
            match self.take_as_is(number) {
                Ok(claim) => return Some(claim),
                Err(other) => number = other,
            }
        }
        None
    }

    /// Whether the method is HEAD, whose answers have no body. For signal handlers, too.
    pub fn is_head_request(&self) -> bool {
        self.slot.is_head_request()
    }

    /// What the log says of the request: method and target, its id, and how long it has taken.
    pub fn describe(&self, now: u64) -> String {
        let (line, id) = self.slot.texts();
        let seconds = now.saturating_sub(self.slot.started()) as f64 / 1000.0;
        let id = if id.is_empty() { String::new() } else { format!(", request id {}", id.escape_ascii()) };
        format!("{} has taken {seconds:.1} s{id}", line.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::request::with_request;
    use crate::watch::scoreboard::{Scoreboard, State};

    fn watch(timeout: u64) -> (Scoreboard, Watch) {
        let board = Scoreboard::new().expect("memory");
        let slot = board.reserve().and_then(|index| board.slot(index));
        let watch = Watch::new(&WatchSettings { timeout, slot, dumper: None }).expect("a slot");
        (board, watch)
    }

    fn begin(watch: &Watch) {
        let bytes = b"HEAD /path HTTP/1.1\r\nHost: h\r\nX-Request-ID: 7\r\n\r\n";
        with_request(bytes, |request| watch.begin(request));
    }

    #[test]
    fn a_request_that_is_overdue_is_taken_once_and_not_before() {
        let (board, watch) = watch(1000);
        let now = monotonic_millis();
        assert_eq!((watch.take_overdue(NEVER), watch.deadline()), (None, NEVER));
        begin(&watch);
        assert!(watch.deadline() >= now + 1000);
        assert_eq!(watch.take_overdue(watch.deadline() - 1), None);
        let later = watch.deadline() + 500;
        assert_eq!(watch.take_overdue(later), Some(Claim::Open));
        assert_eq!(watch.take_overdue(later), None);
        assert!(!watch.answer() && watch.is_head_request());
        assert_eq!(board.read(0).expect("an entry").state, State::Ending);
        let text = watch.describe(later);
        assert!(text.starts_with("HEAD /path has taken 1.5") && text.ends_with("request id 7"), "{text}");
    }

    #[test]
    fn the_end_of_the_process_takes_a_request_whatever_its_time() {
        let (board, watch) = watch(0);
        assert_eq!(watch.take(), None);
        begin(&watch);
        assert_eq!((watch.take(), watch.take()), (Some(Claim::Open), None));
        assert!(!watch.answer());
        assert_eq!(board.read(0).expect("an entry").state, State::Serving);
    }

    #[test]
    fn whoever_answers_first_has_the_client() {
        let (_board, watch) = watch(1000);
        begin(&watch);
        assert!(watch.answer());
        assert_eq!(watch.take_overdue(NEVER - 1), Some(Claim::Begun));
        assert!(!watch.change(Claim::None));
    }

    #[test]
    fn a_client_that_has_all_is_known_from_one_that_has_part() {
        let (_board, watch) = watch(1000);
        begin(&watch);
        assert!(watch.answer());
        watch.answered();
        watch.end();
        begin(&watch);
        assert!(watch.answer());
        let part = watch.claim.load(Ordering::SeqCst);
        assert_eq!(watch.take_overdue(NEVER - 1), Some(Claim::Begun));
        watch.claim.store(part, Ordering::SeqCst);
        watch.answered();
        assert_eq!(watch.take_overdue(NEVER - 1), Some(Claim::Answered));
    }

    #[test]
    fn one_request_is_not_taken_for_another() {
        let (_board, watch) = watch(1000);
        begin(&watch);
        let first = watch.claim.load(Ordering::SeqCst);
        assert!(watch.answer());
        watch.end();
        assert_eq!(watch.take_overdue(NEVER - 1), None);
        begin(&watch);
        assert_ne!(watch.claim.load(Ordering::SeqCst), first);
        assert_eq!(Claim::of(first), Claim::Open);
    }

    #[test]
    fn time_that_a_client_takes_does_not_count() {
        let (board, watch) = watch(1000);
        begin(&watch);
        let before = watch.deadline();
        let left = watch.pause();
        assert_eq!((watch.take_overdue(NEVER - 1), board.read(0).expect("an entry").deadline), (None, None));
        watch.resume(left);
        assert!(watch.deadline() >= before && watch.deadline() < before + 500);
    }

    #[test]
    fn an_application_sets_its_own_limit() {
        let (_board, watch) = watch(0);
        watch.allow(50);
        assert_eq!(watch.deadline(), NEVER);
        begin(&watch);
        assert_eq!(watch.deadline(), NEVER);
        watch.allow(50);
        assert!(watch.deadline() <= monotonic_millis() + 50);
        watch.allow(0);
        assert_eq!(watch.deadline(), NEVER);
    }
}
