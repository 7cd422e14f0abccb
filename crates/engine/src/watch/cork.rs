//! Whether small parts of a response may be held back, so that they leave in one packet: here those of a body, which then take
//! one system call, and else by the system (MSG_MORE, send(2)).
//!
//! Nobody knows whether an application that has passed a part passes the next one at once or in a minute. So the helper
//! ends it at its first look at a request that lasts: after one to eight milliseconds.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Nothing is held back, but may be.
const OPEN: u8 = 0;
/// Something is held back.
const CORKED: u8 = 1;
/// All of this request is sent at once.
const OVER: u8 = 2;

/// How much is held back here at most, in bytes.
const MOST: usize = 16 * 1024;

/// Of one request.
#[derive(Debug, Default)]
pub(crate) struct Cork {
    state: AtomicU8,
    held: Mutex<Held>,
}

/// What is held back here.
#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    /// How much of that the helper has sent.
    sent: usize,
}

impl Cork {
    // --- the application's thread

    /// A request begins on a connection on which something of the response before it may be held back.
    pub fn begin(&self, is_corked: bool) {
        self.state.store(if is_corked { CORKED } else { OPEN }, Ordering::Relaxed);
    }

    /// Whether bytes that are about to be sent may be held back.
    pub fn set(&self) -> bool {
        let order = Ordering::SeqCst;
        match self.state.compare_exchange(OPEN, CORKED, order, order) {
            Ok(_) | Err(CORKED) => true,
            Err(_) => false,
        }
    }

    /// They have been sent, or are held here. Whether they may be held back still: the helper may have ended that before they
    /// were.
    pub fn stays(&self) -> bool {
        self.state.load(Ordering::SeqCst) == CORKED
    }

    /// Holds slices back; false if they are to be sent, after what is held already. If this [ends](Self::stays) at the same
    /// moment, the helper may not have sent them.
    pub fn hold(&self, slices: &[IoSlice<'_>]) -> io::Result<bool> {
        let mut held = self.held();
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        if held.bytes.len() + length > MOST || !self.set() {
            return Ok(false);
        }
        fastrack_sys::reserve(&mut held.bytes, length)?;
        slices.iter().for_each(|slice| held.bytes.extend_from_slice(slice));
        Ok(true)
    }

    /// Passes on what is held here and the helper has not sent. Returns how much that has.
    pub fn take(&self, add: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<usize> {
        let mut held = self.held();
        let added = add(&held.bytes[held.sent..]);
        held.bytes.clear();
        let sent = std::mem::take(&mut held.sent);
        added.map(|()| sent)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- the helper, and signal handlers

    /// From now on nothing is held back. Whether something was.
    pub fn end(&self) -> bool {
        self.state.swap(OVER, Ordering::SeqCst) == CORKED
    }

    /// Sends what is held here. To be called after [`end`](Self::end). If the application's thread is at it, that sees the end.
    pub fn send(&self, client: BorrowedFd<'_>) {
        let Ok(mut held) = self.held.try_lock() else { return };
        if held.sent < held.bytes.len() {
            // What the socket does not take is left to the application's thread, which will see an error, too.
            held.sent += fastrack_sys::send(client, &held.bytes[held.sent..]).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn hold(cork: &Cork, bytes: &[u8]) -> bool {
        cork.hold(&[IoSlice::new(bytes)]).expect("memory")
    }

    fn take(cork: &Cork) -> (usize, Vec<u8>) {
        let mut taken = Vec::new();
        let sent = cork.take(|bytes| fastrack_sys::append(&mut taken, bytes)).expect("memory");
        (sent, taken)
    }

    #[test]
    fn parts_are_held_until_they_are_taken_or_too_many() {
        let cork = Cork::default();
        cork.begin(false);
        assert!(hold(&cork, b"one") && hold(&cork, b"two") && cork.stays());
        assert!(!hold(&cork, &[0; MOST - 5]));
        assert!(hold(&cork, &[b'x'; MOST - 6]));
        assert_eq!(take(&cork), (0, [&b"onetwo"[..], &[b'x'; MOST - 6]].concat()));
        assert_eq!(take(&cork), (0, Vec::new()));
    }

    #[test]
    fn the_helper_sends_what_is_held_and_nothing_is_held_from_then_on() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let cork = Cork::default();
        cork.begin(false);
        assert!(hold(&cork, b"held"));
        assert!(cork.end());
        cork.send(server.as_fd());
        cork.send(server.as_fd());
        assert!(!cork.stays() && !hold(&cork, b"more"));
        assert_eq!(take(&cork), (4, Vec::new()));
        drop(server);
        let mut received = Vec::new();
        client.read_to_end(&mut received).expect("read");
        assert_eq!(received, b"held");
        // The next request.
        cork.begin(false);
        assert!(hold(&cork, b"next"));
    }

    #[test]
    fn all_bytes_arrive_once_and_in_order_whenever_the_helper_looks() {
        const PARTS: usize = 40;
        for round in 0..2_000 {
            let (mut client, server) = UnixStream::pair().expect("a pair");
            let cork = Cork::default();
            cork.begin(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..round % 50).for_each(|_| std::hint::spin_loop());
                    if cork.end() {
                        cork.send(server.as_fd());
                    }
                });
                for number in 0..PARTS {
                    let part = [number as u8];
                    let holds = hold(&cork, &part);
                    if !(holds && cork.stays()) {
                        let (_, mut bytes) = take(&cork);
                        bytes.extend((!holds).then_some(part).into_iter().flatten());
                        assert!(bytes.is_empty() || fastrack_sys::send(server.as_fd(), &bytes).is_ok());
                    }
                }
            });
            let (_, rest) = take(&cork);
            assert!(rest.is_empty() || fastrack_sys::send(server.as_fd(), &rest).is_ok());
            drop(server);
            let mut received = Vec::new();
            client.read_to_end(&mut received).expect("read");
            assert_eq!(received, (0..PARTS as u8).collect::<Vec<_>>());
        }
    }
}
