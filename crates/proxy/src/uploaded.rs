//! A request's body on its way to a worker.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};

use crate::connection::InFlight;
use crate::progress::Progress;

/// A request's body on its way to a worker. The request lasts as long as the body, even if the worker has answered before.
#[derive(Debug)]
pub struct Uploaded {
    body: Incoming,
    progress: Arc<Progress>,
    _request: InFlight,
}

impl Uploaded {
    /// The body of `request`.
    pub fn new(body: Incoming, progress: Arc<Progress>, request: InFlight) -> Self {
        Uploaded { body, progress, _request: request }
    }

    /// How far it is.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }
}

impl Body for Uploaded {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        ready!(self.progress.poll_wanted(cx));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.progress.set_whole();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
