use super::*;
use crate::claim::StreamEnd;

fn active(timeout: u64) -> (Scoreboard, ActiveRequest) {
    let board = Scoreboard::new().expect("memory");
    let slot = board.reserve().and_then(|index| board.slot(index));
    let settings = RequestSettings { timeout, slot, ..RequestSettings::default() };
    let seats = Seats::new(&settings, 2).expect("a slot");
    (board, ActiveRequest::new(&seats, 0))
}

fn begin(active: &ActiveRequest) {
    let bytes = b"HEAD /path HTTP/1.1\r\nHost: h\r\nX-Request-ID: 7\r\n\r\n";
    let mut head = Head::default();
    head.parse(bytes, fastrack_http::Limits::default()).expect("a good head");
    active.begin(7, &head, bytes);
}

/// The deadlines that are possible if one was set between `before` and now, for `millis` milliseconds.
fn limits(millis: u64, before: u64) -> std::ops::RangeInclusive<u64> {
    before + millis..=monotonic_millis() + millis
}

#[test]
fn a_request_that_is_overdue_is_seized_once_and_not_before() {
    let (board, active) = active(1000);
    let now = monotonic_millis();
    assert_eq!((active.seize_overdue(NEVER), active.deadline()), (None, NEVER));
    begin(&active);
    assert!(limits(1000, now).contains(&active.deadline()));
    assert_eq!(active.seize_overdue(active.deadline() - 1), None);
    let later = active.deadline() + 500;
    assert_eq!(active.seize_overdue(later), Some(Claim::Open));
    assert_eq!(active.seize_overdue(later), None);
    assert!(!active.claim_response() && active.is_head_request());
    assert_eq!(board.read(0).expect("an entry").state, State::Ending);
    let text = active.describe(later);
    assert!(text.starts_with("HEAD /path has taken 1.5") && text.ends_with("request id 7"), "{text}");
}

#[test]
fn a_request_can_be_seized_before_its_deadline() {
    let (board, active) = active(0);
    assert_eq!(active.seize(), None);
    begin(&active);
    assert_eq!((active.seize(), active.seize()), (Some(Claim::Open), None));
    assert!(!active.claim_response());
    assert_eq!(board.read(0).expect("an entry").state, State::Serving);
}

#[test]
fn the_first_to_answer_has_the_client() {
    let (_board, active) = active(1000);
    begin(&active);
    assert!(active.claim_response());
    assert_eq!(active.seize_overdue(NEVER - 1), Some(Claim::Begun));
    assert!(!active.change(Claim::None));
}

#[test]
fn a_complete_response_is_distinguished_from_a_partial_one() {
    let (_board, active) = active(1000);
    begin(&active);
    assert!(active.claim_response());
    active.set_complete();
    assert!(active.end());
    begin(&active);
    assert!(active.claim_response());
    let part = active.claim.load(Ordering::SeqCst);
    assert_eq!(active.seize_overdue(NEVER - 1), Some(Claim::Begun));
    // The helper has seized the request already.
    active.set_complete();
    assert!(active.is_seized());
    active.claim.store(part, Ordering::SeqCst);
    active.set_complete();
    assert_eq!(active.seize_overdue(NEVER - 1), Some(Claim::Complete));
}

#[test]
fn one_request_is_not_seized_for_another() {
    let (_board, active) = active(1000);
    begin(&active);
    let first = active.claim.load(Ordering::SeqCst);
    assert!(active.claim_response());
    active.end();
    assert_eq!(active.seize_overdue(NEVER - 1), None);
    begin(&active);
    assert_ne!(active.claim.load(Ordering::SeqCst), first);
    assert_eq!(Claim::of(first), Claim::Open);
}

#[test]
fn callbacks_have_a_time_limit_of_their_own_and_no_client() {
    let (board, active) = active(1000);
    begin(&active);
    active.end();
    let before = monotonic_millis();
    active.begin_callbacks();
    let entry = board.read(0).expect("an entry");
    assert_eq!((entry.state, entry.in_callbacks, entry.requests), (State::Serving, true, 1));
    assert!(limits(1000, before).contains(&active.deadline()) && active.fd() == NO_FD);
    active.end_callbacks();
    assert_eq!((active.seize_overdue(NEVER - 1), active.deadline()), (None, NEVER));
    assert_eq!(board.read(0).map(|entry| (entry.state, entry.requests)), Some((State::Waiting, 1)));
    active.begin_callbacks();
    let later = active.deadline();
    assert_eq!(active.seize_overdue(later), Some(Claim::Complete));
    let text = active.describe(later);
    assert!(
        text.starts_with("callbacks of HEAD /path have taken 1.0") && text.ends_with("request id 7"),
        "{text}"
    );
}

#[test]
fn waiting_for_the_client_does_not_count() {
    let (board, active) = active(1_000_000);
    begin(&active);
    let (before, start) = (active.deadline(), monotonic_millis());
    active.while_stopped(|| {
        fastrack_sys::sleep(30);
        assert_eq!(
            (active.seize_overdue(NEVER - 1), board.read(0).expect("an entry").deadline),
            (None, None)
        );
    });
    let stopped = active.deadline() - before;
    assert!((20..=monotonic_millis() - start).contains(&stopped), "{stopped}");
}

#[test]
fn a_limit_that_is_set_while_the_client_is_waited_for_counts_from_then_on() {
    let (_board, active) = active(1000);
    begin(&active);
    for millis in [60_000, 0, 2_000] {
        let start = monotonic_millis();
        active.while_stopped(|| {
            active.allow(millis);
            assert_eq!(active.deadline(), NEVER);
        });
        let expected = if millis == 0 { NEVER..=NEVER } else { limits(millis, start) };
        assert!(expected.contains(&active.deadline()), "{millis}");
    }
}

