//! Bodies that this process has itself.

use std::fs::File;
use std::future::{poll_fn, Future};
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use hyper::body::Bytes;
use rustix::buffer::spare_capacity;
use tokio::task::{spawn_blocking, JoinHandle};

use super::entry::Store;
use super::folders::{Opened, Wait};

/// Bytes that are read at once.
const PART: usize = 64 * 1024;

/// Bytes that are read at once by another thread: its wake-up costs more than copying them.
const SLOW_PART: usize = 2 * PART;

/// A body that this process has itself.
#[derive(Debug)]
pub enum Content {
    /// Bytes; None: they have been sent, or there are none.
    Memory(Option<Bytes>),
    /// A file, or parts of it.
    File(Box<FileBody>),
}

impl Content {
    /// No body.
    pub fn empty() -> Self {
        Content::Memory(None)
    }

    /// These pieces of what `store` has.
    pub fn pieces(store: &Store, pieces: Vec<Piece>) -> Self {
        match (store, &pieces[..]) {
            (Store::Memory(bytes), [Piece::Stored(range)]) => {
                let part = bytes.slice(range.start as usize..range.end as usize);
                Content::Memory((!part.is_empty()).then_some(part))
            }
            _ => Content::File(Box::new(FileBody::new(store.clone(), pieces))),
        }
    }

    /// The next bytes, of which at most so many are read from the disk; None at the end.
    pub fn poll_part(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Option<io::Result<Bytes>>> {
        match self {
            Content::Memory(bytes) => Poll::Ready(bytes.take().map(Ok)),
            Content::File(body) => body.poll_part(cx, most),
        }
    }

    /// The next bytes; None at the end.
    pub async fn next_part(&mut self) -> Option<io::Result<Bytes>> {
        poll_fn(|cx| self.poll_part(cx, PART)).await
    }

    /// Bytes that have not been sent.
    pub fn left(&self) -> u64 {
        match self {
            Content::Memory(bytes) => bytes.as_ref().map_or(0, Bytes::len) as u64,
            Content::File(body) => body.left,
        }
    }
}

/// A piece of a body.
#[derive(Debug)]
pub enum Piece {
    /// These bytes.
    Own(Bytes),
    /// These bytes of what is stored.
    Stored(Range<u64>),
}

impl Piece {
    fn length(&self) -> u64 {
        match self {
            Piece::Own(bytes) => bytes.len() as u64,
            Piece::Stored(range) => range.end - range.start,
        }
    }
}

/// A body of several pieces, or of a file.
#[derive(Debug)]
pub struct FileBody {
    store: Store,
    /// The next one is the last.
    pieces: Vec<Piece>,
    left: u64,
    /// A read that waits for the disk, on another thread.
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

impl FileBody {
    fn new(store: Store, mut pieces: Vec<Piece>) -> Self {
        let left = pieces.iter().map(Piece::length).sum();
        pieces.reverse();
        FileBody { store, pieces, left, reading: None }
    }

    /// The next bytes; None at the end. Fails if the file has changed: the connection ends then, so that the client sees that the body is
    /// no whole one.
    fn poll_part(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Option<io::Result<Bytes>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let result = ready!(self.poll_read(cx, most)).and_then(|bytes| {
            self.left = self.left.saturating_sub(bytes.len() as u64);
            if self.left == 0 {
                self.check()?;
            }
            Ok(bytes)
        });
        if result.is_err() {
            self.left = 0;
        }
        Poll::Ready(Some(result))
    }

    /// Called before the last bytes leave. So no client has a whole body of two contents.
    fn check(&self) -> io::Result<()> {
        match &self.store {
            Store::Disk(opened) if !opened.has_same_content() => Err(changed()),
            _ => Ok(()),
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Bytes>> {
        let Some(piece) = self.pieces.pop() else { return Poll::Ready(Err(changed())) };
        match (piece, &self.store) {
            (Piece::Own(bytes), _) => Poll::Ready(Ok(bytes)),
            (Piece::Stored(range), Store::Memory(bytes)) => {
                Poll::Ready(Ok(bytes.slice(range.start as usize..range.end as usize)))
            }
            (Piece::Stored(range), Store::Disk(opened)) => {
                let opened = Arc::clone(opened);
                let result = self.poll_disk(cx, &opened, &range, most);
                let count = match &result {
                    Poll::Ready(Ok(part)) => part.len() as u64,
                    _ => 0,
                };
                if !result.is_ready() || range.start + count < range.end {
                    self.pieces.push(Piece::Stored(range.start + count..range.end));
                }
                result
            }
        }
    }

    /// The first bytes of a range: what the kernel has in memory, or what another thread has read.
    fn poll_disk(
        &mut self,
        cx: &mut Context<'_>,
        opened: &Arc<Opened>,
        range: &Range<u64>,
        most: usize,
    ) -> Poll<io::Result<Bytes>> {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        if self.reading.is_none() {
            match read_cached(&opened.file, range.start, length.min(PART).min(most)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result.map(Bytes::from)),
            }
        }
        let (file, start, slow) = (Arc::clone(opened), range.start, SLOW_PART.min(2 * most));
        let reading = self.reading.get_or_insert_with(|| {
            spawn_blocking(move || read(&file.file, start, length.min(slow), Wait::Allowed))
        });
        let result = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        Poll::Ready(result.map_err(io::Error::other).and_then(|read| read).map(Bytes::from))
    }
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file has changed while it was sent")
}

/// Some of these bytes of a file, one at least. Fails with WouldBlock if the disk has to be asked.
fn read_cached(file: &File, start: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut part = Vec::with_capacity(count);
    match fastrack_sys::read_cached(file, &mut part, start)? {
        0 => Err(changed()),
        _ => {
            part.truncate(count);
            Ok(part)
        }
    }
}

/// So many bytes of a file. Fails if the file has fewer.
pub fn read(file: &File, start: u64, count: usize, wait: Wait) -> io::Result<Vec<u8>> {
    let mut part = Vec::with_capacity(count);
    while part.len() < count {
        let offset = start + part.len() as u64;
        let got = match wait {
            Wait::Never => fastrack_sys::read_cached(file, &mut part, offset)?,
            Wait::Allowed => {
                rustix::io::retry_on_intr(|| rustix::io::pread(file, spare_capacity(&mut part), offset))?
            }
        };
        if got == 0 {
            return Err(changed());
        }
    }
    part.truncate(count);
    Ok(part)
}
