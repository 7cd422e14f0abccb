//! A connection's socket to a worker. The worker learns by its end that the client has left, and may still answer: the client may have ended
//! only its own side.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use hyper::body::Bytes;
use rustix::net::{shutdown, Shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// Bytes that are read at once, at most.
pub const MOST_READ: usize = 64 * 1024;

thread_local! {
    /// Connections have no buffers: what has been read is copied to where it is needed. So one that waits takes no memory for it.
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; MOST_READ].into());
}

/// The socket, which is read and written by the exchange that has it, and which its user may end.
#[derive(Debug)]
pub struct WorkerSocket {
    stream: UnixStream,
    /// Whether the present request has been written.
    is_sent: AtomicBool,
    /// Whether the worker is to learn that the client has left.
    is_left: AtomicBool,
}

impl WorkerSocket {
    /// A new connection.
    pub fn new(stream: UnixStream) -> Arc<Self> {
        Arc::new(WorkerSocket { stream, is_sent: AtomicBool::new(false), is_left: AtomicBool::new(false) })
    }

    /// Begins another request.
    pub fn begin(&self) {
        self.is_sent.store(false, SeqCst);
    }

    /// Notes that the present request has been written.
    pub fn sent(&self) {
        self.is_sent.store(true, SeqCst);
        if self.is_left.load(SeqCst) {
            self.end();
        }
    }

    /// Tells the worker that the client has left, once it has the request.
    pub fn leave(&self) {
        self.is_left.store(true, SeqCst);
        if self.is_sent.load(SeqCst) {
            self.end();
        }
    }

    /// Whether another request can be sent after the present one.
    pub fn can_be_kept(&self) -> bool {
        self.is_sent.load(SeqCst) && !self.is_left.load(SeqCst)
    }

    /// Whether the worker has neither ended the connection nor sent bytes without a request.
    pub fn is_idle(&self) -> bool {
        let result = self.stream.try_read(&mut [0]);
        result.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Ends an exchange in its middle, whoever else has the socket.
    pub fn cut(&self) {
        // Fails only if the worker has closed the connection.
        let _ = shutdown(&self.stream, Shutdown::Both);
    }

    fn end(&self) {
        let _ = shutdown(&self.stream, Shutdown::Write);
    }

    /// Reads at most so many bytes; none: the worker has ended the connection.
    pub fn poll_read(&self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Bytes>> {
        READ.with_borrow_mut(|buffer| {
            let buffer = &mut buffer[..most.min(MOST_READ)];
            loop {
                ready!(self.stream.poll_read_ready(cx))?;
                match self.stream.try_read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => {
                        return Poll::Ready(result.map(|count| Bytes::copy_from_slice(&buffer[..count])))
                    }
                }
            }
        })
    }

    /// Ready when the worker has ended the connection. Discards all that the worker sends before.
    pub fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        while ready!(self.poll_read(cx, MOST_READ)).is_ok_and(|bytes| !bytes.is_empty()) {}
        Poll::Ready(())
    }

    /// Writes some of these bytes.
    pub fn poll_write(&self, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write_vectored(bufs) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

/// The worker's side of a tunnel.
#[derive(Debug)]
pub struct Wire {
    socket: Arc<WorkerSocket>,
    /// Bytes that came with the response.
    first: Bytes,
}

impl Wire {
    /// The tunnel whose first bytes have been read.
    pub fn new(socket: Arc<WorkerSocket>, first: Bytes) -> Self {
        Wire { socket, first }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let count = buf.remaining().min(self.first.len());
            buf.put_slice(&self.first.split_to(count));
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.socket.stream.poll_read_ready(cx))?;
            match self.socket.stream.try_read_buf(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_write(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.end();
        Poll::Ready(Ok(()))
    }
}
