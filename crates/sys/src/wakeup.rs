//! Timers and wakers, which end a [`Poller::wait`](crate::Poller::wait).

#[cfg(not(portable))]
mod linux;
#[cfg(not(portable))]
pub use linux::{Timer, Waker};

#[cfg(portable)]
mod portable;
#[cfg(portable)]
pub(crate) use portable::Alarm;
#[cfg(portable)]
pub use portable::{Timer, Waker};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::patience;
    use crate::{Events, Poller};
    use std::time::{Duration, Instant};

    fn timed() -> (Poller, Timer, Events) {
        let (poller, timer) = (Poller::new().expect("a poller"), Timer::new().expect("a timer"));
        poller.watch_timer(&timer, 1).expect("watch");
        (poller, timer, Events::default())
    }

    #[test]
    fn a_timer_expires_once_and_not_after_it_was_stopped() {
        let (poller, timer, mut events) = timed();
        for _ in 0..2 {
            let start = Instant::now();
            timer.set(Duration::from_millis(20)).expect("set");
            poller.wait(&mut events, Some(patience().as_millis() as u64)).expect("wait");
            assert!(!events.is_empty() && start.elapsed() >= Duration::from_millis(20));
            poller.wait(&mut events, Some(0)).expect("wait");
            assert!(events.is_empty());
        }
        timer.set(Duration::from_millis(1)).expect("set");
        timer.stop().expect("stop");
        poller.wait(&mut events, Some(20)).expect("wait");
        assert!(events.is_empty());
    }

    #[test]
    fn a_timer_that_another_thread_sets_ends_a_wait_without_a_limit() {
        let (poller, timer, mut events) = timed();
        for round in 0..200 {
            // The other thread sets an earlier time at any moment of the wait.
            let pause = Duration::from_micros(round * 7 % 100);
            std::thread::scope(|scope| {
                timer.set(Duration::from_secs(3600)).expect("set");
                scope.spawn(|| {
                    std::thread::sleep(pause);
                    timer.set(Duration::from_micros(1)).expect("set");
                });
                while events.is_empty() {
                    poller.wait(&mut events, None).expect("wait");
                }
            });
            events.clear();
        }
    }

    #[test]
    fn a_called_waker_wakes_once_even_if_called_before_the_wait() {
        let (poller, waker) = (Poller::new().expect("a poller"), Waker::new().expect("a waker"));
        poller.watch(&waker, 1).expect("watch");
        let mut events = Events::default();
        for calls in [0, 1, 0, 2, 0, 10_000, 1, 0] {
            (0..calls).for_each(|_| waker.call());
            poller.wait(&mut events, Some(0)).expect("wait");
            assert_eq!(events.iter().count(), calls.min(1));
        }
    }
}
