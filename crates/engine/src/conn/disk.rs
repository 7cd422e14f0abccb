//! A thread that writes the bodies of requests to files: a slow disk delays only the clients of those requests.
//!
//! A connection passes the received part of a body to this thread, and receives nothing until the part is written.
//! The poller of all connections then reports [`Disk::waker`], and [`Disk::take_done`] returns the key of the
//! connection.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use fastrack_sys::{spawn_thread, Waker};

use super::spool::{Spooling, Tracked};
use crate::control::Control;

/// Bytes that may wait for the disk. Above this no worker receives further bodies.
const MAX_WAITING_BYTES: usize = 32 * 1024 * 1024;

/// A body's file, without a name.
#[derive(Debug)]
pub(crate) struct BodyFile {
    // INVARIANT: declared before `file`, because it must be dropped first.
    _tracked: Option<Tracked>,
    file: File,
}

impl BodyFile {
    /// A file that another process has made.
    pub fn loaded(file: File) -> Self {
        BodyFile { _tracked: None, file }
    }

    pub fn file(&self) -> &File {
        &self.file
    }
}

/// One write of a body's bytes to its file.
#[derive(Debug)]
pub(crate) struct Write {
    /// The key of the connection.
    key: usize,
    /// None for the first write, which makes the file.
    file: Option<Arc<BodyFile>>,
    at: u64,
    bytes: Vec<u8>,
    result: OnceLock<io::Result<Arc<BodyFile>>>,
}

impl Write {
    pub fn new(key: usize, file: Option<Arc<BodyFile>>, at: u64, bytes: Vec<u8>) -> Self {
        Write { key, file, at, bytes, result: OnceLock::new() }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The file, or the error of the write; None until the write is done.
    pub fn result(&self) -> Option<Result<Arc<BodyFile>, &io::Error>> {
        self.result.get().map(|result| result.as_ref().map(Arc::clone))
    }

    /// The buffer, emptied.
    pub fn into_buffer(mut self) -> Vec<u8> {
        self.bytes.clear();
        self.bytes
    }

    /// Writes the bytes. The position of the file stays at the start, where the application reads.
    pub fn carry_out(&self, spooling: &Spooling, control: &Arc<Control>) {
        let written = || {
            let file = match &self.file {
                Some(file) => Arc::clone(file),
                None => {
                    let (file, tracked) = spooling.create(control)?;
                    Arc::new(BodyFile { _tracked: Some(tracked), file })
                }
            };
            file.file.write_all_at(&self.bytes, self.at)?;
            Ok(file)
        };
        let _ = self.result.set(written());
    }
}

/// The disk thread and its queue. The first write starts the thread.
#[derive(Debug)]
pub(crate) struct Disk {
    spooling: Spooling,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

#[derive(Debug)]
struct Shared {
    work: Mutex<Work>,
    begins: Condvar,
    /// Bytes that have not been written yet.
    waiting: AtomicUsize,
    /// The waker was called since the last [`Disk::clear_news`].
    has_news: AtomicBool,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Work {
    writes: VecDeque<Arc<Write>>,
    done: Vec<usize>,
    is_over: bool,
}

impl Disk {
    pub fn new(spooling: Spooling) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            work: Mutex::default(),
            begins: Condvar::new(),
            waiting: AtomicUsize::new(0),
            has_news: AtomicBool::new(false),
            waker: Waker::new()?,
        });
        Ok(Disk { spooling, shared, thread: None, pid: std::process::id() })
    }

    /// Wakes the thread that polls the connections when a write is done.
    pub fn waker(&self) -> &Waker {
        &self.shared.waker
    }

    pub fn inherited_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        self.shared.waker.raw_fds()
    }

    pub fn begin(&mut self, write: Arc<Write>, control: &Arc<Control>) {
        self.shared.waiting.fetch_add(write.len(), Ordering::Relaxed);
        if let Err(error) = self.start(control) {
            let _ = write.result.set(Err(error));
            return self.shared.end(write);
        }
        self.shared.work().writes.push_back(write);
        self.shared.begins.notify_one();
    }

    fn start(&mut self, control: &Arc<Control>) -> io::Result<()> {
        if self.thread.is_some() {
            return Ok(());
        }
        let (shared, spooling, control) =
            (Arc::clone(&self.shared), self.spooling.clone(), Arc::clone(control));
        let work = move || {
            if catch_unwind(AssertUnwindSafe(|| shared.run(&spooling, &control))).is_err() {
                // The panic has been logged. Without this thread clients would wait for ever, so the master starts a
                // new worker.
                std::process::abort();
            }
        };
        self.thread = Some(spawn_thread("fastrack disk", work)?);
        Ok(())
    }

    /// Whether the poller of all connections will report the waker.
    pub fn has_news(&self) -> bool {
        self.shared.has_news.load(Ordering::Acquire)
    }

    /// Called before the poller is asked.
    pub fn clear_news(&self) {
        self.shared.has_news.store(false, Ordering::Release);
    }

    /// Takes the keys of the connections whose writes are done.
    pub fn take_done(&self) -> Vec<usize> {
        std::mem::take(&mut self.shared.work().done)
    }

    /// Whether too many bytes wait for the disk to receive further bodies.
    pub fn is_full(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) > MAX_WAITING_BYTES
    }

    /// Waits until everything has been written, for at most `millis` milliseconds.
    pub fn wait(&self, millis: u64) {
        let end = fastrack_sys::monotonic_millis() + millis;
        while self.shared.waiting.load(Ordering::Relaxed) > 0 && fastrack_sys::monotonic_millis() < end {
            fastrack_sys::sleep(1);
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.pid != std::process::id() {
            // A forked child has no such thread, and the lock may be held for ever.
            return std::mem::forget(thread);
        }
        self.shared.work().is_over = true;
        self.shared.begins.notify_one();
        // The thread cannot have panicked: a panic ends the process.
        let _ = thread.join();
    }
}

impl Shared {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, spooling: &Spooling, control: &Arc<Control>) {
        while let Some(write) = self.next() {
            // A write with one owner belongs to a connection that was closed meanwhile.
            if Arc::strong_count(&write) > 1 {
                write.carry_out(spooling, control);
            }
            self.end(write);
        }
    }

    /// The next write; None when the engine is dropped.
    fn next(&self) -> Option<Arc<Write>> {
        let idle = |work: &mut Work| work.writes.is_empty() && !work.is_over;
        let work = self.begins.wait_while(self.work(), idle).unwrap_or_else(PoisonError::into_inner);
        let mut work = work;
        work.writes.pop_front().filter(|_| !work.is_over)
    }

    fn end(&self, write: Arc<Write>) {
        let (key, length) = (write.key, write.len());
        // Dropped before the connection looks: the connection takes the buffer back if it is the only owner.
        drop(write);
        self.work().done.push(key);
        self.waiting.fetch_sub(length, Ordering::Relaxed);
        self.waker.call();
        // Set after the call: the thread that clears this flag finds the call when it asks the poller.
        self.has_news.store(true, Ordering::SeqCst);
    }
}
