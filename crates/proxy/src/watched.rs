//! A client's stream, and what its connection learns from the bytes that pass.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use hyper::body::Bytes;
use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::connection::{Connection, Inbound};

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
    /// The judge of what comes; None: the client speaks HTTP/2.
    inbound: Option<Box<Inbound>>,
}

impl Watched {
    /// Notes in `connection` when bytes of `stream` arrive and leave.
    pub fn new(stream: Stream, connection: Arc<Connection>) -> Self {
        Watched { stream, connection, unread: Bytes::new(), inbound: None }
    }

    /// Judges the requests of a client of HTTP/1. `may_be_h2`: the client may also choose HTTP/2.
    pub fn judge(mut self, limits: fastrack_http::Limits, may_be_h2: bool) -> Self {
        self.inbound = Some(Box::new(Inbound::new(limits, may_be_h2)));
        self
    }

    /// Whether bytes have been read that hyper has not got.
    fn has_unread(&self) -> bool {
        !self.unread.is_empty() || self.inbound.as_ref().is_some_and(|inbound| inbound.has_bytes())
    }

    /// Has `bytes`, the beginning of a head, read once more.
    pub fn give_back(mut self, bytes: Bytes) -> Self {
        if !bytes.is_empty() || self.has_unread() {
            self.connection.received();
        }
        self.unread = bytes;
        self
    }

    /// Ready at the end of what the client sends.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = match &mut self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_mut().0,
        };
        loop {
            let mut bytes = [MaybeUninit::uninit(); 4096];
            let mut bytes = ReadBuf::uninit(&mut bytes);
            ready!(Pin::new(&mut *socket).poll_read(cx, &mut bytes))?;
            if bytes.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.connection.sent_last_bytes();
        }
    }

    /// Waits until there are bytes to read, the end of the stream, or an error.
    pub async fn wait(&mut self) {
        if !self.has_unread() {
            let _ = match &mut self.stream {
                Stream::Plain(stream) => stream.peek(&mut [0]).await.map(drop),
                Stream::Tls(stream) => stream.fill_buf().await.map(drop),
            };
        }
    }
}

impl Drop for Watched {
    /// A response that only the connection's end ends must not seem whole: a reset tells.
    fn drop(&mut self) {
        if self.connection.is_cut() {
            let socket = self.socket();
            // Fails only if the client has closed the connection.
            let _ = set_socket_linger(socket, Some(Duration::ZERO));
        }
    }
}

impl Watched {
    fn wrote(&self, result: &Poll<io::Result<usize>>) {
        self.connection.wrote(result, || fastrack_sys::unacknowledged(self.socket().as_fd()));
    }

    fn socket(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
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
        if !self.unread.is_empty() {
            let count = buf.remaining().min(self.unread.len());
            buf.put_slice(&self.unread.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let Watched { stream, connection, inbound, .. } = &mut *self;
        let mut read = |cx: &mut Context<'_>, buf: &mut ReadBuf<'_>| {
            let before = buf.filled().len();
            ready!(match &mut *stream {
                Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
                Stream::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
            })?;
            if buf.filled().len() > before {
                connection.received();
            }
            Poll::Ready(Ok(()))
        };
        match inbound {
            Some(inbound) => inbound.poll_read(connection, cx, buf, read),
            None => read(cx, buf),
        }
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.connection.set_sending(true);
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
        this.connection.set_sending(true);
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
            self.connection.set_sending(false);
        }
        result
    }

    /// Sends the end, then waits for the client's.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.connection.has_ended() {
            // No request comes after the shutdown.
            this.connection.set_sending(true);
            ready!(with_stream!(this, stream => stream.poll_shutdown(cx)))?;
            if this.connection.is_tunnel() {
                return Poll::Ready(Ok(()));
            }
            this.connection.end();
        }
        this.poll_discard(cx)
    }
}
