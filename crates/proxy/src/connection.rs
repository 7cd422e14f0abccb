//! One client's connection: how long it may wait, and who the client is.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use hyper::body::Bytes;
use hyper::Version;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use crate::place::Place;
use crate::shares::{Part, Share};
use crate::stats;

/// State that the requests of a connection share.
#[derive(Debug)]
pub struct Connection {
    /// The client's address.
    pub peer: SocketAddr,
    /// Whether the client speaks TLS with this process.
    pub is_tls: bool,
    /// The listener's name: the host of requests that name none.
    pub listener: Arc<str>,
    /// The port to which all requests are redirected by https.
    pub redirect_to: Option<u16>,
    /// Requests and tunnels keep the connection, and so the place.
    _place: Place,
    began: Instant,
    requests: AtomicU32,
    /// Whether a part of a request's head has arrived.
    is_partial: AtomicBool,
    /// Whether the client has asked by HTTP/2. Bytes that such a client sends between requests may be a PING, SETTINGS or WINDOW_UPDATE, and no head.
    has_frames: AtomicBool,
    /// Whether bytes for the client are buffered, because its socket has not taken them.
    is_sending: AtomicBool,
    /// When the present wait began, in milliseconds after `began`.
    since: AtomicU64,
    /// Responses of which the client can take a part now.
    offered: AtomicU32,
    /// Whether the client's socket took no more bytes at the last try.
    is_full: AtomicBool,
    /// When the client last took a part of a response, or was last offered one, in milliseconds after `began`.
    taken: AtomicU64,
    /// Bytes in the full socket that the client's system had not acknowledged at the last look.
    unacknowledged: AtomicU32,
    /// Whether the next write that the socket does not take looks at what the client's system has acknowledged.
    looks: AtomicBool,
    /// Requests that are with a worker.
    pub exchanges: Share,
}

impl Connection {
    /// A new connection, which waits for its first request.
    pub fn new(
        peer: SocketAddr,
        is_tls: bool,
        listener: Arc<str>,
        redirect_to: Option<u16>,
        place: Place,
    ) -> Arc<Self> {
        Arc::new(Connection {
            peer,
            is_tls,
            listener,
            redirect_to,
            _place: place,
            began: Instant::now(),
            requests: AtomicU32::new(0),
            // The first head has the time of a head, and not that of an idle connection.
            is_partial: AtomicBool::new(true),
            has_frames: AtomicBool::new(false),
            is_sending: AtomicBool::new(false),
            since: AtomicU64::new(0),
            offered: AtomicU32::new(0),
            is_full: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            unacknowledged: AtomicU32::new(0),
            looks: AtomicBool::new(false),
            exchanges: Share::default(),
        })
    }

    /// Time that the client has left for its next bytes; None: the time is over. The connection's task asks now and then, so that a request
    /// needs no timer.
    pub fn time_left(&self, Times { head, idle, write }: Times) -> Option<Duration> {
        // A head or a response may begin, and a request end, at any time.
        let next_look = head.min(idle).min(write);
        let (limit, since) = if self.is_full.load(Relaxed) || self.offered.load(Relaxed) > 0 {
            (write, &self.taken)
        } else if self.requests.load(Relaxed) == 0 {
            (if self.is_partial.load(Relaxed) { head } else { idle }, &self.since)
        } else {
            return Some(next_look);
        };
        let left = limit.checked_sub(self.elapsed(since)).filter(|left| !left.is_zero())?;
        Some(left.min(next_look))
    }

    /// Whether nothing has been on its way for this time, in either direction.
    pub fn is_quiet(&self, time: Duration) -> bool {
        let is_idle = self.requests.load(Relaxed) == 0 && !self.is_partial.load(Relaxed);
        is_idle && !self.is_sending.load(Relaxed) && self.elapsed(&self.since) >= time
    }

    fn elapsed(&self, since: &AtomicU64) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(since.load(Relaxed)))
    }

    /// Notes that a request has begun, until the result is dropped.
    pub fn begin_request(self: &Arc<Self>, version: Version) -> InFlight {
        self.requests.fetch_add(1, Relaxed);
        self.is_partial.store(false, Relaxed);
        self.has_frames.store(version == Version::HTTP_2, Relaxed);
        stats::REQUESTS.fetch_add(1, Relaxed);
        InFlight { connection: Arc::clone(self), part: None }
    }

    fn wait_from_now(&self) {
        self.since.store(self.now(), Relaxed);
    }

    fn took(&self) {
        self.taken.store(self.now(), Relaxed);
    }

    /// Has the next write that the socket does not take note whether the client has acknowledged bytes since the last look. The system
    /// reports a socket as writable only when a third of its buffer is free, and that may take a slow client minutes.
    pub fn look(&self) {
        self.looks.store(true, Relaxed);
    }

    /// Notes the result of a write to the client's socket, and `unacknowledged` bytes in it. Asks the clock only if the socket was full
    /// before, or is full now.
    fn wrote(&self, result: &Poll<io::Result<usize>>, unacknowledged: impl FnOnce() -> Option<u32>) {
        match result {
            Poll::Pending => {
                let was_full = self.is_full.swap(true, Relaxed);
                if !was_full || self.looks.swap(false, Relaxed) {
                    let now = unacknowledged().unwrap_or(u32::MAX);
                    if now < self.unacknowledged.swap(now, Relaxed) || !was_full {
                        self.took();
                    }
                }
            }
            Poll::Ready(Ok(1..)) if self.is_full.load(Relaxed) => {
                self.is_full.store(false, Relaxed);
                self.took();
            }
            Poll::Ready(_) => {}
        }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn received(&self) {
        let may_be_head = self.requests.load(Relaxed) == 0 && !self.has_frames.load(Relaxed);
        if may_be_head && !self.is_partial.swap(true, Relaxed) {
            self.wait_from_now();
        }
    }
}

