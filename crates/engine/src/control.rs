//! What other threads, signal handlers and forked children may do with a running engine.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use fastrack_sys::{borrow_fd, Waker};

use crate::baton::Baton;
use crate::fork::InheritedFds;
use crate::request_state::{ActiveRequest, Count, Counters, RequestSettings};

/// What an engine is told, and has been told until it is taken back: one bit of [`Control::told`] each.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Told {
    /// Finish what has begun, and accept nothing more.
    Stop = 1,
    /// The whole server is about to stop.
    Drain = 1 << 1,
    /// Return between two requests.
    Pause = 1 << 2,
    /// There is something of these for whichever thread runs the engine.
    Notice = 1 << 3,
    /// The process ends as soon as the requests in progress have: no thread takes another one.
    End = 1 << 4,
    /// This is a forked child, or the engine is about to be dropped: use no descriptor.
    Close = 1 << 5,
    /// The helper's thread is to return: the engine is being dropped.
    EndHelper = 1 << 6,
}

/// The side of an engine that needs no exclusive access to it.
#[derive(Debug)]
pub struct Control {
    told: AtomicU32,
    baton: Arc<Baton>,
    poller: RawFd,
    /// One for each thread of the application.
    requests: Box<[Arc<ActiveRequest>]>,
    counters: Counters,
    /// Requests that this slot's former workers have answered, and dropped.
    before: [u64; 2],
    /// Wakes the thread that waits for clients. The engine has it, and closes it: this may be there for longer. None where there is
    /// one thread only: a signal wakes that.
    waker: Weak<Waker>,
    inherited: InheritedFds,
}

impl Control {
    /// `fds` are the engine's descriptors that a forked child inherits, without those of connections.
    pub(crate) fn new(
        poller: RawFd,
        fds: impl IntoIterator<Item = RawFd>,
        watch: &RequestSettings,
    ) -> io::Result<Self> {
        let inherited = InheritedFds::new(fastrack_sys::max_fd_limit());
        let requests = ActiveRequest::for_threads(watch, watch.threads)?;
        let counters = requests[0].counters().clone();
        let before = [counters.requests(), counters.get(Count::Dropped)];
        fds.into_iter().for_each(|fd| inherited.insert(fd));
        Ok(Control {
            told: AtomicU32::new(0),
            baton: Arc::default(),
            poller,
            requests,
            counters,
            before,
            waker: Weak::new(),
            inherited,
        })
    }

    pub(crate) fn baton(&self) -> &Arc<Baton> {
        &self.baton
    }

    /// Several threads may wait.
    pub(crate) fn wake_by(&mut self, waker: &Arc<Waker>) {
        waker.raw_fds().for_each(|fd| self.inherited.insert(fd));
        self.waker = Arc::downgrade(waker);
    }

    fn is_told(&self, what: Told) -> bool {
        self.told.load(Ordering::SeqCst) & what as u32 != 0
    }

    fn tell(&self, what: Told) {
        self.told.fetch_or(what as u32, Ordering::SeqCst);
    }

    /// Whether it was told until now.
    fn take_back(&self, what: Told) -> bool {
        self.is_told(what) && self.told.fetch_and(!(what as u32), Ordering::SeqCst) & what as u32 != 0
    }

    /// Has a thread look at what it was told before.
    pub(crate) fn notify(&self) {
        if let Some(waker) = self.waker.upgrade().filter(|_| !self.is_closed()) {
            self.tell(Told::Notice);
            waker.call();
        }
    }

    pub(crate) fn is_noticed(&self) -> bool {
        self.is_told(Told::Notice)
    }

    /// The thread that runs the engine looks.
    pub(crate) fn clear_notice(&self) {
        self.take_back(Told::Notice);
    }

    /// The process ends as soon as the requests in progress have: no thread takes another one.
    pub(crate) fn set_ending(&self) {
        self.tell(Told::End);
    }

