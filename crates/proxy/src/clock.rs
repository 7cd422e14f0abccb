//! The clock of an HTTP/2 stream.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

thread_local! {
    /// The clock of the stream whose task this thread runs. hyper's task of a stream and the response in it do not know each other.
    static CURRENT: RefCell<Option<Arc<Clock>>> = const { RefCell::new(None) };
}

/// How long a stream's client has taken nothing of its response.
#[derive(Debug)]
pub struct Clock {
    began: Instant,
    /// Whether the client can take a part of the response now.
    is_offered: AtomicBool,
    /// When the client last took a part of it, or was last offered one, in milliseconds after `began`.
    taken: AtomicU64,
}

impl Clock {
    /// The clock of a new stream.
    pub fn new() -> Arc<Self> {
        Arc::new(Clock {
            began: Instant::now(),
            is_offered: AtomicBool::new(false),
            taken: AtomicU64::new(0),
        })
    }

    /// The clock of the stream whose task runs; None: the client speaks HTTP/1.1.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Runs a part of the stream's task.
    pub fn during<T>(self: &Arc<Self>, task: impl FnOnce() -> T) -> T {
        CURRENT.set(Some(Arc::clone(self)));
        let result = task();
        CURRENT.take();
        result
    }

    /// Notes whether the client can take a part now. If so, it has taken the part before.
    pub fn offer(&self, is_offered: bool) {
        if is_offered {
            self.taken.store(self.began.elapsed().as_millis() as u64, Relaxed);
        }
        self.is_offered.store(is_offered, Relaxed);
    }

    /// For how long the client has taken nothing of what it was offered.
    pub fn waiting(&self) -> Option<Duration> {
        let taken = Duration::from_millis(self.taken.load(Relaxed));
        self.is_offered.load(Relaxed).then(|| self.began.elapsed().saturating_sub(taken))
    }
}
