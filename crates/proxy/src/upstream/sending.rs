//! A request on its way to a worker.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use fastrack_http::{chunk_size_line, CHUNK_END};
use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderMap, HeaderName};

use super::head::write_field;
use crate::uploaded::Uploaded;
use crate::worker_socket::WorkerSocket;

/// Bytes that wait for the worker, before more of the body is asked for.
const MOST_WAITING: usize = 64 * 1024;

/// Slices that are written at once.
const SLICES: usize = 8;

/// Fields that no trailer may set (RFC 9110 §6.5.1).
const NO_TRAILERS: [HeaderName; 12] = [
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::HOST,
    header::MAX_FORWARDS,
    header::SET_COOKIE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
];

/// The body of a request, and how a worker gets it.
#[derive(Debug)]
pub struct Upload {
    body: Uploaded,
    /// Bytes that are to come, if the head names them; otherwise the body is sent in chunks.
    left: Option<u64>,
    /// Trailers that the head names.
    trailers: Vec<HeaderName>,
}

impl Upload {
    /// The body of a request with these fields.
    pub fn new(body: Uploaded, fields: &HeaderMap) -> Self {
        let names = fields.get_all(header::TRAILER).iter().filter_map(|value| value.to_str().ok());
        let names = names.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok());
        let trailers = names.filter(|name| !NO_TRAILERS.contains(name)).collect();
        Upload { left: body.size_hint().exact(), body, trailers }
    }
}

/// Why a request is not whole.
#[derive(Debug)]
pub enum Unsent {
    /// The connection takes nothing more. Whether it has taken a part.
    Closed { is_begun: bool },
    /// The client's part has ended early.
    Upload(Option<hyper::Error>),
}

/// A request that is written to a worker's connection.
#[derive(Debug)]
pub struct Sending {
    socket: Arc<WorkerSocket>,
    waiting: VecDeque<Bytes>,
    upload: Option<Upload>,
    is_begun: bool,
}

impl Sending {
    /// Nothing of it has been written.
    pub fn new(socket: &Arc<WorkerSocket>, head: &Bytes, upload: Option<Upload>) -> Self {
        socket.begin();
        let waiting = VecDeque::from([head.clone()]);
        Sending { socket: Arc::clone(socket), waiting, upload, is_begun: false }
    }

    /// The worker wants the body.
    pub fn want(&self) {
        if let Some(upload) = &self.upload {
            upload.body.progress().want();
        }
    }

    /// Sends it by another connection, because this one has taken nothing.
    pub fn move_to(&mut self, socket: &Arc<WorkerSocket>) {
        socket.begin();
        self.socket = Arc::clone(socket);
    }

    /// Whether the worker has never asked for the body, though the client waits for that.
    pub fn is_unwanted(&self) -> bool {
        self.upload.as_ref().is_some_and(|upload| !upload.body.progress().is_wanted())
    }

    /// Writes the rest. The response has come meanwhile.
    pub async fn finish(mut self) {
        if let Err(Unsent::Upload(_)) = poll_fn(|cx| self.poll(cx)).await {
            self.socket.cut();
        }
    }

    /// Writes what the worker takes. Ready when all has been written, or nothing more can be.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        loop {
            // The head leaves together with the first part of the body.
            let is_whole = self.poll_upload(cx)?;
            ready!(self.poll_write(cx)).map_err(|_| Unsent::Closed { is_begun: self.is_begun })?;
            if ready!(is_whole) {
                self.socket.sent();
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes parts of the body. Ready with whether it is whole.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<Poll<bool>, Unsent> {
        while let Some(upload) = &mut self.upload {
            if self.waiting.iter().map(Bytes::len).sum::<usize>() >= MOST_WAITING {
                return Ok(Poll::Ready(false));
            }
            match Pin::new(&mut upload.body).poll_frame(cx) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Some(Err(error))) => return Err(Unsent::Upload(Some(error))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => upload.add(bytes, &mut self.waiting),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        upload.end(&trailers, &mut self.waiting)?;
                        self.upload = None;
                        continue;
                    }
                },
                Poll::Ready(None) => {
                    upload.end(&HeaderMap::new(), &mut self.waiting)?;
                    self.upload = None;
                    continue;
                }
            }
            if upload.left == Some(0) && upload.body.is_end_stream() {
                self.upload = None;
            }
        }
        Ok(Poll::Ready(true))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.waiting.len().min(SLICES);
            slices.iter_mut().zip(&self.waiting).for_each(|(slice, bytes)| *slice = IoSlice::new(bytes));
            let mut written = ready!(self.socket.poll_write(cx, &slices[..count]))?;
            self.is_begun = true;
            while let Some(first) = self.waiting.front_mut().filter(|_| written > 0) {
                let part = first.split_to(written.min(first.len())).len();
                written -= part;
                if first.is_empty() {
                    self.waiting.pop_front();
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Upload {
    fn add(&mut self, bytes: Bytes, waiting: &mut VecDeque<Bytes>) {
        if bytes.is_empty() {
            return;
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes.len() as u64);
            waiting.push_back(bytes);
        } else {
            let mut line = [0; 18];
            let line = chunk_size_line(bytes.len() as u64, &mut line);
            waiting.extend([Bytes::copy_from_slice(line), bytes, Bytes::from_static(CHUNK_END)]);
        }
    }

    /// Ends the body. Fails if bytes are missing.
    fn end(&self, trailers: &HeaderMap, waiting: &mut VecDeque<Bytes>) -> Result<(), Unsent> {
        match self.left {
            None => {
                let mut end = b"0\r\n".to_vec();
                trailers
                    .iter()
                    .filter(|(name, _)| self.trailers.contains(name))
                    .for_each(|(name, value)| write_field(&mut end, name, value));
                end.extend_from_slice(CHUNK_END);
                waiting.push_back(end.into());
                Ok(())
            }
            Some(0) => Ok(()),
            Some(_) => Err(Unsent::Upload(None)),
        }
    }
}
