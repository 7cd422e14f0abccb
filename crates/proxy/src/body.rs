//! A response's body on its way to the client.

use std::pin::Pin;
use std::task::{ready, Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};

use crate::access_log::Answered;
use crate::compress::{Compressed, Error};
use crate::connection::{Delivery, InFlight};
use crate::files::Content;
use crate::pace::Pace;
use crate::shares::Part;
use crate::upstream::{StreamEnd, WorkerBody};
use crate::work::Lasting;
use crate::worker_socket::MOST_READ;

/// Where a body comes from.
#[derive(Debug)]
pub enum Source {
    /// From this process's memory, or from a file.
    Own(Content),
    /// From a worker.
    Worker(WorkerBody),
    /// From a worker, compressed on the way, with the memory for it.
    Compressed { body: Box<Compressed<WorkerBody>>, _memory: Part },
}

/// A body, and the request that ends with it.
#[derive(Debug)]
pub struct Outgoing {
    source: Source,
    /// The line in the access log, for an answer of this process.
    line: Option<Answered>,
    delivery: Delivery,
    /// Why the body ends in its middle. The client gets what was sent before.
    failure: Option<Error>,
    /// None for HTTP/1.1.
    pace: Option<Pace>,
    /// None until the response is a stream.
    stream: Option<Lasting>,
}

impl Outgoing {
    /// The body of the response to `request`.
    pub fn new(source: Source, request: InFlight) -> Self {
        let delivery = Delivery::new(request);
        let pace = delivery.pace();
        Outgoing { source, line: None, delivery, failure: None, pace, stream: None }
    }

    /// Leaves out the body if it is this process's own, and returns its length. A worker leaves out its own body where none is wanted.
    pub fn leave_out(&mut self) -> Option<u64> {
        let Source::Own(content) = &mut self.source else { return None };
        Some(std::mem::replace(content, Content::empty()).left())
    }

    /// The body with a line of the access log, which is written at the body's end.
    pub fn with_line(self, line: Option<Answered>) -> Self {
        Outgoing { line, ..self }
    }
}

impl Outgoing {
    /// The next part, for which at most so many bytes are read.
    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.source {
            Source::Own(content) => {
                let part = content.poll_part(cx, most);
                if let (Some(line), Poll::Ready(Some(Ok(part)))) = (&mut self.line, &part) {
                    line.add(part.len());
                }
                part.map_ok(Frame::data).map_err(Error::from)
            }
            Source::Worker(body) => {
                body.read_at_most(most);
                Pin::new(body).poll_frame(cx).map_err(Error::from)
            }
            Source::Compressed { body, .. } => {
                body.inner().read_at_most(most);
                Pin::new(&mut **body).poll_frame(cx)
            }
        }
    }

    /// The end of a stream that waits for the app, if it is to end. Any body without a length is a stream once it makes its client wait.
    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let body = match &mut self.source {
            Source::Own(_) => return Poll::Pending,
            Source::Worker(body) => body,
            Source::Compressed { body, .. } => body.inner(),
        };
        if body.size_hint().exact().is_some() {
            return Poll::Pending;
        }
        ready!(self.stream.get_or_insert_with(|| self.delivery.begin_lasting()).poll_end(cx));
        match body.end() {
            StreamEnd::Whole => self.poll_source(cx, MOST_READ),
            StreamEnd::Later => Poll::Pending,
            StreamEnd::Cut => Poll::Ready(Some(Err("the server stops".into()))),
        }
    }
}

impl Outgoing {
    /// The failure, once its client has what came before: hyper discards what it has buffered.
    fn poll_failure(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(pace) = &self.pace {
            ready!(pace.poll_sent(cx));
        }
        self.delivery.cut();
        Poll::Ready(self.failure.take().map(Err))
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if this.failure.is_some() {
            return this.poll_failure(cx);
        }
        let most = match &mut this.pace {
            Some(pace) => ready!(pace.poll_room(cx)),
            None => MOST_READ,
        };
        let mut frame = this.poll_source(cx, most);
        if frame.is_pending() {
            frame = this.poll_stream(cx);
        }
        match (&mut this.pace, &mut frame) {
            // h2 would keep the rest for a stream that nobody can reset any more.
            (Some(pace), Poll::Ready(None)) => ready!(pace.poll_sent(cx)),
            (Some(pace), Poll::Ready(Some(Ok(part)))) => {
                if let Some(bytes) = part.data_mut() {
                    *bytes = pace.count(std::mem::take(bytes));
                }
            }
            _ => {}
        }
        self.delivery.offer(frame.is_ready());
        match frame {
            Poll::Ready(Some(Err(error))) => {
                self.failure = Some(error);
                // hyper sends what it has buffered before it asks again.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            frame => frame,
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_over = match &self.source {
            Source::Own(content) => content.left() == 0,
            Source::Worker(body) => body.is_end_stream(),
            Source::Compressed { .. } => false,
        };
        is_over && self.pace.as_ref().is_none_or(Pace::is_sent)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(content) => SizeHint::with_exact(content.left()),
            Source::Worker(body) => body.size_hint(),
            Source::Compressed { .. } => SizeHint::default(),
        }
    }
}
