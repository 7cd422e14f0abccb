//! The activity of one thread of the application in its request: the thread uses the application's lock (Ruby's GVL), or waits for
//! something else.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use fastrack_sys::ThreadId;

use super::gvl_usage::GvlUsage;
use crate::clock::{Clock, SystemClock};
use crate::times::{GvlEvent, Times};

/// The activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Doing {
    /// The thread has no request.
    Nothing = 0,
    UsesLock = 1,
    Waits = 2,
}

/// The activity of one thread. Only that thread changes it, except that the helper makes it a stream.
#[derive(Debug, Default)]
pub struct Activity {
    /// A [`Doing`].
    doing: AtomicU8,
    /// Whether the thread's response is a stream. A stream uses the lock as a request does, and earns no credit by waiting.
    is_stream: AtomicBool,
    /// The thread's id as a number. 0 for none.
    thread: AtomicU64,
    usage: Arc<GvlUsage>,
    /// The times of the thread's requests. Empty if nobody asked for them.
    times: OnceLock<Arc<Times>>,
}

impl Activity {
    /// The activity of one of the threads that share this lock.
    pub(crate) fn new(usage: Arc<GvlUsage>) -> Self {
        Activity { usage, ..Activity::default() }
    }

    /// The times of the thread's requests also have the events from now on.
    pub(crate) fn share_times(&self, times: &Arc<Times>) {
        // The times are set once.
        let _ = self.times.set(Arc::clone(times));
    }

    /// The application reports events from now on, by [`note`](Self::note).
    pub fn note_events(&self) {
        self.times.get().into_iter().for_each(|times| times.note_events());
    }

    /// Called by the thread itself, when it gets, wants or releases the application's lock. Takes no lock and no memory.
    pub fn note(&self, event: GvlEvent) {
        if let Some(times) = self.times.get() {
            times.note(event, &SystemClock);
        }
        self.set_waiting_by(&SystemClock, event == GvlEvent::Suspended);
    }

    pub(crate) fn set_waiting_by(&self, clock: &impl Clock, waits: bool) {
        self.usage.note_reports();
        if self.is_in_request() {
            self.change(if waits { Doing::Waits } else { Doing::UsesLock }, clock);
        }
    }

    fn doing(&self) -> Doing {
        match self.doing.load(Ordering::Relaxed) {
            0 => Doing::Nothing,
            1 => Doing::UsesLock,
            _ => Doing::Waits,
        }
    }

    fn change(&self, doing: Doing, clock: &impl Clock) {
        let before = self.doing();
        self.doing.store(doing as u8, Ordering::Relaxed);
        if before != doing {
            let more = |is: fn(Doing) -> bool| i8::from(is(doing)) - i8::from(is(before));
            let requests = match self.is_stream.load(Ordering::Relaxed) {
                true => 0,
                false => more(|doing| doing != Doing::Nothing),
            };
            let users = more(|doing| doing == Doing::UsesLock);
            self.usage.change(clock.micros(), requests, users);
        }
    }

    /// The current thread begins to run the engine.
    pub(crate) fn begin(&self) {
        self.thread.store(ThreadId::current().map_or(0, ThreadId::number), Ordering::Release);
    }

    /// The thread stops running the engine.
    pub(crate) fn end(&self) {
        self.end_request(&SystemClock);
        self.thread.store(0, Ordering::Release);
    }

    /// The thread begins a request. It has the lock.
    pub(crate) fn begin_request(&self, clock: &impl Clock) {
        self.change(Doing::UsesLock, clock);
    }

    /// The thread has answered its request. The caller has the reactor's lock.
    pub(crate) fn end_request(&self, clock: &impl Clock) {
        self.change(Doing::Nothing, clock);
        self.is_stream.store(false, Ordering::Relaxed);
    }

    /// The thread's response becomes a stream. The caller has the reactor's lock, so that the request does not end meanwhile.
    pub(crate) fn begin_stream(&self, clock: &impl Clock) {
        self.is_stream.store(true, Ordering::Relaxed);
        self.usage.change(clock.micros(), -1, 0);
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.is_stream.load(Ordering::Relaxed)
    }

    pub(crate) fn is_in_request(&self) -> bool {
        self.doing() != Doing::Nothing
    }

    /// Whether the thread computes, or waits for a processor. False where the system does not tell.
    pub(crate) fn is_runnable(&self) -> bool {
        ThreadId::of_number(self.thread.load(Ordering::Acquire)).is_some_and(ThreadId::is_runnable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::tests::HandClock;
    use crate::patience::until;

    #[test]
    fn the_lock_is_in_use_in_requests_only_and_while_no_thread_waits_for_something_else() {
        let (usage, clock) = (Arc::new(GvlUsage::default()), HandClock::new());
        let [one, other] = [(); 2].map(|()| Activity::new(Arc::clone(&usage)));
        one.set_waiting_by(&clock, false);
        let is_free = || usage.time_until_credit(clock.micros()).is_some();
        assert!(usage.reports_gvl_events() && is_free());
        for waits in [false, true] {
            one.begin_request(&clock);
            other.begin_request(&clock);
            other.set_waiting_by(&clock, true);
            // A repeated report changes nothing.
            (0..2).for_each(|_| one.set_waiting_by(&clock, waits));
            assert_eq!(is_free(), waits);
            one.end_request(&clock);
            assert!(is_free());
            other.set_waiting_by(&clock, false);
            assert!(!is_free());
            other.end_request(&clock);
            assert!(is_free());
        }
        one.begin_request(&clock);
        one.end();
        assert!(is_free());
    }

    #[test]
    fn the_system_tells_whether_its_thread_is_runnable() {
        let activity = Activity::default();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (activity, go) = (&activity, go);
            scope.spawn(move || {
                activity.begin();
                tell.send(()).expect("tell");
                let _ = gone.recv();
                while gone.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {}
            });
            told.recv().expect("it has begun");
            until(|| !activity.is_runnable());
            go.send(()).expect("it waits");
            if cfg!(any(target_os = "linux", target_os = "android")) {
                until(|| activity.is_runnable());
            }
        });
        activity.end();
        assert!(!activity.is_runnable());
    }
}
