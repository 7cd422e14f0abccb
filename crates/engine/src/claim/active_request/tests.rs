use super::*;

fn active(timeout: u64) -> (Scoreboard, ActiveRequest) {
    let board = Scoreboard::new().expect("memory");
    let slot = board.reserve().and_then(|index| board.slot(index));
    let settings = RequestSettings { timeout, slot, ..RequestSettings::default() };
    let active = ActiveRequest::for_threads(&settings, 1).expect("a slot");
    (board, active.into_vec().pop().and_then(Arc::into_inner).expect("one"))
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
    // Too late.
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
