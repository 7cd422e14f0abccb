//! That of several threads one leads at a time, that each request is answered, and that nobody sleeps for ever.

use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;

use crate::admission::{set_lock_used, AppThreads, Threads, Turn, MAIN};
use crate::Events;

struct Worker {
    app_threads: AppThreads,
    /// Under the reactor's lock.
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
                match self.app_threads.end_request(&mut threads, number) {
                    None => return,
                    Some(true) => {}
                    Some(false) if self.rest(threads, number) => return,
                    Some(false) => {}
                }
            } else if threads.is_idle() {
                // Here it would wait for clients. There are none: the worker stops.
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
    let app_threads = AppThreads::new(threads).expect("threads");
    let mut state = Threads::new(Arc::default());
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
