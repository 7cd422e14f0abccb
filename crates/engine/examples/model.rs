//! Checks by loom, over all orders of the threads' steps and all values that each may read of the others' memory. No test can
//! produce these orders at will. A long request always wakes the helper, the count of queued connections is right, and only
//! one of several threads leads.
//!
//!     cargo run --locked -p fastrack-engine --example model
//!
//! The code is the engine's own. Only the timer and the poller stand for the kernel's.

#![allow(missing_docs)]

// Stands for the parts of the engine that the engine's own files import.
extern crate self as fastrack_sys;

use std::cell::Cell;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use loom::sync::{Arc, Mutex};
use loom::thread;

#[path = "model/admission.rs"]
mod admission;
#[path = "../src/clock.rs"]
mod clock;
#[allow(dead_code)]
#[path = "../src/handoff/count.rs"]
mod count;
#[path = "model/kernel.rs"]
mod kernel;
#[path = "model/lead.rs"]
mod lead;
mod scoreboard {
    pub const MAX_THREADS: usize = 64;
    pub const MAX_STREAMS: usize = 1_000;
}
#[path = "model/sync.rs"]
mod sync;
#[path = "../src/helper/tick.rs"]
mod tick;
#[allow(dead_code)]
#[path = "../src/shared/timer.rs"]
mod timer;

use admission::Baton;
use count::QueueCount;
use tick::{Tick, Work};
use timer::HelperTimer;

pub use kernel::{is_lost_fd, monotonic_micros, sleep, Events, Poller, Timer, Waker};

// --- the helper and its timer

struct Pair {
    baton: Baton,
    timer: HelperTimer,
}

/// As in shared/mod.rs.
impl Pair {
    fn set_busy(&self) {
        if self.baton.set_busy() {
            self.set_timer();
        }
    }

    fn begin(&self) {
        if self.baton.step() {
            self.set_timer();
        }
    }

    fn set_timer(&self) {
        self.baton.wake_up();
        self.timer.set();
    }
}

struct Noticing<'a> {
    baton: &'a Baton,
    noticed: &'a Cell<Option<u64>>,
}

impl Work for Noticing<'_> {
    fn drive(&self, since: u64) -> Option<u64> {
        if self.baton.epoch() != since {
            return None;
        }
        self.noticed.set(Some(since));
        Some(100)
    }
}

/// One turn of the helper's loop; false if it would wait without an end.
fn turn<W: Work>(tick: &mut Tick<'_, W>, timer: &HelperTimer) -> bool {
    let next = tick.next_look();
    let mut events = Events::default();
    timer.wait(&mut events, next).expect("a poller");
    let is_woken = !events.is_empty() || next.is_some();
    if is_woken {
        tick.look();
    }
    is_woken
}

/// A request begins after `before`, and lasts for ever. By then the helper has had some turns, at any moments.
fn a_request_that_lasts_is_noticed(before: fn(&Pair), turns: usize) {
    let connections = File::open("/dev/null").expect("a file").into();
    let pair = Arc::new(Pair {
        baton: Baton::default(),
        timer: HelperTimer::new::<File>(connections, Vec::new()).expect("a timer"),
    });
    let app = thread::spawn({
        let pair = Arc::clone(&pair);
        move || {
            before(&pair);
            pair.begin();
        }
    });
    let noticed = Cell::new(None);
    let mut tick = Tick::new(&pair.baton, Noticing { baton: &pair.baton, noticed: &noticed });
    for _ in 0..turns {
        turn(&mut tick, &pair.timer);
    }
    app.join().expect("no panic");
    let last = pair.baton.epoch();
    while noticed.get() != Some(last) {
        assert!(turn(&mut tick, &pair.timer), "the helper sleeps, and nobody wakes it");
    }
}

// --- the queue's count

struct Queue {
    count: QueueCount,
    /// How many messages are in the socket.
    length: Mutex<u32>,
}

