//! Checks three claims: one of several threads leads at a time, each request is answered, and no thread sleeps for ever.

use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;

use crate::admission::{set_lock_used, AppThreads, Room, Threads, Turn, MAIN};
use crate::Events;

struct Worker {
    app_threads: AppThreads,
    /// The reactor's lock, and the state under it.
    threads: Mutex<Threads>,
    /// Requests that nobody has taken.
    left: Mutex<usize>,
    leader: Mutex<Option<usize>>,
}

impl Worker {
    fn set_leader(&self, expected: Option<usize>, leader: Option<usize>) {
        let mut current = self.leader.lock().expect("no panic");
        assert_eq!(*current, expected, "two threads lead");
        *current = leader;
    }

    fn take_request(&self) -> bool {
        let mut left = self.left.lock().expect("no panic");
        let found = *left > 0;
        *left -= usize::from(found);
        found
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().expect("no panic")
    }

    /// As in worker/thread.rs.
    fn run(&self, number: usize) {
        loop {
            let turn = self.app_threads.next_turn(&mut self.threads(), number);
            match turn {
                Turn::Lead => self.lead(number),
                Turn::Sleep => self.app_threads.sleep(number, &mut Events::default(), None),
                Turn::Leave if number == MAIN => return self.app_threads.dismiss(&mut self.threads()),
                Turn::Leave => return,
            }
        }
    }

    fn lead(&self, number: usize) {
        loop {
            let mut threads = self.threads();
            self.set_leader(None, Some(number));
            let has_request = self.take_request();
            self.set_leader(Some(number), None);
            if has_request {
                self.app_threads.begin_request(&mut threads, number);
                drop(threads);
                let mut threads = self.threads();
                match self.app_threads.end_request(&mut threads, number, number) {
                    None => return,
                    Some(true) => {}
                    Some(false) if self.rest(threads, number) => return,
                    Some(false) => {}
                }
            } else if threads.is_idle() {
                // The engine would wait for clients here. The model has no more clients, so the worker stops.
                return self.app_threads.close(&mut threads, number);
            } else if self.rest(threads, number) {
                return;
            }
        }
    }

    fn rest(&self, mut threads: MutexGuard<'_, Threads>, number: usize) -> bool {
        let rests = self.app_threads.sleep_while_others_serve(&mut threads, number);
        drop(threads);
        if rests {
            self.app_threads.sleep(number, &mut Events::default(), None);
        }
        rests
    }
}

/// `threads` threads answer `requests` requests, while the helper wakes others twice, at any moment. Where requests have the
/// application's lock all the time, or wait for it, they give way to each other.
pub fn each_request_is_answered_and_all_threads_return(threads: usize, requests: usize, compute: bool) {
    set_lock_used(compute);
    let room = Room::new(threads, 0);
    let app_threads = AppThreads::new(room).expect("threads");
    let mut state = Threads::new(Arc::default(), room);
    state.is_open = true;
    let worker = Arc::new(Worker {
        app_threads,
        threads: Mutex::new(state),
        left: Mutex::new(requests),
        leader: Mutex::new(None),
    });
    let others: Vec<_> = (0..threads)
        .map(|number| {
            let worker = Arc::clone(&worker);
            thread::spawn(move || worker.run(number))
        })
        .collect();
    for _ in 0..2 {
        let mut threads = worker.threads();
        if worker.app_threads.admits_another(&threads) {
            worker.app_threads.summon(&mut threads);
        }
    }
    others.into_iter().for_each(|other| other.join().expect("no panic"));
    assert_eq!(*worker.left.lock().expect("no panic"), 0);
}

// --- streams

/// The state of the claim on a thread's request, in short.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    None,
    Request,
    Stream,
}

struct Streaming {
    worker: Worker,
    /// Claims by the numbers of threads.
    claims: Vec<Mutex<Claim>>,
}

impl Streaming {
    fn claim(&self, number: usize, claim: Claim) -> Claim {
        std::mem::replace(&mut *self.claims[number].lock().expect("no panic"), claim)
    }

