//! The thread that looks after a worker's connections while the application
//! has the other one.
//!
//! It never touches the application. It sleeps while that thread waits for
//! clients itself, and while one request is done before its
//! [alarm](crate::helper::timer) goes off; where one follows the other it looks now and
//! then whether one has kept that thread ever since it looked before. Only then
//! it takes over, until the request is done.

pub(crate) mod epoch;
pub(crate) mod shared;
pub(crate) mod timer;

use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{park, Builder, JoinHandle};
use std::time::Duration;

use fastrack_sys::{monotonic_millis, with_signals_blocked, Events};

use crate::control::Control;
use crate::helper::epoch::is_busy;
use crate::helper::shared::Shared;
use crate::helper::timer::SOON;
use crate::watch::watchdog;

/// How long at most until the next look, where few requests outlast it, and where hardly any does.
const LONG: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(4);

/// So many steps from one look to the next are many. A request takes some five.
const MANY_STEPS: u64 = 64;

/// Where fewer steps were made than two requests take, and that thread has nothing to do, it is left to that thread to
/// set the alarm again.
const FEW_STEPS: u64 = 12;

/// The longest wait for clients of a busy worker, in milliseconds: its request may have been given another time limit.
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
        Ok(Helper { shared, thread: Some(thread), pid: std::process::id() })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.pid != std::process::id() {
            // A fork has not copied the thread, and the alarm is its parent's.
            std::mem::forget(thread);
            return;
        }
        self.shared.end();
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
    let mut events = Events::default();
    let mut lookout = Lookout { shared, control, before: 0, next_look: SOON, lasting: None };
    loop {
        let gone_off = shared.alarm.wait(&mut events, lookout.lasting.map(|(_, millis)| millis));
        if shared.has_ended() {
            return;
        }
        leave_if_asked_to(shared);
        lookout.turn(gone_off);
    }
}

/// What the helper knows of the application's thread.
struct Lookout<'a> {
    shared: &'a Shared,
    control: &'a Control,
    /// The beat at the last look, and in what time the next one is.
    before: u64,
    next_look: Duration,
    /// What lasts, by the beat at which it had begun, and when the connections need another look, in milliseconds.
    lasting: Option<(u64, u64)>,
}

impl Lookout<'_> {
    /// The helper was woken, by the alarm if that has gone off.
    fn turn(&mut self, gone_off: bool) {
        let alarm = &self.shared.alarm;
        let beat = self.shared.pulse.read();
        if let Some((since, _)) = self.lasting.take() {
            if since == beat && !gone_off {
                self.lasting = look_after(self.shared, self.control, beat);
                if self.lasting.is_some() {
                    return;
                }
            }
            alarm.leave();
            if alarm.is_missing(beat) {
                (self.before, self.next_look) = (beat, SOON);
                return alarm.go_off_in(SOON);
            }
        }
        if gone_off {
            alarm.take(self.before).into_iter().for_each(|since| self.look(beat, since));
        }
    }

    /// Whether that thread is still at what it was at since then, and when to look again.
    fn look(&mut self, beat: u64, since: u64) {
        let (alarm, pulse) = (&self.shared.alarm, &self.shared.pulse);
        let steps = beat.wrapping_sub(since) / 2;
        self.before = beat;
        if is_busy(beat) && steps == 0 {
            let looked_after = look_after(self.shared, self.control, beat);
            self.lasting = looked_after.filter(|_| alarm.follow(pulse, beat));
        }
        let few = !is_busy(beat) && steps < FEW_STEPS;
        if self.lasting.is_some() || few && alarm.sleep(pulse) {
            self.next_look = SOON;
            return;
        }
        self.next_look = (self.next_look * 2).min(if steps < MANY_STEPS { LONG } else { LONGEST });
        alarm.go_off_in(self.next_look);
    }
}

/// Looks after the connections, unless the application's thread has come a step further: what lasts since which beat, and
/// for how long there is nothing more to do but for what comes, in milliseconds.
fn look_after(shared: &Shared, control: &Control, beat: u64) -> Option<(u64, u64)> {
    let mut reactor = shared.try_reactor()?;
    if shared.pulse.read() != beat {
        return None;
    }
    shared.note_long_request();
    reactor.attend(&|| shared.pulse.read() != beat);
    watchdog::look(&control.watch, control.current(), &mut reactor);
    let next = reactor.next_deadline().unwrap_or(u64::MAX).min(control.watch.deadline());
    let time = match reactor.arrived() {
        0 => next.saturating_sub(monotonic_millis()).clamp(1, LONGEST_WAIT),
        _ => 0,
    };
    Some((beat, time))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::shared::tests::shared;
    use crate::watch::active_request::WatchSettings;
    use std::time::Instant;

    #[test]
    fn what_lasts_is_noticed_however_much_that_did_not_came_before() {
        let shared = Arc::new(shared());
        let control = Arc::new(Control::new(-1, [], &WatchSettings::default()).expect("a control"));
        let helper = Helper::start(Arc::clone(&shared), control).expect("a thread");
        for round in 0..40_u64 {
            for cycle in 0..200 {
                shared.awake();
                shared.begin(false);
                shared.begin(true);
                // As long as it takes the helper to look, more or less.
                let until =
                    Instant::now() + Duration::from_micros((round * 200 + cycle) % 1100 / 10 * (cycle % 11));
                while Instant::now() < until {}
                shared.idle();
            }
            shared.had_long_request();
            shared.awake();
            shared.begin(true);
            let start = Instant::now();
            while !shared.had_long_request() {
                assert!(start.elapsed() < Duration::from_secs(20), "round {round}");
                std::thread::yield_now();
            }
            shared.idle();
        }
        drop(helper);
    }
}
