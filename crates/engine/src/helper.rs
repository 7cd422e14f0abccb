//! The thread that looks after a worker's connections while the application
//! has the other one.
//!
//! It never touches the application. It sleeps while that thread waits for
//! clients itself; while it is busy, a tick now and then tells whether one
//! request has kept it for longer than a whole tick, and only then the helper
//! takes over, until the request is done.

use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{park, sleep, Builder, JoinHandle};
use std::time::Duration;

use fastrack_sys::{monotonic_millis, wait_readable, with_signals_blocked};

use crate::control::Control;
use crate::pulse::is_busy;
use crate::shared::Shared;
use crate::watchdog;

/// How often to look while requests take long, and at most while they are so short that hardly any outlasts it.
const TICK: Duration = Duration::from_micros(250);
const LONGEST_TICK: Duration = Duration::from_millis(4);

/// So many steps in one tick are short ones.
const MANY_STEPS: u64 = 16;

/// How soon to look again at least when nobody is busy, but somebody was. After a tick without a step the helper sleeps
/// until it is woken.
const IDLE_TICK: Duration = Duration::from_millis(1);

/// The longest wait for clients of a busy worker, in milliseconds: by then another request may be the one that lasts.
const LONGEST_WAIT: u64 = 100;

/// How long to wait for the reactor when the process is ending, in milliseconds: whoever has crashed may have it.
const LAST_WAIT: u64 = 50;

/// What the helper's thread needs: it calls nothing deep.
const STACK: usize = 128 * 1024;

#[derive(Debug)]
pub(crate) struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Helper {
    /// Starts the thread, with all signals blocked in it. To be called after the last fork of this process's own.
    pub fn start(shared: Arc<Shared>, control: Arc<Control>) -> io::Result<Self> {
        let its = Arc::clone(&shared);
        let thread = with_signals_blocked(|| {
            Builder::new().name("fastrack helper".into()).stack_size(STACK).spawn(move || run(&its, &control))
        })?;
        shared.pulse.set_helper(thread.thread().clone());
        Ok(Helper { shared, thread: Some(thread), pid: std::process::id() })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.shared.end();
        let Some(thread) = self.thread.take() else { return };
        if self.pid != std::process::id() {
            // A fork has not copied the thread.
            std::mem::forget(thread);
            return;
        }
        thread.thread().unpark();
        // A panic has ended the process.
        let _ = thread.join();
    }
}

fn run(shared: &Shared, control: &Control) {
    if catch_unwind(AssertUnwindSafe(|| watch(shared, control))).is_err() {
        // The message is out. Connections may be in any state: the master starts another worker.
        std::process::abort();
    }
}

fn watch(shared: &Shared, control: &Control) {
    let (mut before, mut tick) = (0, TICK);
    while !shared.has_ended() {
        leave_if_asked_to(shared);
        let beat = shared.pulse.read();
        let steps = beat.wrapping_sub(before) / 2;
        tick = match (is_busy(beat), steps) {
            (true, 0) => {
                take_over(shared, control, beat);
                TICK
            }
            (true, MANY_STEPS..) => (tick * 2).min(LONGEST_TICK),
            (true, _) => TICK,
            // Where many come and go, to be woken for each would cost more than to look now and then.
            (false, 1..) => tick.max(IDLE_TICK),
            (false, 0) => {
                park();
                TICK
            }
        };
        before = beat;
        sleep(tick);
    }
}

/// Looks after the connections until the application's thread has come a step further.
fn take_over(shared: &Shared, control: &Control, beat: u64) {
    loop {
        leave_if_asked_to(shared);
        let Some(mut reactor) = shared.try_reactor() else { return };
        if shared.pulse.read() != beat {
            return;
        }
        shared.note_long_request();
        reactor.attend(&|| shared.pulse.read() != beat);
        watchdog::look(&control.watch, control.current(), &mut reactor);
        let now = monotonic_millis();
        let next = reactor.next_deadline().unwrap_or(u64::MAX).min(control.watch.deadline());
        let time = match reactor.arrived() {
            0 => next.saturating_sub(now).clamp(1, LONGEST_WAIT),
            _ => 0,
        };
        drop(reactor);
        // Whatever comes of it, the next look tells.
        let _ = wait_readable(shared.connections(), time);
        if shared.pulse.read() != beat || shared.has_ended() {
            return;
        }
    }
}

/// A thread has crashed: the process ends as soon as this is done. Nothing may be touched any more after that.
fn leave_if_asked_to(shared: &Shared) {
    if shared.is_evacuation_asked_for() {
        shared.evacuate(LAST_WAIT);
        shared.note_evacuation();
        loop {
            park();
        }
    }
}
