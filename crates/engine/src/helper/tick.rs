//! When the helper looks whether something lasts.

use std::time::Duration;

use fastrack_sys::Timer;

use super::epoch::{is_busy, Epoch};
use super::timer::{Alarm, HelperTimer, Wake, SOON};

/// The longest time until the next look, where few requests last that long, and where hardly any does.
const LONG: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(4);

/// More steps than this from one look to the next are many. A request takes about five.
const MANY_STEPS: u64 = 64;

/// With fewer steps than this, which two requests take, an idle thread is left to set the timer itself.
const FEW_STEPS: u64 = 12;

/// What the helper does while something lasts.
pub(super) trait Work {
    /// Drives the connections, unless the application's thread has made progress since this epoch. Returns when they
    /// need another look, in milliseconds.
    fn drive(&self, since: u64) -> Option<u64>;

    /// Watches the requests of threads other than the one whose progress is seen.
    fn watch(&self) {}

    /// The application's thread has made progress: there is nothing to look at until something lasts again.
    fn rest(&self) {}

    /// Whether another worker might serve who comes while something lasts, as was seen when it last drove.
    fn may_give(&self) -> bool {
        false
    }
}

/// The least time in which the helper sees whether what it found sooner lasts for [`SOON`], in milliseconds.
const CONFIRM: u64 = 1;

/// What is over by then did not last for [`SOON`]; what is over later, because the helper had to wait for a processor, may have.
const SURELY_SHORT: Duration = Duration::from_micros(1_500);

/// What the application's thread has been busy with since this epoch.
struct Lasting {
    since: u64,
    /// When the connections need another look, in milliseconds from the last one.
    next_look: u64,
    /// It has lasted for [`SOON`].
    is_long: bool,
}

pub(super) struct Tick<'a, W, A = Timer> {
    timer: &'a HelperTimer<A>,
    epoch: &'a Epoch,
    work: W,
    /// The epoch at the last look, and the time until the next one.
    before: u64,
    interval: Duration,
    lasting: Option<Lasting>,
}

impl<'a, W: Work, A: Alarm> Tick<'a, W, A> {
    pub fn new(timer: &'a HelperTimer<A>, epoch: &'a Epoch, work: W) -> Self {
        Tick { timer, epoch, work, before: 0, interval: SOON, lasting: None }
    }

    /// How long to wait for an event, in milliseconds; None to wait for the timer alone.
    pub fn next_look(&self) -> Option<u64> {
        self.lasting.as_ref().map(|lasting| {
            if lasting.is_long {
                lasting.next_look
            } else {
                lasting.next_look.min(CONFIRM)
            }
        })
    }

    /// The helper was woken.
    pub fn woken(&mut self, wake: Wake) {
        let timer = self.timer;
        let epoch = self.epoch.read();
        if let Some(lasting) = self.lasting.take() {
            if lasting.since == epoch && wake != Wake::Timer {
                self.lasting =
                    self.drive(epoch, lasting.is_long || wake == Wake::Timeout || timer.lasts() >= SOON);
                if self.lasting.is_some() {
                    return;
                }
            }
            if !lasting.is_long && timer.lasts() < SURELY_SHORT {
                timer.expect_long(false);
            }
            timer.stop_watching();
            self.work.rest();
            if timer.take_if_missing(epoch) {
                (self.before, self.interval) = (epoch, timer.soon());
                return timer.fire_in(self.interval);
            }
        }
        if wake == Wake::Timer {
            if let Some(since) = timer.take(self.before) {
                self.look(epoch, since);
            }
        }
    }

    /// Looks whether the application's thread has been busy with one thing since then, and sets the next look.
    fn look(&mut self, epoch: u64, since: u64) {
        let timer = self.timer;
        let steps = epoch.wrapping_sub(since) / 2;
        self.before = epoch;
        self.work.watch();
        if is_busy(epoch) && steps == 0 {
            let lasting = self.drive(epoch, timer.lasts() >= SOON);
            self.lasting = lasting.filter(|_| timer.watch_connections(self.epoch, epoch));
            if self.lasting.is_none() {
                self.work.rest();
            }
        }
        let few = !is_busy(epoch) && steps < FEW_STEPS;
        if self.lasting.is_some() || few && timer.leave(self.epoch) {
            self.interval = timer.soon();
            return;
        }
        self.interval = (self.interval * 2).min(if steps < MANY_STEPS { LONG } else { LONGEST });
        if self.interval >= SOON {
            timer.expect_long(false);
        }
        timer.fire_in(self.interval);
    }