#[test]
fn an_application_sets_its_own_limit() {
    let (_board, active) = active(0);
    active.allow(50);
    assert_eq!(active.deadline(), NEVER);
    begin(&active);
    assert_eq!(active.deadline(), NEVER);
    let before = monotonic_millis();
    active.allow(50);
    assert!(limits(50, before).contains(&active.deadline()));
    active.allow(0);
    assert_eq!(active.deadline(), NEVER);
}

#[test]
fn each_request_is_found_slow_once_and_streams_and_callbacks_are_not() {
    let (_board, active) = active(0);
    assert!(!active.note_slow(NEVER - 1, 50));
    for _ in 0..2 {
        begin(&active);
        let due = active.started() + 50;
        assert_eq!([due - 1, due, due + 9_000].map(|now| active.note_slow(now, 50)), [false, true, false]);
        assert!(active.claim_response() && active.end());
    }
    active.begin_callbacks();
    assert!(!active.note_slow(NEVER - 1, 50));
    active.end_callbacks();
    let due = follows(&active);
    assert_eq!(active.begin_stream(due), Some(true));
    assert!(!active.note_slow(NEVER - 1, 50));
}

/// A request whose head has left, and whose body has no known end; and a time at which it is due to be a stream.
fn follows(active: &ActiveRequest) -> u64 {
    begin(active);
    assert!(active.claim_response());
    let now = monotonic_millis();
    active.set_follows(now, false);
    now + stream::STREAM_AFTER
}

#[test]
fn a_response_becomes_a_stream_when_more_of_it_has_followed_for_a_time() {
    let (board, active) = active(1000);
    begin(&active);
    assert_eq!(active.begin_stream(NEVER - 1), Some(false), "nothing has left");
    assert!(active.claim_response());
    assert_eq!(active.begin_stream(NEVER - 1), Some(false), "its length is known");
    active.end();
    let due = follows(&active);
    assert_eq!((active.begin_stream(due - 1), active.is_stream()), (None, false));
    assert_eq!(
        (active.begin_stream(due), active.begin_stream(due), active.is_stream()),
        (Some(true), Some(false), true)
    );
    // The seat is free, and other threads may use it.
    let entry = board.read(0).expect("an entry");
    assert_eq!((entry.state, entry.requests, active.deadline()), (State::Waiting, 2, NEVER));
    assert!(active.describe(due).starts_with("HEAD /path has taken"));
    assert_eq!(active.began_stream(), Some(due));
    assert!(active.end() && active.is_stream(), "until the thread's next request");
    active.set_seat(1);
    begin(&active);
    assert!(!active.is_stream() && active.end());
}

#[test]
fn a_response_that_is_complete_seized_or_waits_for_its_client_does_not_become_a_stream() {
    let (_board, active) = active(1000);
    let due = follows(&active);
    active.while_stopped(|| assert_eq!(active.begin_stream(due), None));
    active.set_complete();
    assert_eq!(active.begin_stream(due), Some(false));
    active.end();
    assert_eq!(active.begin_stream(due), Some(false));
    let due = follows(&active);
    assert_eq!(active.seize(), Some(Claim::Begun));
    assert_eq!(active.begin_stream(due), Some(false));
}

#[test]
fn a_stream_has_the_time_limit_of_streams_unless_the_application_sets_one() {
    let board = Scoreboard::new().expect("memory");
    let slot = board.reserve().and_then(|index| board.slot(index));
    let settings =
        RequestSettings { timeout: 1000, stream_timeout: 5000, slot, ..RequestSettings::default() };
    let active = ActiveRequest::new(&Seats::new(&settings, 1).expect("a slot"), 0);
    let due = follows(&active);
    assert_eq!((active.begin_stream(due), active.stream_end(due + 4999)), (Some(true), None));
    assert_eq!(active.stream_end(due + 5000), Some(StreamEnd::Timeout));
    // The application has some more time to end the stream.
    assert!(active.deadline() > due + 5000);
    let before = monotonic_millis();
    active.allow(70_000);
    assert!(limits(70_000, before).contains(&active.deadline()));
    assert_eq!(active.seize_overdue(NEVER - 1), Some(Claim::Begun));
    let active = ActiveRequest::new(&Seats::new(&settings, 1).expect("a slot"), 0);
    let due = follows(&active);
    let before = monotonic_millis();
    active.allow(20);
    let deadline = active.deadline();
    assert_eq!((active.begin_stream(due), active.deadline()), (Some(true), deadline));
    assert!(limits(20, before).contains(&deadline));
}

#[test]
fn a_request_that_mostly_waits_holds_no_seat_and_keeps_its_time_limit_until_its_head_has_left() {
    let (_board, active) = active(1000);
    begin(&active);
    active.set_io_bound();
    let deadline = active.deadline();
    assert_eq!((active.begin_stream(0), active.deadline()), (Some(true), deadline));
    assert_eq!(active.began_stream(), None);
    assert!(active.claim_response());
    active.set_follows(deadline - 1, false);
    assert_eq!(active.deadline(), NEVER);
}

#[test]
fn the_end_of_a_response_and_its_becoming_a_stream_exclude_each_other() {
    for round in 0..300 {
        let (board, active) = active(1000);
        let due = follows(&active);
        let became = std::thread::scope(|scope| {
            let became = scope.spawn(|| {
                (0..round % 50).for_each(|_| std::hint::spin_loop());
                active.begin_stream(due) == Some(true)
            });
            assert!(active.end());
            became.join().expect("no panic")
        });
        assert_eq!(active.is_stream(), became);
        assert_eq!(board.read(0).map(|entry| (entry.state, entry.requests)), Some((State::Waiting, 1)));
    }
}