    /// As the main thread in worker/thread.rs.
    fn run_main(this: &Arc<Self>) {
        let (app_threads, mut started) = (&this.worker.app_threads, Vec::new());
        loop {
            let mut threads = this.worker.threads();
            if app_threads.next_turn(&mut threads, MAIN) == Turn::Leave {
                app_threads.dismiss(&mut threads);
                break;
            }
            let orders = threads.streams.take_orders();
            drop(threads);
            (0..orders.start).for_each(|_| started.push(Self::start(this)));
            if orders.are_none() {
                app_threads.sleep(MAIN, &mut Events::default(), None);
            }
        }
        started.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }

    fn start(this: &Arc<Self>) -> thread::JoinHandle<()> {
        let this = Arc::clone(this);
        thread::spawn(move || this.serve())
    }

    fn serve(&self) {
        let app_threads = &self.worker.app_threads;
        let Some((seat, number)) = self.worker.threads().enter() else { return };
        let mut seat = Some(seat);
        while let Some(own) = seat {
            let turn = app_threads.next_turn(&mut self.worker.threads(), own);
            match turn {
                Turn::Lead => seat = self.lead(own, number),
                Turn::Sleep => app_threads.sleep(own, &mut Events::default(), None),
                Turn::Leave => return,
            }
        }
    }

    /// The thread leads, and answers one request after the other. Returns the thread's seat afterwards.
    fn lead(&self, seat: usize, number: usize) -> Option<usize> {
        let (worker, app_threads) = (&self.worker, &self.worker.app_threads);
        loop {
            let mut threads = worker.threads();
            worker.set_leader(None, Some(seat));
            let has_request = worker.take_request();
            worker.set_leader(Some(seat), None);
            if has_request {
                app_threads.begin_request(&mut threads, number);
                self.claim(number, Claim::Request);
                drop(threads);
                let was = self.claim(number, Claim::None);
                let mut threads = worker.threads();
                if was == Claim::Stream {
                    return app_threads.end_stream(&mut threads, number);
                }
                match app_threads.end_request(&mut threads, seat, number) {
                    None => return Some(seat),
                    Some(true) => {}
                    Some(false) if worker.rest(threads, seat) => return Some(seat),
                    Some(false) => {}
                }
            } else if threads.is_idle() {
                app_threads.close(&mut threads, seat);
                return Some(seat);
            } else if worker.rest(threads, seat) {
                return Some(seat);
            }
        }
    }

    /// As in helper/streams.rs.
    fn begin_streams(&self) {
        let mut threads = self.worker.threads();
        for seat in 0..threads.seats().len() {
            let Some(number) = threads.seats()[seat] else { continue };
            let mut claim = self.claims[number].lock().expect("no panic");
            if *claim == Claim::Request && threads.streams.has_room() {
                *claim = Claim::Stream;
                self.worker.app_threads.begin_stream(&mut threads, seat, number);
            }
        }
        if self.worker.app_threads.admits_another(&threads) {
            self.worker.app_threads.summon(&mut threads);
        }
    }
}

/// The worker has room for one request. The first request may become a stream at any moment. Another thread answers the other requests, or
/// the same thread does so afterwards.
pub fn a_stream_keeps_no_request_from_being_answered(others: usize) {
    set_lock_used(false);
    let room = Room::new(1, 1);
    let mut state = Threads::new(Arc::default(), room);
    state.is_open = true;
    let worker = Worker {
        app_threads: AppThreads::new(room).expect("threads"),
        threads: Mutex::new(state),
        left: Mutex::new(1 + others),
        leader: Mutex::new(None),
    };
    let claims = (0..room.threads()).map(|_| Mutex::new(Claim::None)).collect();
    let streaming = Arc::new(Streaming { worker, claims });
    let first = Streaming::start(&streaming);
    let main = thread::spawn({
        let streaming = Arc::clone(&streaming);
        move || Streaming::run_main(&streaming)
    });
    streaming.begin_streams();
    [first, main].into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(*streaming.worker.left.lock().expect("no panic"), 0);
}
