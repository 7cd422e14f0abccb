use super::*;
use crate::patience::patience;
use fastrack_sys::monotonic_micros;
use std::io::Write;
use std::os::unix::net::UnixStream;

/// A timer, and what makes its connections and its only listener ready.
fn new() -> (HelperTimer, [UnixStream; 2]) {
    let [(one, connections), (other, listener)] = [(); 2].map(|()| UnixStream::pair().expect("a pair"));
    let timer = HelperTimer::new(connections.into(), vec![Arc::new(listener)]).expect("a timer");
    (timer, [one, other])
}

/// The tokens of what has woken the helper within so many milliseconds.
fn woken(timer: &HelperTimer, millis: u64) -> Vec<u64> {
    let mut events = Events::default();
    assert_eq!(timer.wait(&mut events, Some(millis)), Some(()));
    events.iter().map(|event| event.token).collect()
}

#[test]
fn the_helper_is_woken_by_its_timer_by_a_waker_and_when_the_time_to_wait_is_over() {
    let (timer, _ends) = new();
    let most = patience().as_millis() as u64;
    let start = monotonic_micros();
    timer.set();
    assert_eq!(woken(&timer, most), [Watched::Timer as u64]);
    assert!(monotonic_micros() - start >= FIRST_LOOK * 1_000);
    assert_eq!(woken(&timer, 0), [0; 0]);
    timer.wake_helper();
    assert_eq!(woken(&timer, most), [Watched::Waker as u64]);
    assert_eq!(woken(&timer, 1), [0; 0]);
}

#[test]
fn connections_and_listeners_wake_the_helper_while_they_are_watched() {
    let (timer, mut ends) = new();
    ends.iter_mut().for_each(|end| end.write_all(b"ready").expect("write"));
    let (connections, listener) = (Watched::Connections as u64, Watched::Listener as u64);
    let after = |watches_connections, watches_listeners| {
        timer.watch_connections(watches_connections);
        timer.watch_listeners(watches_listeners);
        let mut tokens = woken(&timer, 0);
        tokens.sort_unstable();
        tokens
    };
    for _ in 0..2 {
        assert_eq!(after(false, false), [0; 0]);
        assert_eq!(after(true, false), [connections]);
        assert_eq!(after(true, true), [connections, listener]);
        assert_eq!(after(true, true), [connections, listener]);
        assert_eq!(after(false, true), [listener]);
    }
    timer.close_listeners();
    assert_eq!(after(false, true), [0; 0]);
}
