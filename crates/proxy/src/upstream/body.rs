//! The body of a worker's response.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{HeaderValue, CONTENT_TYPE};
use hyper::Response;
use tokio::task::JoinHandle;

use super::framing::{Framing, Part};
use super::head::Head;
use super::kept::Kept;
use super::tail::Tail;
use crate::worker_socket::{Wire, WorkerSocket, MOST_READ};

/// The type of event streams.
const EVENTS: &[u8] = b"text/event-stream";

/// The body of a worker's response, which is read as its client takes it. At its end the connection is kept for another request.
#[derive(Debug)]
pub struct WorkerBody {
    framing: Framing,
    /// None after the end.
    socket: Option<Arc<WorkerSocket>>,
    /// Bytes that were read, and belong to the body or to what follows.
    read: Bytes,
    /// Bytes that are read at once, at most.
    most: usize,
    kept: Kept,
    persists: bool,
    /// What writes the rest of the request.
    request: Option<JoinHandle<()>>,
    /// The end of what has come of an event stream; None for other bodies.
    events: Option<Tail>,
    /// Whether this process has ended the body.
    is_over: bool,
}

/// How a stream can end that is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// As if it were whole: its client connects again.
    Whole,
    /// The same, after the present event.
    Later,
    /// Recognizably in its middle.
    Cut,
}

impl WorkerBody {
    /// The response with this head, whose body comes by `socket` after the bytes that were read. The rest of the request is written meanwhile.
    pub fn of(
        head: Head,
        read: Bytes,
        socket: Arc<WorkerSocket>,
        request: Option<JoinHandle<()>>,
        kept: &Kept,
    ) -> Response<WorkerBody> {
        let Head { parts, framing, persists } = head;
        let is_events = |kind: &HeaderValue| kind.as_bytes().to_ascii_lowercase().starts_with(EVENTS);
        let events = parts.headers.get(CONTENT_TYPE).is_some_and(is_events).then(Tail::default);
        let (kept, socket) = (kept.clone(), Some(socket));
        let (most, is_over) = (MOST_READ, false);
        let body = WorkerBody { framing, socket, read, most, kept, persists, request, events, is_over };
        Response::from_parts(parts, body)
    }

    /// Turns the response into a tunnel, after 101. None if its connection has ended.
    pub fn into_tunnel(mut self) -> Option<Wire> {
        let first = std::mem::take(&mut self.read);
        self.socket.take().map(|socket| Wire::new(socket, first))
    }

    /// Reads at most so many bytes at once.
    pub fn read_at_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Ends the body if it can be ended now.
    pub fn end(&mut self) -> StreamEnd {
        match &self.events {
            Some(tail) if tail.ends_event() => {
                self.is_over = true;
                StreamEnd::Whole
            }
            Some(_) => StreamEnd::Later,
            None => StreamEnd::Cut,
        }
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Part>>> {
        loop {
            if let Some(part) = self.framing.decode(&mut self.read).map_err(invalid)? {
                return Poll::Ready(Ok(Some(part)));
            }
            let Some(socket) = self.socket.as_ref().filter(|_| !self.framing.is_done()) else {
                return Poll::Ready(Ok(None));
            };
            let more = ready!(socket.poll_read(cx, self.most))?;
            if more.is_empty() {
                self.cut();
                return Poll::Ready(match self.framing {
                    Framing::Close => Ok(None),
                    _ => Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the worker has ended the response early",
                    )),
                });
            }
            self.read = if self.read.is_empty() { more } else { [self.read.as_ref(), &more].concat().into() };
        }
    }

    /// Nothing more passes, either way.
    fn cut(&mut self) {
        self.request.take().into_iter().for_each(|request| request.abort());
        self.socket.take().into_iter().for_each(|socket| socket.cut());
    }

    /// The response has ended. Keeps the connection for another request, unless bytes have come that nobody has asked for.
    fn end_response(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        let request = self.request.take().filter(|request| !request.is_finished());
        if let Some(request) = request {
            tokio::spawn(end_request(request, socket));
        } else if self.persists && self.read.is_empty() && socket.can_be_kept() {
            self.kept.give_back(socket);
        }
    }
}

/// Waits until the request has been written, or the worker takes no more of it.
async fn end_request(mut request: JoinHandle<()>, socket: Arc<WorkerSocket>) {
    tokio::select! {
        _ = &mut request => {}
        () = poll_fn(|cx| socket.poll_end(cx)) => request.abort(),
    }
}

fn invalid(error: super::head::Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Drop for WorkerBody {
    fn drop(&mut self) {
        if self.framing.is_done() {
            self.end_response();
        } else {
            self.cut();
        }
    }
}

impl Body for WorkerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let part = ready!(self.poll_part(cx));
        if let (Some(tail), Ok(Some(Part::Data(bytes)))) = (&mut self.events, &part) {
            tail.note(bytes);
        }
        if self.framing.is_done() {
            self.end_response();
        }
        Poll::Ready(part.transpose().map(|part| {
            part.map(|part| match part {
                Part::Data(bytes) => Frame::data(bytes),
                Part::Trailers(fields) => Frame::trailers(fields),
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.framing.is_done()
    }

    fn size_hint(&self) -> SizeHint {
        self.framing.length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
