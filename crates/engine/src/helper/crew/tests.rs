//! That a crew has one leader, and begins requests when they are in nobody's way.

use super::room::{LIKELY_LONG_WAIT, LONG_PAUSE, LONG_WAIT};
use super::*;
use crate::helper::load::tests::with_busy_processors;
use crate::watch::SHORTEST;

fn crew(threads: usize) -> Crew {
    let crew = Crew::new(threads).expect("a crew");
    crew.open();
    for thread in 1..threads {
        assert_eq!(crew.enter(), Some(thread));
    }
    crew
}

/// Its two threads have requests, and nobody leads.
fn two_with_requests() -> Crew {
    let crew = crew(2);
    assert_eq!((crew.next_turn(0), crew.next_turn(1)), (Turn::Lead, Turn::Sleep));
    crew.begin_request(0);
    assert!(crew.summon(1));
    assert_eq!(crew.next_turn(1), Turn::Lead);
    crew.begin_request(1);
    crew
}

/// For how many milliseconds from now on a worker begins no further request that has begun one just now, while its requests do
/// something and wait for a millisecond, again and again.
fn millis_without_room(crew: &Crew, something: impl Fn()) -> u64 {
    millis_until_room(crew, || {
        something();
        fastrack_sys::sleep(1);
    })
}

/// The same, with what they do before each look.
fn millis_until_room(crew: &Crew, before_look: impl Fn()) -> u64 {
    let start = monotonic_micros();
    crew.begun.store(start, Ordering::Relaxed);
    loop {
        assert!(monotonic_micros() < start + 20_000_000);
        before_look();
        if crew.room() > 0 {
            break;
        }
    }
    (monotonic_micros() - start) / 1000
}

fn is_woken(crew: &Crew, thread: usize) -> bool {
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
    let crew = crew(2);
    assert_eq!((crew.next_turn(0), crew.next_turn(1)), (Turn::Lead, Turn::Sleep));
    crew.begin_request(0);
    with_busy_processors(|| {
        while !crew.load.is_high() {
            fastrack_sys::sleep(1);
        }
        // It waits often, and never for long. As with Ruby 3.2 and later.
        let computes = || {
            let began = monotonic_micros();
            crew.activity(0).set_waiting(false);
            crew.activity(0).set_waiting(true);
            // Where other tests compute, a wait of this one is longer than it was meant to be.
            (0..300).for_each(|_| crew.waits.note(1_000));
            let room = crew.room();
            assert!(room == 0 || monotonic_micros() - began >= SHORTEST);
        };
        // So is its sleep between two looks, now and then.
        assert!((0..20).any(|_| millis_without_room(&crew, computes) >= LONG_PAUSE / 1000));
        // From before the wait begins.
        let start = monotonic_micros();
        computes();
        millis_without_room(&crew, || {});
        assert!(monotonic_micros() - start >= LONG_WAIT);
    });
}

#[test]
fn a_wait_is_long_sooner_where_most_have_been_long() {
    let crew = crew(2);
    assert_eq!((crew.next_turn(0), crew.next_turn(1)), (Turn::Lead, Turn::Sleep));
    crew.begin_request(0);
    crew.waits.note(20_000);
    with_busy_processors(|| {
        while !crew.load.is_high() {
            fastrack_sys::sleep(1);
        }
        let wait = |_| {
            // From before it begins.
            let start = monotonic_micros();
            crew.activity(0).set_waiting(false);
            crew.activity(0).set_waiting(true);
            millis_without_room(&crew, || {});
            monotonic_micros() - start
        };
        let least = (0..20).map(wait).min().expect("some");
        assert!((LIKELY_LONG_WAIT..LONG_WAIT).contains(&least), "{least}");
    });
}

#[test]
fn the_helper_is_told_when_a_thread_that_computed_has_waited_as_long_as_it_asks() {
    const LATEST: u64 = 5_000;
    if !Poller::TAKES_TIMERS {
        return;
    }
    let crew = crew(2);
    let (timer, poller) = (Timer::new().expect("a timer"), Poller::new().expect("a poller"));
    poller.watch_timer(&timer, 0).expect("watched");
    crew.waits().tell_by(timer);
    let tells_within = |millis| {
        let mut events = Events::default();
        poller.wait(&mut events, Some(millis)).expect("polled");
        !events.is_empty()
    };
    assert_eq!((crew.next_turn(0), crew.next_turn(1)), (Turn::Lead, Turn::Sleep));
    crew.begin_request(0);
    let wait = |waits| crew.activity(0).set_waiting(waits);
    // What it does now is not known, nor whether the application says so.
    assert_eq!(crew.time_until_room(), None);
    wait(false);
    assert_eq!(crew.time_until_room(), Some(u64::MAX));
    (0..100).for_each(|number| wait(number % 2 == 0));
    // Of one of those, or of none.
    tells_within(20);
    wait(true);
    assert!(tells_within(LATEST) && crew.room() > 0);
    wait(false);
    wait(true);
    // It is not told of this wait once more: it knows when that has lasted for long enough.
    assert_ne!(crew.time_until_room(), Some(u64::MAX));
    tells_within(20);
    crew.waits().tell_after(0);
    (0..3).for_each(|number| wait(number % 2 == 0));
    assert!(!tells_within(20));
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
        crew.activity(0).set_waiting(true);
        assert_eq!(crew.time_until_room(), Some(2 * long));
        crew.activity(2).set_waiting(true);
        fastrack_sys::sleep(2);
        assert!(crew.time_until_room().is_some_and(|micros| micros <= 2 * long - 2_000));
    }
}

