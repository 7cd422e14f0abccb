//! The listeners among what the helper watches. Only while something lasts and all workers are busy.
//!
//! Not with EPOLLEXCLUSIVE: if the kernel woke this helper alone, and its worker was about to stop, nobody would tell a worker
//! that has become idle since.

use std::fmt::Debug;
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError};

use fastrack_sys::Poller;

use crate::sync::{Mutex, MutexGuard};

pub(crate) trait Source: AsFd + Debug + Send + Sync {}
impl<T: AsFd + Debug + Send + Sync> Source for T {}

#[derive(Debug)]
pub(super) struct Listening(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    sources: Vec<Arc<dyn Source>>,
    /// The poller's token of the first one.
    first: u64,
    /// The helper would accept clients.
    wanted: bool,
    watched: bool,
}

impl Listening {
    /// In the poller they have this token and those after it.
    pub fn new<S: Source + 'static>(sources: Vec<Arc<S>>, first: u64) -> Self {
        let sources = sources.into_iter().map(|source| -> Arc<dyn Source> { source }).collect();
        Listening(Mutex::new(State { sources, first, ..State::default() }))
    }

    pub fn set_wanted(&self, wanted: bool, poller: &Poller, is_watching: &dyn Fn() -> bool) {
        let mut state = self.state();
        state.wanted = wanted;
        let watched = wanted && is_watching();
        state.watch(poller, watched);
    }

    /// The helper begins or ends to watch, as `is_watching` says. Both threads may be about to change that, so it is asked
    /// under the lock: the last one here knows how it ends.
    pub fn update(&self, poller: &Poller, is_watching: &dyn Fn() -> bool) {
        let mut state = self.state();
        let watched = state.wanted && is_watching();
        state.watch(poller, watched);
    }

    /// Lets go of the listeners, which are about to be closed.
    ///
    /// Under one lock: what the helper began to watch in between would stay in its poller, because other processes have the
    /// listeners open.
    pub fn close(&self, poller: &Poller) {
        let mut state = self.state();
        state.watch(poller, false);
        state.sources.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn watch(&mut self, poller: &Poller, watched: bool) {
        if std::mem::replace(&mut self.watched, watched) == watched {
            return;
        }
        for (source, token) in self.sources.iter().zip(self.first..) {
            // They cannot fail; and if they did, clients would wait in the backlog.
            let _ = match watched {
                true => poller.add(source.as_fd(), token),
                false => poller.remove(source.as_fd()),
            };
        }
    }
}
