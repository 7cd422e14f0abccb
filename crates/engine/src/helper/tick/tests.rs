use std::cell::Cell;

use super::*;

/// How often the helper was told to drive and to rest. A call to drive fails if the leader has made progress.
#[derive(Default)]
struct Calls {
    baton: Baton,
    drives: Cell<u32>,
    rests: Cell<u32>,
}

impl Work for &Calls {
    fn drive(&self, since: u64) -> Option<u64> {
        self.drives.set(self.drives.get() + 1);
        (self.baton.epoch() == since).then_some(100)
    }

    fn rest(&self) {
        self.rests.set(self.rests.get() + 1);
    }
}

impl Calls {
    fn counts(&self) -> (u32, u32) {
        (self.drives.get(), self.rests.get())
    }
}

/// The time until the helper's next look, after this number of the leader's steps.
fn after(tick: &mut Tick<'_, &Calls>, steps: u64) -> Option<u64> {
    (0..steps).for_each(|_| _ = tick.baton.step());
    tick.look();
    tick.next_look()
}

#[test]
fn the_helper_drives_once_one_thing_has_lasted_since_the_last_look_and_rests_when_that_is_over() {
    let calls = Calls::default();
    let mut tick = Tick::new(&calls.baton, &calls);
    calls.baton.set_busy();
    assert_eq!((after(&mut tick, 0), calls.counts()), (Some(2), (0, 0)));
    assert_eq!((after(&mut tick, 0), calls.counts()), (Some(100), (1, 0)));
    assert_eq!((after(&mut tick, 0), calls.counts()), (Some(100), (2, 0)));
    // The next step finds the helper asleep, and sets the timer.
    assert!(calls.baton.step());
    assert_eq!((after(&mut tick, 0), calls.counts()), (Some(FIRST_LOOK), (2, 1)));
    assert_eq!((after(&mut tick, 0), calls.counts()), (Some(100), (3, 1)));
    calls.baton.set_idle();
    assert_eq!((after(&mut tick, 0), calls.counts()), (Some(FIRST_LOOK), (3, 2)));
    assert_eq!((after(&mut tick, 0), calls.counts()), (None, (3, 2)));
}

#[test]
fn where_nothing_lasts_looks_are_ever_rarer_and_rarest_where_many_steps_are_made() {
    let calls = Calls::default();
    let mut tick = Tick::new(&calls.baton, &calls);
    calls.baton.set_busy();
    let mut look = |steps| after(&mut tick, steps);
    assert_eq!(
        [1, 1, MANY_STEPS - 1, MANY_STEPS, MANY_STEPS, 1].map(&mut look).map(Option::unwrap),
        [2, 2, 2, 4, 4, 2]
    );
    assert_eq!(calls.counts(), (0, 0));
}

#[test]
fn the_helper_of_an_idle_leader_sleeps_until_that_is_busy_and_notices_its_first_request_at_once() {
    for (steps, lasts) in [(0, true), (STEPS_OF_A_REQUEST, true), (STEPS_OF_A_REQUEST + 1, false)] {
        let calls = Calls::default();
        let mut tick = Tick::new(&calls.baton, &calls);
        assert_eq!((after(&mut tick, 0), calls.baton.set_busy()), (None, true));
        assert_eq!(after(&mut tick, steps), Some(if lasts { 100 } else { FIRST_LOOK }));
    }
}

#[test]
fn after_one_short_request_the_helper_sleeps_again() {
    let calls = Calls::default();
    let mut tick = Tick::new(&calls.baton, &calls);
    assert_eq!(after(&mut tick, 0), None);
    calls.baton.set_busy();
    (0..STEPS_OF_A_REQUEST - 1).for_each(|_| _ = calls.baton.step());
    calls.baton.set_idle();
    assert_eq!((after(&mut tick, 0), calls.counts()), (None, (0, 0)));
}

#[test]
fn a_leader_that_makes_a_step_while_the_helper_drives_is_looked_at_again() {
    struct Stepping<'a>(&'a Baton);
    impl Work for Stepping<'_> {
        fn drive(&self, _since: u64) -> Option<u64> {
            self.0.step();
            Some(100)
        }
    }
    let baton = Baton::default();
    baton.set_busy();
    let mut tick = Tick::new(&baton, Stepping(&baton));
    tick.look();
    assert_eq!(tick.next_look(), Some(2));
    assert!(!baton.step(), "the helper is awake");
}
