//! Tests that one thread leads, and that no request begins in the way of another one.

use super::*;
use crate::admission::{gvl_usage::CREDIT_NEEDED, Room};
use crate::clock::tests::HandClock;
use crate::patience::{patience, until};
use std::cell::RefCell;
use std::ops::Deref;

/// Threads, and the state that the reactor keeps of them.
struct Worker(AppThreads<HandClock>, RefCell<Threads>);

impl Deref for Worker {
    type Target = AppThreads<HandClock>;

    fn deref(&self) -> &AppThreads<HandClock> {
        &self.0
    }
}

impl Worker {
    fn enter(&self) -> Option<(usize, usize)> {
        self.1.borrow_mut().enter()
    }

    fn next_turn(&self, thread: usize) -> Turn {
        self.0.next_turn(&mut self.1.borrow_mut(), thread)
    }

    fn begin_request(&self, thread: usize) {
        self.0.begin_request(&mut self.1.borrow_mut(), thread);
    }

    fn end_request(&self, thread: usize) -> Option<bool> {
        self.0.end_request(&mut self.1.borrow_mut(), thread, thread)
    }

    fn admits_another(&self) -> bool {
        self.0.admits_another(&self.1.borrow())
    }

    fn summon(&self) -> bool {
        self.0.summon(&mut self.1.borrow_mut())
    }

    fn sleep_while_others_serve(&self, thread: usize) -> bool {
        self.0.sleep_while_others_serve(&mut self.1.borrow_mut(), thread)
    }

    fn exit_engine(&self, thread: usize) {
        self.0.exit_engine(&mut self.1.borrow_mut(), thread);
    }

    fn begin_stream(&self, seat: usize, number: usize) {
        self.0.begin_stream(&mut self.1.borrow_mut(), seat, number);
    }

    fn end_stream(&self, number: usize) -> Option<usize> {
        self.0.end_stream(&mut self.1.borrow_mut(), number)
    }

    fn ordered(&self) -> usize {
        self.1.borrow_mut().streams.take_orders().start
    }

    fn is_idle(&self) -> bool {
        self.1.borrow().is_idle()
    }

    /// The thread reports whether it waits for something else than the lock.
    fn says(&self, thread: usize, waits: bool) {
        self.activity(thread).set_waiting_by(&self.clock, waits);
    }

    /// The time until another request may begin, in microseconds. The test looks every tenth of a millisecond.
    fn time_to_room(&self) -> u64 {
        let start = self.clock.micros();
        while !self.admits_another() {
            assert!(self.clock.micros() < start + 20_000_000);
            self.clock.wait(100);
        }
        self.clock.micros() - start
    }
}

/// A worker whose clock stands still.
fn worker(room: Room) -> Worker {
    let mut state = Threads::new(Arc::default(), room);
    state.is_open = true;
    Worker(AppThreads::with(room, HandClock::new()).expect("threads"), RefCell::new(state))
}

fn app_threads(threads: usize) -> Worker {
    let app_threads = worker(Room::new(threads, 0));
    for thread in 1..threads {
        assert_eq!(app_threads.enter(), Some((thread, thread)));
    }
    app_threads
}

/// A worker with two threads: one has a request, and the other one sleeps.
fn one_with_a_request() -> Worker {
    let app_threads = app_threads(2);
    assert_eq!((app_threads.next_turn(0), app_threads.next_turn(1)), (Turn::Lead, Turn::Sleep));
    app_threads.begin_request(0);
    app_threads
}

/// A worker with two threads that have requests. No thread leads.
fn two_with_requests() -> Worker {
    let app_threads = one_with_a_request();
    assert!(app_threads.summon());
    assert_eq!(app_threads.next_turn(1), Turn::Lead);
    app_threads.begin_request(1);
    app_threads
}

fn is_woken(app_threads: &Worker, thread: usize) -> bool {
    let mut events = Events::default();
    app_threads.sleep(thread, &mut events, Some(0));
    !events.is_empty()
}

