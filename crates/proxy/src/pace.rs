//! How much of a response waits in memory for its client of HTTP/2.
//!
//! hyper gives h2 a part as soon as the stream has room for a byte, and takes the next one from the body. h2 keeps both until the client takes
//! them. So a body gives little at first, and more once its client has taken it, if there is memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::body::Bytes;

use crate::memory;
use crate::shares::{Part, Share};

/// What the responses of a connection know of its client.
#[derive(Debug, Default)]
pub struct Taker {
    /// Bytes that wait for it, beyond the first ones of each response.
    share: Arc<Share>,
    /// Whether it has taken as much of a response as it was offered.
    has_taken: AtomicBool,
}

/// Bytes that may wait at first, and at most.
const FIRST: usize = 8 * 1024;
const MOST: usize = 128 * 1024;

/// The room grows by this factor once the client has taken as much as the room holds.
const GROWTH: usize = 4;

/// A part of so few bytes is not counted: that would cost more. A body may end with it.
const SMALL: usize = 1024;

/// What a response may have in memory.
#[derive(Debug)]
pub struct Pace {
    unsent: Arc<Unsent>,
    room: usize,
    /// Memory for what is beyond the first bytes.
    memory: Vec<Part>,
    taker: Arc<Taker>,
}

/// Bytes that h2 has.
#[derive(Debug, Default)]
struct Unsent {
    bytes: AtomicUsize,
    /// Bytes that the client has taken since the room has grown.
    taken: AtomicUsize,
    /// The task that waits for room.
    waker: Mutex<Option<Waker>>,
}

impl Pace {
    /// For a new response to this client.
    pub fn new(taker: &Arc<Taker>) -> Self {
        Pace { unsent: Arc::default(), room: FIRST, memory: Vec::new(), taker: Arc::clone(taker) }
    }

    /// Ready with how many bytes may follow. One half of the room is filled while h2 sends the other.
    pub fn poll_room(&mut self, cx: &Context<'_>) -> Poll<usize> {
        if self.unsent.taken.load(SeqCst) >= self.room {
            self.unsent.taken.store(0, SeqCst);
            self.taker.has_taken.store(true, SeqCst);
            self.grow();
        }
        let half = self.room / 2;
        self.unsent.poll_below(half + 1, cx).map(|_| half)
    }

    /// Ready when h2 has sent all.
    pub fn poll_sent(&self, cx: &Context<'_>) -> Poll<()> {
        self.unsent.poll_below(1, cx).map(drop)
    }

    /// Whether h2 has sent all but a small part.
    pub fn is_sent(&self) -> bool {
        self.unsent.bytes.load(SeqCst) == 0
    }

    /// A part of the body that counts until h2 has sent it.
    pub fn count(&mut self, bytes: Bytes) -> Bytes {
        if bytes.len() <= SMALL {
            return bytes;
        }
        if self.room == FIRST && self.taker.has_taken.load(SeqCst) {
            self.grow();
        }
        self.unsent.bytes.fetch_add(bytes.len(), SeqCst);
        Bytes::from_owner(Counted { bytes, unsent: Arc::clone(&self.unsent) })
    }

    /// More bytes may wait, if there is memory.
    fn grow(&mut self) {
        let more = (self.room * (GROWTH - 1)).min(MOST - self.room);
        if let Some(part) = (more > 0).then(|| memory::for_response(&self.taker.share, more)).flatten() {
            self.memory.push(part);
            self.room += more;
        }
    }
}

impl Unsent {
    /// Ready with how many bytes h2 has, when they are fewer than that.
    fn poll_below(&self, limit: usize, cx: &Context<'_>) -> Poll<usize> {
        let look = || Some(self.bytes.load(SeqCst)).filter(|unsent| *unsent < limit);
        if let Some(unsent) = look() {
            return Poll::Ready(unsent);
        }
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        // They may have left meanwhile.
        look().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Bytes that h2 drops once they are in the client's connection, or its stream has ended.
struct Counted {
    bytes: Bytes,
    unsent: Arc<Unsent>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.unsent.bytes.fetch_sub(self.bytes.len(), SeqCst);
        self.unsent.taken.fetch_add(self.bytes.len(), SeqCst);
        let waker = self.unsent.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        waker.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(pace: &mut Pace) -> Option<usize> {
        match pace.poll_room(&Context::from_waker(Waker::noop())) {
            Poll::Ready(room) => Some(room),
            Poll::Pending => None,
        }
    }

    fn next_part(pace: &mut Pace) -> Option<Bytes> {
        let part = vec![0; room(pace)?];
        Some(pace.count(part.into()))
    }

    #[test]
    fn a_client_that_takes_nothing_gets_no_more() {
        let mut pace = Pace::new(&Arc::default());
        let parts: Vec<_> = std::iter::from_fn(|| next_part(&mut pace)).collect();
        assert_eq!(parts.iter().map(Bytes::len).sum::<usize>(), FIRST);
        assert!(!pace.is_sent());
        drop(parts);
        assert!(pace.is_sent());
        assert!(room(&mut pace).is_some());
    }

    /// One test, because all take from the same memory.
    #[test]
    fn a_client_that_takes_all_gets_more_at_once_while_there_is_memory() {
        let taker = Arc::default();
        let mut pace = Pace::new(&taker);
        (0..3).for_each(|_| drop(next_part(&mut pace).expect("room")));
        let mut next = Pace::new(&taker);
        let part = next_part(&mut next);
        assert_eq!(room(&mut next), Some(FIRST * GROWTH / 2), "the next response begins with more");
        drop((pace, next, part));
        let paces: Vec<_> = (0..1_000)
            .map(|_| {
                let mut pace = Pace::new(&Arc::default());
                (0..100).for_each(|_| drop(next_part(&mut pace).expect("room")));
                pace
            })
            .collect();
        assert_eq!(paces[0].room, MOST);
        assert_eq!(paces[999].room, FIRST);
    }

    #[test]
    fn small_parts_do_not_count() {
        let mut pace = Pace::new(&Arc::default());
        let _small = pace.count(vec![0; SMALL].into());
        assert!(pace.is_sent());
    }
}
