//! Lines of the access log for this process's own answers: files, redirects, errors. A worker logs the requests that it answers.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrack_access_log::{Format, Line, LineWriter, Request, LINE_LIMIT};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Uri, Version};
use serde::Deserialize;

use crate::control;
use crate::fields;

/// Lines that may wait for a disk or a pipe, and their bytes; beyond, lines are dropped.
const MOST_WAITING: usize = 4096;
const MOST_BYTES: usize = 1024 * 1024;

/// How long the last lines may take when the process ends.
const LAST_TIME: Duration = Duration::from_secs(1);

/// Pause before the next try at a pipe that is full.
const FULL_PAUSE: Duration = Duration::from_millis(10);

thread_local! {
    /// Writes the lines of this thread's clients, in this format.
    static LINES: RefCell<Option<(Format, LineWriter)>> = const { RefCell::new(None) };
}

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where lines go.
#[derive(Clone, Debug, Deserialize)]
pub struct Settings {
    /// The number of its descriptor. After a rotation another one comes, with other settings.
    pub descriptor: usize,
    /// "json", or anything else for the combined format.
    #[serde(default)]
    pub format: String,
}

/// The access log, which a thread writes: only that thread waits for a disk.
#[derive(Debug)]
pub struct AccessLog {
    orders: SyncSender<Order>,
    format: Format,
    /// Bytes of the lines that wait.
    waiting: Arc<AtomicUsize>,
    dropped: AtomicU64,
}

#[derive(Debug)]
enum Order {
    Write(Vec<u8>),
    Tell(SyncSender<()>),
}

impl AccessLog {
    /// Starts the thread, which ends with the last user of the log, and then closes the descriptor.
    pub fn start(settings: &Settings, descriptor: OwnedFd) -> io::Result<Arc<Self>> {
        let file = File::from(descriptor);
        let (orders, received) = sync_channel(MOST_WAITING);
        let waiting = Arc::<AtomicUsize>::default();
        let format = if settings.format == "json" { Format::Json } else { Format::Combined };
        let mut writer = Writer { file, waiting: Arc::clone(&waiting) };
        std::thread::Builder::new()
            .name("access log".into())
            .stack_size(128 * 1024)
            .spawn(move || writer.run(&received))?;
        Ok(Arc::new(AccessLog { orders, format, waiting, dropped: AtomicU64::new(0) }))
    }

    /// Returns when all lines are written, or time is over.
    pub fn finish(&self) {
        let (done, is_done) = sync_channel(1);
        if self.orders.try_send(Order::Tell(done)).is_ok() {
            let _ = is_done.recv_timeout(LAST_TIME);
        }
    }

    fn line(&self, answer: &Answer) -> Vec<u8> {
        let mut line = Vec::with_capacity(256);
        LINES.with_borrow_mut(|lines| {
            let (_, lines) = match lines {
                Some(kept) if kept.0 == self.format => kept,
                _ => lines.insert((self.format, LineWriter::new(self.format, None))),
            };
            lines.write(&answer.line(&mut Vec::new()), &mut line);
        });
        line
    }

    /// Queues the line of an answer. The line, and not the answer, because fields keep whole heads in memory.
    fn write(&self, answer: &Answer) {
        let line = self.line(answer);
        let length = line.len();
        if self.waiting.fetch_add(length, Relaxed) + length <= MOST_BYTES
            && self.orders.try_send(Order::Write(line)).is_ok()
        {
            return;
        }
        self.waiting.fetch_sub(length, Relaxed);
        let dropped = self.dropped.fetch_add(1, Relaxed) + 1;
        if dropped.is_power_of_two() {
            control::warn(&format!("the access log has not taken {dropped} lines, which are dropped"));
        }
    }
}

/// An answer of this process, and its request.
#[derive(Debug)]
struct Answer {
    method: Method,
    uri: Uri,
    /// None: no request could be read.
    version: Option<Version>,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    request_id: Option<HeaderValue>,
    client: IpAddr,
    began: Instant,
    status: u16,
    length: u64,
    /// Milliseconds since 1970, at the end.
    time: u64,
    duration: Duration,
}

/// A request that this process may answer itself. Drop of the result of [`Logged::answer`] writes the request's line.
#[derive(Debug)]
pub struct Logged {
    answer: Box<Answer>,
    log: Arc<AccessLog>,
}

