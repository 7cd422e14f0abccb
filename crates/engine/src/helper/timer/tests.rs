use super::*;
use crate::patience::patience;
use fastrack_sys::monotonic_micros;
use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixStream;

/// Shows what it was set to.
#[derive(Default)]
pub(in crate::helper) struct HandTimer {
    due: Cell<Option<Duration>>,
}

impl Alarm for HandTimer {
    fn set(&self, time: Duration) {
        self.due.set(Some(time));
    }

    fn stop(&self) {
        self.due.set(None);
    }
}

impl HelperTimer<HandTimer> {
    pub(in crate::helper) fn by_hand(connections: OwnedFd) -> Self {
        let poller = Poller::new().expect("a poller");
        HelperTimer::of(HandTimer::default(), poller, connections, None).expect("a timer")
    }

    /// The time that the timer is set to, if it is. Then it fires.
    pub(in crate::helper) fn fires(&self) -> Option<Duration> {
        self.timer.due.take()
    }
}

/// A timer, a baton, and what makes the connections ready.
fn new() -> (HelperTimer<HandTimer>, Baton, UnixStream) {
    let (near, far) = UnixStream::pair().expect("a pair");
    (HelperTimer::by_hand(far.into()), Baton::default(), near)
}

/// The application's thread is woken, and has a request.
fn begin(timer: &HelperTimer<impl Alarm>, baton: &Baton) -> u64 {
    timer.woken(baton.set_busy().expect("it was idle"));
    // Whatever else there is comes first.
    timer.begin(baton.step(), false);
    let number = baton.step();
    timer.begin(number, true);
    number
}

fn rest(timer: &HelperTimer<impl Alarm>, baton: &Baton) {
    baton.set_idle();
    timer.idle();
}

#[test]
fn the_helper_is_woken_by_the_timer_by_a_waker_and_when_the_time_to_wait_is_over() {
    let (_near, far) = UnixStream::pair().expect("a pair");
    let timer = HelperTimer::new::<OwnedFd>(far.into(), Vec::new()).expect("a timer");
    let most = patience().as_millis() as u64;
    let mut events = Events::default();
    let start = monotonic_micros();
    timer.fire_in(SOON);
    assert_eq!(timer.wait(&mut events, Some(most)), Some(Wake::Timer));
    assert!(monotonic_micros() - start >= SOON.as_micros() as u64);
    assert_eq!(timer.wait(&mut events, Some(0)), Some(Wake::Timeout));
    timer.wake_helper();
    assert_eq!(timer.wait(&mut events, Some(most)), Some(Wake::Event));
    assert_eq!(timer.wait(&mut events, Some(1)), Some(Wake::Timeout));
}

#[test]
fn short_requests_do_not_wake_the_helper_and_long_ones_do() {
    let (timer, baton, _near) = new();
    begin(&timer, &baton);
    rest(&timer, &baton);
    assert_eq!((timer.fires(), timer.take(0)), (None, None));
    let number = begin(&timer, &baton);
    assert_eq!((timer.fires(), timer.take(0)), (Some(SOON), Some(number)));
    // From here on the helper counts.
    assert_eq!(timer.take(7), Some(7));
}

#[test]
fn many_short_requests_are_shown_to_the_helper() {
    let (timer, baton, _near) = new();
    for number in 0..STOPS {
        begin(&timer, &baton);
        rest(&timer, &baton);
        assert_eq!(timer.timer.due.get(), None, "{number}");
    }
    for _ in 0..3 {
        begin(&timer, &baton);
        rest(&timer, &baton);
        assert_eq!(timer.timer.due.get(), Some(SOON));
    }
    assert!(timer.fires().is_some() && timer.take(0).is_some());
    assert!(timer.leave(&baton));
    begin(&timer, &baton);
    rest(&timer, &baton);
    assert_eq!(timer.fires(), None);
}

#[test]
fn waking_up_may_take_long_too() {
    let (timer, baton, _near) = new();
    let number = baton.set_busy().expect("it was idle");
    timer.woken(number);
    assert_eq!((timer.fires(), timer.take(0)), (Some(SOON), Some(number)));
}

#[test]
fn a_timer_kept_by_the_helper_is_not_set_by_the_other_thread() {
    let (timer, baton, _near) = new();
    begin(&timer, &baton);
    assert!(timer.fires().is_some() && timer.take(0).is_some());
    rest(&timer, &baton);
    begin(&timer, &baton);
    assert_eq!(timer.fires(), None);
    timer.fire_in(SOON);
    rest(&timer, &baton);
    assert_eq!(timer.fires(), Some(SOON));
}

#[test]
fn the_helper_leaves_the_timer_only_to_an_idle_thread() {
    let (timer, baton, _near) = new();
    begin(&timer, &baton);
    assert!(timer.fires().is_some() && timer.take(0).is_some());
    assert!(!timer.leave(&baton) && timer.take(3) == Some(3));
    rest(&timer, &baton);
    assert!(timer.leave(&baton) && timer.take(3).is_none());
    begin(&timer, &baton);
    assert_eq!(timer.fires(), Some(SOON));
}

#[test]
fn connections_wake_the_helper_while_a_request_lasts() {
    let (timer, baton, mut near) = new();
    near.write_all(b"ready").expect("write");
    let mut events = Events::default();
    let mut is_woken = || {
        let wake = timer.wait(&mut events, Some(0));
        assert_eq!(wake, Some(if events.is_empty() { Wake::Timeout } else { Wake::Event }));
        events.iter().any(|event| event.token == Watched::Connections as u64)
    };
    assert!(!is_woken());
    for _ in 0..2 {
        // Each has a timer of its own.
        let number = if is_busy(baton.epoch()) { baton.step() } else { baton.set_busy().expect("idle") };
        timer.begin(number, true);
        assert_eq!((timer.fires(), timer.take(0)), (Some(SOON), Some(number)));
        assert!(!is_woken());
        assert!(timer.watch_connections(&baton, number) && is_woken());
    }
    rest(&timer, &baton);
    assert!(!is_woken());
}

#[test]
fn a_request_that_ends_at_that_moment_is_not_watched_and_the_next_is_not_missed() {
    let (timer, baton, mut near) = new();
    near.write_all(b"ready").expect("write");
    let number = begin(&timer, &baton);
    assert!(timer.fires().is_some() && timer.take(0).is_some());
    let next = baton.step();
    assert!(!timer.watch_connections(&baton, number));
    assert_eq!(timer.wait(&mut Events::default(), Some(0)), Some(Wake::Timeout));
    assert_eq!(timer.take(next), Some(next));
    // As if that thread had gone on without seeing that it has to set the timer.
    assert!(timer.watch_connections(&baton, next));
    let last = baton.step();
    timer.stop_watching();
    assert!(timer.take_if_missing(last) && timer.take(last) == Some(last));
    assert!(!timer.take_if_missing(last));
}
