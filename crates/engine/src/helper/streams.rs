//! Streams, as the helper serves them: the helper begins streams, sends buffered output to slow clients, and ends streams at their time
//! limit.

use fastrack_sys::monotonic_millis;

use crate::control::Control;
use crate::reactor::Reactor;
use crate::scoreboard::Count;
use crate::shared::Shared;

/// Interval of looks at each stream, in milliseconds. A client that leaves is noticed within this time.
const LOOK_INTERVAL: u64 = 250;

/// The same interval while a client has not taken all that was sent.
const UNSENT_LOOK_INTERVAL: u64 = 20;

/// Time until the next try of a look that another thread has prevented, in milliseconds.
const LOOK_RETRY: u64 = 2;

/// Time until a response may be due to become a stream, in milliseconds.
const DUE_RETRY: u64 = 2;

/// Makes streams of the responses that are due, as many as there is room for. Returns the time until the next look, in milliseconds;
/// `u64::MAX` if no response may become a stream.
pub(super) fn begin_streams(shared: &Shared, control: &Control, reactor: &mut Reactor) -> u64 {
    if !shared.app_threads().spares_main() {
        return u64::MAX;
    }
    let (now, mut next) = (monotonic_millis(), u64::MAX);
    for seat in 0..reactor.threads.seats().len() {
        let Some(number) = reactor.threads.seats()[seat] else { continue };
        if !reactor.threads.streams.has_room() {
            break;
        }
        match control.request_of(number).begin_stream(now) {
            Some(false) => {}
            None => next = DUE_RETRY,
            Some(true) => {
                shared.app_threads().begin_stream(&mut reactor.threads, seat, number);
                control.counters().add(Count::Streams, 1);
                control.set_streams(reactor.threads.streams.threads().len());
            }
        }
    }
    next
}

/// The looks at all streams.
pub(super) struct StreamRounds<'a> {
    shared: &'a Shared,
    control: &'a Control,
    /// When the next look is due, in milliseconds of the monotonic clock.
    due: u64,
}

impl<'a> StreamRounds<'a> {
    pub fn new(shared: &'a Shared, control: &'a Control) -> Self {
        StreamRounds { shared, control, due: 0 }
    }

    /// Time until the next look, in milliseconds. None without streams.
    pub fn wait(&self) -> Option<u64> {
        (self.control.streams() > 0).then(|| self.due.saturating_sub(monotonic_millis()).max(1))
    }

    pub fn look(&mut self) {
        if self.control.streams() == 0 {
            return;
        }
        let now = monotonic_millis();
        if now >= self.due {
            self.due = now + self.go_round().unwrap_or(LOOK_RETRY);
        }
    }

    /// Looks at all streams. Returns the time until the next look; None if another thread has the reactor, or the application forks.
    fn go_round(&self) -> Option<u64> {
        let StreamRounds { shared, control, .. } = self;
        let _driving = shared.baton().drive()?;
        let mut reactor = shared.try_reactor()?;
        let (now, mut over, mut is_any_unsent) = (monotonic_millis(), Vec::new(), false);
        for number in reactor.threads.streams.threads() {
            let request = control.request_of(*number);
            is_any_unsent |= request.flush_lent();
            if request.stream_end(now).is_some() {
                over.push(*number);
            }
        }
        shared.app_threads().interrupt(&mut reactor.threads, over);
        shared.app_threads().order_missing(&mut reactor.threads);
        Some(if is_any_unsent { UNSENT_LOOK_INTERVAL } else { LOOK_INTERVAL })
    }
}
