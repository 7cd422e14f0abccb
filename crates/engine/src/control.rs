//! What may be asked of an engine while it runs: from a signal handler, from
//! another thread, from a forked child.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use fastrack_sys::borrow_fd;

use crate::held::Held;
use crate::request::Request;
use crate::watch::{Watch, WatchSettings};

/// No descriptor.
const NONE: RawFd = -1;

/// The side of an engine that needs no exclusive access to it.
#[derive(Debug)]
pub struct Control {
    stopping: AtomicBool,
    pausing: AtomicBool,
    draining: AtomicBool,
    closed: AtomicBool,
    requests: AtomicU64,
    dropped: AtomicU64,
    /// Whether requests have been read that nobody answers yet.
    pending: AtomicBool,
    poller: RawFd,
    /// The connection whose request the application is answering.
    current: AtomicI32,
    /// How long it takes, and who answers it.
    pub(crate) watch: Watch,
    /// The other descriptors that a forked child must let go of.
    held: Held,
}

impl Control {
    pub(crate) fn new(
        poller: RawFd,
        held: impl IntoIterator<Item = RawFd>,
        watch: &WatchSettings,
    ) -> io::Result<Self> {
        let set = Held::new(fastrack_sys::max_fd_limit());
        held.into_iter().for_each(|fd| set.insert(fd));
        Ok(Control {
            stopping: AtomicBool::new(false),
            pausing: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            pending: AtomicBool::new(false),
            poller,
            current: AtomicI32::new(NONE),
            watch: Watch::new(watch)?,
            held: set,
        })
    }

    /// Asks the engine to finish what has begun and to accept nothing more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Tells the engine that the whole server is going to stop, and nobody takes over: it goes on
    /// accepting, but keeps no connection; and when it is asked to stop, it accepts all that are there.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether [`drain`](Self::drain) was called.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Asks the engine to return between two requests, to be run again.
    pub fn pause(&self) {
        self.pausing.store(true, Ordering::Relaxed);
    }

    /// Whether [`pause`](Self::pause) was called since this was asked before.
    pub(crate) fn take_pause(&self) -> bool {
        self.pausing.load(Ordering::Relaxed) && self.pausing.swap(false, Ordering::Relaxed)
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// How many requests the application has answered.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// How many requests were dropped because their client had left before the application was free.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Whether a client is waiting: to be accepted, with bytes that nobody has read, or for an answer.
    pub fn is_anybody_waiting(&self) -> bool {
        // An epoll descriptor is readable when one of its members is ready (epoll(7)).
        // SAFETY: the engine closes its poller when it is dropped, and nobody asks after that.
        let is_ready = || unsafe { borrow_fd(self.poller) }.is_ok_and(fastrack_sys::is_readable);
        !self.is_closed() && (self.pending.load(Ordering::Relaxed) || is_ready())
    }

    /// Whether the client whose request the application is answering has left; over TCP, also whether it has ended its
    /// sending, which TCP does not tell from that. False between requests.
    pub fn is_client_gone(&self) -> bool {
        // SAFETY: the connection stays open until `end`. The application asks before, and does not run meanwhile.
        unsafe { borrow_fd(self.current()) }.is_ok_and(fastrack_sys::is_peer_gone)
    }

    /// The request that the application is answering may take so many milliseconds from now on; 0 is any time.
    pub fn allow(&self, millis: u64) {
        if !self.is_closed() {
            self.watch.allow(millis);
        }
    }

    /// Lets go of every connection and listener, for good, without a byte or a
    /// FIN to any client: for a forked child, whose parent goes on with them.
    pub fn close(&self) {
        if self.closed.swap(true, Ordering::Relaxed) {
            return;
        }
        let others = [self.poller, self.current.load(Ordering::Relaxed)];
        let held = self.held.drain().chain(others).filter(|fd| *fd != NONE);
        // Without /dev/null there is nothing to put in their place; the descriptors are
        // close-on-exec, and go with this process at the latest.
        // SAFETY: in a forked child their owners do nothing with them but close them.
        let _ = unsafe { fastrack_sys::replace_with_dev_null(held) };
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The connection whose request the application is answering; negative between requests.
    pub(crate) fn current(&self) -> RawFd {
        self.current.load(Ordering::Relaxed)
    }

    /// A request is about to be answered; when, in milliseconds of the steady clock.
    pub(crate) fn begin(&self, fd: RawFd, request: &Request<'_>) -> u64 {
        self.current.store(fd, Ordering::Relaxed);
        self.watch.begin(request)
    }

    pub(crate) fn end(&self) {
        // A forked child that has come back from the application: what the master sees is the parent's.
        if !self.is_closed() {
            self.watch.end();
        }
        self.current.store(NONE, Ordering::Relaxed);
        self.requests.store(self.requests() + 1, Ordering::Relaxed);
    }

    pub(crate) fn hold(&self, fd: RawFd) {
        self.held.insert(fd);
    }

    pub(crate) fn release(&self, fd: RawFd) {
        self.held.remove(fd);
    }

    #[cfg(test)]
    pub(crate) fn held_count(&self) -> usize {
        self.held.drain().count()
    }

    pub(crate) fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_pending(&self, pending: bool) {
        self.pending.store(pending, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_forked_child_lets_go_of_connections_and_the_parent_keeps_them() {
        let (mut client, mut parents) = UnixStream::pair().expect("a pair");
        client.set_nonblocking(true).expect("nonblocking");
        // A fork copies every descriptor; so does this.
        let childs = parents.try_clone().expect("a copy");
        let poller = fastrack_sys::Poller::new().expect("a poller");
        let control = Control::new(poller.raw_fd(), [], &WatchSettings::default()).expect("a control");
        control.hold(childs.as_raw_fd());
        control.close();
        control.close();
        assert!(control.is_closed());
        (&childs).write_all(b"lost").expect_err("not a socket any more");
        parents.write_all(b"a").expect("write");
        let mut buffer = [0; 8];
        assert_eq!(client.read(&mut buffer).expect("read"), 1);
        drop(childs);
        assert_eq!(client.read(&mut buffer).expect_err("still open").kind(), ErrorKind::WouldBlock);
        drop(parents);
        assert_eq!(client.read(&mut buffer).expect("the end"), 0);
    }
}
