//! That a crew has one leader, and begins requests when they are in nobody's way.

use super::room::{LIKELY_LONG_WAIT, LONG_PAUSE, LONG_WAIT};
use super::*;
use crate::clock::tests::HandClock;
use crate::patience::patience;
use crate::watch::SHORTEST;

/// Its clock stands still, and nobody sees the machine's processors.
fn crew(threads: usize) -> Crew<HandClock> {
    let crew = Crew::with(threads, HandClock::new(), Load::new(false)).expect("a crew");
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
    assert!(crew.summon(1));
    assert_eq!(crew.next_turn(1), Turn::Lead);
    crew.begin_request(1);
    crew
}

impl Crew<HandClock> {
    /// From now on the thread waits, or not, as it says.
    fn says(&self, thread: usize, waits: bool) {
        self.activity(thread).set_waiting_by(&self.clock, waits);
    }

    /// No look sees an idle processor.
    fn keep_processors_busy(&self) {
        (0..300).for_each(|_| self.load.note(0));
        assert!(self.load.is_high());
    }

    /// The time until there is room, in microseconds, while requests do something before each of the looks, of which there is one in
    /// so many microseconds.
    fn time_to_room(&self, look: u64, before_look: impl Fn()) -> u64 {
        let start = self.clock.micros();
        while self.room() == 0 {
            assert!(self.clock.micros() < start + 20_000_000);
            self.clock.wait(look);
            before_look();
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
    assert!(!crew.summon(1) || !is_woken(&crew, 1) && !is_woken(&crew, 2));
    crew.begin_request(0);
    assert!(!crew.is_idle() && crew.summon(1));
    // The last to fall asleep, and no other before that leads.
    assert!(crew.summon(1) && is_woken(&crew, 2) && !is_woken(&crew, 1));
    assert_eq!(crew.next_turn(2), Turn::Lead);
    assert_eq!(crew.end_request(0), None);
    assert_eq!(crew.next_turn(0), Turn::Sleep);
    // Alone with nothing to do it waits for clients itself.
    assert!(crew.is_idle() && !crew.rest(2));
}

#[test]
fn as_many_threads_are_woken_as_there_are_requests_but_no_more_than_have_requests() {
    let crew = crew(5);
    assert_eq!(crew.next_turn(0), Turn::Lead);
    (1..5).for_each(|thread| assert_eq!(crew.next_turn(thread), Turn::Sleep));
    crew.begin_request(0);
    assert!(crew.summon(9) && is_woken(&crew, 4));
    assert_eq!(crew.next_turn(4), Turn::Lead);
    crew.begin_request(4);
    assert!(!is_woken(&crew, 3) && crew.summon(9) && is_woken(&crew, 3) && !is_woken(&crew, 2));
    assert_eq!(crew.next_turn(3), Turn::Lead);
    // It has a request, so that the next one is woken.
    crew.begin_request(3);
    assert!(is_woken(&crew, 2) && !is_woken(&crew, 1));
    assert_eq!(crew.next_turn(2), Turn::Lead);
    // It has found none.
    assert!(crew.rest(2) && !is_woken(&crew, 1));
    assert!(crew.summon(2) && is_woken(&crew, 2));
    assert_eq!(crew.next_turn(2), Turn::Lead);
    assert!(crew.rest(2));
    assert_eq!(crew.next_turn(2), Turn::Lead);
    crew.begin_request(2);
    assert!(!is_woken(&crew, 1));
}

#[test]
fn a_worker_begins_no_further_request_while_no_processor_is_idle_unless_the_first_one_waits_for_long() {
    let crew = one_with_a_request();
    crew.keep_processors_busy();
    // Most of the waits of late were short.
    (0..300).for_each(|_| crew.waits.note(1_000));
    crew.says(0, false);
    crew.says(0, true);
    assert_eq!(crew.time_to_room(100, || {}), LONG_WAIT);
}

#[test]
fn nor_does_it_soon_begin_one_beside_a_request_that_waits_again_and_again_and_never_for_long() {
    let crew = one_with_a_request();
    crew.keep_processors_busy();
    let waits_anew = || {
        crew.says(0, false);
        crew.says(0, true);
        (0..300).for_each(|_| crew.waits.note(1_000));
        assert_eq!(crew.room(), 0, "it has hardly waited");
        crew.clock.compute(SHORTEST);
    };
    assert_eq!(crew.time_to_room(SHORTEST, waits_anew), LONG_PAUSE);
}

#[test]
fn a_wait_is_long_sooner_where_most_have_been_long() {
    let crew = one_with_a_request();
    crew.keep_processors_busy();
    crew.waits.note(20_000);
    crew.says(0, true);
    assert_eq!(crew.time_to_room(100, || {}), LIKELY_LONG_WAIT);
}

#[test]
fn while_processors_are_idle_a_further_request_begins_as_soon_as_a_wait_counts() {
    let crew = one_with_a_request();
    crew.says(0, true);
    assert_eq!(crew.time_to_room(100, || {}), SHORTEST);
    crew.says(0, false);
    assert_eq!(crew.room(), 0);
}

#[test]
fn the_helper_is_told_when_a_thread_that_computed_has_waited_as_long_as_it_asks() {
    if !Poller::TAKES_TIMERS {
        return;
    }
    let crew = one_with_a_request();
    let (timer, poller) = (Timer::new().expect("a timer"), Poller::new().expect("a poller"));
    poller.watch_timer(&timer, 0).expect("watched");
    crew.waits().tell_by(timer);
    // What it does now is not known, nor whether the application says so.
    assert_eq!(crew.time_until_room(), None);
    crew.says(0, false);
    assert_eq!(crew.time_until_room(), Some(u64::MAX));
    crew.says(0, true);
    let mut events = Events::default();
    poller.wait(&mut events, Some(patience().as_millis() as u64)).expect("polled");
    assert!(!events.is_empty());
    // It is not told of this wait once more: it knows when that has lasted for long enough.
    crew.clock.wait(300);
    assert_eq!(crew.time_until_room(), Some(SHORTEST - 300));
    crew.clock.wait(SHORTEST - 300);
    assert_eq!((crew.time_until_room(), crew.room() > 0), (None, true));
}

#[test]
fn a_thread_gives_way_sooner_where_waits_have_been_short() {
    for (micros, gives_way) in [(20_000, false), (1_000, true)] {
        let crew = crew(2);
        crew.waits.note(micros);
        (0..300).for_each(|_| crew.load.note(0));
        // Another look, whatever it sees, leaves that between the limits.
        (0..3).for_each(|_| crew.load.note(1));
        assert_eq!(crew.is_in_the_way(), gives_way);
    }
}

#[test]
fn the_helper_looks_again_when_waits_will_be_long() {
    for (micros, long) in [(20_000, LIKELY_LONG_WAIT), (1_000, LONG_WAIT)] {
        let crew = crew(3);
        assert_eq!([0, 1, 2].map(|thread| crew.next_turn(thread)), [Turn::Lead, Turn::Sleep, Turn::Sleep]);
        crew.begin_request(0);
        assert!(crew.summon(1) && crew.next_turn(2) == Turn::Lead);
        crew.begin_request(2);
        crew.waits.note(micros);
        // Processors are idle: there may be room at any time.
        assert_eq!(crew.time_until_room(), None);
        (0..300).for_each(|_| crew.load.note(0));
        // One of them computes.
        crew.says(0, true);
        assert_eq!(crew.time_until_room(), Some(2 * long));
        crew.says(2, true);
        crew.clock.wait(2_000);
        assert_eq!(crew.time_until_room(), Some(2 * long - 2_000));
        crew.clock.wait(2 * long);
        assert_eq!(crew.time_until_room(), Some(0));
    }
}

/// Requests hardly wait for a while.
fn compute(crew: &Crew<HandClock>) {
    assert!(!crew.wait_share.is_small(crew.waits.total(), &crew.clock));
    crew.clock.compute(100_000);
    assert!(crew.wait_share.is_small(crew.waits.total(), &crew.clock));
}

#[test]
fn where_requests_hardly_wait_a_further_one_begins_only_beside_a_wait_of_some_milliseconds() {
    let crew = one_with_a_request();
    crew.says(0, false);
    assert_eq!(crew.time_until_room(), None);
    compute(&crew);
    crew.begun.store(crew.clock.micros(), Ordering::Relaxed);
    assert_eq!(crew.time_until_room(), Some(LIKELY_LONG_WAIT));
    // A thread says when it waits since Ruby 3.2; before, nothing is known of how long it has.
    crew.activity(0).end();
    assert_eq!(crew.time_until_room(), None);
    crew.says(0, true);
    assert_eq!(crew.time_to_room(100, || {}), LIKELY_LONG_WAIT);
}

#[test]
fn nor_does_one_who_is_done_begin_another_beside_requests_that_hardly_wait() {
    let crew = two_with_requests();
    crew.says(0, false);
    compute(&crew);
    assert_eq!(crew.end_request(1), Some(false));
    assert!(crew.rest(1));
    assert_eq!(crew.end_request(0), Some(true));
}

/// How long it takes a worker to have room that computes for so many of a thousand microseconds, while its one request never waits
/// for as long as counts; with what else the request does.
fn time_to_room_of_one_that_computes(share: u64, crew: &Crew<HandClock>) -> u64 {
    // Each look comes just when it has computed.
    crew.time_to_room(1_000 - share, || {
        crew.clock.compute(share);
        crew.says(0, false);
        crew.says(0, true);
    })
}

#[test]
fn a_worker_that_hardly_computes_begins_a_further_request_though_the_first_one_never_waits_for_long() {
    assert_eq!(time_to_room_of_one_that_computes(249, &one_with_a_request()), 30_000);
    let crew = one_with_a_request();
    crew.says(0, true);
    for _ in 0..100 {
        assert_eq!(crew.room(), 0);
        crew.clock.wait(750);
        crew.clock.compute(250);
        crew.says(0, false);
        crew.says(0, true);
    }
}

#[test]
#[cfg(any(target_os = "linux", target_os = "android"))]
fn nor_does_such_a_worker_begin_one_at_a_moment_when_the_first_one_wants_a_processor() {
    let crew = one_with_a_request();
    assert!(time_to_room_of_one_that_computes(0, &crew) > 0 && crew.room() > 0);
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
        // Also where it has hardly done so.
        assert_eq!(crew.room(), 0);
        drop(end);
    });
    crew.activity(0).end();
    crew.says(0, true);
    assert_eq!(crew.room(), 1);
}

#[test]
fn who_is_done_gives_way_to_a_request_in_progress_while_no_processor_is_idle() {
    for is_busy in [false, true] {
        let crew = two_with_requests();
        if is_busy {
            crew.keep_processors_busy();
        }
        crew.says(0, false);
        assert_eq!(crew.end_request(1), Some(!is_busy));
        // It leads nevertheless, and may find by now that the other one is done.
        assert!(crew.rest(1));
        assert_eq!(crew.end_request(0), Some(true));
    }
}

#[test]
fn who_is_done_begins_another_one_beside_a_request_that_has_waited_for_long() {
    for (wait, may_begin) in [(LONG_WAIT - 1, false), (LONG_WAIT, true)] {
        let crew = two_with_requests();
        crew.keep_processors_busy();
        crew.says(0, true);
        crew.clock.wait(wait);
        assert_eq!(crew.end_request(1), Some(may_begin));
    }
}

#[test]
fn who_is_done_first_leads_again_and_a_leader_without_work_sleeps() {
    let crew = crew(2);
    assert_eq!((crew.next_turn(0), crew.next_turn(1)), (Turn::Lead, Turn::Sleep));
    crew.begin_request(0);
    assert!(crew.summon(1));
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
    assert!(crew.summon(1));
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