#[test]
fn one_leads_and_gives_that_up_while_it_has_a_request() {
    let app_threads = app_threads(3);
    assert_eq!([0, 1, 2].map(|thread| app_threads.next_turn(thread)), [Turn::Lead, Turn::Sleep, Turn::Sleep]);
    assert!(!app_threads.summon() || !is_woken(&app_threads, 1) && !is_woken(&app_threads, 2));
    app_threads.begin_request(0);
    assert!(!app_threads.is_idle() && app_threads.summon());
    // The thread that fell asleep last leads, and no other thread before it.
    assert!(app_threads.summon() && is_woken(&app_threads, 2) && !is_woken(&app_threads, 1));
    assert_eq!(app_threads.next_turn(2), Turn::Lead);
    assert_eq!(app_threads.end_request(0), None);
    assert_eq!(app_threads.next_turn(0), Turn::Sleep);
    // A single thread without work waits for clients itself.
    assert!(app_threads.is_idle() && !app_threads.sleep_while_others_serve(2));
}

#[test]
fn a_further_request_begins_when_the_lock_has_been_free_for_a_time() {
    let app_threads = one_with_a_request();
    app_threads.says(0, false);
    app_threads.clock.wait(50_000);
    assert!(!app_threads.admits_another(), "it computes");
    app_threads.says(0, true);
    assert_eq!(app_threads.time_to_room(), CREDIT_NEEDED);
    app_threads.says(0, false);
    assert!(!app_threads.admits_another());
}

/// The time until a second request may begin, in microseconds. The first request computes and waits for these times, again and again.
fn time_to_room_beside(computes: u64, waits: u64) -> Option<u64> {
    let app_threads = one_with_a_request();
    let start = app_threads.clock.micros();
    for _ in 0..1_000 {
        app_threads.says(0, false);
        app_threads.clock.wait(computes);
        app_threads.says(0, true);
        app_threads.clock.wait(waits);
        if app_threads.admits_another() {
            return Some(app_threads.clock.micros() - start);
        }
    }
    None
}

#[test]
fn short_waits_count_as_far_as_the_request_waits_for_longer_than_half_of_what_it_computes() {
    assert_eq!(time_to_room_beside(1_000, 500), None);
    assert_eq!(time_to_room_beside(200, 1_000), Some(34 * 1_200));
    assert_eq!(time_to_room_beside(100_000, CREDIT_NEEDED), Some(100_000 + CREDIT_NEEDED));
}

#[test]
fn so_they_do_in_requests_that_follow_each_other_and_not_between_them() {
    let app_threads = app_threads(2);
    assert_eq!((app_threads.next_turn(0), app_threads.next_turn(1)), (Turn::Lead, Turn::Sleep));
    for _ in 0..3 {
        app_threads.clock.wait(500_000);
        app_threads.begin_request(0);
        app_threads.says(0, true);
        assert!(!app_threads.admits_another());
        app_threads.clock.wait(CREDIT_NEEDED / 3);
        app_threads.says(0, false);
        assert_eq!(app_threads.end_request(0), Some(true));
    }
    app_threads.begin_request(0);
    app_threads.says(0, true);
    assert!(app_threads.admits_another());
}

#[test]
fn where_requests_wait_one_more_begins_as_soon_as_none_uses_the_lock() {
    let app_threads = app_threads(3);
    assert_eq!([0, 1, 2].map(|thread| app_threads.next_turn(thread)), [Turn::Lead, Turn::Sleep, Turn::Sleep]);
    app_threads.begin_request(0);
    app_threads.says(0, true);
    app_threads.clock.wait(2 * CREDIT_NEEDED);
    assert!(app_threads.admits_another() && app_threads.summon());
    assert_eq!(app_threads.next_turn(2), Turn::Lead);
    app_threads.begin_request(2);
    app_threads.clock.wait(1_000);
    assert!(!app_threads.admits_another(), "one of them computes");
    app_threads.says(2, true);
    assert!(app_threads.admits_another());
}

#[test]
fn the_helper_is_told_when_the_lock_has_been_free_for_long_enough() {
    if !Poller::TAKES_TIMERS {
        return;
    }
    let app_threads = one_with_a_request();
    let (timer, poller) = (Timer::new().expect("a timer"), Poller::new().expect("a poller"));
    poller.watch_timer(&timer, 0).expect("watched");
    app_threads.gvl_usage().wake_by(timer);
    // The application has not said yet whether it waits or computes.
    assert_eq!(app_threads.time_until_admission(), None);
    app_threads.says(0, false);
    assert_eq!(app_threads.time_until_admission(), Some(u64::MAX));
    app_threads.says(0, true);
    let mut events = Events::default();
    poller.wait(&mut events, Some(patience().as_millis() as u64)).expect("polled");
    assert!(!events.is_empty());
    app_threads.clock.wait(300);
    assert_eq!(app_threads.time_until_admission(), Some(CREDIT_NEEDED - 300));
    app_threads.clock.wait(CREDIT_NEEDED - 300);
    assert_eq!((app_threads.time_until_admission(), app_threads.admits_another()), (Some(0), true));
}

