//! Stands for the kernel and for fastrack_sys.

use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use loom::sync::{Arc, Condvar, Mutex};

/// A timer that is set fires at any later time.
#[derive(Debug, Default)]
pub struct Timer(Arc<Mutex<bool>>);

impl Timer {
    pub fn new() -> io::Result<Self> {
        Ok(Timer::default())
    }

    pub fn set(&self, _time: Duration) -> io::Result<()> {
        *self.0.lock().expect("no panic") = true;
        Ok(())
    }

    pub fn stop(&self) -> io::Result<()> {
        *self.0.lock().expect("no panic") = false;
        Ok(())
    }

    pub fn raw_fds(&self) -> std::iter::Empty<i32> {
        std::iter::empty()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Waker(Arc<(Mutex<bool>, Condvar)>);

impl Waker {
    pub fn new() -> io::Result<Self> {
        Ok(Waker::default())
    }

    pub fn call(&self) {
        *self.0 .0.lock().expect("no panic") = true;
        self.0 .1.notify_one();
    }

    fn wait(&self) {
        let mut called = self.0 .0.lock().expect("no panic");
        while !std::mem::take(&mut *called) {
            called = self.0 .1.wait(called).expect("no panic");
        }
    }

    pub fn raw_fds(&self) -> std::iter::Empty<i32> {
        std::iter::empty()
    }
}

pub struct Event {
    pub token: u64,
    pub ended: bool,
}

#[derive(Default)]
pub struct Events(Option<u64>);

impl Events {
    pub fn iter(&self) -> impl Iterator<Item = Event> {
        self.0.map(|token| Event { token, ended: false }).into_iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// Whatever a poller watches.
pub trait Watch {
    fn waker(&self) -> Option<Waker> {
        None
    }
}

impl Watch for &Waker {
    fn waker(&self) -> Option<Waker> {
        Some((*self).clone())
    }
}

impl<T: AsFd> Watch for T {}

#[derive(Debug, Default)]
pub struct Poller {
    timer: OnceLock<(Arc<Mutex<bool>>, u64)>,
    waker: OnceLock<Waker>,
}

impl Poller {
    pub fn new() -> io::Result<Self> {
        Ok(Poller::default())
    }

    pub fn watch_timer(&self, timer: &Timer, token: u64) -> io::Result<()> {
        self.timer.set((Arc::clone(&timer.0), token)).expect("one timer");
        Ok(())
    }

    /// The model has no descriptor that is watched.
    pub fn watch(&self, source: impl Watch, _token: u64) -> io::Result<()> {
        if let Some(waker) = source.waker() {
            self.waker.set(waker).expect("one waker");
        }
        Ok(())
    }

    pub fn add<T>(&self, _source: T, _token: u64) -> io::Result<()> {
        Ok(())
    }

    pub fn remove<T>(&self, _source: T) -> io::Result<()> {
        Ok(())
    }

    pub fn set_wanted<T>(&self, _source: &T, _token: u64, _wanted: bool) -> io::Result<()> {
        Ok(())
    }

    /// Does not wait for the timer, because the helper's loop asks again.
    pub fn wait(&self, events: &mut Events, _millis: Option<u64>) -> io::Result<()> {
        let fires = |set: &Mutex<bool>| std::mem::take(&mut *set.lock().expect("no panic"));
        events.0 = match (self.timer.get(), self.waker.get()) {
            (Some((set, token)), _) => fires(set).then_some(*token),
            (None, Some(waker)) => {
                waker.wait();
                None
            }
            (None, None) => None,
        };
        Ok(())
    }

    pub fn inherited_fds(&self) -> std::iter::Empty<i32> {
        std::iter::empty()
    }
}

pub fn monotonic_micros() -> u64 {
    0
}

pub fn sleep(_millis: u64) {}

pub fn is_lost_fd(_error: &io::Error) -> bool {
    false
}
