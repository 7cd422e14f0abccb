use super::*;
use crate::patience::until;
use crate::shared::tests::shared;
use std::time::{Duration, Instant};

fn control() -> Arc<Control> {
    Arc::new(Control::new(-1, [], &RequestSettings::default()).expect("a control"))
}

fn start(shared: &Arc<Shared>) -> Helper {
    let control = control();
    let ending = Ending::new(Arc::clone(shared), Arc::clone(&control), &RequestSettings::default(), None);
    Helper::start(Arc::clone(shared), control, ending, &RequestSettings::default()).expect("a thread")
}

#[test]
fn a_client_is_tried_again_later_where_requests_in_progress_are_to_be_left_alone() {
    assert_eq!(retry_time(None), RETRY_WITHOUT_GVL_EVENTS);
    // The next try comes soon after the time at which there may be room, and not before.
    assert_eq!(
        [0, 1_500, 2_000, u64::MAX].map(|micros| retry_time(Some(micros))),
        [MIN_RETRY, 2, 2, MAX_RETRY]
    );
}

#[test]
fn a_step_lasts_for_as_long_as_it_is_seen_and_not_while_the_machine_stands_still() {
    let mut step = Step::default();
    assert_eq!((step.see(3, 50), step.see(3, 150), step.see(3, 90_150)), (0, 100, 1_100));
    assert_eq!((step.see(5, 90_200), step.see(5, 90_201)), (0, 1));
}

#[test]
fn nobody_sets_the_timer_of_waits_any_more_when_what_lasted_is_over() {
    let shared = shared();
    let (shared, control) = (Arc::new(shared), control());
    let ending = Ending::new(Arc::clone(&shared), Arc::clone(&control), &RequestSettings::default(), None);
    let drive = Drive {
        shared: &shared,
        control: &control,
        ending: &ending,
        slow: SlowRequests::new(&RequestSettings::default()),
        step: Cell::default(),
        watches_connections: Cell::default(),
    };
    shared.app_threads().gvl_usage().set_awaited(true);
    assert!(shared.app_threads().gvl_usage().is_awaited());
    drive.rest();
    assert!(!shared.app_threads().gvl_usage().is_awaited());
}

#[test]
fn a_long_request_is_noticed_however_many_short_ones_came_before() {
    let shared = Arc::new(shared());
    let helper = start(&shared);
    for round in 0..40_u64 {
        for cycle in 0..200 {
            shared.set_busy();
            shared.begin();
            shared.begin();
            // The leader is busy for about as long as a look of the helper takes.
            let until =
                Instant::now() + Duration::from_micros((round * 200 + cycle) % 1100 / 10 * (cycle % 11));
            while Instant::now() < until {}
            shared.set_waiting(shared.reactor());
        }
        shared.reactor().take_long_request();
        shared.set_busy();
        shared.begin();
        until(|| shared.reactor().take_long_request());
        shared.set_waiting(shared.reactor());
    }
    drop(helper);
}

#[test]
fn the_helper_has_short_turns_on_a_processor() {
    let ask = || {
        fastrack_sys::take_short_turns();
        fastrack_sys::turn_of(0)
    };
    // None before Linux 6.12.
    let Some(short) = std::thread::spawn(ask).join().expect("no panic") else { return };
    let shared = Arc::new(shared());
    let _helper = start(&shared);
    let is_helper = |thread: &u32| {
        let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
        name.is_ok_and(|name| name.trim() == "fastrack helper")
    };
    let turns = || {
        let threads = std::fs::read_dir("/proc/self/task").expect("a folder").flatten();
        let numbers =
            threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok()).filter(is_helper);
        numbers.filter_map(fastrack_sys::turn_of).collect::<Vec<_>>()
    };
    // Other tests' helpers may be starting.
    until(|| turns().contains(&short));
}
