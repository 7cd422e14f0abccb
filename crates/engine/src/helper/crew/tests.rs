//! That a crew has one leader, and begins requests when they are in nobody's way.

use super::*;
use crate::clock::tests::HandClock;
use crate::patience::{patience, until};
use crate::watch::ENOUGH;

/// Its clock stands still.
fn crew(threads: usize) -> Crew<HandClock> {
    let crew = Crew::with(threads, HandClock::new()).expect("a crew");
    crew.open();
    for thread in 1..threads {
        assert_eq!(crew.enter(), Some(thread));
    }
    crew
}

/// One of its two threads has a request, and the other one sleeps.
fn one_with_a_request() -> Crew<HandClock> {
    let crew = crew(2);
    assert_eq!((crew.next_turn(0), crew.next_turn(1)), (Turn::Lead, Turn::Sleep));
    crew.begin_request(0);
    crew
}

/// Its two threads have requests, and nobody leads.
fn two_with_requests() -> Crew<HandClock> {
    let crew = one_with_a_request();
    assert!(crew.summon());
    assert_eq!(crew.next_turn(1), Turn::Lead);
    crew.begin_request(1);
    crew
}

impl Crew<HandClock> {
    /// From now on the thread waits for something else than the lock, or not, as it says.
    fn says(&self, thread: usize, waits: bool) {
        self.activity(thread).set_waiting_by(&self.clock, waits);
    }

    /// The time until there is room, in microseconds, by looks after a tenth of a millisecond each.
    fn time_to_room(&self) -> u64 {
        let start = self.clock.micros();
        while !self.has_room() {
            assert!(self.clock.micros() < start + 20_000_000);
            self.clock.wait(100);
        }
        self.clock.micros() - start
    }
}

fn is_woken(crew: &Crew<HandClock>, thread: usize) -> bool {
    let mut events = Events::default();
    crew.sleep(thread, &mut events, Some(0));
    !events.is_empty()
}

#[test]
fn one_leads_and_gives_that_up_while_it_has_a_request() {
    let crew = crew(3);
    assert_eq!([0, 1, 2].map(|thread| crew.next_turn(thread)), [Turn::Lead, Turn::Sleep, Turn::Sleep]);
    assert!(!crew.summon() || !is_woken(&crew, 1) && !is_woken(&crew, 2));
    crew.begin_request(0);
    assert!(!crew.is_idle() && crew.summon());
    // The last to fall asleep, and no other before that leads.
    assert!(crew.summon() && is_woken(&crew, 2) && !is_woken(&crew, 1));
    assert_eq!(crew.next_turn(2), Turn::Lead);
    assert_eq!(crew.end_request(0), None);
    assert_eq!(crew.next_turn(0), Turn::Sleep);
    // Alone with nothing to do it waits for clients itself.
    assert!(crew.is_idle() && !crew.rest(2));
}

#[test]
fn a_further_request_begins_when_the_lock_has_been_free_for_a_time() {
    let crew = one_with_a_request();
    crew.says(0, false);
    crew.clock.wait(50_000);
    assert!(!crew.has_room(), "it computes");
    crew.says(0, true);
    assert_eq!(crew.time_to_room(), ENOUGH);
    crew.says(0, false);
    assert!(!crew.has_room());
}

/// The time until there is room beside a request that again and again computes and waits for so long, in microseconds.
fn time_to_room_beside(computes: u64, waits: u64) -> Option<u64> {
    let crew = one_with_a_request();
    let start = crew.clock.micros();
    for _ in 0..1_000 {
        crew.says(0, false);
        crew.clock.wait(computes);
        crew.says(0, true);
        crew.clock.wait(waits);
        if crew.has_room() {
            return Some(crew.clock.micros() - start);
        }
    }
    None
}

#[test]
fn short_waits_count_as_far_as_the_request_waits_for_longer_than_half_of_what_it_computes() {
    assert_eq!(time_to_room_beside(1_000, 500), None);
    assert_eq!(time_to_room_beside(200, 1_000), Some(34 * 1_200));
    assert_eq!(time_to_room_beside(100_000, ENOUGH), Some(100_000 + ENOUGH));
}

#[test]
fn so_they_do_in_requests_that_follow_each_other_and_not_between_them() {
    let crew = crew(2);
    assert_eq!((crew.next_turn(0), crew.next_turn(1)), (Turn::Lead, Turn::Sleep));
    for _ in 0..3 {
        crew.clock.wait(500_000);
        crew.begin_request(0);
        crew.says(0, true);
        assert!(!crew.has_room());
        crew.clock.wait(ENOUGH / 3);
        crew.says(0, false);
        assert_eq!(crew.end_request(0), Some(true));
    }
    crew.begin_request(0);
    crew.says(0, true);
    assert!(crew.has_room());
}