/// Returns when requests have hardly waited of late.
fn compute(crew: &Crew) {
    let start = monotonic_micros();
    while !crew.wait_share.is_small(crew.waits.total()) {
        assert!(monotonic_micros() < start + 20_000_000);
    }
}

#[test]
fn where_requests_hardly_wait_a_further_one_begins_only_beside_a_wait_of_some_milliseconds() {
    let crew = crew(2);
    assert_eq!((crew.next_turn(0), crew.next_turn(1)), (Turn::Lead, Turn::Sleep));
    crew.begin_request(0);
    crew.activity(0).set_waiting(true);
    assert_eq!(crew.time_until_room(), None);
    compute(&crew);
    assert!(crew.time_until_room().is_some_and(|micros| micros <= LIKELY_LONG_WAIT));
    // A thread says when it waits since Ruby 3.2; before, nothing is known of how long it has.
    crew.activity(0).end();
    assert_eq!(crew.time_until_room(), None);
    let start = monotonic_micros();
    crew.activity(0).set_waiting(true);
    millis_without_room(&crew, || {});
    assert!(monotonic_micros() - start >= LIKELY_LONG_WAIT);
}

#[test]
fn nor_does_one_who_is_done_begin_another_beside_requests_that_hardly_wait() {
    let crew = two_with_requests();
    crew.activity(0).set_waiting(false);
    compute(&crew);
    assert_eq!(crew.end_request(1), Some(false));
    assert!(crew.rest(1));
    assert_eq!(crew.end_request(0), Some(true));
}

#[test]
fn a_worker_that_hardly_computes_begins_a_further_request_though_the_first_one_never_waits_for_long() {
    let crew = crew(2);
    assert_eq!((crew.next_turn(0), crew.next_turn(1)), (Turn::Lead, Turn::Sleep));
    crew.begin_request(0);
    // Each look comes just when it has computed.
    let computes = || {
        fastrack_sys::sleep(1);
        crew.activity(0).set_waiting(false);
        crew.activity(0).set_waiting(true);
    };
    assert!(millis_until_room(&crew, computes) >= 30);
}

#[test]
#[cfg(any(target_os = "linux", target_os = "android"))]
fn nor_does_such_a_worker_begin_one_at_a_moment_when_the_first_one_wants_a_processor() {
    let crew = crew(2);
    assert_eq!((crew.next_turn(0), crew.next_turn(1)), (Turn::Lead, Turn::Sleep));
    crew.begin_request(0);
    let [is_over, computing] = [(); 2].map(|()| std::sync::atomic::AtomicBool::new(false));
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let says_it_computes = || {
        crew.activity(0).set_waiting(false);
        crew.activity(0).set_waiting(true);
    };
    std::thread::scope(|scope| {
        let (crew, is_over, computing) = (&crew, &is_over, &computing);
        scope.spawn(move || {
            crew.activity(0).begin();
            gone.recv().expect("go");
            computing.store(true, Ordering::Relaxed);
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        millis_until_room(crew, || {
            fastrack_sys::sleep(1);
            says_it_computes();
        });
        go.send(()).expect("it waits");
        while !computing.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        // The share is that of the last 30 ms, in which it has slept.
        says_it_computes();
        let room = crew.room();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(room, 0);
    });
}

#[test]
fn who_is_done_gives_way_to_a_request_in_progress_while_no_processor_is_idle() {
    let crew = two_with_requests();
    with_busy_processors(|| {
        while !crew.load.is_high() {
            fastrack_sys::sleep(1);
        }
        crew.activity(0).set_waiting(false);
        assert_eq!(crew.end_request(1), Some(false));
        // It leads nevertheless, and may find by now that the other one is done.
        assert!(crew.rest(1));
        assert_eq!(crew.end_request(0), Some(true));
    });
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
