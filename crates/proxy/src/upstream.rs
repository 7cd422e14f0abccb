//! Kept connections to the workers, over the server's unix socket.
//!
//! hyper-util's legacy client would do, too. It takes a task's wake-up and two channels more for each request, and it does not tell a
//! request that was never sent from one whose worker has died.

mod kept;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{Either, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout, Instant};

use crate::connection::Connection;
use crate::shares::{Part, Shares};
use crate::uploaded::Uploaded;
use crate::worker_socket::{Wire, WorkerSocket};
use kept::{Kept, WorkerConnection};
pub use kept::{StreamEnd, WorkerBody};

/// A request's body: the client's, or none.
pub type Upload = Either<Uploaded, Empty<Bytes>>;

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
    Other(hyper::Error),
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
        request: Request<Upload>,
        kept_for: Duration,
        client: &Connection,
    ) -> Result<Response<WorkerBody>, Failure> {
        self.send_by(request, Some(MAX_IDLE_TIME.min(kept_for / 2)), client).await
    }

    /// Sends a request by a new connection, because kept connections may belong to the worker that has just died.
    pub async fn send_anew(
        &self,
        request: Request<Upload>,
        client: &Connection,
    ) -> Result<Response<WorkerBody>, Failure> {
        self.send_by(request, None, client).await
    }

    async fn send_by(
        &self,
        mut request: Request<Upload>,
        max_age: Option<Duration>,
        client: &Connection,
    ) -> Result<Response<WorkerBody>, Failure> {
        let upload = match request.body() {
            Either::Left(uploaded) => Some(uploaded.progress()),
            Either::Right(_) => None,
        };
        let mut tries = TRIES;
        loop {
            tries -= 1;
            // Kept connections may all belong to workers that have ended. So the last try is a new one.
            let max_age = max_age.filter(|_| tries > 0);
            let mut connection = self.connection(max_age).await.map_err(Failure::Unreachable)?;
            connection.socket.begin(upload.clone());
            client.set_worker(&connection.socket);
            match connection.sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok(WorkerBody::of(response, connection, &self.kept));
                }
                Err(mut error) => match error.take_message() {
                    // The worker had closed the connection before the request was sent.
                    Some(unsent) if tries > 0 => request = unsent,
                    _ => return Err(failure(error.into_error())),
                },
            }
        }
    }

    /// A kept connection of at most this age, or a new one. In a shortage it tries both again and again, because no event reports the end
    /// of a shortage.
    async fn connection(&self, max_age: Option<Duration>) -> io::Result<WorkerConnection> {
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

    async fn connect(&self) -> io::Result<WorkerConnection> {
        let socket = WorkerSocket::new(UnixStream::connect(&self.path).await?);
        let (sender, connection) = http1::Builder::new()
            .max_headers(1024)
            .handshake(TokioIo::new(Wire(Arc::clone(&socket))))
            .await
            .map_err(io::Error::other)?;
        // Errors of the connection are also errors of its requests.
        tokio::spawn(connection.with_upgrades());
        Ok(WorkerConnection { sender, socket })
    }
}

/// Whether a connection may succeed soon: the backlog is full (connect(2)), or no descriptor is free.
pub fn may_pass(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || fastrack_sys::is_out_of_fds(error)
}

fn failure(error: hyper::Error) -> Failure {
    let is_reset = |error: &(dyn std::error::Error + 'static)| {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof))
    };
    let source = std::error::Error::source(&error);
    match error {
        // hyper's word for an error of the body that it was to send.
        error if error.is_user() => Failure::Upload(judgement(&error)),
        error if error.is_incomplete_message() || error.is_canceled() => Failure::Lost,
        _ if source.is_some_and(is_reset) => Failure::Lost,
        error => Failure::Other(error),
    }
}

/// Why the judge of the client's bytes has ended the body.
fn judgement(error: &hyper::Error) -> Option<fastrack_http::Error> {
    let first = std::error::Error::source(error);
    let mut causes = std::iter::successors(first, |error| error.source());
    causes.find_map(|error| error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref().copied())
}