#[test]
fn where_requests_wait_one_more_begins_as_soon_as_none_uses_the_lock() {
    let crew = crew(3);
    assert_eq!([0, 1, 2].map(|thread| crew.next_turn(thread)), [Turn::Lead, Turn::Sleep, Turn::Sleep]);
    crew.begin_request(0);
    crew.says(0, true);
    crew.clock.wait(2 * ENOUGH);
    assert!(crew.has_room() && crew.summon());
    assert_eq!(crew.next_turn(2), Turn::Lead);
    crew.begin_request(2);
    crew.clock.wait(1_000);
    assert!(!crew.has_room(), "one of them computes");
    crew.says(2, true);
    assert!(crew.has_room());
}

#[test]
fn the_helper_is_told_when_the_lock_has_been_free_for_long_enough() {
    if !Poller::TAKES_TIMERS {
        return;
    }
    let crew = one_with_a_request();
    let (timer, poller) = (Timer::new().expect("a timer"), Poller::new().expect("a poller"));
    poller.watch_timer(&timer, 0).expect("watched");
    crew.app_lock().tell_by(timer);
    // Nor is it known whether the application tells anything.
    assert_eq!(crew.time_until_room(), None);
    crew.says(0, false);
    assert_eq!(crew.time_until_room(), Some(u64::MAX));
    crew.says(0, true);
    let mut events = Events::default();
    poller.wait(&mut events, Some(patience().as_millis() as u64)).expect("polled");
    assert!(!events.is_empty());
    crew.clock.wait(300);
    assert_eq!(crew.time_until_room(), Some(ENOUGH - 300));
    crew.clock.wait(ENOUGH - 300);
    assert_eq!((crew.time_until_room(), crew.has_room()), (Some(0), true));
}

#[test]
fn who_is_done_gives_way_to_a_request_that_uses_the_lock_and_where_requests_hardly_wait() {
    for (waits, time, may_begin) in [(false, ENOUGH, false), (true, ENOUGH - 1, false), (true, ENOUGH, true)]
    {
        let crew = two_with_requests();
        [0, 1].iter().for_each(|thread| crew.says(*thread, true));
        crew.clock.wait(time / 2);
        crew.says(0, waits);
        assert_eq!(crew.end_request(1), Some(may_begin));
        // It leads nevertheless, and may find by now that the other one is done.
        assert!(crew.rest(1));
        assert_eq!(crew.end_request(0), Some(true));
    }
}

#[test]
fn where_the_application_tells_nothing_a_further_request_begins_after_a_time_beside_threads_that_sleep() {
    let crew = one_with_a_request();
    assert_eq!(crew.time_to_room(), UNTOLD);
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (end, crew) = (end, &crew);
        scope.spawn(move || {
            crew.activity(0).begin();
            tell.send(()).expect("tell");
            while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {}
        });
        told.recv().expect("it computes");
        assert_eq!(crew.has_room(), !cfg!(any(target_os = "linux", target_os = "android")));
        drop(end);
    });
    until(|| crew.has_room());
}

#[test]
fn who_is_done_first_leads_again_and_a_leader_without_work_sleeps() {
    let crew = crew(2);
    assert_eq!((crew.next_turn(0), crew.next_turn(1)), (Turn::Lead, Turn::Sleep));
    crew.begin_request(0);
    assert!(crew.summon());
    assert_eq!(crew.next_turn(1), Turn::Lead);
    assert!(crew.rest(1));
    assert_eq!(crew.end_request(0), Some(true));
    assert_eq!(crew.next_turn(1), Turn::Sleep);
}

#[test]
fn a_thread_that_ends_passes_on_what_it_was_woken_for() {
    let crew = crew(3);
    assert_eq!([0, 1, 2].map(|thread| crew.next_turn(thread)), [Turn::Lead, Turn::Sleep, Turn::Sleep]);
    crew.begin_request(0);
    assert!(crew.summon());
    crew.leave(2, false);
    assert!(is_woken(&crew, 1));
    assert_eq!(crew.enter(), Some(2));
    assert_eq!(crew.next_turn(1), Turn::Lead);
    assert_eq!(crew.end_request(0), None);
    assert_eq!(crew.next_turn(0), Turn::Sleep);
    crew.leave(1, true);
    assert!(is_woken(&crew, 0));
    assert_eq!(crew.next_turn(0), Turn::Lead);
}

#[test]
fn the_main_thread_goes_on_when_the_last_request_is_answered_and_the_others_when_they_are_dismissed() {
    let crew = crew(2);
    assert_eq!((crew.next_turn(1), crew.next_turn(0)), (Turn::Lead, Turn::Sleep));
    crew.begin_request(1);
    crew.close(false);
    assert!(is_woken(&crew, 0));
    assert_eq!(crew.next_turn(0), Turn::Sleep);
    assert_eq!(crew.end_request(1), None);
    assert!(is_woken(&crew, 0));
    assert_eq!((crew.next_turn(0), crew.next_turn(1)), (Turn::Leave, Turn::Sleep));
    crew.dismiss();
    assert!(is_woken(&crew, 1));
    assert_eq!(crew.next_turn(1), Turn::Leave);
}
