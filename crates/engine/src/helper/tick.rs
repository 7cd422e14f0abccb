//! When the helper looks whether something lasts.

use std::time::Duration;

use fastrack_sys::Timer;

use super::timer::{Alarm, HelperTimer, Wake, SOON};
use crate::admission::{is_busy, Baton};

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
}

/// What the application's thread has been busy with since this epoch.
struct Lasting {
    since: u64,
    /// When the connections need another look, in milliseconds from the last one.
    next_look: u64,
}

pub(super) struct Tick<'a, W, A = Timer> {
    timer: &'a HelperTimer<A>,
    baton: &'a Baton,
    work: W,
    /// The epoch at the last look, and the time until the next one.
    before: u64,
    interval: Duration,
    lasting: Option<Lasting>,
}

impl<'a, W: Work, A: Alarm> Tick<'a, W, A> {
    pub fn new(timer: &'a HelperTimer<A>, baton: &'a Baton, work: W) -> Self {
        Tick { timer, baton, work, before: 0, interval: SOON, lasting: None }
    }

    /// How long to wait for an event, in milliseconds; None to wait for the timer alone.
    pub fn next_look(&self) -> Option<u64> {
        self.lasting.as_ref().map(|lasting| lasting.next_look)
    }

    /// The helper was woken.
    pub fn woken(&mut self, wake: Wake) {
        let timer = self.timer;
        let epoch = self.baton.epoch();
        if let Some(lasting) = self.lasting.take() {
            if lasting.since == epoch && wake != Wake::Timer {
                self.lasting = self.drive(epoch);
                if self.lasting.is_some() {
                    return;
                }
            }
            timer.stop_watching();
            self.work.rest();
            if timer.take_if_missing(epoch) {
                (self.before, self.interval) = (epoch, SOON);
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
            let lasting = self.drive(epoch);
            self.lasting = lasting.filter(|_| timer.watch_connections(self.baton, epoch));
            if self.lasting.is_none() {
                self.work.rest();
            }
        }
        let few = !is_busy(epoch) && steps < FEW_STEPS;
        if self.lasting.is_some() || few && timer.leave(self.baton) {
            self.interval = SOON;
            return;
        }
        self.interval = (self.interval * 2).min(if steps < MANY_STEPS { LONG } else { LONGEST });
        timer.fire_in(self.interval);
    }

    fn drive(&self, since: u64) -> Option<Lasting> {
        let next_look = self.work.drive(since)?;
        Some(Lasting { since, next_look })
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
        baton: Option<&'a Baton>,
        drives: Cell<u32>,
        rests: Cell<u32>,
    }

    impl Work for &Calls<'_> {
        fn drive(&self, since: u64) -> Option<u64> {
            self.drives.set(self.drives.get() + 1);
            self.baton.is_some_and(|baton| baton.epoch() == since).then_some(100)
        }

        fn rest(&self) {
            self.rests.set(self.rests.get() + 1);
        }
    }

    fn new_timer() -> HelperTimer<HandTimer> {
        HelperTimer::by_hand(std::os::unix::net::UnixStream::pair().expect("a pair").0.into())
    }

    #[test]
    fn the_work_is_told_when_what_lasted_is_over_and_not_before() {
        let (timer, baton) = (new_timer(), Baton::default());
        let calls = Calls { baton: Some(&baton), ..Calls::default() };
        let mut tick = Tick::new(&timer, &baton, &calls);
        let since = baton.set_busy().expect("it was idle");
        tick.look(since, since);
        tick.woken(Wake::Event);
        assert_eq!((calls.drives.get(), calls.rests.get()), (2, 0));
        baton.step();
        tick.woken(Wake::Event);
        assert_eq!((calls.drives.get(), calls.rests.get()), (2, 1));
        // What was about to last is over at once.
        let since = baton.epoch();
        let calls = Calls::default();
        Tick::new(&timer, &baton, &calls).look(since, since);
        assert_eq!((calls.drives.get(), calls.rests.get()), (1, 1));
    }

    #[test]
    fn where_nothing_lasts_looks_are_ever_rarer() {
        let (timer, baton, calls) = (new_timer(), Baton::default(), Calls::default());
        let mut tick = Tick::new(&timer, &baton, &calls);
        let mut since = baton.set_busy().expect("it was idle");
        tick.interval = SOON / 4;
        let mut look = |steps| {
            let now = (0..steps).map(|_| baton.step()).last().expect("some");
            tick.look(now, since);
            since = now;
            timer.fires().expect("it is set").as_micros()
        };
        assert_eq!([(); 6].map(|()| look(1)), [500, 1_000, 2_000, 2_000, 2_000, 2_000]);
        // Where many steps are made, hardly anything lasts.
        assert_eq!([MANY_STEPS - 1, MANY_STEPS, MANY_STEPS].map(look), [2_000, 4_000, 4_000]);
    }

    #[test]
    fn the_helper_keeps_the_timer_while_requests_come_one_after_the_other_and_leaves_it_to_an_idle_thread() {
        for (steps, keeps) in [(FEW_STEPS - 1, None), (FEW_STEPS, Some(SOON * 2))] {
            let (timer, baton, calls) = (new_timer(), Baton::default(), Calls::default());
            let mut tick = Tick::new(&timer, &baton, &calls);
            let since = baton.set_busy().expect("it was idle");
            timer.woken(since);
            for _ in 1..steps {
                baton.step();
            }
            baton.set_idle();
            baton.set_busy();
            baton.set_idle();
            assert_eq!(timer.fires(), Some(SOON));
            tick.woken(Wake::Timer);
            assert_eq!(timer.fires(), keeps, "{steps}");
        }
    }
}
