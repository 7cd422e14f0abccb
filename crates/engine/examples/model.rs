//! Checks by loom, over all orders of the threads' steps and what each may see of the others' memory, what no test can
//! produce at will: that a request that lasts always wakes the helper, and that no connection is queued that nobody
//! counts.
//!
//!     cargo run --locked -p fastrack-engine --example model
//!
//! The code is the engine's own. Only the timer and the poller stand for the kernel's.

#![allow(missing_docs)]

// What the engine's files import of the real one is here.
extern crate self as fastrack_sys;

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use loom::sync::{Arc, Mutex};
use loom::thread;

#[allow(dead_code)]
#[path = "../src/handoff/count.rs"]
mod count;
#[path = "../src/helper/epoch.rs"]
mod epoch;
#[path = "../src/helper/lookout.rs"]
mod lookout;
#[allow(dead_code)]
#[path = "../src/helper/timer.rs"]
mod timer;

use count::QueueCount;
use epoch::Epoch;
use lookout::{Lookout, Work};
use timer::HelperTimer;

/// loom's atomics. For it SeqCst is AcqRel; only its fences are sequentially consistent.
mod sync {
    pub(crate) use std::sync::atomic::Ordering;

    use loom::sync::atomic::fence;

    macro_rules! atomic {
        ($name:ident, $type:ty) => {
            #[derive(Debug, Default)]
            pub(crate) struct $name(loom::sync::atomic::$name);

            #[allow(dead_code)]
            impl $name {
                pub fn new(value: $type) -> Self {
                    $name(loom::sync::atomic::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $type {
                    ordered(order, || self.0.load(order))
                }

                pub fn store(&self, value: $type, order: Ordering) {
                    ordered(order, || self.0.store(value, order));
                }

                pub fn swap(&self, value: $type, order: Ordering) -> $type {
                    ordered(order, || self.0.swap(value, order))
                }

                pub fn compare_exchange(
                    &self,
                    old: $type,
                    new: $type,
                    order: Ordering,
                    failure: Ordering,
                ) -> Result<$type, $type> {
                    ordered(order, || self.0.compare_exchange(old, new, order, failure))
                }

                pub fn fetch_update(
                    &self,
                    order: Ordering,
                    failure: Ordering,
                    change: impl FnMut($type) -> Option<$type>,
                ) -> Result<$type, $type> {
                    ordered(order, || self.0.fetch_update(order, failure, change))
                }
            }
        };
    }

    atomic!(AtomicBool, bool);
    atomic!(AtomicU8, u8);
    atomic!(AtomicU32, u32);
    atomic!(AtomicU64, u64);

    impl AtomicU32 {
        pub fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            ordered(order, || self.0.fetch_add(value, order))
        }
    }

    fn ordered<T>(order: Ordering, operation: impl FnOnce() -> T) -> T {
        let fenced = order == Ordering::SeqCst;
        let fence = || {
            if fenced {
                fence(Ordering::SeqCst);
            }
        };
        fence();
        let result = operation();
        fence();
        result
    }
}

// --- what stands for the kernel

/// Once set it fires, at any time.
#[derive(Debug, Default)]
pub struct Timer(Arc<Mutex<bool>>);

impl Timer {
    pub fn new() -> io::Result<Self> {
        Ok(Timer::default())
    }

    pub fn set(&self, _time: Duration) -> io::Result<()> {
        *self.0.lock().expect("no panic") = true;
        Ok(())
    }

    pub fn stop(&self) -> io::Result<()> {
        *self.0.lock().expect("no panic") = false;
        Ok(())
    }

    pub fn raw_fds(&self) -> std::iter::Empty<i32> {
        std::iter::empty()
    }
}

#[derive(Debug)]
pub struct Waker;

impl Waker {
    pub fn new() -> io::Result<Self> {
        Ok(Waker)
    }

    pub fn call(&self) {}

    pub fn raw_fds(&self) -> std::iter::Empty<i32> {
        std::iter::empty()
    }
}

pub struct Event {
    pub token: u64,
}

#[derive(Default)]
pub struct Events(Option<u64>);

impl Events {
    pub fn iter(&self) -> impl Iterator<Item = Event> {
        self.0.map(|token| Event { token }).into_iter()
    }
}

#[derive(Debug, Default)]
pub struct Poller(std::sync::Mutex<Option<(Arc<Mutex<bool>>, u64)>>);

impl Poller {
    pub fn new() -> io::Result<Self> {
        Ok(Poller::default())
    }

    pub fn watch_timer(&self, timer: &Timer, token: u64) -> io::Result<()> {
        *self.0.lock().expect("no panic") = Some((Arc::clone(&timer.0), token));
        Ok(())
    }

    pub fn watch(&self, _waker: &Waker, _token: u64) -> io::Result<()> {
        Ok(())
    }

    pub fn add<T>(&self, _source: &T, _token: u64) -> io::Result<()> {
        Ok(())
    }

