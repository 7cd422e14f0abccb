//! The listeners among what the helper watches. Only while something lasts and all workers are busy.
//!
//! Not with EPOLLEXCLUSIVE: if the kernel woke this helper alone, and its worker was about to stop, nobody would tell a worker
//! that has become idle since.

use std::fmt::Debug;
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError};

use fastrack_sys::Poller;

use crate::sync::Mutex;

/// The poller's token of the first one.
const FIRST: u64 = 3;

pub(crate) trait Source: AsFd + Debug + Send + Sync {}
impl<T: AsFd + Debug + Send + Sync> Source for T {}

#[derive(Debug)]
pub(super) struct Listening(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    sources: Vec<Arc<dyn Source>>,
    /// The helper would accept clients.
    wanted: bool,
    watched: bool,
}

impl Listening {
    pub fn new<S: Source + 'static>(sources: Vec<Arc<S>>) -> Self {
        let sources = sources.into_iter().map(|source| -> Arc<dyn Source> { source }).collect();
        Listening(Mutex::new(State { sources, ..State::default() }))
    }

    pub fn set_wanted(&self, wanted: bool, poller: &Poller, is_watching: &dyn Fn() -> bool) {
        self.change(poller, |state| {
            state.wanted = wanted;
            wanted && is_watching()
        });
    }

    /// The helper begins or ends to watch, as `is_watching` says. Both threads may be about to change that, so it is asked
    /// under the lock: the last one here knows how it ends.
    pub fn update(&self, poller: &Poller, is_watching: &dyn Fn() -> bool) {
        self.change(poller, |state| state.wanted && is_watching());
    }

    /// Lets go of the listeners, which are about to be closed.
    pub fn close(&self, poller: &Poller) {
        self.change(poller, |_| false);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sources.clear();
    }

    fn change(&self, poller: &Poller, watched: impl FnOnce(&mut State) -> bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = watched(&mut state);
        if std::mem::replace(&mut state.watched, watched) == watched {
            return;
        }
        for (source, token) in state.sources.iter().zip(FIRST..) {
            // They cannot fail; and if they did, clients would wait in the backlog.
            let _ = match watched {
                true => poller.add(source.as_fd(), token),
                false => poller.remove(source.as_fd()),
            };
        }
    }
}