#[test]
fn who_is_done_gives_way_to_a_request_that_uses_the_lock_and_where_requests_hardly_wait() {
    for (waits, time, may_begin) in
        [(false, CREDIT_NEEDED, false), (true, CREDIT_NEEDED - 1, false), (true, CREDIT_NEEDED, true)]
    {
        let app_threads = two_with_requests();
        [0, 1].iter().for_each(|thread| app_threads.says(*thread, true));
        app_threads.clock.wait(time / 2);
        app_threads.says(0, waits);
        assert_eq!(app_threads.end_request(1), Some(may_begin));
        // The thread leads nevertheless. The other thread may be done by now.
        assert!(app_threads.sleep_while_others_serve(1));
        assert_eq!(app_threads.end_request(0), Some(true));
    }
}

#[test]
fn where_the_application_tells_nothing_a_further_request_begins_after_a_time_beside_threads_that_sleep() {
    let app_threads = one_with_a_request();
    assert_eq!(app_threads.time_to_room(), WAIT_WITHOUT_GVL_EVENTS);
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let activity = app_threads.activity(0);
        scope.spawn(move || {
            activity.begin();
            tell.send(()).expect("tell");
            while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {}
        });
        told.recv().expect("it computes");
        assert_eq!(app_threads.admits_another(), !cfg!(any(target_os = "linux", target_os = "android")));
        drop(end);
    });
    until(|| app_threads.admits_another());
}

#[test]
fn who_is_done_first_leads_again_and_a_leader_without_work_sleeps() {
    let app_threads = app_threads(2);
    assert_eq!((app_threads.next_turn(0), app_threads.next_turn(1)), (Turn::Lead, Turn::Sleep));
    app_threads.begin_request(0);
    assert!(app_threads.summon());
    assert_eq!(app_threads.next_turn(1), Turn::Lead);
    assert!(app_threads.sleep_while_others_serve(1));
    assert_eq!(app_threads.end_request(0), Some(true));
    assert_eq!(app_threads.next_turn(1), Turn::Sleep);
}

#[test]
fn a_thread_that_ends_passes_on_what_it_was_woken_for() {
    let app_threads = app_threads(3);
    assert_eq!([0, 1, 2].map(|thread| app_threads.next_turn(thread)), [Turn::Lead, Turn::Sleep, Turn::Sleep]);
    app_threads.begin_request(0);
    assert!(app_threads.summon());
    app_threads.exit_engine(2);
    assert!(is_woken(&app_threads, 1));
    assert_eq!(app_threads.enter(), Some((2, 2)));
    assert_eq!(app_threads.next_turn(1), Turn::Lead);
    assert_eq!(app_threads.end_request(0), None);
    assert_eq!(app_threads.next_turn(0), Turn::Sleep);
    app_threads.exit_engine(1);
    assert!(is_woken(&app_threads, 0));
    assert_eq!(app_threads.next_turn(0), Turn::Lead);
}

#[test]
fn the_main_thread_goes_on_when_the_last_request_is_answered_and_the_others_when_they_are_dismissed() {
    let app_threads = app_threads(2);
    assert_eq!((app_threads.next_turn(1), app_threads.next_turn(0)), (Turn::Lead, Turn::Sleep));
    app_threads.begin_request(1);
    app_threads.close(&mut app_threads.1.borrow_mut(), 0);
    assert!(is_woken(&app_threads, 0));
    assert_eq!(app_threads.next_turn(0), Turn::Sleep);
    assert_eq!(app_threads.end_request(1), None);
    assert!(is_woken(&app_threads, 0));
    assert_eq!((app_threads.next_turn(0), app_threads.next_turn(1)), (Turn::Leave, Turn::Sleep));
    app_threads.dismiss(&mut app_threads.1.borrow_mut());
    assert!(is_woken(&app_threads, 1));
    assert_eq!(app_threads.next_turn(1), Turn::Leave);
}

