//! What a process does that ends in the middle of a request and learns of it: the application calls exit!, or
//! native code crashes. Nobody learns of SIGKILL.
//!
//! The client gets a 502, or a reset if part of the response was sent. The other connections go to other workers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fastrack_http::Error;

use crate::control::Control;
use crate::helper::{Order, Shared};
use crate::watch::{Claim, LastResponse};

/// How long a crashed thread waits for the helper, in milliseconds: if the heap is corrupt it may never finish.
const HELPER_TIME: u64 = 250;

/// How long to wait for the reactor if nothing has crashed, in milliseconds.
const REACTOR_TIME: u64 = 1_000;

/// Answers the clients of a process that ends in the middle of a request. Belongs to the process that made it.
#[derive(Debug)]
pub struct ExitHandler {
    shared: Arc<Shared>,
    control: Arc<Control>,
    response: LastResponse,
    done: AtomicBool,
    pid: u32,
}

static INSTALLED: OnceLock<Arc<ExitHandler>> = OnceLock::new();

impl ExitHandler {
    pub(super) fn new(shared: Arc<Shared>, control: Arc<Control>) -> Self {
        let response = LastResponse::new(Error::Ended);
        ExitHandler { shared, control, response, done: AtomicBool::new(false), pid: std::process::id() }
    }

    /// Answers the requests in progress with 502 and hands off the rest, right before the process ends. Once per process.
    pub fn run(&self) {
        if self.is_first_call() {
            self.answer();
            self.shared.hand_off_ended(&self.control, REACTOR_TIME);
            // If the process does not end, the helper sees to it.
            self.shared.order(Order::HandedOff);
        }
    }

    /// Has fatal signals do the same. Only the first call in a process counts.
    ///
    /// `ruby` is any address in the program or library whose signal handlers this is to precede. Other handlers are
    /// left alone: they may not even treat their signal as a failure.
    pub fn handle_fatal_signals(self: &Arc<Self>, ruby: *const ()) {
        if INSTALLED.set(Arc::clone(self)).is_ok() {
            // SAFETY: it does only what signal-safety(7) allows.
            unsafe { fastrack_sys::run_before_fatal_signals(ruby as usize, on_fatal_signal) };
        }
    }

    fn is_first_call(&self) -> bool {
        self.pid == std::process::id() && !self.done.swap(true, Ordering::SeqCst)
    }

    /// Async-signal-safe.
    fn answer(&self) {
        // The process may still take seconds to end, and what another thread began meanwhile would end with it. With one
        // thread the application keeps that.
        if self.control.threads() > 1 {
            self.control.set_ending();
        }
        for request in self.control.all_requests() {
            if let Some(claim) = request.take_for_end() {
                self.response.send(request, claim);
                if claim == Claim::Open {
                    LastResponse::drain(request);
                }
            }
        }
    }
}

/// The handler of fatal signals: only what signal-safety(7) allows.
fn on_fatal_signal() {
    if let Some(handler) = INSTALLED.get() {
        if handler.is_first_call() {
            handler.answer();
            // The helper does what no signal handler may.
            handler.shared.order(Order::HandOff);
            let mut waited = 0;
            while waited < HELPER_TIME && !handler.shared.is_ordered(Order::HandedOff) {
                fastrack_sys::sleep(1);
                waited += 1;
            }
        }
    }
}
