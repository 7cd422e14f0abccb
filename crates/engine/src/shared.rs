//! What the two threads of a worker share.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::alarm::Alarm;
use crate::pulse::Pulse;
use crate::reactor::Reactor;

#[derive(Debug)]
pub(crate) struct Shared {
    reactor: Mutex<Reactor>,
    pub pulse: Pulse,
    pub alarm: Alarm,
    /// A request has lasted so long that the helper took over.
    long_request: AtomicBool,
    ended: AtomicBool,
    /// How far the evacuation has come that a signal handler has asked the helper for.
    evacuation: AtomicU8,
}

const ASKED_FOR: u8 = 1;
const DONE: u8 = 2;

impl Shared {
    pub fn new(reactor: Reactor, alarm: Alarm) -> Self {
        Shared {
            reactor: Mutex::new(reactor),
            pulse: Pulse::default(),
            alarm,
            long_request: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            evacuation: AtomicU8::new(0),
        }
    }

    /// The reactor. Nobody keeps it for longer than a few calls take that do not wait.
    pub fn reactor(&self) -> MutexGuard<'_, Reactor> {
        // A panic of the helper ends the process, and one of the application's thread is not caught while it has the reactor.
        self.reactor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reactor, if nobody has it. None, too, when the application's thread has panicked with it in hand: it is in no
    /// state to go on with, and the process is about to end.
    pub fn try_reactor(&self) -> Option<MutexGuard<'_, Reactor>> {
        self.reactor.try_lock().ok()
    }

    /// The application's thread is about to wait, and gives the reactor back: in this order, for the helper must not get
    /// at it in between. What that then took from the poller nobody would look at until another client came.
    pub fn rest(&self, hold: MutexGuard<'_, Reactor>) {
        self.pulse.idle();
        drop(hold);
        self.alarm.rest();
    }

    /// The application's thread has stopped waiting.
    pub fn awake(&self) {
        self.pulse.awake().into_iter().for_each(|beat| self.alarm.wake(beat));
    }

    /// The application's thread begins with something that may last: a request, or something else.
    pub fn begin(&self, is_request: bool) {
        self.alarm.begin(self.pulse.beat(), is_request);
    }

    /// The application's thread is nobody's any more.
    pub fn idle(&self) {
        self.pulse.idle();
        self.alarm.rest();
    }

    pub fn note_long_request(&self) {
        self.long_request.store(true, Ordering::Relaxed);
    }

    /// Whether a request has lasted long since this was asked before.
    pub fn had_long_request(&self) -> bool {
        self.long_request.load(Ordering::Relaxed) && self.long_request.swap(false, Ordering::Relaxed)
    }

    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.alarm.call();
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Asks the helper to evacuate the connections. For signal handlers, too.
    pub fn ask_for_evacuation(&self) {
        self.evacuation.store(ASKED_FOR, Ordering::SeqCst);
        // A store and a system call (write(2)).
        self.alarm.call();
    }

    pub fn is_evacuation_asked_for(&self) -> bool {
        self.evacuation.load(Ordering::Relaxed) == ASKED_FOR
    }

    /// The helper has done what it could.
    pub fn note_evacuation(&self) {
        self.evacuation.store(DONE, Ordering::SeqCst);
    }

    pub fn is_evacuated(&self) -> bool {
        self.evacuation.load(Ordering::SeqCst) == DONE
    }

    /// Lets the other connections go to other workers, if the reactor can be had within that many milliseconds.
    pub fn evacuate(&self, millis: u64) {
        for _ in 0..millis {
            if let Some(mut reactor) = self.try_reactor() {
                return reactor.evacuate();
            }
            fastrack_sys::sleep(1);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::connections::Connections;
    use crate::control::Control;
    use crate::settings::Settings;
    use crate::watch::WatchSettings;
    use std::os::fd::AsFd;
    use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
    use std::sync::Arc;

    pub fn shared() -> Shared {
        let connections = Connections::new().expect("a poller");
        let set = connections.poller().as_fd().try_clone_to_owned().expect("a copy");
        let control = Control::new(-1, [], &WatchSettings::default()).expect("a control");
        let alarm = Alarm::new(set).expect("an alarm");
        Shared::new(Reactor::new(Settings::default(), Arc::new(control), connections, None), alarm)
    }

    #[test]
    fn who_gets_the_reactor_of_a_thread_that_rests_sees_that_it_rests() {
        let shared = shared();
        let (done, seen) = (AtomicBool::new(false), std::sync::atomic::AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let Some(_hold) = shared.try_reactor() else { continue };
                    assert!(!crate::pulse::is_busy(shared.pulse.read()));
                    seen.fetch_add(1, Ordering::SeqCst);
                }
            });
            let start = std::time::Instant::now();
            while seen.load(Ordering::SeqCst) < 10_000 && start.elapsed().as_secs() < 20 {
                let hold = shared.reactor();
                shared.awake();
                shared.rest(hold);
            }
            done.store(true, Ordering::SeqCst);
        });
        assert!(seen.into_inner() >= 10_000);
    }

    #[test]
    fn the_helper_keeps_its_hands_off_what_the_other_thread_has_or_has_left_in_a_panic() {
        let shared = shared();
        assert!(shared.try_reactor().is_some());
        let result = catch_unwind(AssertUnwindSafe(|| {
            let _hold = shared.reactor();
            assert!(shared.try_reactor().is_none());
            // As a panic, without its message.
            resume_unwind(Box::new(()));
        }));
        assert!(result.is_err() && shared.try_reactor().is_none());
    }
}
