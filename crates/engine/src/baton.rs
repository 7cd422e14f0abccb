//! Who drives a worker: the thread of the application that leads, unless it has been in the application for longer than the timer
//! takes, or none leads; then the helper does. Whoever drives has the reactor's lock.
//!
//! What threads need to know of each other without that lock is one number, the baton. All that changes it is in this file: the
//! leader's steps, and the lead, which is taken and let go only with the lock.
//!
//! With one thread of the application, that leads on while it has a request. Of several, the leader lets go of the lead for that
//! time, and whoever is done first leads again.
//!
//! INVARIANT: while threads may lead and none does, some thread has a request, or has been summoned: it will lead.

use crate::sync::{Arc, AtomicU64, Ordering};

/// The thread that decides when the engine stops: the one that runs it first.
pub(crate) const MAIN: usize = 0;

/// Some bits of the baton.
struct Field {
    shift: u32,
    bits: u32,
}

/// The thread that leads, plus 1; 0 for none.
const LEADER: Field = Field { shift: 0, bits: 8 };
/// How many threads have requests. With one thread, which leads on, none is counted.
const SERVING: Field = Field { shift: 8, bits: 8 };
/// How many threads that do not lead have answered a request, and want the reactor.
const RETURNING: Field = Field { shift: 16, bits: 8 };
/// 1 while the helper drives, or a thread that forks keeps it from that.
const HELPER: Field = Field { shift: 24, bits: 1 };
/// 1 while the helper sleeps until the leader's next step.
const ASLEEP: Field = Field { shift: 25, bits: 1 };
/// It grows with each step of the leader, and is odd while that is busy and even while it waits for clients.
const EPOCH: Field = Field { shift: 26, bits: 38 };

impl Field {
    const fn of(&self, baton: u64) -> u64 {
        baton << (u64::BITS - self.shift - self.bits) >> (u64::BITS - self.bits)
    }

    /// The baton where the field has this number, and all others have 0.
    const fn with(&self, number: u64) -> u64 {
        number << self.shift
    }

    const fn cleared(&self, baton: u64) -> u64 {
        baton - self.with(self.of(baton))
    }
}

/// The baton, as others than the leader see it: the helper sees by the epoch, without a clock, whether the leader makes progress. If
/// it reads the same odd number twice, that has been in one call of the application, or something else outside the engine, all the
/// time.
#[derive(Debug, Default)]
pub(crate) struct Baton(AtomicU64);

impl Baton {
    // --- the thread that leads, or is about to

    /// It is busy from now on. Whether the helper [sleeps](Self::fall_asleep), and the leader was idle before.
    pub fn set_busy(&self) -> bool {
        !is_busy(self.epoch()) && self.advance(1)
    }

    /// The busy thread makes a step. Whether the helper [sleeps](Self::fall_asleep).
    #[inline]
    pub fn step(&self) -> bool {
        self.advance(2)
    }

    /// It is about to wait.
    pub fn set_idle(&self) {
        if is_busy(self.epoch()) {
            self.advance(1);
        }
    }

    #[inline]
    fn advance(&self, epochs: u64) -> bool {
        ASLEEP.of(self.0.fetch_add(EPOCH.with(epochs), Ordering::AcqRel)) == 1
    }

    // --- threads without the lead

    /// The thread wants the reactor, until this is dropped.
    pub fn return_from_request(&self) -> Returning<'_> {
        self.0.fetch_add(RETURNING.with(1), Ordering::SeqCst);
        Returning(self)
    }

    // --- the helper, and threads that fork

    /// Lets the helper drive, or keeps it from that, until this is dropped. None while the other one of both is so.
    pub fn drive(&self) -> Option<Driving<'_>> {
        let drive = |number| (HELPER.of(number) == 0).then_some(number + HELPER.with(1));
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, drive).is_ok().then(|| Driving(self))
    }

    /// The helper sleeps until the leader's next step. False if the leader has made one since this epoch: then the helper stays awake.
    ///
    /// One operation sees the step and says that the helper sleeps, and another one makes the step and sees that. So one of both
    /// threads always knows of the other.
    pub fn fall_asleep(&self, since: u64) -> bool {
        let sleep = |number| (EPOCH.of(number) == since).then_some(ASLEEP.cleared(number) + ASLEEP.with(1));
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, sleep).is_ok()
    }

    /// The helper is awake, or will be: its timer is set.
    pub fn wake_up(&self) {
        if ASLEEP.of(self.0.load(Ordering::Relaxed)) == 1 {
            self.change(|number| ASLEEP.cleared(number));
        }
    }

    // --- any thread

    pub fn epoch(&self) -> u64 {
        EPOCH.of(self.0.load(Ordering::SeqCst))
    }

    /// How many threads have requests.
    pub fn serving(&self) -> usize {
        SERVING.of(self.0.load(Ordering::SeqCst)) as usize
    }

    pub fn is_anybody_returning(&self) -> bool {
        RETURNING.of(self.0.load(Ordering::Relaxed)) > 0
    }

    /// The thread that leads: known for sure only with the lock, which orders its changes.
    pub fn leader(&self) -> Option<usize> {
        (LEADER.of(self.0.load(Ordering::Relaxed)) as usize).checked_sub(1)
    }

    fn change(&self, change: impl Fn(u64) -> u64) {
        // It always succeeds. Nothing else goes by these fields without the lock, but for how far they are.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |number| Some(change(number)));
    }
}

