//! The operations on a running engine for other threads, signal handlers and forked children.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use fastrack_sys::{borrow_fd, monotonic_millis, Waker};

use crate::admission::{Baton, Room};
use crate::app_sockets::AppSockets;
use crate::claim::{ActiveRequest, RequestSettings, Seats, StreamEnd};
use crate::fork::InheritedFds;
use crate::scoreboard::{Count, Counters};
use crate::times::GvlEvent;
use fastrack_access_log::Timings;

/// A request to the engine: one bit of [`Control::flags`].
#[derive(Clone, Copy)]
#[repr(u32)]
enum Flag {
    /// Stop gracefully: see [`Control::stop`].
    Stop = 1,
    /// The whole server is about to stop: see [`Control::drain`].
    Drain = 1 << 1,
    /// Return between two requests.
    Pause = 1 << 2,
    /// Another flag has been set since the engine last looked.
    Notice = 1 << 3,
    /// The process ends with the requests in progress: no thread starts another one.
    End = 1 << 4,
    /// This is a forked child, or the engine is about to be dropped: use no descriptor.
    Close = 1 << 5,
    /// The helper's thread must return: the engine is being dropped.
    EndHelper = 1 << 6,
    /// The master is gone: see [`Control::orphan`].
    Orphan = 1 << 7,
    /// No descriptor was free for the rest of a response: see [`Control::need_descriptor`].
    NeedsDescriptor = 1 << 8,
}

/// The part of an engine that needs no exclusive access.
#[derive(Debug)]
pub struct Control {
    flags: AtomicU32,
    baton: Arc<Baton>,
    poller: RawFd,
    /// The requests of each thread of the application, by the thread's number. Each is made when its thread needs it.
    requests: Box<[OnceLock<Arc<ActiveRequest>>]>,
    /// The number of requests above that have been made.
    used: AtomicUsize,
    /// Whether responses may become streams.
    has_streams: bool,
    seats: Arc<Seats>,
    app_sockets: AppSockets,
    counters: Counters,
    /// Requests that former workers of this slot answered and dropped.
    before: [u64; 2],
    /// Wakes the thread that waits for clients. Weak because the engine closes the waker and `Control` may outlive the
    /// engine. Empty if the engine has a single thread, which a signal wakes.
    waker: Weak<Waker>,
    inherited: InheritedFds,
}

impl Control {
    /// `fds` are the descriptors of the engine that a forked child inherits. [`track_fd`](Self::track_fd) adds
    /// connections.
    pub(crate) fn new(
        poller: RawFd,
        fds: impl IntoIterator<Item = RawFd>,
        watch: &RequestSettings,
    ) -> io::Result<Self> {
        let inherited = InheritedFds::new(fastrack_sys::max_fd_limit());
        let room = Room::new(watch.threads, watch.streams);
        let seats = Seats::new(watch, room.seats())?;
        let counters = seats.counters().clone();
        let before = [counters.requests(), counters.get(Count::Dropped)];
        fds.into_iter().for_each(|fd| inherited.insert(fd));
        Ok(Control {
            flags: AtomicU32::new(0),
            baton: Arc::default(),
            poller,
            requests: (0..room.threads()).map(|_| OnceLock::new()).collect(),
            used: AtomicUsize::new(0),
            has_streams: room.streams() > 0,
            seats,
            app_sockets: AppSockets::default(),
            counters,
            before,
            waker: Weak::new(),
            inherited,
        })
    }

    pub(crate) fn baton(&self) -> &Arc<Baton> {
        &self.baton
    }

    /// Sets the waker of an engine whose clients several threads wait for.
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

    /// Returns whether the flag was set.
    fn clear(&self, flag: Flag) -> bool {
        self.is_set(flag) && self.flags.fetch_and(!(flag as u32), Ordering::SeqCst) & flag as u32 != 0
    }

    /// Wakes a thread of the engine to look at the flags. Set the flag first.
    pub(crate) fn notify(&self) {
        if let Some(waker) = self.waker.upgrade().filter(|_| !self.is_closed()) {
            self.set(Flag::Notice);
            waker.call();
        }
    }

    pub(crate) fn is_noticed(&self) -> bool {
        self.is_set(Flag::Notice)
    }

