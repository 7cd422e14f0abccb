//! State that the threads of a worker share.

pub(crate) mod timer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrack_sys::monotonic_millis;

use crate::admission::{AppThreads, Baton, Driving};
use crate::reactor::Reactor;

pub(crate) use timer::HelperTimer;

#[derive(Debug)]
pub(crate) struct Shared {
    reactor: Mutex<Reactor>,
    /// INVARIANT: a thread that runs the engine never waits for the helper, or for a thread that forks, while these have the right to
    /// [drive](Baton::drive). The thread would wait with the application's lock (Ruby's GVL), which the fork may need.
    baton: Arc<Baton>,
    timer: HelperTimer,
    app_threads: AppThreads,
}

impl Shared {
    pub fn new(reactor: Reactor, baton: Arc<Baton>, timer: HelperTimer, app_threads: AppThreads) -> Self {
        Shared { reactor: Mutex::new(reactor), baton, timer, app_threads }
    }

    pub fn app_threads(&self) -> &AppThreads {
        &self.app_threads
    }

    pub fn baton(&self) -> &Baton {
        &self.baton
    }

    pub(super) fn timer(&self) -> &HelperTimer {
        &self.timer
    }

    /// Locks the reactor. No thread holds the lock while it waits.
    pub fn reactor(&self) -> MutexGuard<'_, Reactor> {
        // A panic of the helper ends the process. A panic of the application's thread is not caught while the thread has the reactor.
        self.reactor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the reactor, for a thread that has answered a request and does not lead.
    #[inline(never)]
    pub fn reactor_at_once(&self) -> MutexGuard<'_, Reactor> {
        let _returning = self.baton.return_from_request();
        self.reactor()
    }

    /// Locks the reactor if it is free. Returns None also if the application's thread has panicked with the lock: the reactor may be
    /// inconsistent.
    pub(crate) fn try_reactor(&self) -> Option<MutexGuard<'_, Reactor>> {
        self.reactor.try_lock().ok()
    }

    /// Keeps the helper from the connections, once the helper has finished with them. None if the helper has not finished within `millis`
    /// milliseconds.
    pub fn keep_from_driving(&self, millis: u64) -> Option<Driving<'_>> {
        within(millis, || self.baton.drive())
    }

    /// The leader is about to wait: it becomes idle, and then unlocks the reactor. In the other order the helper could lock the reactor in
    /// between, and nobody would handle its events until another client came.
    pub fn set_waiting(&self, reactor: MutexGuard<'_, Reactor>) {
        self.baton.set_idle();
        drop(reactor);
    }

    pub fn set_busy(&self) {
        if self.baton.set_busy() {
            self.set_timer();
        }
    }

    /// The leader begins work that may last: a request, or something else.
    #[inline]
    pub fn begin(&self) {
        if self.baton.step() {
            self.set_timer();
        }
    }

    /// The helper was asleep at this step of the leader, and must see whether the work lasts.
    #[cold]
    fn set_timer(&self) {
        self.baton.wake_up();
        self.timer.set();
    }

    /// The listeners are about to be closed.
    pub fn watch_no_listeners(&self) {
        self.timer.close_listeners();
    }

    /// Hands off all connections. Returns false if the reactor cannot be locked within `millis` milliseconds.
    pub fn hand_off_all(&self, millis: u64) -> bool {
        let reactor = self.reactor_within(millis);
        reactor.map(|mut reactor| reactor.hand_off_all()).is_some()
    }

    /// Locks the reactor, or gives up after `millis` milliseconds.
    pub fn reactor_within(&self, millis: u64) -> Option<MutexGuard<'_, Reactor>> {
        within(millis, || self.try_reactor())
    }
}

fn within<T>(millis: u64, attempt: impl Fn() -> Option<T>) -> Option<T> {
    // Measured by the clock: on a busy machine a sleep of a millisecond takes many.
    let latest = monotonic_millis() + millis;
    loop {
        let result = attempt();
        if result.is_some() || monotonic_millis() >= latest {
            return result;
        }
        fastrack_sys::sleep(1);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::accept::Listeners;
    use crate::admission::{is_busy, Room};
    use crate::claim::RequestSettings;
    use crate::conn::Spooling;
    use crate::control::Control;
    use crate::patience::patience;
    use crate::reactor::{Lead, Table};
    use crate::settings::Settings;
    use fastrack_sys::Poller;
    use std::os::fd::AsFd;
    use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    pub fn shared() -> Shared {
        let table = Table::new(Spooling::new(&Settings::default())).expect("a poller");
        let set = table.poller().as_fd().try_clone_to_owned().expect("a copy");
        let control = Arc::new(Control::new(-1, [], &RequestSettings::default()).expect("a control"));
        let lead = Lead::new(Listeners::new(Vec::new()), Arc::new(Poller::new().expect("a poller")), None);
        let baton = Arc::clone(control.baton());
        let reactor = Reactor::new(Settings::default(), control, table, None, lead);
        let timer = HelperTimer::new::<std::os::fd::OwnedFd>(set, Vec::new()).expect("a timer");
        let app_threads = AppThreads::new(Room::new(1, 0)).expect("threads");
        Shared::new(reactor, baton, timer, app_threads)
    }

    #[test]
    fn who_locks_the_reactor_of_a_waiting_thread_sees_that_it_waits() {
        let shared = shared();
        let (done, seen) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let Some(_reactor) = shared.try_reactor() else { continue };
                    assert!(!is_busy(shared.baton.epoch()));
                    seen.fetch_add(1, Ordering::SeqCst);
                }
            });
            let start = std::time::Instant::now();
            while seen.load(Ordering::SeqCst) < 10_000 && start.elapsed() < patience() {
                let reactor = shared.reactor();
                shared.set_busy();
                shared.set_waiting(reactor);
            }
            done.store(true, Ordering::SeqCst);
        });
        assert!(seen.into_inner() >= 10_000);
    }

    #[test]
    fn what_is_not_to_be_had_at_once_is_tried_again_until_time_is_up() {
        let tries = std::cell::Cell::new(0);
        let third_time = || {
            tries.set(tries.get() + 1);
            (tries.get() == 3).then_some(())
        };
        assert!(within(0, third_time).is_none() && tries.get() == 1);
        assert!(within(patience().as_millis() as u64, third_time).is_some() && tries.get() == 3);
        assert!(within(5, || None::<()>).is_none());
    }

    #[test]
    fn the_helper_does_not_touch_what_the_other_thread_has_or_has_left_in_a_panic() {
        let shared = shared();
        assert!(shared.try_reactor().is_some());
        let result = catch_unwind(AssertUnwindSafe(|| {
            let _reactor = shared.reactor();
            assert!(shared.try_reactor().is_none());
            // As a panic, without its message.
            resume_unwind(Box::new(()));
        }));
        assert!(result.is_err() && shared.try_reactor().is_none());
    }
}
