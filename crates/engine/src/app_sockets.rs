//! Sockets of clients that the application has taken over (Rack's hijack, bodies that write themselves), as long as they are open.
//!
//! The application closes these sockets without a word to the engine. So the engine asks the kernel whether a descriptor still is the same
//! socket's.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fastrack_sys::{borrow_fd, shutdown_both, socket_inode};

/// The engine looks for closed sockets once there are at least this many.
const LEAST_TO_SWEEP: usize = 64;

/// All methods are called with the application's lock, so that a forked child finds the mutex free.
#[derive(Debug, Default)]
pub(crate) struct AppSockets(Mutex<Sockets>);

#[derive(Debug, Default)]
struct Sockets {
    /// Open sockets, the oldest one first.
    open: VecDeque<AppSocket>,
    /// Sockets that were shut down, and that the application has yet to close.
    ended: Vec<AppSocket>,
    /// Number of sockets at which closed ones are forgotten.
    most: usize,
}

#[derive(Debug)]
struct AppSocket {
    fd: RawFd,
    inode: u64,
}

impl AppSockets {
    /// The application gets this socket.
    pub fn add(&self, socket: BorrowedFd<'_>) {
        let Some(inode) = socket_inode(socket) else { return };
        let mut sockets = self.lock();
        if sockets.open.len() >= sockets.most {
            sockets.open.retain(AppSocket::is_open);
            sockets.most = LEAST_TO_SWEEP.max(2 * sockets.open.len());
        }
        sockets.open.push_back(AppSocket { fd: socket.as_raw_fd(), inode });
    }

    /// Number of sockets that the application has not closed.
    pub fn count(&self) -> usize {
        let mut sockets = self.lock();
        sockets.open.retain(AppSocket::is_open);
        sockets.ended.retain(AppSocket::is_open);
        sockets.open.len() + sockets.ended.len()
    }

    /// Shuts down the oldest open socket. The application reads the end, and closes the socket. Returns false if there is no socket.
    pub fn end_one(&self) -> bool {
        let mut sockets = self.lock();
        while let Some(socket) = sockets.open.pop_front() {
            // The shutdown fails if the client has closed the connection.
            if socket.with(|fd| drop(shutdown_both(fd))).is_some() {
                sockets.ended.push(socket);
                return true;
            }
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, Sockets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AppSocket {
    fn is_open(&self) -> bool {
        self.with(|_| ()).is_some()
    }

    /// None if the application has closed the socket.
    fn with<T>(&self, work: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        // SAFETY: the descriptor is used only while it is the client's. The application may close it at this moment, which no engine can
        // prevent: then the calls below fail, or find the socket of another inode.
        let fd = unsafe { borrow_fd(self.fd) }.ok()?;
        (socket_inode(fd) == Some(self.inode)).then(|| work(fd))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("a pair")
    }

    #[test]
    fn sockets_count_until_the_application_closes_them() {
        let sockets = AppSockets::default();
        let (_client, one) = pair();
        let (_other_client, other) = pair();
        sockets.add(one.as_fd());
        sockets.add(other.as_fd());
        assert_eq!(sockets.count(), 2);
        drop(one);
        assert_eq!(sockets.count(), 1);
    }

    #[test]
    fn a_file_or_another_socket_with_the_number_of_a_closed_one_does_not_count() {
        let sockets = AppSockets::default();
        let (_client, socket) = pair();
        sockets.add(socket.as_fd());
        let number = socket.as_raw_fd();
        let file = File::open("/dev/null").expect("a file");
        let (mut peer, other) = pair();
        for next in [file.as_fd(), other.as_fd()] {
            // SAFETY: `socket` owns the descriptor, and takes any file.
            unsafe { fastrack_sys::replace_fd(number, next) }.expect("replaced");
            assert!(!sockets.end_one());
            assert_eq!(sockets.count(), 0);
            sockets.add(socket.as_fd());
        }
        assert!(sockets.end_one(), "the other one was added, too");
        assert_eq!(peer.read(&mut [0]).expect("the end"), 0);
    }

    #[test]
    fn the_oldest_is_ended_first_and_counts_until_it_is_closed() {
        let sockets = AppSockets::default();
        let [(mut first, one), (second, other)] = [pair(), pair()];
        second.set_nonblocking(true).expect("nonblocking");
        [&one, &other].into_iter().for_each(|socket| sockets.add(socket.as_fd()));
        assert!(sockets.end_one());
        assert_eq!(first.read(&mut [0]).expect("the end"), 0);
        (&second).read(&mut [0]).expect_err("open");
        assert_eq!(sockets.count(), 2);
        drop(one);
        assert_eq!(sockets.count(), 1);
        assert!(sockets.end_one());
        assert!(!sockets.end_one());
    }

    #[test]
    fn those_that_were_closed_long_ago_take_no_memory() {
        let sockets = AppSockets::default();
        let (_client, kept) = pair();
        sockets.add(kept.as_fd());
        for _ in 0..10 * LEAST_TO_SWEEP {
            let (_client, socket) = pair();
            sockets.add(socket.as_fd());
        }
        assert!(sockets.lock().open.len() <= LEAST_TO_SWEEP);
        assert_eq!(sockets.count(), 1);
    }
}