impl Queue {
    fn send(&self) {
        *self.length.lock().expect("no panic") += 1;
        self.count.sent();
    }

    fn receive(&self) {
        self.count.will_receive();
        let mut length = self.length.lock().expect("no panic");
        *length = length.saturating_sub(1);
    }
}

fn nothing_is_queued_that_is_not_counted() {
    let queue = Arc::new(Queue { count: QueueCount::default(), length: Mutex::new(0) });
    let spawn = |work: fn(&Queue)| {
        let queue = Arc::clone(&queue);
        thread::spawn(move || work(&queue))
    };
    let others = [
        spawn(|queue| {
            queue.send();
            queue.send();
        }),
        spawn(|queue| {
            queue.receive();
            queue.receive();
        }),
    ];
    queue.receive();
    others.into_iter().for_each(|other| other.join().expect("no panic"));
    assert!(queue.count.get() >= *queue.length.lock().expect("no panic"), "a connection is passed over");
    while queue.count.get() > 0 {
        queue.receive();
    }
}

// --- who forks, and the helper

/// Threads drive, or keep the helper from driving, while the leader makes steps.
fn one_drives_or_forks_at_a_time() {
    let baton = Arc::new(Baton::default());
    baton.set_busy();
    let is_driven = Arc::new(Mutex::new(()));
    let drive = |baton: &Baton, is_driven: &Mutex<()>| {
        let driving = (0..2).find_map(|_| baton.drive());
        let _held = driving.as_ref().map(|_| is_driven.try_lock().expect("nobody else drives"));
    };
    let other = thread::spawn({
        let (baton, is_driven) = (Arc::clone(&baton), Arc::clone(&is_driven));
        move || drive(&baton, &is_driven)
    });
    let leader = thread::spawn({
        let baton = Arc::clone(&baton);
        move || {
            baton.step();
            drop(baton.return_from_request());
        }
    });
    drive(&baton, &is_driven);
    [other, leader].into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert!(baton.drive().is_some() && baton.epoch() == 3 && !baton.is_anybody_returning());
}

/// The most interruptions of a thread in places where the thread does not wait. Most errors of concurrency take one or two. The model does
/// not find errors that take more.
const INTERRUPTIONS: usize = 3;

/// Runs a model through all orders of its threads' steps with a few interruptions, however long that takes: about 70 s of CPU
/// time for all models.
fn check(what: &str, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(INTERRUPTIONS);
    let orders = std::sync::Arc::new(AtomicU64::new(0));
    let counted = std::sync::Arc::clone(&orders);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let orders = orders.load(Ordering::Relaxed);
    println!("{what}: {orders} orders, with at most {INTERRUPTIONS} interruptions");
}

fn main() {
    check("each request is answered by one thread or another", || {
        lead::each_request_is_answered_and_all_threads_return(2, 2, false);
    });
    check("also where they give way to each other", || {
        lead::each_request_is_answered_and_all_threads_return(2, 2, true);
    });
    check("of three threads, too", || lead::each_request_is_answered_and_all_threads_return(3, 1, false));
    check("also where one becomes a stream", || lead::a_stream_keeps_no_request_from_being_answered(1));
    check("also where two are answered then", || lead::a_stream_keeps_no_request_from_being_answered(2));
    check("the helper drives, or a thread forks", one_drives_or_forks_at_a_time);
    check("what is queued is counted", nothing_is_queued_that_is_not_counted);
    check("the first request is noticed", || a_request_that_lasts_is_noticed(Pair::set_busy, 2));
    check("a request after another one is noticed", || {
        let before = |pair: &Pair| {
            pair.set_busy();
            pair.begin();
        };
        a_request_that_lasts_is_noticed(before, 2);
    });
    check("a request after a pause is noticed", || {
        let before = |pair: &Pair| {
            pair.set_busy();
            pair.begin();
            pair.baton.set_idle();
            pair.set_busy();
        };
        a_request_that_lasts_is_noticed(before, 3);
    });
}
