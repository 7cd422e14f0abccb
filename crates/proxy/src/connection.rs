//! One client's connection: how long it may wait, and who the client is.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

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
    began: Instant,
    requests: AtomicU32,
    /// Whether a part of a request's head has arrived.
    is_partial: AtomicBool,
    /// Whether bytes are on their way to the client that its socket has not taken.
    is_sending: AtomicBool,
    /// When the present wait began, in milliseconds after `began`.
    since: AtomicU64,
    /// Responses of which the client can take a part now.
    offered: AtomicU32,
    /// Whether the client's socket took no more bytes at the last try.
    is_full: AtomicBool,
    /// When the client last took a part of a response, or was last offered one, in milliseconds after `began`.
    taken: AtomicU64,
}

impl Connection {
    /// A new connection, which waits for its first request.
    pub fn new(peer: SocketAddr, is_tls: bool, listener: Arc<str>, redirect_to: Option<u16>) -> Arc<Self> {
        Arc::new(Connection {
            peer,
            is_tls,
            listener,
            redirect_to,
            began: Instant::now(),
            requests: AtomicU32::new(0),
            // The first head has the time of a head, and not that of an idle connection.
            is_partial: AtomicBool::new(true),
            is_sending: AtomicBool::new(false),
            since: AtomicU64::new(0),
            offered: AtomicU32::new(0),
            is_full: AtomicBool::new(false),
            taken: AtomicU64::new(0),
        })
    }

    /// Time that the client has left for its next bytes; None: the time is over. The connection's task asks now and then, so that a request
    /// needs no timer.
    pub fn time_left(&self, Times { head, idle, write }: Times) -> Option<Duration> {
        let (limit, since) = if self.requests.load(Relaxed) == 0 {
            (if self.is_partial.load(Relaxed) { head } else { idle }, &self.since)
        } else if self.offered.load(Relaxed) > 0 {
            (write, &self.taken)
        } else {
            return Some(head);
        };
        let left = limit.checked_sub(self.elapsed(since)).filter(|left| !left.is_zero())?;
        // A head may begin at any time, and its time is shorter.
        Some(left.min(head))
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
    pub fn begin_request(self: &Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Relaxed);
        self.is_partial.store(false, Relaxed);
        stats::REQUESTS.fetch_add(1, Relaxed);
        InFlight(Arc::clone(self))
    }

    fn wait_from_now(&self) {
        self.since.store(self.now(), Relaxed);
    }

    fn took(&self) {
        self.taken.store(self.now(), Relaxed);
    }

    /// Notes the result of a write to the client's socket. Asks the clock only if the socket was full before.
    fn wrote(&self, result: &Poll<io::Result<usize>>) {
        match result {
            Poll::Pending => self.is_full.store(true, Relaxed),
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
        if self.requests.load(Relaxed) == 0 && !self.is_partial.swap(true, Relaxed) {
            self.wait_from_now();
        }
    }
}

/// A request in progress.
#[derive(Debug)]
pub struct InFlight(Arc<Connection>);

impl Clone for InFlight {
    /// The request lasts until all copies are gone.
    fn clone(&self) -> Self {
        self.0.requests.fetch_add(1, Relaxed);
        InFlight(Arc::clone(&self.0))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.wait_from_now();
        self.0.requests.fetch_sub(1, Relaxed);
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
        let connection = &*self.request.0;
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
        this.connection.wrote(&result);
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
        this.connection.wrote(&result);
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
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const TIMES: Times = Times {
        head: Duration::from_secs(30),
        idle: Duration::from_secs(95),
        write: Duration::from_secs(60),
    };

    fn connection() -> Arc<Connection> {
        Connection::new(([127, 0, 0, 1], 1).into(), false, "localhost:80".into(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_head_has_the_time_of_a_head() {
        let connection = connection();
        assert_eq!(connection.time_left(TIMES), Some(TIMES.head));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert_eq!(connection.time_left(TIMES), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(connection.time_left(TIMES), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_may_last_and_then_the_connection_may_be_idle() {
        let connection = connection();
        let request = connection.begin_request();
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert_eq!(connection.time_left(TIMES), Some(TIMES.head));
        drop(request);
        assert_eq!(connection.time_left(TIMES), Some(TIMES.head));
        tokio::time::advance(Duration::from_secs(94)).await;
        assert_eq!(connection.time_left(TIMES), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(connection.time_left(TIMES), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_of_a_response_has_the_time_of_a_write() {
        let connection = connection();
        let mut delivery = Delivery::new(connection.begin_request());
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(connection.time_left(TIMES), Some(Duration::from_secs(1)));
        connection.wrote(&Poll::Ready(Ok(1)));
        assert_eq!(connection.time_left(TIMES), Some(Duration::from_secs(1)), "the socket was not full");
        connection.wrote(&Poll::Pending);
        connection.wrote(&Poll::Ready(Ok(1)));
        assert_eq!(connection.time_left(TIMES), Some(TIMES.head));
        delivery.offer(false);
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert_eq!(connection.time_left(TIMES), Some(TIMES.head), "the app has the next part");
        delivery.offer(true);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(connection.time_left(TIMES), None);
        drop(delivery);
        assert_eq!(connection.offered.load(Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_quiet_between_requests_only() {
        let connection = connection();
        let second = Duration::from_secs(1);
        tokio::time::advance(second).await;
        assert!(!connection.is_quiet(second), "the first head may have begun");
        let request = connection.begin_request();
        tokio::time::advance(second).await;
        assert!(!connection.is_quiet(second), "a request is in progress");
        drop(request);
        assert!(!connection.is_quiet(second), "the wait has begun only");
        tokio::time::advance(second).await;
        assert!(connection.is_quiet(second));
        connection.is_sending.store(true, Relaxed);
        assert!(!connection.is_quiet(second), "the client has not taken the response");
        connection.is_sending.store(false, Relaxed);
        connection.received();
        tokio::time::advance(second).await;
        assert!(!connection.is_quiet(second), "a head has begun");
    }

    #[tokio::test]
    async fn bytes_that_were_given_back_are_read_first_and_are_a_head() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let (stream, _) = listener.accept().await.expect("a client");
        let connection = connection();
        drop(connection.begin_request());
        let watched = Watched::new(Stream::Plain(stream), Arc::clone(&connection));
        let mut watched = watched.give_back(Bytes::from_static(b"GE"));
        assert!(connection.is_partial.load(Relaxed));
        watched.wait().await;
        client.write_all(b"T").await.expect("a byte");
        let mut bytes = [0; 3];
        watched.read_exact(&mut bytes).await.expect("bytes");
        assert_eq!(&bytes, b"GET");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_byte_of_a_later_head_begins_its_time() {
        let connection = connection();
        drop(connection.begin_request());
        tokio::time::advance(Duration::from_secs(90)).await;
        connection.received();
        tokio::time::advance(Duration::from_secs(29)).await;
        connection.received();
        assert_eq!(connection.time_left(TIMES), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(connection.time_left(TIMES), None);
    }
}
