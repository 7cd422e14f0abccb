//! A response's body on its way to the client.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};

use crate::compress::{Compressed, Error};
use crate::connection::InFlight;
use crate::file_body::FileBody;

/// Where a body comes from.
#[derive(Debug)]
pub enum Source {
    /// From memory.
    Memory(Option<Bytes>),
    /// From a worker.
    Worker(Incoming),
    /// From a worker, compressed on the way.
    Compressed(Box<Compressed<Incoming>>),
    /// From a file.
    File(Box<FileBody>),
}

/// A body, and the request that ends with it.
#[derive(Debug)]
pub struct Outgoing {
    source: Source,
    _request: InFlight,
}

impl Outgoing {
    /// The body of the response to `request`.
    pub fn new(source: Source, request: InFlight) -> Self {
        Outgoing { source, _request: request }
    }
}

impl Source {
    /// No body.
    pub fn empty() -> Self {
        Source::Memory(None)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.source {
            Source::Memory(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Source::Worker(body) => Pin::new(body).poll_frame(cx).map_err(Error::from),
            Source::Compressed(body) => Pin::new(&mut **body).poll_frame(cx),
            Source::File(body) => {
                Poll::Ready(body.next_part().map(|part| part.map(Frame::data).map_err(Error::from)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Memory(bytes) => bytes.is_none(),
            Source::Worker(body) => body.is_end_stream(),
            Source::Compressed(_) => false,
            Source::File(body) => body.left() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Memory(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Source::Worker(body) => body.size_hint(),
            Source::Compressed(_) => SizeHint::default(),
            Source::File(body) => SizeHint::with_exact(body.left()),
        }
    }
}
