//! The progress of an upload, which its connections to client and worker share.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// How far the upload of a body is.
#[derive(Debug)]
pub struct Progress {
    /// Whether the client may send the body. hyper tells it to (100 Continue) at the first look for a part.
    is_wanted: AtomicBool,
    is_whole: AtomicBool,
    worker: Mutex<Option<Waker>>,
}

impl Progress {
    /// Of a body that has not begun. `waits`: the client expects to be told when to send it (RFC 9110 §10.1.1).
    pub fn new(waits: bool) -> Arc<Self> {
        let is_wanted = AtomicBool::new(!waits);
        Arc::new(Progress { is_wanted, is_whole: AtomicBool::new(false), worker: Mutex::default() })
    }

    /// Notes that the worker wants the body.
    pub fn want(&self) {
        self.is_wanted.store(true, SeqCst);
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        worker.into_iter().for_each(Waker::wake);
    }

    /// Whether the client may send the body.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(SeqCst)
    }

    /// Notes that the whole body has come.
    pub fn set_whole(&self) {
        self.is_whole.store(true, SeqCst);
    }

    /// Whether the whole body has come.
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(SeqCst)
    }

    /// Ready once the worker wants the body.
    pub fn poll_wanted(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_wanted() {
            return Poll::Ready(());
        }
        *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        // The word may have come meanwhile.
        if self.is_wanted() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}