    /// Whether the process ends as soon as the requests in progress have.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_told(Told::End)
    }

    pub(crate) fn end_helper(&self) {
        self.tell(Told::EndHelper);
    }

    pub(crate) fn is_helper_over(&self) -> bool {
        self.is_told(Told::EndHelper)
    }

    /// Graceful stop: finish what has begun and accept nothing more.
    pub fn stop(&self) {
        self.tell(Told::Stop);
        self.notify();
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopping(&self) -> bool {
        self.is_told(Told::Stop)
    }

    /// The whole server is about to stop, so no other worker will take connections over. The engine goes on
    /// accepting but keeps no connection; when it is told to [stop](Self::stop) it empties the backlog first.
    pub fn drain(&self) {
        self.tell(Told::Drain);
        self.notify();
    }

    /// Whether [`drain`](Self::drain) was called.
    pub fn is_draining(&self) -> bool {
        self.is_told(Told::Drain)
    }

    /// Has [`Engine::run`](crate::Engine::run) return between two requests.
    pub fn pause(&self) {
        self.tell(Told::Pause);
        self.notify();
    }

    pub(crate) fn take_pause(&self) -> bool {
        self.take_back(Told::Pause)
    }

    /// Requests that the application has answered.
    pub fn requests(&self) -> u64 {
        self.counters.requests().saturating_sub(self.before[0])
    }

    /// Requests dropped because their client had disconnected before the application was free.
    pub fn dropped(&self) -> u64 {
        self.counters.get(Count::Dropped).saturating_sub(self.before[1])
    }

    /// Whether a client is waiting: to be accepted, to be read, or for a response.
    pub fn is_anybody_waiting(&self) -> bool {
        !self.is_closed() && (self.counters.get(Count::Waiting) > 0 || self.is_poller_readable())
    }

    /// Whether anything has happened that wakes an idle worker.
    pub(crate) fn is_poller_readable(&self) -> bool {
        // An epoll descriptor is readable when one of its members is ready (epoll(7)).
        // SAFETY: the engine closes its poller when it is dropped, and nobody asks after that.
        unsafe { borrow_fd(self.poller) }.is_ok_and(fastrack_sys::is_readable)
    }

    /// The first thread's, which is the only one unless there are more.
    pub(crate) fn request(&self) -> &Arc<ActiveRequest> {
        &self.requests[0]
    }

    pub(crate) fn all_requests(&self) -> &[Arc<ActiveRequest>] {
        &self.requests
    }

    /// This worker's. With three exceptions they are changed only where the reactor is locked.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many threads of the application may run the engine.
    pub fn threads(&self) -> usize {
        self.requests.len()
    }

    /// Whether the client of a thread's current request has disconnected, or (over TCP) shut down its sending side.
    pub fn is_client_gone(&self, thread: usize) -> bool {
        let fd = self.requests.get(thread).map_or(-1, |request| request.fd());
        // SAFETY: the connection stays open until the request ends. The application asks before, and does not run meanwhile.
        unsafe { borrow_fd(fd) }.is_ok_and(fastrack_sys::is_peer_gone)
    }

    /// Sets the time limit of a thread's current request, in milliseconds from now; 0 is none.
    pub fn allow(&self, thread: usize, millis: u64) {
        if !self.is_closed() {
            self.requests.get(thread).into_iter().for_each(|request| request.allow(millis));
        }
    }

    /// In a forked child: lets go of all connections and listeners without a byte or a FIN. The parent goes on with
    /// them.
    pub fn close(&self) {
        if self.told.fetch_or(Told::Close as u32, Ordering::SeqCst) & Told::Close as u32 != 0 {
            return;
        }
        let clients = self.requests.iter().map(|request| request.fd()).filter(|fd| *fd >= 0);
        // It fails only without /dev/null. The descriptors are close-on-exec, so they go with this process at the
        // latest.
        // SAFETY: in a forked child their owners do nothing with them but close them.
        let _ = unsafe { fastrack_sys::replace_with_dev_null(self.inherited.drain().chain(clients)) };
    }

    /// The engine is about to be dropped, in the process that made it: from now on nothing here uses its descriptors, whose
    /// numbers will be others'.
    pub fn retire(&self) {
        self.tell(Told::Close);
    }

    /// Whether [`close`](Self::close) or [`retire`](Self::retire) was called.
    pub fn is_closed(&self) -> bool {
        self.is_told(Told::Close)
    }

    /// Has [`close`](Self::close) also let go of this descriptor.
    pub(crate) fn track_fd(&self, fd: RawFd) {
        self.inherited.insert(fd);
    }

    /// To be called before a tracked descriptor is closed: its number may be used by another thread at once.
    pub(crate) fn untrack_fd(&self, fd: RawFd) {
        self.inherited.remove(fd);
    }

    #[cfg(test)]
    pub(crate) fn tracked_fds(&self) -> usize {
        self.inherited.iter().count()
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
        let control = Control::new(poller.raw_fd(), [], &RequestSettings::default()).expect("a control");
        control.track_fd(childs.as_raw_fd());
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
