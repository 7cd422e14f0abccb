//! Who drives a worker. The thread of the application that leads drives it. The helper drives it while the leader has been in the
//! application for longer than the timer takes, or while no thread leads. The driver has the reactor's lock.
//!
//! The baton is one number: the state of the threads that others read without that lock. This file has all changes of the baton. The
//! leader makes steps at any time. A thread takes or releases the lead only with the lock.
//!
//! A single thread of the application keeps the lead while it has a request. Of several threads, the leader releases the lead when it
//! begins a request, and the first thread that is done leads again.
//!
//! INVARIANT: while threads may lead and none does, some thread has a request, or has been summoned: that thread will lead.

use super::{Room, Streams};
use crate::sync::{Arc, AtomicU64, Ordering};

/// The seat and the number of the thread that runs the engine first. This thread decides when the engine stops.
pub(crate) const MAIN: usize = 0;

/// A range of bits of the baton.
struct Field {
    shift: u32,
    bits: u32,
}

/// The seat of the thread that leads, plus 1. 0 for none.
const LEADER: Field = Field { shift: 0, bits: 8 };
/// Number of threads that have requests. A single thread, which keeps the lead, does not count. Streams do not count either.
const SERVING: Field = Field { shift: 8, bits: 8 };
/// Number of threads without the lead that have answered a request, and want the reactor. The field has room for all streams, which may end
/// at the same time.
const RETURNING: Field = Field { shift: 16, bits: 11 };
/// 1 while the helper drives, or while a thread that forks keeps the helper from driving.
const HELPER: Field = Field { shift: 27, bits: 1 };
/// 1 while the helper sleeps until the leader's next step.
const ASLEEP: Field = Field { shift: 28, bits: 1 };
/// A number that grows with each step of the leader. It is odd while the leader is busy, and even while the leader waits for clients.
const EPOCH: Field = Field { shift: 29, bits: 35 };

impl Field {
    const fn of(&self, baton: u64) -> u64 {
        baton << (u64::BITS - self.shift - self.bits) >> (u64::BITS - self.bits)
    }

    /// A baton with this number in the field, and 0 in all other fields.
    const fn with(&self, number: u64) -> u64 {
        number << self.shift
    }

    const fn cleared(&self, baton: u64) -> u64 {
        baton - self.with(self.of(baton))
    }
}

/// The baton. By its epoch the helper sees, without a clock, whether the leader makes progress. If the helper reads the same odd epoch
/// twice, the leader has been outside the engine all the time, in one call of the application for example.
#[derive(Debug, Default)]
pub(crate) struct Baton(AtomicU64);

impl Baton {
    // --- the thread that leads, or is about to

    /// The thread is busy from now on. Returns whether the thread was idle, and the helper [sleeps](Self::fall_asleep).
    pub fn set_busy(&self) -> bool {
        !is_busy(self.epoch()) && self.advance(1)
    }

    /// The busy thread makes a step. Returns whether the helper [sleeps](Self::fall_asleep).
    #[inline]
    pub fn step(&self) -> bool {
        self.advance(2)
    }

    /// The thread is about to wait.
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