pub(crate) fn is_busy(epoch: u64) -> bool {
    epoch % 2 == 1
}

/// See [`Baton::return_from_request`].
pub(crate) struct Returning<'a>(&'a Baton);

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        self.0.change(|number| number - RETURNING.with(1));
    }
}

/// See [`Baton::drive`].
#[derive(Debug)]
pub(crate) struct Driving<'a>(&'a Baton);

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.change(|number| HELPER.cleared(number));
    }
}

/// What only who has the reactor's lock knows of the threads, and may change.
#[derive(Debug)]
pub(crate) struct Threads {
    baton: Arc<Baton>,
    /// Whether threads may lead.
    pub is_open: bool,
    /// Threads other than the main one return.
    pub is_over: bool,
    /// The threads that are running the engine: a bit each.
    entered: u64,
    /// The last to fall asleep is the first to be woken: its memory is in the caches.
    sleepers: Vec<usize>,
    /// The thread that was woken to lead, until it does.
    summoned: Option<usize>,
    /// When a request was last begun, in microseconds.
    pub began: u64,
}

impl Threads {
    pub fn new(baton: Arc<Baton>) -> Self {
        Threads {
            baton,
            is_open: false,
            is_over: false,
            entered: 0,
            sleepers: Vec::new(),
            summoned: None,
            began: 0,
        }
    }

    /// One of `threads` begins to run the engine, other than the main one. None if there are enough.
    pub fn enter(&mut self, threads: usize) -> Option<usize> {
        let thread = (1..threads).find(|thread| self.entered & 1 << thread == 0)?;
        self.entered |= 1 << thread;
        Some(thread)
    }

    /// The thread leaves the engine. Whether another one is to be summoned.
    pub fn leave(&mut self, thread: usize) -> bool {
        self.wake_up(thread);
        self.let_go(thread);
        self.entered &= !(1 << thread);
        let was_summoned = self.summoned.take_if(|summoned| *summoned == thread).is_some();
        self.baton.leader().is_none() && (self.is_idle() || was_summoned)
    }

    /// The thread leads if threads may, and none does.
    pub fn lead(&mut self, thread: usize) -> bool {
        let leads = self.is_open && self.baton.leader().is_none();
        if leads {
            self.baton.change(|number| number + LEADER.with(thread as u64 + 1));
        }
        leads
    }

    /// The thread leads no more, if it did.
    pub fn let_go(&mut self, thread: usize) {
        if self.baton.leader() == Some(thread) {
            self.baton.change(|number| LEADER.cleared(number));
        }
    }

    /// The leader has a request.
    pub fn begin_request(&mut self) {
        self.baton.change(|number| LEADER.cleared(number) + SERVING.with(1));
    }

    /// A thread has answered its request.
    pub fn end_request(&mut self) {
        self.baton.change(|number| number - SERVING.with(1));
    }

    pub fn fall_asleep(&mut self, thread: usize) {
        self.sleepers.push(thread);
    }

    /// The thread has just begun, or was woken.
    pub fn wake_up(&mut self, thread: usize) {
        self.sleepers.retain(|sleeper| *sleeper != thread);
    }

    /// The summoned thread is here.
    pub fn arrive(&mut self, thread: usize) {
        self.summoned.take_if(|summoned| *summoned == thread);
    }

    /// The thread to be woken, which leads then; None if none sleeps, or none may.
    pub fn summon(&mut self) -> Option<usize> {
        if self.is_open {
            self.summoned = self.sleepers.pop();
            return self.summoned;
        }
        None
    }

    /// Those that sleep, to be woken.
    pub fn take_sleepers(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.sleepers)
    }

    pub fn is_anybody_asleep(&self) -> bool {
        !self.sleepers.is_empty()
    }

    /// Whether no thread has a request.
    pub fn is_idle(&self) -> bool {
        self.baton.serving() == 0
    }

    /// Whether no thread may lead, and none is at anything.
    pub fn is_quiet(&self) -> bool {
        !self.is_open && self.baton.leader().is_none() && self.is_idle()
    }

    /// Whether a thread may lead, and none does or will.
    pub fn is_lead_free(&self) -> bool {
        self.is_open && self.baton.leader().is_none() && self.summoned.is_none()
    }
}

// The model compiles this file by its path, where the tests would be looked for in another folder.
#[cfg(test)]
#[path = "baton/tests.rs"]
mod tests;
