use super::*;

#[test]
fn a_busy_epoch_is_odd_and_changes_with_each_step() {
    let baton = Baton::default();
    assert!(!is_busy(baton.epoch()));
    let first = baton.set_busy().expect("it was idle");
    assert_eq!(baton.set_busy(), None);
    assert!(is_busy(first) && baton.epoch() == first);
    let second = baton.step();
    assert!(is_busy(second) && second != first && baton.epoch() == second);
    baton.set_idle();
    let idle = baton.epoch();
    baton.set_idle();
    assert!(!is_busy(idle) && baton.epoch() == idle);
}

#[test]
fn what_one_thread_changes_of_the_baton_leaves_the_rest_alone() {
    let baton = Arc::new(Baton::default());
    let mut threads = Threads::new(Arc::clone(&baton));
    assert!(!threads.lead(63));
    threads.is_open = true;
    let epoch = baton.set_busy();
    assert!(threads.lead(63) && !threads.lead(0));
    let driving = baton.drive().expect("nobody drives");
    assert!(baton.drive().is_none() && baton.drive().is_none());
    let returning = baton.return_from_request();
    let seen = || (baton.leader(), baton.serving(), baton.is_anybody_returning(), Some(baton.epoch()));
    assert_eq!(seen(), (Some(63), 0, true, epoch));
    threads.begin_request();
    assert_eq!(seen(), (None, 1, true, epoch));
    drop((returning, driving));
    assert!(baton.drive().is_some());
    threads.end_request();
    assert_eq!(seen(), (None, 0, false, epoch));
}
