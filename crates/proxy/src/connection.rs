//! One client's connection: how long it may wait, and who the client is.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use hyper::Version;
use tokio::time::Instant;

use crate::ending::Stop;
use crate::pace::Taker;
use crate::place::Place;
use crate::shares::Share;
use crate::stats;
use crate::worker_socket::WorkerSocket;

mod delivery;
mod inbound;
mod notes;
mod request;

pub use delivery::Delivery;
pub use inbound::Inbound;
pub use notes::{Note, Notes};
pub use request::InFlight;

/// How long a client may send nothing, and how long it may send at all, after the server's end. The server discards it, as a worker does
/// (crates/engine/src/reactor/linger.rs): a close with unread bytes would be a reset, and the client could lose the response (RFC 9112 §9.6).
const LAST_SILENCE: Duration = Duration::from_secs(5);
const LAST_TIME: Duration = Duration::from_secs(30);

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
    /// What the judge of its bytes tells the handler of its requests.
    pub notes: Notes,
    /// Requests and tunnels keep the connection, and so the place.
    place: Place,
    began: Instant,
    requests: AtomicU32,
    /// Whether a part of a request's head has arrived.
    is_partial: AtomicBool,
    /// Whether a client of HTTP/1 has not sent the whole body of its last request.
    owes_body: AtomicBool,
    /// Whether the client has asked by HTTP/2. Bytes that such a client sends between requests may be a PING, SETTINGS or WINDOW_UPDATE, and no head.
    has_frames: AtomicBool,
    /// Whether bytes for the client are buffered, because its socket has not taken them.
    is_sending: AtomicBool,
    /// When the present wait began, in milliseconds after `began`.
    since: AtomicU64,
    /// Responses of HTTP/1.1 of which the client can take a part now.
    offered: AtomicU32,
    /// Whether the client's socket took no more bytes at the last try.
    is_full: AtomicBool,
    /// When the client last took a part of a response, or was last offered one, in milliseconds after `began`.
    taken: AtomicU64,
    /// Bytes in the full socket that the client's system had not acknowledged at the last look.
    unacknowledged: AtomicU32,
    /// Whether the connection has become a tunnel.
    is_tunnel: AtomicBool,
    /// When the server has sent its end, in milliseconds after `began`; 0: it has not.
    ended_at: AtomicU64,
    /// Requests that have begun.
    begun: AtomicU32,
    /// Whether the client of HTTP/1 has ended its side, and the connection to the worker that has its request.
    has_left: AtomicBool,
    worker: Mutex<Option<Arc<WorkerSocket>>>,
    /// Whether a response of HTTP/1 has ended in its middle: a reset tells that to a client that knows no length.
    is_cut: AtomicBool,
    /// Whether the time of the next head is over.
    is_late: AtomicBool,
    /// Whether the next write that the socket does not take looks at what the client's system has acknowledged.
    looks: AtomicBool,
    /// Requests that are with a worker.
    pub exchanges: Arc<Share>,
    /// Bytes of encoders.
    pub encoders: Arc<Share>,
    /// How the client takes responses of HTTP/2.
    pub taker: Arc<Taker>,
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
            place,
            notes: Notes::default(),
            began: Instant::now(),
            requests: AtomicU32::new(0),
            // The first head has the time of a head, and not that of an idle connection.
            is_partial: AtomicBool::new(true),
            owes_body: AtomicBool::new(false),
            has_frames: AtomicBool::new(false),
            is_sending: AtomicBool::new(false),
            since: AtomicU64::new(0),
            offered: AtomicU32::new(0),
            is_full: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            unacknowledged: AtomicU32::new(0),
            is_tunnel: AtomicBool::new(false),
            ended_at: AtomicU64::new(0),
            begun: AtomicU32::new(0),
            has_left: AtomicBool::new(false),
            worker: Mutex::default(),
            is_cut: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            looks: AtomicBool::new(false),
            exchanges: Arc::default(),
            encoders: Arc::default(),
            taker: Arc::default(),
        })
    }

    /// Time that the client has left for its next bytes; None: the time is over. The connection's task asks now and then, so that a request
    /// needs no timer.
    pub fn time_left(&self, Times { head, idle, write }: Times) -> Option<Duration> {
        // A head or a response may begin, and a request end, at any time.
        let next_look = head.min(idle).min(write);
        if self.has_ended() {
            let silence = LAST_SILENCE.checked_sub(self.elapsed(&self.since))?;
            let left = silence.min(LAST_TIME.checked_sub(self.elapsed(&self.ended_at))?);
            return Some(left).filter(|left| !left.is_zero());
        }
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

    /// Whether nothing has been on its way for this time, in either direction. A response may come before its request's body is whole: the
    /// next bytes are of that body then, and of no request. Neither are bytes after the server's end.
    pub fn is_quiet(&self, time: Duration) -> bool {
        let is_idle = self.requests.load(Relaxed) == 0 && !self.is_partial.load(Relaxed);
        let may_ask = !self.owes_body.load(Relaxed) && !self.has_ended();
        is_idle && may_ask && !self.is_sending.load(Relaxed) && self.elapsed(&self.since) >= time
    }

    /// Time that the client has left for another request, if the process is to end; None: the time is over.
    pub fn time_to_ask(&self, stop: &Stop) -> Option<Duration> {
        if self.requests.load(Relaxed) > 0 {
            return Some(Duration::MAX);
        }
        let until = if self.is_partial.load(Relaxed) { stop.fresh_until } else { stop.kept_until };
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// Whether the client's socket took no more bytes at the last try.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Notes whether the client has not sent the whole body of its last request.
    fn set_owes_body(&self, owes_body: bool) {
        self.owes_body.store(owes_body, Relaxed);
    }

    /// Notes whether bytes for the client are buffered, because its socket has not taken them.
    pub fn set_sending(&self, is_sending: bool) {
        self.is_sending.store(is_sending, Relaxed);
    }

    /// Whether the connection has become a tunnel.
    pub fn is_tunnel(&self) -> bool {
        self.is_tunnel.load(Relaxed)
    }

    /// Notes that the server has sent its end.
    pub fn end(&self) {
        self.ended_at.store(self.now().max(1), Relaxed);
        self.wait_from_now();
    }

    /// Notes that the client has sent something after the server's end.
    pub fn sent_last_bytes(&self) {
        self.wait_from_now();
    }

    /// Whether the server has sent its end.
    pub fn has_ended(&self) -> bool {
        self.ended_at.load(Relaxed) > 0
    }

    /// Whether the process is to end, and the next response is the last one of its connection.
    pub fn is_last(&self) -> bool {
        self.place.work.is_ending()
    }

    /// Whether the connection may carry no more requests of HTTP/1. `most` is how many it may carry, or 0 without a limit.
    pub fn is_used_up(&self, most: u32) -> bool {
        most > 0 && self.begun.load(Relaxed) >= most
    }

    /// Notes that the client speaks HTTP/2.
    pub fn set_frames(&self) {
        self.has_frames.store(true, Relaxed);
    }

    /// Whether the client is known to speak HTTP/2.
    pub fn has_frames(&self) -> bool {
        self.has_frames.load(Relaxed)
    }

    fn elapsed(&self, since: &AtomicU64) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(since.load(Relaxed)))
    }

    /// Notes that a request has begun, until the result is dropped.
    pub fn begin_request(self: &Arc<Self>, version: Version) -> InFlight {
        self.requests.fetch_add(1, Relaxed);
        self.is_partial.store(false, Relaxed);
        self.has_frames.store(version == Version::HTTP_2, Relaxed);
        self.begun.fetch_add(1, Relaxed);
        stats::REQUESTS.fetch_add(1, Relaxed);
        self.place.work.begin_request();
        InFlight::new(Arc::clone(self))
    }

    /// Notes the connection to the worker that gets the request, and tells the worker if the client has left. Streams of HTTP/2 end by
    /// themselves.
    pub fn set_worker(&self, socket: &Arc<WorkerSocket>) {
        if self.has_frames() {
            return;
        }
        if self.has_left.load(Relaxed) {
            socket.leave();
        }
        *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(socket));
    }

    /// The client has ended its side: the worker is to know, and may still answer.
    fn leave(&self) {
        if !self.has_left.swap(true, Relaxed) {
            let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
            worker.iter().for_each(|socket| socket.leave());
        }
    }

    /// Notes that the time of the next head is over. Whether it was not noted before.
    pub fn become_late(&self) -> bool {
        !self.is_late.swap(true, Relaxed)
    }

    /// Whether the time of the next head is over.
    pub fn is_late(&self) -> bool {
        self.is_late.load(Relaxed)
    }

    /// Has the connection end by a reset.
    pub fn cut(&self) {
        self.is_cut.store(true, Relaxed);
    }

    /// Whether only a reset tells the client that its response is not whole.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Relaxed)
    }

    /// Whether the request of this number, which HTTP/1 had as its last one, has its whole response.
    fn has_answered(&self, number: u64) -> bool {
        self.notes.has_taken(number) && self.requests.load(Relaxed) == 0
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
    pub fn wrote(&self, result: &Poll<io::Result<usize>>, unacknowledged: impl FnOnce() -> Option<u32>) {
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

    pub fn received(&self) {
        let may_be_head = self.requests.load(Relaxed) == 0 && !self.has_frames.load(Relaxed);
        if may_be_head && !self.is_partial.swap(true, Relaxed) {
            self.wait_from_now();
        }
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

#[cfg(test)]
pub mod tests;
