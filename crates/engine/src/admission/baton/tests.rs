use super::*;

#[test]
fn a_busy_epoch_is_odd_and_changes_with_each_step() {
    let baton = Baton::default();
    assert!(!is_busy(baton.epoch()));
    baton.set_busy();
    let first = baton.epoch();
    baton.set_busy();
    assert!(is_busy(first) && baton.epoch() == first);
    baton.step();
    let second = baton.epoch();
    assert!(is_busy(second) && second != first);
    baton.set_idle();
    let idle = baton.epoch();
    baton.set_idle();
    assert!(!is_busy(idle) && baton.epoch() == idle);
}

#[test]
fn the_leader_sees_at_its_next_step_that_the_helper_sleeps() {
    let baton = Baton::default();
    assert!(baton.fall_asleep(baton.epoch()) && baton.set_busy());
    baton.wake_up();
    let before = baton.epoch();
    assert!(!baton.step() && !baton.fall_asleep(before), "there was a step since");
    assert!(baton.fall_asleep(baton.epoch()) && baton.fall_asleep(baton.epoch()));
    // A step that does not set the timer leaves that to the next step.
    assert!(baton.step() && baton.step());
}

#[test]
fn what_one_thread_changes_of_the_baton_leaves_the_rest_alone() {
    let baton = Arc::new(Baton::default());
    let mut threads = Threads::new(Arc::clone(&baton), Room::new(64, 0));
    assert!(!threads.lead(63));
    threads.is_open = true;
    baton.set_busy();
    let epoch = baton.epoch();
    assert!(baton.fall_asleep(epoch));
    assert!(threads.lead(63) && !threads.lead(0));
    let driving = baton.drive().expect("nobody drives");
    assert!(baton.drive().is_none() && baton.drive().is_none());
    let returning = baton.return_from_request();
    let seen = || (baton.leader(), baton.serving(), baton.is_anybody_returning(), baton.epoch());
    assert_eq!(seen(), (Some(63), 0, true, epoch));
    threads.begin_request();
    assert_eq!(seen(), (None, 1, true, epoch));
    drop((returning, driving));
    assert!(baton.drive().is_some());
    threads.end_request();
    assert_eq!(seen(), (None, 0, false, epoch));
}