    /// With something that lasts; for [`SOON`] if it `is_long`, which is what is expected of others then.
    fn drive(&self, since: u64, is_long: bool) -> Option<Lasting> {
        let next_look = self.work.drive(since)?;
        if is_long {
            self.timer.expect_long(self.work.may_give());
        }
        Some(Lasting { since, next_look, is_long })
    }
}

#[cfg(test)]
mod tests {
    use super::super::timer::tests::HandTimer;
    use super::*;
    use std::cell::Cell;

    /// How often it was told to drive and to rest. It has driven unless there was progress.
    #[derive(Default)]
    struct Calls<'a> {
        epoch: Option<&'a Epoch>,
        drives: Cell<u32>,
        rests: Cell<u32>,
        is_alone: bool,
    }

    impl Work for &Calls<'_> {
        fn drive(&self, since: u64) -> Option<u64> {
            self.drives.set(self.drives.get() + 1);
            self.epoch.is_some_and(|epoch| epoch.read() == since).then_some(100)
        }

        fn rest(&self) {
            self.rests.set(self.rests.get() + 1);
        }

        fn may_give(&self) -> bool {
            !self.is_alone
        }
    }

    fn new_timer() -> HelperTimer<HandTimer> {
        HelperTimer::by_hand(std::os::unix::net::UnixStream::pair().expect("a pair").0.into())
    }

    #[test]
    fn the_work_is_told_when_what_lasted_is_over_and_not_before() {
        let (timer, epoch) = (new_timer(), Epoch::default());
        let calls = Calls { epoch: Some(&epoch), ..Calls::default() };
        let mut tick = Tick::new(&timer, &epoch, &calls);
        let since = epoch.set_busy().expect("it was idle");
        tick.look(since, since);
        tick.woken(Wake::Event);
        assert_eq!((calls.drives.get(), calls.rests.get()), (2, 0));
        epoch.advance();
        tick.woken(Wake::Event);
        assert_eq!((calls.drives.get(), calls.rests.get()), (2, 1));
        // What was about to last is over at once.
        let since = epoch.read();
        let calls = Calls::default();
        Tick::new(&timer, &epoch, &calls).look(since, since);
        assert_eq!((calls.drives.get(), calls.rests.get()), (1, 1));
    }

    /// Whether the next request is expected to be long after these. The helper looks at each of them once, when the timer fires;
    /// and again where something wakes it before the request is over.
    fn expects_long(is_alone: bool, requests: &[Option<Wake>]) -> bool {
        let (timer, epoch) = (new_timer(), Epoch::default());
        let calls = Calls { epoch: Some(&epoch), is_alone, ..Calls::default() };
        let mut tick = Tick::new(&timer, &epoch, &calls);
        epoch.set_busy();
        for wake in requests {
            timer.fire_in(timer.soon());
            let since = epoch.advance();
            timer.pass(timer.soon());
            tick.look(since, since);
            if let Some(wake) = wake {
                tick.woken(*wake);
            }
            epoch.advance();
            tick.woken(Wake::Timeout);
        }
        timer.soon() < SOON
    }

    #[test]
    fn requests_are_expected_to_be_long_after_one_that_was_until_one_is_not() {
        assert!(!expects_long(false, &[]));
        assert!(expects_long(false, &[None]) && !expects_long(true, &[None]));
        // Over by the next look.
        assert!(!expects_long(false, &[None, None]));
        // A connection wakes the helper at any time.
        assert!(!expects_long(false, &[None, Some(Wake::Event)]));
        assert!(expects_long(false, &[None, Some(Wake::Timeout)]));
        assert!(expects_long(false, &[None, Some(Wake::Timeout), Some(Wake::Timeout)]));
        assert!(!expects_long(false, &[None, Some(Wake::Timeout), None]));
    }

    /// Whether the next request is expected to be long after one that a connection interrupts when it has lasted for so long, and that is
    /// over when the helper looks again.
    fn expects_long_after(time: Duration, is_over: bool) -> bool {
        let (timer, epoch) = (new_timer(), Epoch::default());
        let calls = Calls { epoch: Some(&epoch), ..Calls::default() };
        let mut tick = Tick::new(&timer, &epoch, &calls);
        epoch.set_busy();
        timer.expect_long(true);
        timer.fire_in(timer.soon());
        let since = epoch.advance();
        tick.look(since, since);
        timer.pass(time);
        if is_over {
            epoch.advance();
        }
        tick.woken(Wake::Event);
        epoch.advance();
        timer.fire_in(timer.soon());
        tick.woken(Wake::Timeout);
        timer.soon() < SOON
    }

    #[test]
    fn a_request_is_known_to_be_long_by_the_clock_where_connections_wake_the_helper_again_and_again() {
        let just_short = Duration::from_micros(1);
        assert!(expects_long_after(SOON, false) && !expects_long_after(SOON - just_short, false));
        // It may have been long: the helper had to wait for a processor.
        assert!(
            expects_long_after(SURELY_SHORT, true) && !expects_long_after(SURELY_SHORT - just_short, true)
        );
    }

    #[test]
    fn what_is_not_known_to_be_long_is_looked_at_again_in_a_millisecond() {
        let (timer, epoch) = (new_timer(), Epoch::default());
        let calls = Calls { epoch: Some(&epoch), ..Calls::default() };
        let mut tick = Tick::new(&timer, &epoch, &calls);
        let looks = [(); 2].map(|()| {
            timer.fire_in(timer.soon());
            epoch.set_idle();
            let since = epoch.set_busy().expect("it was idle");
            timer.pass(timer.soon());
            tick.look(since, since);
            let first = tick.next_look();
            tick.woken(Wake::Timeout);
            (first, tick.next_look())
        });
        assert_eq!(looks, [(Some(100), Some(100)), (Some(CONFIRM), Some(100))]);
    }

    #[test]
    fn where_nothing_lasts_looks_are_ever_rarer_and_nothing_is_expected_any_more() {
        let (timer, epoch, calls) = (new_timer(), Epoch::default(), Calls::default());
        let mut tick = Tick::new(&timer, &epoch, &calls);
        timer.expect_long(true);
        let mut since = epoch.set_busy().expect("it was idle");
        tick.interval = timer.soon();
        let mut look = |steps| {
            let now = (0..steps).map(|_| epoch.advance()).last().expect("some");
            tick.look(now, since);
            since = now;
            timer.fires().expect("it is set").as_micros()
        };
        assert_eq!([(); 6].map(|()| look(1)), [400, 800, 1_600, 2_000, 2_000, 2_000]);
        assert_eq!(timer.soon(), SOON);
        // Where many steps are made, hardly anything lasts.
        assert_eq!([MANY_STEPS - 1, MANY_STEPS, MANY_STEPS].map(look), [2_000, 4_000, 4_000]);
    }

    #[test]
    fn the_helper_keeps_the_timer_while_requests_come_one_after_the_other_and_leaves_it_to_an_idle_thread() {
        for (steps, keeps) in [(FEW_STEPS - 1, None), (FEW_STEPS, Some(SOON * 2))] {
            let (timer, epoch, calls) = (new_timer(), Epoch::default(), Calls::default());
            let mut tick = Tick::new(&timer, &epoch, &calls);
            let since = epoch.set_busy().expect("it was idle");
            timer.woken(since);
            for _ in 1..steps {
                epoch.advance();
            }
            epoch.set_idle();
            epoch.set_busy();
            epoch.set_idle();
            assert_eq!(timer.fires(), Some(SOON));
            tick.woken(Wake::Timer);
            assert_eq!(timer.fires(), keeps, "{steps}");
        }
    }
}
