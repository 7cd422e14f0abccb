//! The end of a process in the middle of a request, where the process learns of
//! it: the application calls exit!, or native code crashes.
//!
//! The client is answered, or cut off where a part of the response has left,
//! and the other connections go to other workers. Nobody learns of SIGKILL.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fastrack_http::{error_response, DateCache, Error, DATE_LEN};
use fastrack_sys::{borrow_fd, epoch_seconds};

use crate::control::Control;
use crate::shared::Shared;
use crate::watch::Claim;
use crate::watchdog::{drain, part};

/// How long the helper gets to pass the other connections on, in milliseconds, while a crashed thread waits for it. It
/// is woken at once; but where the heap is broken, it may never be done.
const FOR_HELPER: u64 = 250;

/// How long to wait for the reactor where nothing is broken, in milliseconds.
const FOR_REACTOR: u64 = 1_000;

/// The longest answer, in bytes.
const ANSWER: usize = 512;

/// What a worker has to say to its clients when it comes to its end. Belongs to the process that made it.
#[derive(Debug)]
pub struct ExitHandler {
    shared: Arc<Shared>,
    control: Arc<Control>,
    /// The answer, for HEAD and for all other methods.
    head: Vec<u8>,
    whole: Vec<u8>,
    said: AtomicBool,
    pid: u32,
}

/// Whose connections they are when a fatal signal comes.
static KEPT: OnceLock<Arc<ExitHandler>> = OnceLock::new();

impl ExitHandler {
    pub(crate) fn new(shared: Arc<Shared>, control: Arc<Control>) -> Self {
        let answer = |with_body| {
            let mut bytes = Vec::new();
            error_response(Error::Ended, DateCache::default().at(0), with_body, &mut bytes);
            bytes
        };
        let (head, whole) = (answer(false), answer(true));
        ExitHandler { shared, control, head, whole, said: AtomicBool::new(false), pid: std::process::id() }
    }

    /// The process ends as soon as this has returned: the request that the application is at is answered with 502, and
    /// the other connections go to other workers. In a forked child, or for a second time, nothing happens.
    pub fn say(&self) {
        if self.is_to_be_said() {
            self.answer();
            self.shared.evacuate(FOR_REACTOR);
        }
    }

    /// The same by a handler of fatal signals.
    ///
    /// `ruby` is the address of anything in the program or library whose handlers this is to come before. Those of
    /// others stay: whoever handles a signal before this does not may take it for no failure at all.
    pub fn say_on_fatal_signals(self: &Arc<Self>, ruby: *const ()) {
        // Once in a process.
        if KEPT.set(Arc::clone(self)).is_ok() {
            // SAFETY: it does only what signal-safety(7) allows.
            unsafe { fastrack_sys::run_before_fatal_signals(ruby as usize, on_fatal_signal) };
        }
    }

    fn is_to_be_said(&self) -> bool {
        self.pid == std::process::id() && !self.said.swap(true, Ordering::SeqCst)
    }

    /// For signal handlers, too.
    fn answer(&self) {
        let Some(claim) = self.control.watch.take() else { return };
        let prepared = if self.control.watch.is_head_request() { &self.head } else { &self.whole };
        let mut bytes = [0; ANSWER];
        let bytes = &mut bytes[..prepared.len().min(ANSWER)];
        bytes.copy_from_slice(&prepared[..bytes.len()]);
        date(bytes);
        // SAFETY: the application's thread can finish nothing any more: until the end, the descriptor stays what it is.
        let Ok(client) = (unsafe { borrow_fd(self.control.current()) }) else { return };
        part(client, claim, bytes);
        if claim == Claim::Open {
            drain(client);
        }
    }

    /// Has the helper do what no signal handler may.
    fn have_evacuated(&self) {
        self.shared.ask_for_evacuation();
        for _ in 0..FOR_HELPER {
            if self.shared.is_evacuated() {
                return;
            }
            fastrack_sys::sleep(1);
        }
    }
}

/// Puts the date of this second into an answer.
fn date(answer: &mut [u8]) {
    const FIELD: &[u8] = b"\r\nDate: ";
    let place = answer.windows(FIELD.len()).position(|window| window == FIELD);
    let place = place.map_or(0..0, |at| at + FIELD.len()..at + FIELD.len() + DATE_LEN);
    if let Some(old) = answer.get_mut(place).filter(|old| old.len() == DATE_LEN) {
        old.copy_from_slice(DateCache::default().at(epoch_seconds()));
    }
}

/// In the handler of a fatal signal: only what signal-safety(7) allows, and the write(2) of a wake-up.
fn on_fatal_signal() {
    if let Some(words) = KEPT.get() {
        if words.is_to_be_said() {
            words.answer();
            words.have_evacuated();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_date_of_its_second() {
        let mut bytes = Vec::new();
        error_response(Error::Ended, DateCache::default().at(0), true, &mut bytes);
        assert!(bytes.len() < ANSWER);
        let before = bytes.len();
        date(&mut bytes);
        let text = String::from_utf8(bytes).expect("text");
        let today = String::from_utf8(DateCache::default().at(epoch_seconds()).to_vec()).expect("text");
        assert!(text.starts_with("HTTP/1.1 502 Bad Gateway\r\nDate: ") && !text.contains("1970"), "{text}");
        assert_eq!((text.len(), text.contains(&today[..16])), (before, true));
    }
}