/// A worker with a main thread and two others. The first of the two leads, and the other threads sleep.
fn with_streams() -> Worker {
    let app_threads = worker(Room::new(2, 3));
    assert_eq!([app_threads.enter(), app_threads.enter()], [Some((1, 1)), Some((2, 2))]);
    assert_eq!(app_threads.next_turn(MAIN), Turn::Sleep, "it answers no requests");
    assert_eq!([1, 2].map(|thread| app_threads.next_turn(thread)), [Turn::Lead, Turn::Sleep]);
    app_threads
}

#[test]
fn the_place_of_a_stream_is_taken_by_another_thread_and_never_by_more() {
    let app_threads = with_streams();
    app_threads.begin_request(1);
    assert!(app_threads.summon());
    assert_eq!(app_threads.next_turn(2), Turn::Lead);
    app_threads.begin_request(2);
    app_threads.begin_stream(1, 1);
    assert_eq!(app_threads.ordered(), 1);
    assert!(is_woken(&app_threads, MAIN), "it starts the thread");
    assert_eq!(app_threads.enter(), Some((1, 3)));
    assert_eq!(app_threads.next_turn(1), Turn::Lead);
    app_threads.begin_request(3);
    // There are two requests again, and the stream's thread has a seat for the next one.
    assert_eq!(app_threads.end_stream(1), Some(3));
    assert_eq!((app_threads.next_turn(3), app_threads.ordered()), (Turn::Sleep, 0));
    [2, 3].iter().for_each(|thread| app_threads.says(*thread, true));
    app_threads.clock.wait(2 * CREDIT_NEEDED);
    assert!(!app_threads.admits_another());
    app_threads.begin_stream(2, 2);
    assert_eq!((app_threads.ordered(), app_threads.admits_another()), (0, true));
}

#[test]
fn a_worker_whose_last_request_has_become_a_stream_waits_for_clients() {
    let app_threads = with_streams();
    app_threads.begin_request(1);
    app_threads.begin_stream(1, 1);
    assert!(app_threads.is_idle() && is_woken(&app_threads, 2));
    assert_eq!(app_threads.next_turn(2), Turn::Lead);
    assert!(!app_threads.sleep_while_others_serve(2), "it waits for clients itself");
}

#[test]
fn a_thread_that_cannot_be_started_is_ordered_again() {
    let app_threads = with_streams();
    app_threads.begin_request(1);
    app_threads.begin_stream(1, 1);
    let order = || app_threads.order_missing(&mut app_threads.1.borrow_mut());
    order();
    assert_eq!(app_threads.ordered(), 1, "once");
    app_threads.1.borrow_mut().streams.settle_start();
    order();
    assert_eq!(app_threads.ordered(), 1);
}

#[test]
fn a_thread_leaves_after_its_stream_where_all_seats_are_taken() {
    let app_threads = with_streams();
    let seats = Room::new(2, 3).seats();
    app_threads.begin_request(1);
    app_threads.begin_stream(1, 1);
    let numbers: Vec<_> = std::iter::from_fn(|| app_threads.enter()).map(|(_, number)| number).collect();
    assert_eq!((numbers.len(), numbers.contains(&1)), (seats - 2, false));
    assert_eq!(app_threads.end_stream(1), None);
    app_threads.exit_engine(seats - 1);
    assert_eq!(app_threads.enter(), Some((seats - 1, 1)), "its number is free");
}

#[test]
fn streams_that_compute_are_in_the_way_of_further_requests_and_waiting_ones_earn_nothing() {
    let app_threads = with_streams();
    app_threads.begin_request(1);
    app_threads.says(1, true);
    app_threads.begin_stream(1, 1);
    assert_eq!(app_threads.next_turn(2), Turn::Lead);
    app_threads.begin_request(2);
    app_threads.says(2, true);
    assert_eq!(app_threads.enter(), Some((1, 3)));
    assert_eq!(app_threads.next_turn(1), Turn::Lead);
    assert!(app_threads.sleep_while_others_serve(1));
    assert_eq!(app_threads.time_to_room(), CREDIT_NEEDED, "as beside one request");
    app_threads.says(1, false);
    assert!(!app_threads.admits_another());
    app_threads.says(1, true);
    assert!(app_threads.admits_another());
    app_threads.end_stream(1);
    assert!(app_threads.admits_another() && !app_threads.is_idle());
}