impl Logged {
    /// Keeps what a line tells of a request.
    pub fn new(log: &Arc<AccessLog>, request: &Parts, client: IpAddr) -> Self {
        let field = |name: &HeaderName| request.headers.get(name).cloned();
        let mut logged = Logged::unread(log, client);
        logged.answer.method = request.method.clone();
        logged.answer.uri = request.uri.clone();
        logged.answer.version = Some(request.version);
        logged.answer.referer = field(&header::REFERER);
        logged.answer.user_agent = field(&header::USER_AGENT);
        logged.answer.request_id = field(&REQUEST_ID);
        logged
    }

    /// A request that this process could not read.
    pub fn unread(log: &Arc<AccessLog>, client: IpAddr) -> Self {
        let answer = Answer {
            method: Method::default(),
            uri: Uri::default(),
            version: None,
            referer: None,
            user_agent: None,
            request_id: None,
            client,
            began: Instant::now(),
            status: 0,
            length: 0,
            time: 0,
            duration: Duration::ZERO,
        };
        Logged { answer: Box::new(answer), log: Arc::clone(log) }
    }

    /// This process answers the request.
    pub fn answer(mut self, status: u16) -> Answered {
        self.answer.status = status;
        Answered(Some(self))
    }
}

/// An answer that is being sent.
#[derive(Debug)]
pub struct Answered(Option<Logged>);

impl Answered {
    /// Counts bytes of the body.
    pub fn add(&mut self, bytes: usize) {
        if let Some(logged) = &mut self.0 {
            logged.answer.length += bytes as u64;
        }
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        let Some(Logged { mut answer, log }) = self.0.take() else { return };
        answer.time =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        answer.duration = answer.began.elapsed();
        log.write(&answer);
    }
}

/// The thread's side.
#[derive(Debug)]
struct Writer {
    file: File,
    waiting: Arc<AtomicUsize>,
}

impl Writer {
    fn run(&mut self, orders: &Receiver<Order>) {
        let mut batch = Vec::with_capacity(2 * LINE_LIMIT);
        while let Ok(order) = orders.recv() {
            self.follow(order, &mut batch);
            // The same write takes the waiting lines, as many as a pipe takes at once.
            while let Ok(order) = orders.try_recv() {
                self.follow(order, &mut batch);
            }
            self.flush(&mut batch);
        }
    }

    fn follow(&mut self, order: Order, batch: &mut Vec<u8>) {
        match order {
            Order::Write(line) => {
                if batch.len() + line.len() > LINE_LIMIT {
                    self.flush(batch);
                }
                batch.extend_from_slice(&line);
                self.waiting.fetch_sub(line.len(), Relaxed);
            }
            Order::Tell(done) => {
                self.flush(batch);
                let _ = done.send(());
            }
        }
    }

    fn flush(&mut self, batch: &mut Vec<u8>) {
        let mut rest = &batch[..];
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The reader of a pipe may be slow.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(FULL_PAUSE),
                Err(error) => {
                    control::warn(&format!("cannot write to the access log: {error}"));
                    break;
                }
            }
        }
        batch.clear();
    }
}

impl Answer {
    /// The line of this answer. `text` is a buffer for the request line.
    fn line<'a>(&'a self, text: &'a mut Vec<u8>) -> Line<'a> {
        let authority = || self.uri.authority().map_or("*", |authority| authority.as_str());
        let target = self.uri.path_and_query().map_or_else(authority, |target| target.as_str());
        let method = self.method.as_str();
        if let Some(version) = self.version {
            // Writing to memory does not fail.
            let _ = write!(text, "{method} {target} {}", fields::protocol(version));
        }
        let known = self.version.is_some();
        let request = Request {
            line: text,
            method: if known { method.as_bytes() } else { b"" },
            target: if known { target.as_bytes() } else { b"" },
            referer: self.referer.as_ref().map(HeaderValue::as_bytes),
            user_agent: self.user_agent.as_ref().map(HeaderValue::as_bytes),
            request_id: self.request_id.as_ref().map(HeaderValue::as_bytes),
        };
        Line {
            request,
            address: Some(self.client),
            protocol: None,
            status: self.status,
            length: self.length,
            time: self.time,
            duration: self.duration.as_micros() as u64,
            queue_time: 0,
            timings: None,
        }
    }
}