    /// The thread wants the reactor, until the result is dropped.
    pub fn return_from_request(&self) -> Returning<'_> {
        self.0.fetch_add(RETURNING.with(1), Ordering::SeqCst);
        Returning(self)
    }

    // --- the helper, and threads that fork

    /// Gives the right to drive: to the helper, or to a thread that forks while the helper must not drive. The right ends when the result
    /// is dropped. None while another thread has it.
    pub fn drive(&self) -> Option<Driving<'_>> {
        let drive = |number| (HELPER.of(number) == 0).then_some(number + HELPER.with(1));
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, drive).is_ok().then(|| Driving(self))
    }

    /// The helper sleeps until the leader's next step. Returns false if the leader has made a step since this epoch: then the helper stays
    /// awake.
    ///
    /// The helper sees the leader's step, and says that it sleeps, in one operation. The leader makes a step, and sees that the helper
    /// sleeps, in one operation. So one of the two always knows of the other.
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

    /// Number of threads that have requests.
    pub fn serving(&self) -> usize {
        SERVING.of(self.0.load(Ordering::SeqCst)) as usize
    }

    pub fn is_anybody_returning(&self) -> bool {
        RETURNING.of(self.0.load(Ordering::Relaxed)) > 0
    }

    /// The seat of the thread that leads. Only the owner of the reactor's lock knows it for sure.
    pub fn leader(&self) -> Option<usize> {
        (LEADER.of(self.0.load(Ordering::Relaxed)) as usize).checked_sub(1)
    }

    fn change(&self, change: impl Fn(u64) -> u64) {
        // The change always succeeds. Without the lock nobody relies on the order of these changes.
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

/// State of the app threads, guarded by the reactor lock.
#[derive(Debug)]
pub(crate) struct Threads {
    baton: Arc<Baton>,
    /// Whether threads may lead.
    pub is_open: bool,
    /// Whether all threads but the main one are to return.
    pub is_over: bool,
    room: Room,
    /// The threads that run the engine and have no stream: the number of each thread, by its seat.
    seats: Vec<Option<usize>>,
    pub streams: Streams,
    /// The seats of threads that sleep. The last thread to fall asleep is woken first, because its memory is in the caches.
    sleepers: Vec<usize>,
    /// The thread that was woken to lead, until it leads.
    summoned: Option<usize>,
    /// When a request was last begun, in microseconds.
    pub began: u64,
}

impl Threads {
    pub fn new(baton: Arc<Baton>, room: Room) -> Self {
        Threads {
            baton,
            is_open: false,
            is_over: false,
            room,
            seats: vec![None; room.seats()],
            streams: Streams::new(room),
            sleepers: Vec::new(),
            summoned: None,
            began: 0,
        }
    }

    /// A thread other than the main one begins to run the engine. Returns the thread's seat and number. None if no seat is free.
    pub fn enter(&mut self) -> Option<(usize, usize)> {
        let seat = self.free_seat()?;
        let number = self.streams.take_number()?;
        self.seats[seat] = Some(number);
        self.streams.settle_start();
        Some((seat, number))
    }

    fn free_seat(&self) -> Option<usize> {
        (1..self.seats.len()).find(|seat| self.seats[*seat].is_none())
    }

    /// The thread exits the engine. Returns whether another thread is to be summoned.
    pub fn exit_engine(&mut self, thread: usize) -> bool {
        self.wake_up(thread);
        self.release_lead(thread);
        if let Some(number) = self.seats[thread].take() {
            self.streams.free_number(number);
        }
        let was_summoned = self.summoned.take_if(|summoned| *summoned == thread).is_some();
        self.baton.leader().is_none() && (self.is_idle() || was_summoned)
    }

    /// The thread takes the lead if threads may lead, and none does. Returns whether the thread leads.
    pub fn lead(&mut self, thread: usize) -> bool {
        let leads = self.is_open && self.baton.leader().is_none() && self.has_room();
        if leads {
            self.baton.change(|number| number + LEADER.with(thread as u64 + 1));
        }
        leads
    }

    /// The thread releases the lead, if it has the lead.
    pub fn release_lead(&mut self, thread: usize) {
        if self.baton.leader() == Some(thread) {
            self.baton.change(|number| LEADER.cleared(number));
        }
    }

    /// The leader begins a request, and releases the lead.
    pub fn begin_request(&mut self) {
        self.baton.change(|number| LEADER.cleared(number) + SERVING.with(1));
    }

    /// A thread has answered its request.
    pub fn end_request(&mut self) {
        self.baton.change(|number| number - SERVING.with(1));
    }

    /// Whether the number of requests allows another request.
    pub fn has_room(&self) -> bool {
        self.baton.serving() < self.room.requests()
    }

    /// The number of the thread in each seat; None if the seat is free.
    pub fn seats(&self) -> &[Option<usize>] {
        &self.seats
    }

    /// The request of the thread in this seat becomes a stream: the seat is free.
    pub fn begin_stream(&mut self, seat: usize) {
        if let Some(number) = self.seats[seat].take() {
            self.end_request();
            self.streams.begin(number);
        }
    }

    /// The stream of the thread with this number is over. Returns the seat that the thread gets; None if the thread is to leave.
    pub fn end_stream(&mut self, number: usize) -> Option<usize> {
        self.streams.end(number);
        let seat = self.free_seat();
        match seat {
            Some(seat) => self.seats[seat] = Some(number),
            None => self.streams.free_number(number),
        }
        seat
    }

    /// Number of threads to be started, so that there is a thread for each request that may be in progress.
    pub fn missing(&self) -> usize {
        match self.room.streams() {
            0 => 0,
            _ => self
                .room
                .requests()
                .saturating_sub(self.seats.iter().flatten().count() + self.streams.starting()),
        }
    }

    pub fn fall_asleep(&mut self, thread: usize) {
        self.sleepers.push(thread);
    }

    /// The thread does not sleep: it has just begun, or was woken.
    pub fn wake_up(&mut self, thread: usize) {
        self.sleepers.retain(|sleeper| *sleeper != thread);
    }

    /// The thread has come, if it was summoned.
    pub fn arrive(&mut self, thread: usize) {
        self.summoned.take_if(|summoned| *summoned == thread);
    }

    /// Chooses the thread to be woken, which then leads. None if no thread sleeps or may lead.
    pub fn summon(&mut self) -> Option<usize> {
        if self.is_open {
            self.summoned = self.sleepers.pop();
            return self.summoned;
        }
        None
    }

    /// Takes all sleeping threads off the list. The caller wakes them.
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

    /// Whether no thread may lead, none leads, and none has a request.
    pub fn is_quiet(&self) -> bool {
        !self.is_open && self.baton.leader().is_none() && self.is_idle()
    }

    /// Whether a thread may lead, none leads, and none was summoned.
    pub fn is_lead_free(&self) -> bool {
        self.is_open && self.baton.leader().is_none() && self.summoned.is_none()
    }
}

// The model compiles this file by its path, where the tests would be looked for in another folder.
#[cfg(test)]
#[path = "baton/tests.rs"]
mod tests;
