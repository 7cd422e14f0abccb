//! Operations on a running engine for other threads, signal handlers and forked children.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use fastrack_sys::{borrow_fd, Waker};

use crate::admission::Baton;
use crate::claim::{ActiveRequest, RequestSettings};
use crate::fork::InheritedFds;
use crate::scoreboard::{Count, Counters};

/// An order to an engine, or a state of it: one bit of [`Control::flags`] each.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Flag {
    /// Finish the requests that have begun, and accept nothing more.
    Stop = 1,
    /// The whole server is about to stop.
    Drain = 1 << 1,
    /// Return between two requests.
    Pause = 1 << 2,
    /// Another flag was set: the thread that runs the engine is to look.
    Notice = 1 << 3,
    /// The process ends as soon as the requests in progress have. No thread takes another request.
    End = 1 << 4,
    /// This is a forked child, or the engine is about to be dropped: use no descriptor.
    Close = 1 << 5,
    /// The helper's thread is to return, because the engine is dropped.
    EndHelper = 1 << 6,
}

/// The part of an engine that needs no exclusive access.
#[derive(Debug)]
pub struct Control {
    flags: AtomicU32,
    baton: Arc<Baton>,
    poller: RawFd,
    /// One for each thread of the application.
    requests: Box<[Arc<ActiveRequest>]>,
    counters: Counters,
    /// Requests that former workers of the slot have answered, and dropped.
    before: [u64; 2],
    /// Wakes the thread that waits for clients. The engine owns the waker, because a control may outlive the engine. A single thread has
    /// none: a signal wakes it.
    waker: Weak<Waker>,
    inherited: InheritedFds,
}

impl Control {
    /// `fds` are the engine's descriptors that a forked child inherits, without descriptors of connections.
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
            flags: AtomicU32::new(0),
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

    /// Sets the waker of an engine with several threads.
    pub(crate) fn wake_by(&mut self, waker: &Arc<Waker>) {
        waker.raw_fds().for_each(|fd| self.inherited.insert(fd));
        self.waker = Arc::downgrade(waker);
    }

    fn is_set(&self, flag: Flag) -> bool {
        self.flags.load(Ordering::SeqCst) & flag as u32 != 0
    }

    fn set(&self, flag: Flag) {
        self.flags.fetch_or(flag as u32, Ordering::SeqCst);
    }

    /// Whether the flag was set until now.
    fn clear(&self, flag: Flag) -> bool {
        self.is_set(flag) && self.flags.fetch_and(!(flag as u32), Ordering::SeqCst) & flag as u32 != 0
    }

    /// Has a thread look at the flags that were set before.
    pub(crate) fn notify(&self) {
        if let Some(waker) = self.waker.upgrade().filter(|_| !self.is_closed()) {
            self.set(Flag::Notice);
            waker.call();
        }
    }

    pub(crate) fn is_noticed(&self) -> bool {
        self.is_set(Flag::Notice)
    }

    /// The thread that runs the engine looks.
    pub(crate) fn clear_notice(&self) {
        self.clear(Flag::Notice);
    }

    /// From now on no thread takes another request, and the process ends as soon as the requests in progress have.
    pub(crate) fn set_ending(&self) {
        self.set(Flag::End);
    }

    /// Whether the process ends as soon as the requests in progress have.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_set(Flag::End)
    }

    pub(crate) fn end_helper(&self) {
        self.set(Flag::EndHelper);
    }

    pub(crate) fn is_helper_over(&self) -> bool {
        self.is_set(Flag::EndHelper)
    }

    /// Stops gracefully: the engine finishes the requests that have begun, and accepts nothing more.
    pub fn stop(&self) {
        self.set(Flag::Stop);
        self.notify();
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopping(&self) -> bool {
        self.is_set(Flag::Stop)
    }

    /// The whole server is about to stop, and no other worker will take connections over. The engine goes on accepting, but keeps no
    /// connection. When it is to [stop](Self::stop) it empties the backlog first.
    pub fn drain(&self) {
        self.set(Flag::Drain);
        self.notify();
    }

    /// Whether [`drain`](Self::drain) was called.
    pub fn is_draining(&self) -> bool {
        self.is_set(Flag::Drain)
    }

    /// Has [`Engine::run`](crate::Engine::run) return between two requests.
    pub fn pause(&self) {
        self.set(Flag::Pause);
        self.notify();
    }

    pub(crate) fn take_pause(&self) -> bool {
        self.clear(Flag::Pause)
    }

    /// Requests that the application has answered.
    pub fn requests(&self) -> u64 {
        self.counters.requests().saturating_sub(self.before[0])
    }

    /// Requests dropped because their client had disconnected before the application was free.
    pub fn dropped(&self) -> u64 {
        self.counters.get(Count::Dropped).saturating_sub(self.before[1])
    }

    /// Whether a client waits to be accepted, to be read, or for a response.
    pub fn is_anybody_waiting(&self) -> bool {
        !self.is_closed() && (self.counters.get(Count::Waiting) > 0 || self.is_poller_readable())
    }

    /// Whether an event has come that wakes an idle worker.
    pub(crate) fn is_poller_readable(&self) -> bool {
        // An epoll descriptor is readable when one of its members is ready (epoll(7)).
        // SAFETY: the engine closes its poller when it is dropped, and nobody asks after that.
        unsafe { borrow_fd(self.poller) }.is_ok_and(fastrack_sys::is_readable)
    }

    /// The request of the first thread.
    pub(crate) fn request(&self) -> &Arc<ActiveRequest> {
        &self.requests[0]
    }

    pub(crate) fn all_requests(&self) -> &[Arc<ActiveRequest>] {
        &self.requests
    }

    /// The worker's counters. With three exceptions only the reactor's owner changes them.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Number of the application's threads that may run the engine.
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

    /// In a forked child: lets go of all connections and listeners without a byte or a FIN. The parent goes on with them.
    pub fn close(&self) {
        if self.flags.fetch_or(Flag::Close as u32, Ordering::SeqCst) & Flag::Close as u32 != 0 {
            return;
        }
        let clients = self.requests.iter().map(|request| request.fd()).filter(|fd| *fd >= 0);
        // It fails only without /dev/null. The descriptors are close-on-exec, so that they end with this process at the latest.
        // SAFETY: in a forked child the owners of the descriptors only close them.
        let _ = unsafe { fastrack_sys::replace_with_dev_null(self.inherited.drain().chain(clients)) };
    }

    /// The engine is about to be dropped, in the process that made it. From now on this control uses none of its descriptors, whose
    /// numbers may be used anew.
    pub fn mark_dropped(&self) {
        self.set(Flag::Close);
    }

    /// Whether [`close`](Self::close) or [`mark_dropped`](Self::mark_dropped) was called.
    pub fn is_closed(&self) -> bool {
        self.is_set(Flag::Close)
    }

    /// From now on [`close`](Self::close) also lets go of this descriptor.
    pub(crate) fn track_fd(&self, fd: RawFd) {
        self.inherited.insert(fd);
    }

    /// Forgets a tracked descriptor, before it is closed: another thread may use its number at once.
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
