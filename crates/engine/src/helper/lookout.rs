//! Decides when the helper takes over.

use std::time::Duration;

use fastrack_sys::monotonic_millis;

use super::epoch::is_busy;
use super::shared::Shared;
use super::timer::SOON;
use crate::control::Control;
use crate::watch::Watchdog;

/// The longest time until the next look, where few requests last that long, and where hardly any does.
const LONG: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(4);

/// More steps than this from one look to the next are many. A request takes about five.
const MANY_STEPS: u64 = 64;

/// With fewer steps than this, which two requests take, an idle thread is left to set the timer itself.
const FEW_STEPS: u64 = 12;

/// The longest wait for events while a request lasts, in milliseconds: its time limit may have been changed.
const LONGEST_WAIT: u64 = 100;

/// One thing that the application's thread has been busy with for long.
struct Lasting {
    /// The epoch in which it began.
    since: u64,
    /// When the connections need another look, in milliseconds from the last one.
    next_look: u64,
}

/// What the helper knows about the application's thread.
pub(super) struct Lookout<'a> {
    shared: &'a Shared,
    control: &'a Control,
    watchdog: &'a Watchdog,
    /// The epoch at the last look, and the time until the next one.
    before: u64,
    interval: Duration,
    lasting: Option<Lasting>,
}

impl<'a> Lookout<'a> {
    pub fn new(shared: &'a Shared, control: &'a Control, watchdog: &'a Watchdog) -> Self {
        Lookout { shared, control, watchdog, before: 0, interval: SOON, lasting: None }
    }

    /// How long to wait for an event, in milliseconds; None to wait for the timer alone.
    pub fn next_look(&self) -> Option<u64> {
        self.lasting.as_ref().map(|lasting| lasting.next_look)
    }

    /// The helper was woken; by the timer if that has `fired`.
    pub fn woken(&mut self, fired: bool) {
        let timer = self.shared.timer();
        let epoch = self.shared.epoch().read();
        if let Some(lasting) = self.lasting.take() {
            if lasting.since == epoch && !fired {
                self.lasting = self.drive(epoch);
                if self.lasting.is_some() {
                    return;
                }
            }
            timer.stop_watching();
            if timer.take_if_missing(epoch) {
                (self.before, self.interval) = (epoch, SOON);
                return timer.fire_in(SOON);
            }
        }
        if fired {
            if let Some(since) = timer.take(self.before) {
                self.look(epoch, since);
            }
        }
    }

    /// Looks whether the application's thread has been busy with one thing since then, and sets the next look.
    fn look(&mut self, epoch: u64, since: u64) {
        let timer = self.shared.timer();
        let steps = epoch.wrapping_sub(since) / 2;
        self.before = epoch;
        if is_busy(epoch) && steps == 0 {
            let lasting = self.drive(epoch);
            self.lasting = lasting.filter(|_| timer.watch_connections(self.shared.epoch(), epoch));
        }
        let few = !is_busy(epoch) && steps < FEW_STEPS;
        if self.lasting.is_some() || few && timer.leave(self.shared.epoch()) {
            self.interval = SOON;
            return;
        }
        self.interval = (self.interval * 2).min(if steps < MANY_STEPS { LONG } else { LONGEST });
        timer.fire_in(self.interval);
    }

    /// Drives the connections, unless the application's thread has made progress since this epoch.
    fn drive(&self, since: u64) -> Option<Lasting> {
        let epoch = self.shared.epoch();
        let mut reactor = self.shared.try_reactor()?;
        if epoch.read() != since {
            return None;
        }
        self.shared.note_long_request();
        reactor.drive(&|| epoch.read() != since);
        let request = self.control.request();
        self.watchdog.check(request, || reactor.hand_off_all());
        let next = reactor.next_deadline().unwrap_or(u64::MAX).min(request.deadline());
        let next_look = match reactor.events() {
            0 => next.saturating_sub(monotonic_millis()).clamp(1, LONGEST_WAIT),
            _ => 0,
        };
        Some(Lasting { since, next_look })
    }
}