/// A request in progress.
#[derive(Debug)]
pub struct InFlight {
    connection: Arc<Connection>,
    part: Option<Arc<Part>>,
}

impl InFlight {
    /// Keeps the client's part of something scarce as long as the request lasts.
    pub fn keep(&mut self, part: Part) {
        self.part = Some(Arc::new(part));
    }
}

impl Clone for InFlight {
    /// The request lasts until all copies are gone.
    fn clone(&self) -> Self {
        self.connection.requests.fetch_add(1, Relaxed);
        InFlight { connection: Arc::clone(&self.connection), part: self.part.clone() }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.connection.wait_from_now();
        self.connection.requests.fetch_sub(1, Relaxed);
    }
}

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// For a TLS handshake, and for a request's head.
    pub head: Duration,
    /// Until the next request.
    pub idle: Duration,
    /// Until it takes more of a response.
    pub write: Duration,
}

/// A response on its way to the client.
#[derive(Debug)]
pub struct Delivery {
    request: InFlight,
    is_offered: bool,
}

impl Delivery {
    /// The delivery of the response to `request`, which the client can take now.
    pub fn new(request: InFlight) -> Self {
        let mut delivery = Delivery { request, is_offered: false };
        delivery.offer(true);
        delivery
    }

    /// Notes whether the client can take a part now. If not, this process waits for the response.
    pub fn offer(&mut self, is_offered: bool) {
        let connection = &*self.request.connection;
        if is_offered {
            connection.took();
        }
        match (self.is_offered, is_offered) {
            (false, true) => connection.offered.fetch_add(1, Relaxed),
            (true, false) => connection.offered.fetch_sub(1, Relaxed),
            _ => 0,
        };
        self.is_offered = is_offered;
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.offer(false);
    }
}

/// A client's stream. One type for all clients: hyper's code is compiled once.
#[derive(Debug)]
pub enum Stream {
    /// Without TLS.
    Plain(TcpStream),
    /// On the heap, since it is a hundred times as large.
    Tls(Box<TlsStream<TcpStream>>),
}

/// A client's stream, which notes when bytes arrive and leave.
#[derive(Debug)]
pub struct Watched {
    stream: Stream,
    connection: Arc<Connection>,
    /// Bytes of [`give_back`](Self::give_back), to be read first.
    unread: Bytes,
}

impl Watched {
    /// Notes in `connection` when bytes of `stream` arrive and leave.
    pub fn new(stream: Stream, connection: Arc<Connection>) -> Self {
        Watched { stream, connection, unread: Bytes::new() }
    }

    /// Has `bytes`, the beginning of a head, read once more.
    pub fn give_back(mut self, bytes: Bytes) -> Self {
        if !bytes.is_empty() {
            self.connection.received();
        }
        self.unread = bytes;
        self
    }

    /// Waits until there are bytes to read, the end of the stream, or an error.
    pub async fn wait(&mut self) {
        if self.unread.is_empty() {
            let _ = match &mut self.stream {
                Stream::Plain(stream) => stream.peek(&mut [0]).await.map(drop),
                Stream::Tls(stream) => stream.fill_buf().await.map(drop),
            };
        }
    }
}

impl Watched {
    fn wrote(&self, result: &Poll<io::Result<usize>>) {
        self.connection.wrote(result, || {
            let socket = match &self.stream {
                Stream::Plain(stream) => stream,
                Stream::Tls(stream) => stream.get_ref().0,
            };
            fastrack_sys::unacknowledged(socket.as_fd())
        });
    }
}

/// Calls a method of the stream, of either kind.
macro_rules! with_stream {
    ($watched:ident, $stream:ident => $call:expr) => {
        match &mut $watched.stream {
            Stream::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Stream::Tls(stream) => {
                let $stream = Pin::new(&mut **stream);
                $call
            }
        }
    };
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if !self.unread.is_empty() {
            let count = buf.remaining().min(self.unread.len());
            buf.put_slice(&self.unread.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let this = &mut *self;
        ready!(with_stream!(this, stream => stream.poll_read(cx, buf)))?;
        if buf.filled().len() > before {
            self.connection.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.connection.is_sending.store(true, Relaxed);
        let result = with_stream!(this, stream => stream.poll_write(cx, buf));
        this.wrote(&result);
        result
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.connection.is_sending.store(true, Relaxed);
        let result = with_stream!(this, stream => stream.poll_write_vectored(cx, bufs));
        this.wrote(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let result = with_stream!(this, stream => stream.poll_flush(cx));
        if matches!(result, Poll::Ready(Ok(()))) {
            self.connection.is_sending.store(false, Relaxed);
        }
        result
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // No request comes after the shutdown.
        let this = self.get_mut();
        this.connection.is_sending.store(true, Relaxed);
        with_stream!(this, stream => stream.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests;