    pub fn set_wanted<T>(&self, _source: &T, _token: u64, _wanted: bool) -> io::Result<()> {
        Ok(())
    }

    /// Does not wait: the helper's loop asks again.
    pub fn wait(&self, events: &mut Events, _millis: Option<u64>) -> io::Result<()> {
        let timer = self.0.lock().expect("no panic").clone();
        let fires = |set: &Mutex<bool>| std::mem::take(&mut *set.lock().expect("no panic"));
        events.0 = timer.filter(|(set, _)| fires(set)).map(|(_, token)| token);
        Ok(())
    }

    pub fn inherited_fds(&self) -> std::iter::Empty<i32> {
        std::iter::empty()
    }
}

pub fn sleep(_millis: u64) {}

pub fn is_lost_fd(_error: &io::Error) -> bool {
    false
}

// --- the helper and its timer

struct Pair {
    epoch: Epoch,
    timer: HelperTimer,
}

/// As in helper/shared.rs.
impl Pair {
    fn set_busy(&self) {
        if let Some(epoch) = self.epoch.set_busy() {
            self.timer.woken(epoch);
        }
    }

    fn begin(&self, is_request: bool) {
        self.timer.begin(self.epoch.advance(), is_request);
    }

    fn set_waiting(&self) {
        self.epoch.set_idle();
        self.timer.idle();
    }
}

struct Noticing<'a> {
    epoch: &'a Epoch,
    noticed: &'a Cell<Option<u64>>,
}

impl Work for Noticing<'_> {
    fn drive(&self, since: u64) -> Option<u64> {
        if self.epoch.read() != since {
            return None;
        }
        self.noticed.set(Some(since));
        Some(100)
    }
}

/// One turn of the helper's loop; false if it would wait without an end.
fn turn<W: Work>(lookout: &mut Lookout<'_, W>, timer: &HelperTimer) -> bool {
    let next = lookout.next_look();
    let fired = timer.wait(&mut Events::default(), next).unwrap_or_default();
    if fired || next.is_some() {
        lookout.woken(fired);
    }
    fired || next.is_some()
}

/// After `before`, a request begins that lasts for ever. The helper has had some turns by then, at any moments.
fn a_request_that_lasts_is_noticed(before: fn(&Pair), turns: usize) {
    let connections = File::open("/dev/null").expect("a file").into();
    let pair =
        Arc::new(Pair { epoch: Epoch::default(), timer: HelperTimer::new(connections).expect("a timer") });
    let app = thread::spawn({
        let pair = Arc::clone(&pair);
        move || {
            before(&pair);
            pair.begin(true);
        }
    });
    let noticed = Cell::new(None);
    let mut lookout =
        Lookout::new(&pair.timer, &pair.epoch, Noticing { epoch: &pair.epoch, noticed: &noticed });
    for _ in 0..turns {
        turn(&mut lookout, &pair.timer);
    }
    app.join().expect("no panic");
    let last = pair.epoch.read();
    while noticed.get() != Some(last) {
        assert!(turn(&mut lookout, &pair.timer), "the helper sleeps, and nobody wakes it");
    }
}

// --- the queue's count

struct Queue {
    count: sync::AtomicU32,
    /// How many messages are in the socket.
    length: Mutex<u32>,
}

impl Queue {
    fn send(&self) {
        *self.length.lock().expect("no panic") += 1;
        QueueCount(&self.count).sent();
    }

    fn receive(&self) {
        QueueCount(&self.count).will_receive();
        let mut length = self.length.lock().expect("no panic");
        *length = length.saturating_sub(1);
    }
}

fn nothing_is_queued_that_is_not_counted() {
    let queue = Arc::new(Queue { count: sync::AtomicU32::new(0), length: Mutex::new(0) });
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
    let count = || QueueCount(&queue.count).get();
    assert!(count() >= *queue.length.lock().expect("no panic"), "a connection is passed over");
    while count() > 0 {
        queue.receive();
    }
}

/// How often a thread may be interrupted where it does not wait. Most errors of concurrency take one or two; what takes more is
/// not looked for.
const INTERRUPTIONS: usize = 3;

/// Runs a model through all orders of its threads' steps with so many interruptions, however long that takes: about 5 s of CPU
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
    check("what is queued is counted", nothing_is_queued_that_is_not_counted);
    check("the first request is noticed", || a_request_that_lasts_is_noticed(Pair::set_busy, 2));
    check("a request after another one is noticed", || {
        let before = |pair: &Pair| {
            pair.set_busy();
            pair.begin(true);
        };
        a_request_that_lasts_is_noticed(before, 2);
    });
    check("a request after a pause is noticed", || {
        let before = |pair: &Pair| {
            pair.set_busy();
            pair.begin(true);
            pair.set_waiting();
            pair.set_busy();
        };
        a_request_that_lasts_is_noticed(before, 3);
    });
}
