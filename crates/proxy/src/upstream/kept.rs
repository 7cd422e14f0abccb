//! Connections to workers between requests.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{ready, Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{HeaderValue, CONTENT_TYPE};
use hyper::Response;
use tokio::time::Instant;

use super::Upload;
use crate::worker_socket::WorkerSocket;

/// A connection to a worker.
#[derive(Debug)]
pub struct WorkerConnection {
    /// hyper's half, which sends requests.
    pub sender: SendRequest<Upload>,
    /// Its socket.
    pub socket: Arc<WorkerSocket>,
}

impl WorkerConnection {
    fn can_be_kept(&self) -> bool {
        !self.sender.is_closed() && !self.socket.is_left()
    }
}

/// The type of event streams.
const EVENTS: &[u8] = b"text/event-stream";

/// Connections with the times of their last use. The oldest one comes first.
type Connections = VecDeque<(WorkerConnection, Instant)>;

/// The connections of one thread that have no request.
#[derive(Clone, Debug)]
pub struct Kept {
    connections: Arc<Mutex<Connections>>,
    /// The most of them.
    most: usize,
}

impl Kept {
    /// None, and later at most so many.
    pub fn new(most: usize) -> Self {
        Kept { connections: Arc::default(), most }
    }

    /// A connection of at most this age that can take a request now: the newest one, so that the others grow old.
    pub fn take(&self, max_age: Duration) -> Option<WorkerConnection> {
        let mut kept = self.connections();
        let now = Instant::now();
        while kept.front().is_some_and(|(_, used)| now - *used >= max_age) {
            kept.pop_front();
        }
        let newest = kept.iter().rposition(|(connection, _)| connection.sender.is_ready())?;
        // The workers have closed the connections behind it, or are about to.
        kept.truncate(newest + 1);
        kept.pop_back().map(|(connection, _)| connection)
    }

    fn give_back(&self, connection: WorkerConnection) {
        let mut kept = self.connections();
        if connection.can_be_kept() && kept.len() < self.most {
            kept.push_back((connection, Instant::now()));
        }
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of a worker's response. At its end the connection is kept for another request.
#[derive(Debug)]
pub struct WorkerBody {
    body: Incoming,
    connection: Option<WorkerConnection>,
    kept: Kept,
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
    /// The response, with the body that comes by `connection`.
    pub fn of(
        response: Response<Incoming>,
        connection: WorkerConnection,
        kept: &Kept,
    ) -> Response<WorkerBody> {
        let is_events = |kind: &HeaderValue| kind.as_bytes().to_ascii_lowercase().starts_with(EVENTS);
        let events = response.headers().get(CONTENT_TYPE).is_some_and(is_events).then(Tail::default);
        let kept = kept.clone();
        response.map(|body| WorkerBody { body, connection: Some(connection), kept, events, is_over: false })
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
}

/// The last bytes of an event stream.
#[derive(Debug)]
struct Tail([u8; 4]);

impl Default for Tail {
    /// Before the first event a stream can end, as after one.
    fn default() -> Self {
        Tail(*b"\n\n\n\n")
    }
}

impl Tail {
    fn note(&mut self, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(4)..];
        self.0.rotate_left(last.len());
        self.0[4 - last.len()..].copy_from_slice(last);
    }

    /// Whether the bytes end with an empty line. A line ends with CR, LF, or both (HTML, 9.2.5).
    fn ends_event(&self) -> bool {
        [&b"\n\n"[..], b"\r\r", b"\r\n\r\n"].iter().any(|end| self.0.ends_with(end))
    }
}

impl Drop for WorkerBody {
    /// hyper closes the connection if the rest of the body is long.
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.kept.give_back(connection);
        }
    }
}

impl Body for WorkerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        if let (Some(tail), Some(bytes)) = (&mut self.events, bytes) {
            tail.note(bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stream_can_end_after_an_empty_line_however_it_arrives() {
        for (parts, expected) in [
            (&["data: 1\n\n"][..], true),
            (&["data: 1\n", "\n"], true),
            (&["data: 1\r\n\r", "\n"], true),
            (&["data: 1\r", "\r"], true),
            (&["data: 1\n\n", "data: 2\n"], false),
            (&["data: 1\n\n", "d"], false),
            (&["data: 1\r\n"], false),
            (&[], true),
        ] {
            let mut tail = Tail::default();
            parts.iter().for_each(|part| tail.note(part.as_bytes()));
            assert_eq!(tail.ends_event(), expected, "{parts:?}");
        }
    }
}
