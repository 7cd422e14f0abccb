//! The write buffer that a thread of the application lends to the helper, while the application goes on with the response. The helper
//! sends bytes that the client has not taken, and small parts that were held back.
//!
//! An application that has passed a part of a body may pass the next part at once or in a minute. So small parts are held back until the
//! helper first looks at a request that lasts: after one to eight milliseconds.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::write_buf::WriteBuf;
use crate::claim::{ActiveRequest, FlushLent};

/// The place where a thread of the application leaves its write buffer while the thread has nothing to send.
#[derive(Debug, Default)]
pub(crate) struct LentBuffer {
    lent: Mutex<Lent>,
    /// Whether the helper has looked at this request.
    is_seen: AtomicBool,
}

#[derive(Debug, Default)]
struct Lent {
    write_buf: WriteBuf,
    /// How many bytes of the buffer the socket has taken.
    taken: usize,
    failure: Option<io::Error>,
}

impl LentBuffer {
    /// The buffer of the thread that answers these requests.
    pub fn of(requests: &ActiveRequest) -> Arc<Self> {
        let lent_buffer = Arc::<Self>::default();
        requests.share_lent(Arc::clone(&lent_buffer) as _);
        lent_buffer
    }

    /// A request begins.
    pub fn begin(&self) {
        self.is_seen.store(false, Ordering::Relaxed);
    }

    /// Whether small parts are to be sent at once.
    pub fn is_seen(&self) -> bool {
        self.is_seen.load(Ordering::Relaxed)
    }

    pub(super) fn lend(&self, write_buf: WriteBuf) {
        *self.lent() = Lent { write_buf, ..Lent::default() };
    }

    /// The buffer, and how many bytes of it the socket has taken.
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
        // While the application's thread has the lock, it is about to send. Or it has just lent something, and may not see `is_seen` yet.
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
        let (unsent, mut buf) = (LentBuffer::default(), WriteBuf::default());
        buf.push(&[IoSlice::new(bytes)], 0).expect("room");
        unsent.lend(buf);
        unsent
    }

    #[test]
    fn what_is_lent_is_sent_and_comes_back_with_how_much_that_was() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        server.set_nonblocking(true).expect("nonblocking");
        let length = 1_000_000;
        let unsent = lent(&vec![b'x'; length]);
        assert!(unsent.flush(server.as_fd()));
        let (mut buf, taken) = unsent.take_back();
        let taken = taken.expect("sent");
        assert!(taken > 0 && buf.len() == length - taken);
        assert!(!unsent.flush(server.as_fd()), "nothing is lent");
        client.read_exact(&mut vec![0; taken]).expect("read");
        assert!(buf.flush(server.as_fd()).expect("flush") > 0);
    }

    #[test]
    fn the_application_learns_that_the_client_is_gone() {
        let (client, server) = UnixStream::pair().expect("a pair");
        drop(client);
        let unsent = lent(b"late");
        assert!(unsent.flush(server.as_fd()));
        assert!(!unsent.flush(server.as_fd()), "once is enough");
        assert_eq!(unsent.take_back().1.expect_err("gone").kind(), io::ErrorKind::BrokenPipe);
        assert!(unsent.take_back().1.is_ok());
    }

    #[test]
    fn all_bytes_arrive_once_and_in_order_whenever_the_helper_looks() {
        const PARTS: usize = 40;
        for round in 0..500 {
            let (mut client, server) = UnixStream::pair().expect("a pair");
            let unsent = LentBuffer::default();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..round % 50).for_each(|_| std::hint::spin_loop());
                    unsent.flush(server.as_fd());
                });
                for number in 0..PARTS {
                    let mut buf = unsent.take_back().0;
                    buf.push(&[IoSlice::new(&[number as u8])], 0).expect("room");
                    unsent.lend(buf);
                }
            });
            assert!(unsent.is_seen());
            unsent.take_back().0.flush(server.as_fd()).expect("flush");
            drop(server);
            let mut received = Vec::new();
            client.read_to_end(&mut received).expect("read");
            assert_eq!(received, (0..PARTS as u8).collect::<Vec<_>>());
            unsent.begin();
            assert!(!unsent.is_seen());
        }
    }
}
