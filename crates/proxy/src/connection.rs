//! One client's connection: how long it may wait, and who the client is.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::stats;

/// What the requests of a connection have in common.
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
    /// When the present wait began, in milliseconds after `began`.
    since: AtomicU64,
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
            since: AtomicU64::new(0),
        })
    }

    /// How much longer the client may take for what it is to send next; None: its time is over. Asked now and then: no timer is set
    /// for a request.
    pub fn time_left(&self, head: Duration, idle: Duration) -> Option<Duration> {
        if self.requests.load(Relaxed) > 0 {
            return Some(head);
        }
        let limit = if self.is_partial.load(Relaxed) { head } else { idle };
        let waited = self.began.elapsed().saturating_sub(Duration::from_millis(self.since.load(Relaxed)));
        let left = limit.checked_sub(waited).filter(|left| !left.is_zero())?;
        // A head may begin at any time, and its time is shorter.
        Some(left.min(head))
    }

    /// Notes that a request has begun, until the result is dropped.
    pub fn begin_request(self: &Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Relaxed);
        self.is_partial.store(false, Relaxed);
        stats::REQUESTS.fetch_add(1, Relaxed);
        InFlight(Arc::clone(self))
    }

    fn wait_from_now(&self) {
        self.since.store(self.began.elapsed().as_millis() as u64, Relaxed);
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

/// A client's stream, which notes when bytes arrive.
#[derive(Debug)]
pub struct Watched<T> {
    stream: T,
    connection: Arc<Connection>,
}

impl<T> Watched<T> {
    /// Notes in `connection` when bytes of `stream` arrive.
    pub fn new(stream: T, connection: Arc<Connection>) -> Self {
        Watched { stream, connection }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.connection.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Duration = Duration::from_secs(30);
    const IDLE: Duration = Duration::from_secs(95);

    fn connection() -> Arc<Connection> {
        Connection::new(([127, 0, 0, 1], 1).into(), false, "localhost:80".into(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_head_has_the_time_of_a_head() {
        let connection = connection();
        assert_eq!(connection.time_left(HEAD, IDLE), Some(HEAD));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert_eq!(connection.time_left(HEAD, IDLE), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(connection.time_left(HEAD, IDLE), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_may_last_and_then_the_connection_may_be_idle() {
        let connection = connection();
        let request = connection.begin_request();
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert_eq!(connection.time_left(HEAD, IDLE), Some(HEAD));
        drop(request);
        assert_eq!(connection.time_left(HEAD, IDLE), Some(HEAD));
        tokio::time::advance(Duration::from_secs(94)).await;
        assert_eq!(connection.time_left(HEAD, IDLE), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(connection.time_left(HEAD, IDLE), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_byte_of_a_later_head_begins_its_time() {
        let connection = connection();
        drop(connection.begin_request());
        tokio::time::advance(Duration::from_secs(90)).await;
        connection.received();
        tokio::time::advance(Duration::from_secs(29)).await;
        connection.received();
        assert_eq!(connection.time_left(HEAD, IDLE), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(connection.time_left(HEAD, IDLE), None);
    }
}
