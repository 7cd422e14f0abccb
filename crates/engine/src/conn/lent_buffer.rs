//! The write buffer of a response, lent to the helper while the application continues. The helper sends the bytes.
//!
//! The next part of a body may follow at once or in a minute. So small parts are held back until the helper first looks
//! at the request, one to eight milliseconds after its start.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::write_buf::WriteBuf;
use crate::claim::{ActiveRequest, FlushLent};

/// The slot for the write buffer that a thread of the application lends to the helper.
#[derive(Debug, Default)]
pub(crate) struct LentBuffer {
    lent: Mutex<Lent>,
    /// Whether the helper has looked at this request.
    is_seen: AtomicBool,
}

#[derive(Debug, Default)]
struct Lent {
    write_buf: WriteBuf,
    /// Bytes that the helper has sent.
    taken: usize,
    failure: Option<io::Error>,
}

impl LentBuffer {
    /// Makes the slot of the thread that serves these requests, and shares it with the helper.
    pub fn of(requests: &ActiveRequest) -> Arc<Self> {
        let slot = Arc::<Self>::default();
        requests.share_lent(Arc::clone(&slot) as _);
        slot
    }

    /// Called at the start of a request.
    pub fn begin(&self) {
        self.is_seen.store(false, Ordering::Relaxed);
    }

    /// Whether the helper has looked at the request: from then on nothing is held back.
    pub fn is_seen(&self) -> bool {
        self.is_seen.load(Ordering::Relaxed)
    }

    pub(super) fn lend(&self, write_buf: WriteBuf) {
        *self.lent() = Lent { write_buf, ..Lent::default() };
    }

    /// Returns the buffer, and the number of bytes that the helper has sent, or its error.
    pub(super) fn take_back(&self) -> (WriteBuf, io::Result<usize>) {
        let Lent { write_buf, taken, failure } = std::mem::take(&mut *self.lent());
        (write_buf, failure.map_or(Ok(taken), Err))
    }

    fn lent(&self) -> MutexGuard<'_, Lent> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlushLent for LentBuffer {
    fn flush(&self, client: BorrowedFd<'_>) -> bool {
        self.is_seen.store(true, Ordering::Relaxed);
        // A locked slot means that the application's thread is about to send, or has just lent bytes and may not know
        // yet that the helper has looked.
        let Ok(mut lent) = self.lent.try_lock() else { return true };
        if lent.write_buf.is_empty() || lent.failure.is_some() {
            return false;
        }
        match lent.write_buf.flush(client) {
            Ok(taken) => lent.taken += taken,
            Err(error) => lent.failure = Some(error),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{IoSlice, Read};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn lent(bytes: &[u8]) -> LentBuffer {
        let (slot, mut buf) = (LentBuffer::default(), WriteBuf::default());
        buf.push(&[IoSlice::new(bytes)], 0).expect("room");
        slot.lend(buf);
        slot
    }

    #[test]
    fn lent_bytes_are_sent_and_the_buffer_returns_with_their_number() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        server.set_nonblocking(true).expect("nonblocking");
        let length = 1_000_000;
        let slot = lent(&vec![b'x'; length]);
        assert!(slot.flush(server.as_fd()));
        let (mut buf, taken) = slot.take_back();
        let taken = taken.expect("sent");
        assert!(taken > 0 && buf.len() == length - taken);
        assert!(!slot.flush(server.as_fd()), "nothing is lent");
        client.read_exact(&mut vec![0; taken]).expect("read");
        assert!(buf.flush(server.as_fd()).expect("flush") > 0);
    }

    #[test]
    fn the_application_learns_that_the_client_is_gone() {
        let (client, server) = UnixStream::pair().expect("a pair");
        drop(client);
        let slot = lent(b"late");
        assert!(slot.flush(server.as_fd()));
        assert!(!slot.flush(server.as_fd()), "once is enough");
        assert_eq!(slot.take_back().1.expect_err("gone").kind(), io::ErrorKind::BrokenPipe);
        assert!(slot.take_back().1.is_ok());
    }

    #[test]
    fn all_bytes_arrive_once_and_in_order_whenever_the_helper_looks() {
        const PARTS: usize = 40;
        for round in 0..500 {
            let (mut client, server) = UnixStream::pair().expect("a pair");
            let slot = LentBuffer::default();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..round % 50).for_each(|_| std::hint::spin_loop());
                    slot.flush(server.as_fd());
                });
                for number in 0..PARTS {
                    let mut buf = slot.take_back().0;
                    buf.push(&[IoSlice::new(&[number as u8])], 0).expect("room");
                    slot.lend(buf);
                }
            });
            assert!(slot.is_seen());
            slot.take_back().0.flush(server.as_fd()).expect("flush");
            drop(server);
            let mut received = Vec::new();
            client.read_to_end(&mut received).expect("read");
            assert_eq!(received, (0..PARTS as u8).collect::<Vec<_>>());
            slot.begin();
            assert!(!slot.is_seen());
        }
    }
}
