//! Connections to workers between requests.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;

use super::Upload;

/// Connections with the times of their last use. The oldest one comes first.
type Connections = VecDeque<(SendRequest<Upload>, Instant)>;

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
    pub fn take(&self, max_age: Duration) -> Option<SendRequest<Upload>> {
        let mut kept = self.connections();
        let now = Instant::now();
        while kept.front().is_some_and(|(_, used)| now - *used >= max_age) {
            kept.pop_front();
        }
        let newest = kept.iter().rposition(|(connection, _)| connection.is_ready())?;
        // The workers have closed the connections behind it, or are about to.
        kept.truncate(newest + 1);
        kept.pop_back().map(|(connection, _)| connection)
    }

    fn give_back(&self, connection: SendRequest<Upload>) {
        let mut kept = self.connections();
        if !connection.is_closed() && kept.len() < self.most {
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
    connection: Option<SendRequest<Upload>>,
    kept: Kept,
}

impl WorkerBody {
    /// The body that comes by `connection`.
    pub fn new(body: Incoming, connection: SendRequest<Upload>, kept: &Kept) -> Self {
        WorkerBody { body, connection: Some(connection), kept: kept.clone() }
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
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
