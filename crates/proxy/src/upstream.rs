//! Connections to the workers, over the server's unix socket.
//!
//! hyper's client would do, too. It takes 28 KB for each connection, reads before the response's client has room, and has a task for what
//! the request's own task can do.

mod body;
mod exchange;
pub mod framing;
pub mod head;
mod kept;
mod sending;
mod tail;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::http::request::Parts;
use hyper::{Method, Response};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout, Instant};

use crate::connection::Connection;
use crate::shares::{Part, Shares};
use crate::uploaded::Uploaded;
use crate::worker_socket::WorkerSocket;
pub use body::{StreamEnd, WorkerBody};
use exchange::{exchange, Ended};
use head::Malformed;
use kept::Kept;
use sending::{Sending, Upload};

/// Pause before the next try while the backlog of the workers is full, or no descriptor is free.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(5);

/// How long such tries go on.
const SHORTAGE_TIME: Duration = Duration::from_secs(10);

/// Tries for a request that no worker has received.
const TRIES: usize = 4;

/// Connections without a request that a thread keeps, and the part of the places that they may be.
const MAX_IDLE: usize = 256;
const IDLE_PART: usize = 8;

/// Age at which a connection without a request is no longer used, if the workers keep it for that long.
const MAX_IDLE_TIME: Duration = Duration::from_secs(20);

/// A request as workers get it.
#[derive(Debug)]
pub struct Request {
    head: Bytes,
    is_head: bool,
}

impl Request {
    /// The request with this head, and its body.
    pub fn new(parts: &Parts, body: Option<Uploaded>) -> (Self, Option<Upload>) {
        let upload = body.map(|body| Upload::new(body, &parts.headers));
        (Request { head: head::encode(parts), is_head: parts.method == Method::HEAD }, upload)
    }
}

/// Why there is no response.
#[derive(Debug)]
pub enum Failure {
    /// No worker can be reached. No worker has received the request.
    Unreachable(io::Error),
    /// The connection has ended before a byte of the response. A worker may have received the request.
    Lost,
    /// The request's body has not arrived whole: the client has broken its framing, or has gone (None).
    Upload(Option<fastrack_http::Error>),
    /// The response makes no sense.
    Other(Malformed),
}

/// The connections of one thread.
#[derive(Debug)]
pub struct Upstream {
    path: PathBuf,
    /// The connections that clients may have to workers at once.
    places: Arc<Shares>,
    kept: Kept,
}

impl Upstream {
    /// Connects to the socket at `path` when it is needed.
    pub fn new(path: PathBuf, places: Arc<Shares>) -> Self {
        let kept = Kept::new(MAX_IDLE.min(places.amount() / IDLE_PART).max(1));
        Upstream { path, places, kept }
    }

    /// A place among the connections to workers for this client. Waits for it as long as for the end of another shortage.
    pub async fn place(&self, connection: &Arc<Connection>) -> Result<Part, Failure> {
        let place = timeout(SHORTAGE_TIME, self.places.take(&connection.exchanges)).await.ok().flatten();
        place.ok_or_else(|| Failure::Unreachable(fastrack_sys::too_many_open_files()))
    }

    /// Sends a request, and returns a worker's response. `kept_for`: how long the workers keep a connection without a request. A connection
    /// older than half of that is not used, because its worker may be closing it.
    pub async fn send(
        &self,
        request: &Request,
        upload: Option<Upload>,
        kept_for: Duration,
        client: &Connection,
    ) -> Result<Response<WorkerBody>, Failure> {
        self.send_by(request, upload, Some(MAX_IDLE_TIME.min(kept_for / 2)), client).await
    }

    /// Sends a request without a body by a new connection, because kept connections may belong to the worker that has just died.
    pub async fn send_anew(
        &self,
        request: &Request,
        client: &Connection,
    ) -> Result<Response<WorkerBody>, Failure> {
        self.send_by(request, None, None, client).await
    }

    async fn send_by(
        &self,
        request: &Request,
        upload: Option<Upload>,
        max_age: Option<Duration>,
        client: &Connection,
    ) -> Result<Response<WorkerBody>, Failure> {
        let mut tries = TRIES;
        let mut socket = self.connection(max_age).await.map_err(Failure::Unreachable)?;
        let mut sending = Some(Sending::new(&socket, &request.head, upload));
        loop {
            tries -= 1;
            client.set_worker(&socket);
            match exchange(&socket, &mut sending, request.is_head).await {
                Ok((head, read)) => {
                    // Nobody asks for a body after the response.
                    let rest = sending.filter(|sending| !sending.is_unwanted());
                    let rest = rest.map(|rest| tokio::spawn(rest.finish()));
                    return Ok(WorkerBody::of(head, read, socket, rest, &self.kept));
                }
                // The worker had closed the connection before the request was sent.
                Err(Ended::Unsent) if tries > 0 => {
                    // Kept connections may all belong to workers that have ended. So the last try is a new one.
                    let max_age = max_age.filter(|_| tries > 1);
                    socket = self.connection(max_age).await.map_err(Failure::Unreachable)?;
                    sending.iter_mut().for_each(|sending| sending.move_to(&socket));
                }
                Err(ended) => {
                    socket.cut();
                    return Err(ended.into());
                }
            }
        }
    }

    /// A kept connection of at most this age, or a new one. In a shortage it tries both again and again, because no event reports the end
    /// of a shortage.
    async fn connection(&self, max_age: Option<Duration>) -> io::Result<Arc<WorkerSocket>> {
        let began = Instant::now();
        loop {
            if let Some(kept) = max_age.and_then(|age| self.kept.take(age)) {
                return Ok(kept);
            }
            match self.connect().await {
                Err(error) if may_pass(&error) && began.elapsed() < SHORTAGE_TIME => {
                    sleep(SHORTAGE_PAUSE).await;
                }
                result => return result,
            }
        }
    }

    async fn connect(&self) -> io::Result<Arc<WorkerSocket>> {
        Ok(WorkerSocket::new(UnixStream::connect(&self.path).await?))
    }
}

/// Whether a connection may succeed soon: the backlog is full (connect(2)), or no descriptor is free.
pub fn may_pass(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || fastrack_sys::is_out_of_fds(error)
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Unsent | Ended::Lost => Failure::Lost,
            Ended::Upload(error) => Failure::Upload(error.and_then(|error| judgement(&error))),
            Ended::Malformed(error) => Failure::Other(error),
        }
    }
}

/// Why the judge of the client's bytes has ended the body.
fn judgement(error: &hyper::Error) -> Option<fastrack_http::Error> {
    let first = std::error::Error::source(error);
    let mut causes = std::iter::successors(first, |error| error.source());
    causes.find_map(|error| error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref().copied())
}
