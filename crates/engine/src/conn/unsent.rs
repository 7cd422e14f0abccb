//! What the client has not taken yet, while the application goes on with the response: the helper sends it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::write_buf::WriteBuf;
use crate::watch::SendUnsent;

/// Where a thread of the application leaves its write buffer while it has nothing to send.
#[derive(Debug, Default)]
pub(super) struct Unsent(Mutex<Lent>);

#[derive(Debug, Default)]
struct Lent {
    write_buf: WriteBuf,
    /// How much the socket has taken of it.
    taken: usize,
    failure: Option<io::Error>,
}

impl Unsent {
    pub fn lend(&self, write_buf: WriteBuf) {
        *self.lent() = Lent { write_buf, ..Lent::default() };
    }

    /// The buffer, and how much the socket has taken of it.
    pub fn take_back(&self) -> (WriteBuf, io::Result<usize>) {
        let Lent { write_buf, taken, failure } = std::mem::take(&mut *self.lent());
        (write_buf, failure.map_or(Ok(taken), Err))
    }

    fn lent(&self) -> MutexGuard<'_, Lent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SendUnsent for Unsent {
    fn send_unsent(&self, client: BorrowedFd<'_>) -> bool {
        // If it is locked, the application's thread is about to send.
        let Ok(mut lent) = self.0.try_lock() else { return false };
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

    fn lent(bytes: &[u8]) -> Unsent {
        let (unsent, mut buf) = (Unsent::default(), WriteBuf::default());
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
        assert!(unsent.send_unsent(server.as_fd()));
        let (mut buf, taken) = unsent.take_back();
        let taken = taken.expect("sent");
        assert!(taken > 0 && buf.len() == length - taken);
        assert!(!unsent.send_unsent(server.as_fd()), "nothing is lent");
        client.read_exact(&mut vec![0; taken]).expect("read");
        assert!(buf.flush(server.as_fd()).expect("flush") > 0);
    }

    #[test]
    fn the_application_learns_that_the_client_is_gone() {
        let (client, server) = UnixStream::pair().expect("a pair");
        drop(client);
        let unsent = lent(b"late");
        assert!(unsent.send_unsent(server.as_fd()));
        assert!(!unsent.send_unsent(server.as_fd()), "once is enough");
        assert_eq!(unsent.take_back().1.expect_err("gone").kind(), io::ErrorKind::BrokenPipe);
        assert!(unsent.take_back().1.is_ok());
    }
}