    /// Called by the thread that runs the engine, before it looks at the flags.
    pub(crate) fn clear_notice(&self) {
        self.clear(Flag::Notice);
    }

    /// From now on no thread takes another request, and the process ends as soon as the requests in progress have.
    pub(crate) fn set_ending(&self) {
        self.set(Flag::End);
    }

    /// Whether the process ends with the requests in progress.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_set(Flag::End)
    }

    pub(crate) fn end_helper(&self) {
        self.set(Flag::EndHelper);
    }

    pub(crate) fn is_helper_over(&self) -> bool {
        self.is_set(Flag::EndHelper)
    }

    /// Stops gracefully: requests that have begun are finished, and no client is accepted any more.
    pub fn stop(&self) {
        self.set(Flag::Stop);
        self.notify();
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopping(&self) -> bool {
        self.is_set(Flag::Stop)
    }

    /// Announces the stop of the whole server: no other worker will take connections over. The engine accepts clients
    /// as before, closes each connection after its response, and empties the backlog before it [stops](Self::stop).
    pub fn drain(&self) {
        self.set(Flag::Drain);
        self.notify();
    }

    /// Whether [`drain`](Self::drain) was called.
    pub fn is_draining(&self) -> bool {
        self.is_set(Flag::Drain)
    }

    /// The master is gone, and its other workers also end. So this worker stops like a whole server.
    pub(crate) fn orphan(&self) {
        self.set(Flag::Orphan);
        self.drain();
        self.stop();
    }

    /// Whether [`orphan`](Self::orphan) was called.
    pub(crate) fn is_orphan(&self) -> bool {
        self.is_set(Flag::Orphan)
    }

    /// A thread waits for its client, because no descriptor was free for a file. Whoever drives makes room.
    pub(crate) fn need_descriptor(&self) {
        self.set(Flag::NeedsDescriptor);
        self.notify();
    }

    pub(crate) fn take_descriptor_need(&self) -> bool {
        self.clear(Flag::NeedsDescriptor)
    }

    /// Makes [`Engine::run`](crate::Engine::run) return between two requests.
    pub fn pause(&self) {
        self.set(Flag::Pause);
        self.notify();
    }

    pub(crate) fn take_pause(&self) -> bool {
        self.clear(Flag::Pause)
    }

    /// The number of requests that the application has answered.
    pub fn requests(&self) -> u64 {
        self.counters.requests().saturating_sub(self.before[0])
    }

    /// The number of requests dropped because their client had disconnected before the application was free.
    pub fn dropped(&self) -> u64 {
        self.counters.get(Count::Dropped).saturating_sub(self.before[1])
    }

    /// Whether a client waits to be accepted, for its request to be read, or for a response.
    pub fn is_anybody_waiting(&self) -> bool {
        !self.is_closed() && (self.counters.get(Count::Waiting) > 0 || self.is_poller_readable())
    }

    /// Whether an event is there that wakes an idle worker.
    pub(crate) fn is_poller_readable(&self) -> bool {
        // An epoll descriptor is readable when one of its members is ready (epoll(7)).
        // SAFETY: the poller is open until the engine is dropped, and nothing calls this afterwards.
        unsafe { borrow_fd(self.poller) }.is_ok_and(fastrack_sys::is_readable)
    }

    /// The requests of the thread with this number.
    pub(crate) fn request_of(&self, thread: usize) -> &Arc<ActiveRequest> {
        let request = self.requests[thread].get_or_init(|| Arc::new(ActiveRequest::new(&self.seats, 0)));
        self.used.fetch_max(thread + 1, Ordering::Release);
        request
    }

    /// The requests of all threads that there have been.
    pub(crate) fn all_requests(&self) -> impl Iterator<Item = &Arc<ActiveRequest>> {
        self.requests[..self.used.load(Ordering::Acquire)].iter().filter_map(OnceLock::get)
    }

    fn find_request(&self, thread: usize) -> Option<&Arc<ActiveRequest>> {
        self.requests.get(thread)?.get()
    }

    /// Whether responses may become streams.
    pub(crate) fn has_streams(&self) -> bool {
        self.has_streams
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.counters.get(Count::Streaming) as usize
    }

    /// The sockets that the application has.
    pub(crate) fn app_sockets(&self) -> &AppSockets {
        &self.app_sockets
    }

    /// Number of clients' sockets that the application has taken over, and has not closed. Called with the application's lock.
    pub fn sockets(&self) -> usize {
        self.app_sockets.count()
    }

    /// Ends one connection of a worker that is about to end: a stream or, if there is none, the oldest socket that the application has
    /// taken over. Returns false if all were told to end. Called with the application's lock.
    pub fn end_one(&self) -> bool {
        let ends_stream = || self.all_requests().any(|request| request.end_stream());
        !self.is_closed() && (ends_stream() || self.app_sockets.end_one())
    }

    /// Sets the number of streams. The caller has the reactor's lock.
    pub(crate) fn set_streams(&self, streams: usize) {
        self.counters.set(Count::Streaming, streams as u64);
    }

    /// The counters of this worker. With three exceptions they change only while the reactor is locked.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The application says that a thread's current request mostly waits. From now on the request holds no seat, if there is room for a
    /// stream.
    pub fn mark_io_bound(&self, thread: usize) {
        if !self.is_closed() && self.has_streams {
            self.find_request(thread).into_iter().for_each(|request| request.set_io_bound());
        }
    }

    /// Why a thread's stream is to end; None if it is not. The application calls this as [`is_client_gone`](Self::is_client_gone).
    pub fn stream_end(&self, thread: usize) -> Option<StreamEnd> {
        self.find_request(thread)?.stream_end(monotonic_millis())
    }

    /// How the time of a thread's current or last request is divided, until now or its end. None if the settings do not ask for that.
    pub fn timings(&self, thread: usize) -> Option<Timings> {
        self.find_request(thread)?.times()?.at(fastrack_sys::monotonic_micros())
    }

    /// The system's numbers of the threads that have requests, and what each has to do with the GVL, as far as that is measured.
    pub fn threads_with_requests(&self) -> Vec<(i32, Option<GvlEvent>)> {
        let busy = self.all_requests().filter(|request| request.is_in_application());
        busy.filter_map(|request| Some((request.thread()?, request.times().and_then(|times| times.gvl()))))
            .collect()
    }

    /// Whether the client of a thread's current request has disconnected, or (over TCP) shut down its sending side.
    pub fn is_client_gone(&self, thread: usize) -> bool {
        let fd = self.find_request(thread).map_or(-1, |request| request.fd());
        // SAFETY: the connection is open until the request ends, and the application, which calls this during a
        // request, does not run when it is closed.
        unsafe { borrow_fd(fd) }.is_ok_and(fastrack_sys::is_peer_gone)
    }

    /// Sets the time limit of a thread's current request, in milliseconds from now; 0 is no limit.
    pub fn allow(&self, thread: usize, millis: u64) {
        if !self.is_closed() {
            self.find_request(thread).into_iter().for_each(|request| request.allow(millis));
        }
    }

    /// In a forked child: closes all connections and listeners without a byte or a FIN, because the parent serves them.
    pub fn close(&self) {
        if self.flags.fetch_or(Flag::Close as u32, Ordering::SeqCst) & Flag::Close as u32 != 0 {
            return;
        }
        let clients = self.all_requests().map(|request| request.fd()).filter(|fd| *fd >= 0);
        // This fails only without /dev/null. Then exec or exit closes the descriptors: they are close-on-exec.
        // SAFETY: in a forked child the owners of the descriptors only close them.
        let _ = unsafe { fastrack_sys::replace_with_dev_null(self.inherited.drain().chain(clients)) };
    }

    /// Called before the engine is dropped by the process that made it. `Control` uses no descriptor from then on,
    /// because other files may get the numbers.
    pub fn mark_dropped(&self) {
        self.set(Flag::Close);
    }

    /// Whether [`close`](Self::close) or [`mark_dropped`](Self::mark_dropped) was called.
    pub fn is_closed(&self) -> bool {
        self.is_set(Flag::Close)
    }

    /// Adds a descriptor to those that [`close`](Self::close) closes.
    pub(crate) fn track_fd(&self, fd: RawFd) {
        self.inherited.insert(fd);
    }

    /// Call this before a tracked descriptor is closed: another thread may get its number at once.
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
    fn a_forked_child_closes_connections_and_the_parent_keeps_them() {
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
