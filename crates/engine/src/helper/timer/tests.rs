use super::*;
use std::io::Write;
use std::os::unix::net::UnixStream;

/// Longer than any timer that is set here.
const LATE: Option<u64> = Some(200);

/// A timer, an epoch, and what makes the connections ready.
fn new() -> (HelperTimer, Epoch, UnixStream) {
    let (near, far) = UnixStream::pair().expect("a pair");
    (HelperTimer::new::<OwnedFd>(far.into(), Vec::new()).expect("a timer"), Epoch::default(), near)
}

/// Whether the timer fires.
fn fires(timer: &HelperTimer) -> bool {
    timer.wait(&mut Events::default(), LATE) == Some(Wake::Timer)
}

/// The application's thread is woken, and has a request.
fn begin(timer: &HelperTimer, epoch: &Epoch) -> u64 {
    timer.woken(epoch.set_busy().expect("it was idle"));
    // Whatever else there is comes first.
    timer.begin(epoch.advance(), false);
    let number = epoch.advance();
    timer.begin(number, true);
    number
}

fn rest(timer: &HelperTimer, epoch: &Epoch) {
    epoch.set_idle();
    timer.idle();
}

#[test]
fn short_requests_do_not_wake_the_helper_and_long_ones_do() {
    let (timer, epoch, _near) = new();
    begin(&timer, &epoch);
    rest(&timer, &epoch);
    assert!(!fires(&timer) && timer.take(0).is_none());
    let number = begin(&timer, &epoch);
    assert!(fires(&timer));
    assert_eq!(timer.take(0), Some(number));
    // From here on the helper counts.
    assert_eq!(timer.take(7), Some(7));
}

#[test]
fn many_short_requests_are_shown_to_the_helper() {
    let (timer, epoch, _near) = new();
    for _ in 0..3 * STOPS {
        begin(&timer, &epoch);
        rest(&timer, &epoch);
    }
    assert!(fires(&timer) && timer.take(0).is_some());
    assert!(timer.leave(&epoch));
    begin(&timer, &epoch);
    rest(&timer, &epoch);
    assert!(!fires(&timer));
}

#[test]
fn waking_up_may_take_long_too() {
    let (timer, epoch, _near) = new();
    let number = epoch.set_busy().expect("it was idle");
    timer.woken(number);
    assert!(fires(&timer));
    assert_eq!(timer.take(0), Some(number));
}

#[test]
fn a_timer_kept_by_the_helper_is_not_set_by_the_other_thread() {
    let (timer, epoch, _near) = new();
    begin(&timer, &epoch);
    assert!(fires(&timer) && timer.take(0).is_some());
    rest(&timer, &epoch);
    begin(&timer, &epoch);
    assert!(!fires(&timer));
    timer.fire_in(SOON);
    rest(&timer, &epoch);
    assert!(fires(&timer));
}

#[test]
fn the_helper_leaves_the_timer_only_to_an_idle_thread() {
    let (timer, epoch, _near) = new();
    begin(&timer, &epoch);
    assert!(fires(&timer) && timer.take(0).is_some());
    assert!(!timer.leave(&epoch) && timer.take(3) == Some(3));
    rest(&timer, &epoch);
    assert!(timer.leave(&epoch) && timer.take(3).is_none());
    begin(&timer, &epoch);
    assert!(fires(&timer));
}

#[test]
fn connections_wake_the_helper_while_a_request_lasts() {
    let (timer, epoch, mut near) = new();
    near.write_all(b"ready").expect("write");
    let mut events = Events::default();
    let mut fired = false;
    let mut is_woken = |millis| {
        fired |= timer.wait(&mut events, Some(millis)) == Some(Wake::Timer);
        events.iter().any(|event| event.token == CONNECTIONS)
    };
    assert!(!is_woken(0));
    let number = begin(&timer, &epoch);
    assert!(!is_woken(200) && timer.take(0) == Some(number));
    assert!(timer.watch_connections(&epoch, number) && is_woken(0));
    // The next thing has a timer of its own.
    let number = epoch.advance();
    timer.begin(number, true);
    assert!(!is_woken(200) && timer.take(0) == Some(number));
    assert!(timer.watch_connections(&epoch, number) && is_woken(0));
    rest(&timer, &epoch);
    assert!(!is_woken(200) && fired);
}

#[test]
fn a_request_that_ends_at_that_moment_is_not_watched_and_the_next_is_not_missed() {
    let (timer, epoch, mut near) = new();
    near.write_all(b"ready").expect("write");
    let number = begin(&timer, &epoch);
    assert!(fires(&timer) && timer.take(0).is_some());
    let next = epoch.advance();
    assert!(!timer.watch_connections(&epoch, number));
    timer.wait(&mut Events::default(), Some(0));
    assert_eq!(timer.take(next), Some(next));
    // As if that thread had gone on without seeing that it has to set the timer.
    assert!(timer.watch_connections(&epoch, next));
    let last = epoch.advance();
    assert!(timer.take_if_missing(last) && timer.take(last) == Some(last));
    assert!(!timer.take_if_missing(last));
}

#[test]
fn a_worker_that_is_idle_now_and_then_has_requests_that_are_expected_to_be_long_wake_the_helper_sooner() {
    let (timer, epoch, _near) = new();
    let soon = || {
        timer.begin(epoch.advance(), true);
        timer.soon()
    };
    assert_eq!(soon(), SOON);
    timer.expect_long(true);
    assert_eq!(soon(), SOONER);
    let set = |rests: bool| {
        timer.state.store(OFF, Ordering::Relaxed);
        if rests {
            epoch.set_idle();
            timer.woken(epoch.set_busy().expect("it was idle"));
        }
        timer.begin(epoch.advance(), true);
        timer.soon() == SOONER
    };
    let in_a_row = (0..2 * MANY_IN_A_ROW).take_while(|_| set(false)).count();
    assert!(in_a_row > 3 && in_a_row < MANY_IN_A_ROW as usize, "{in_a_row}");
    assert!(!set(false) && set(true) && set(false));
    timer.expect_long(false);
    assert!(!set(true));
}

#[test]
fn what_is_expected_to_be_long_wakes_the_helper_before_it_is() {
    let fires_early = |expected: bool| {
        let (timer, epoch, _near) = new();
        timer.expect_long(expected);
        let start = std::time::Instant::now();
        begin(&timer, &epoch);
        while start.elapsed() < SOON / 2 {}
        let wake = timer.wait(&mut Events::default(), Some(0));
        wake == Some(Wake::Timer) && start.elapsed() < SOON
    };
    // On a busy machine the first try may be too late to tell.
    assert!((0..100).any(|_| fires_early(true)));
    assert!(!(0..20).any(|_| fires_early(false)));
}
