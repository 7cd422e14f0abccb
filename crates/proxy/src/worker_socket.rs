//! A connection's socket to a worker. The worker learns by its end that the client has left, and may still answer: the client may have ended
//! only its own side.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{ready, Context, Poll};

use rustix::net::{shutdown, Shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use crate::progress::Progress;

/// The socket, which hyper reads and writes, and which its user may end.
#[derive(Debug)]
pub struct WorkerSocket {
    stream: UnixStream,
    /// The body of the present request.
    upload: Mutex<Option<Arc<Progress>>>,
    /// Whether the present request has been written.
    is_sent: AtomicBool,
    /// Whether the worker is to learn that the client has left.
    is_left: AtomicBool,
}

impl WorkerSocket {
    /// A new connection.
    pub fn new(stream: UnixStream) -> Arc<Self> {
        let (is_sent, is_left) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(WorkerSocket { stream, upload: Mutex::default(), is_sent, is_left })
    }

    /// Begins another request, with this body.
    pub fn begin(&self, upload: Option<Arc<Progress>>) {
        *self.upload.lock().unwrap_or_else(PoisonError::into_inner) = upload;
        self.is_sent.store(false, SeqCst);
    }

    /// Tells the worker that the client has left, once it has the request.
    pub fn leave(&self) {
        self.is_left.store(true, SeqCst);
        if self.is_sent.load(SeqCst) {
            self.end();
        }
    }

    /// Whether no other request can be sent.
    pub fn is_left(&self) -> bool {
        self.is_left.load(SeqCst)
    }

    fn end(&self) {
        // Fails only if the worker has closed the connection.
        let _ = shutdown(&self.stream, Shutdown::Write);
    }

    /// Notes that all that hyper had of the request has been written.
    fn flushed(&self) {
        if self.is_sent.load(SeqCst) {
            return;
        }
        let upload = self.upload.lock().unwrap_or_else(PoisonError::into_inner);
        if upload.as_ref().is_none_or(|upload| upload.is_whole()) {
            self.is_sent.store(true, SeqCst);
            if self.is_left() {
                self.end();
            }
        }
    }
}

/// hyper's half of the socket.
#[derive(Debug)]
pub struct Wire(pub Arc<WorkerSocket>);

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.stream.poll_read_ready(cx))?;
            match self.0.stream.try_read_buf(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.stream.poll_write_ready(cx))?;
            match self.0.stream.try_write_vectored(bufs) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.end();
        Poll::Ready(Ok(()))
    }
}
