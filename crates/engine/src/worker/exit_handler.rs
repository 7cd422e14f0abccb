//! What a process does that ends in the middle of a request and learns of it: the application calls exit!, or
//! native code crashes. Nobody learns of SIGKILL.
//!
//! The client gets a 502, or a reset if part of the response was sent. The other connections go to other workers.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::Arc;

use fastrack_http::Error;
use fastrack_sys::monotonic_millis;

use crate::control::Control;
use crate::helper::{Order, Shared};
use crate::watch::{ActiveRequest, Claim, LastResponse};

/// How long a crashed thread waits for the helper, in milliseconds: longer than that waits for the reactor. If the heap is
/// corrupt it may never finish.
const HELPER_TIME: u64 = 3_000;

/// How long to wait for the reactor if nothing has crashed, in milliseconds.
const REACTOR_TIME: u64 = 1_000;

/// Answers the clients of a process that ends in the middle of a request. Belongs to the process that made it.
#[derive(Debug)]
pub struct ExitHandler {
    shared: Arc<Shared>,
    control: Arc<Control>,
    response: LastResponse,
    done: AtomicBool,
    /// The first call has done all it can.
    over: AtomicBool,
    pid: u32,
}

/// What fatal signals run: an `Arc` that was turned into a pointer, or null.
static INSTALLED: AtomicPtr<ExitHandler> = AtomicPtr::new(null_mut());

/// How many threads are in it.
static CRASHING: AtomicUsize = AtomicUsize::new(0);

impl ExitHandler {
    pub(super) fn new(shared: Arc<Shared>, control: Arc<Control>) -> Self {
        let response = LastResponse::new(Error::Ended);
        let (done, over) = (AtomicBool::new(false), AtomicBool::new(false));
        ExitHandler { shared, control, response, done, over, pid: std::process::id() }
    }

    /// Answers the requests in progress with 502 and hands off the rest, right before the process ends. Once per process.
    pub fn run(&self) {
        if self.is_first_call() {
            self.answer(ActiveRequest::take);
            let is_done = self.shared.hand_off_all(REACTOR_TIME);
            // If the process does not end, the helper sees to it.
            self.shared.order(if is_done { Order::HandedOff } else { Order::Left });
            self.answer_rest();
            if is_done {
                self.shared.log_ended(&self.control, REACTOR_TIME);
            }
            self.over.store(true, Ordering::SeqCst);
        }
    }

    /// What a thread does first that has crashed. Async-signal-safe.
    fn crash(&self) {
        if self.is_first_call() {
            // Other threads may go on: one that has sent a response and not come back yet is not to cost its client the connection.
            let is_alone = self.control.threads() == 1;
            self.answer(if is_alone { ActiveRequest::take } else { ActiveRequest::take_open });
            // The helper does what no signal handler may.
            self.shared.order(Order::HandOff);
            let latest = monotonic_millis() + HELPER_TIME;
            while self.shared.is_ordered(Order::HandOff) && monotonic_millis() < latest {
                fastrack_sys::sleep(1);
            }
            self.answer_rest();
            self.over.store(true, Ordering::SeqCst);
        } else if self.pid == std::process::id() {
            // What this thread does next ends the process: another one that has crashed is not done yet.
            let latest = monotonic_millis() + HELPER_TIME;
            while !self.over.load(Ordering::SeqCst) && monotonic_millis() < latest {
                fastrack_sys::sleep(1);
            }
        }
    }

    /// Has fatal signals do the same, until [`leave_fatal_signals`](Self::leave_fatal_signals). Only the first handler counts until then.
    ///
    /// `ruby` is any address in the program or library whose signal handlers this is to precede. Other handlers are
    /// left alone: they may not even treat their signal as a failure.
    pub fn handle_fatal_signals(self: &Arc<Self>, ruby: *const ()) {
        let own = Arc::into_raw(Arc::clone(self)).cast_mut();
        if INSTALLED.compare_exchange(null_mut(), own, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            // SAFETY: it does only what signal-safety(7) allows.
            unsafe { fastrack_sys::run_before_fatal_signals(ruby as usize, on_fatal_signal) };
        } else {
            // SAFETY: it was made by into_raw just now, and nobody else has it.
            drop(unsafe { Arc::from_raw(own) });
        }
    }

    /// From now on fatal signals do what they did before: the engine ends, and the process goes on. A child of its may have
    /// an engine of its own.
    pub fn leave_fatal_signals(self: &Arc<Self>) {
        let own = Arc::as_ptr(self).cast_mut();
        if INSTALLED.compare_exchange(own, null_mut(), Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        // A thread that has crashed at this moment ends the process.
        while CRASHING.load(Ordering::SeqCst) > 0 {
            fastrack_sys::sleep(1);
        }
        // SAFETY: into_raw has made it, and the exchange has taken it out of where others would find it.
        drop(unsafe { Arc::from_raw(own) });
    }

    fn is_first_call(&self) -> bool {
        self.pid == std::process::id() && !self.done.swap(true, Ordering::SeqCst)
    }

    /// Async-signal-safe.
    fn answer(&self, take: fn(&ActiveRequest) -> Option<Claim>) {
        // The process may still take seconds to end, and what another thread began meanwhile would end with it. With one
        // thread the application keeps that.
        if self.control.threads() > 1 {
            self.control.set_ending();
        }
        self.take_requests(take);
    }

    /// What came too late for [`answer`](Self::answer): requests that threads began at that moment, and connections that
    /// could not be handed off. Async-signal-safe.
    fn answer_rest(&self) {
        if self.control.threads() > 1 {
            self.take_requests(ActiveRequest::take);
        }
        // HandOff: the helper is stuck, or is the thread that has crashed.
        if self.shared.is_ordered(Order::Left) || self.shared.is_ordered(Order::HandOff) {
            self.control.with_connections(|client, is_unsent| self.response.send_unseen(client, is_unsent));
        }
    }

    fn take_requests(&self, take: fn(&ActiveRequest) -> Option<Claim>) {
        for request in self.control.all_requests() {
            if let Some(claim) = take(request) {
                request.note_ended(claim);
                self.response.send(request, claim);
                if claim == Claim::Open {
                    LastResponse::drain(request);
                }
            }
        }
    }
}

/// The handler of fatal signals: only what signal-safety(7) allows.
fn on_fatal_signal() {
    CRASHING.fetch_add(1, Ordering::SeqCst);
    // SAFETY: into_raw has made it, and who takes it away waits until nobody is in here.
    unsafe { INSTALLED.load(Ordering::SeqCst).as_ref() }.into_iter().for_each(ExitHandler::crash);
    CRASHING.fetch_sub(1, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::Ordering;
    use std::sync::Arc;
    use std::time::Duration;

    use super::on_fatal_signal;
    use crate::accept::Client;
    use crate::handoff::SharedQueue;
    use crate::helper::{Order, Turn, MAIN};
    use crate::patience::{patience, until};
    use crate::settings::Settings;
    use crate::watch::WatchSettings;
    use crate::worker::Engine;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

    fn engine(queue: &SharedQueue) -> Engine {
        let watch = WatchSettings { threads: 3, ..WatchSettings::default() };
        let settings = Settings { watch, ..Settings::default() };
        Engine::new(Vec::new(), None, settings, Some(queue)).expect("an engine")
    }

    fn pair() -> (UnixStream, UnixStream) {
        let (client, server) = UnixStream::pair().expect("a pair");
        server.set_nonblocking(true).expect("nonblocking");
        client.set_read_timeout(Some(patience())).expect("a timeout");
        (client, server)
    }

    /// A client whose connection is kept.
    fn kept(engine: &Engine) -> UnixStream {
        let (client, server) = pair();
        let mut reactor = engine.shared.reactor();
        let (connection, step) = reactor.greet(Client { fd: server.into(), peer: None, listener: 0 });
        let next = reactor.enter(connection, step);
        reactor.queue_if_ready(next);
        client
    }

    fn read_all(mut client: &UnixStream) -> String {
        let mut text = String::new();
        client.read_to_string(&mut text).expect("a response and an orderly end");
        text
    }

    #[test]
    fn fatal_signals_leave_an_engine_alone_that_has_ended() {
        extern "C" fn anchor() {}
        let queue = SharedQueue::new().expect("a queue");
        let engines = [engine(&queue), engine(&queue)];
        let [ended, next] = engines.each_ref().map(|engine| Arc::new(engine.exit_handler()));
        ended.handle_fatal_signals(anchor as *const ());
        next.handle_fatal_signals(anchor as *const ());
        assert_eq!((Arc::strong_count(&ended), Arc::strong_count(&next)), (2, 1));
        next.leave_fatal_signals();
        ended.leave_fatal_signals();
        assert_eq!(Arc::strong_count(&ended), 1);
        next.handle_fatal_signals(anchor as *const ());
        on_fatal_signal();
        assert!(next.done.load(Ordering::SeqCst) && !ended.done.load(Ordering::SeqCst));
        next.leave_fatal_signals();
    }

    #[test]
    fn connections_go_on_elsewhere_though_a_thread_that_has_them_waits_for_a_processor() {
        let queue = SharedQueue::new().expect("a queue");
        let (engine, other) = (engine(&queue), queue.member().expect("a member").expect("free"));
        let mut client = kept(&engine);
        client.write_all(REQUEST).expect("write");
        std::thread::scope(|scope| {
            let reactor = engine.shared.reactor();
            scope.spawn(|| engine.exit_handler().crash());
            // The helper waits for it from then on, for a second at most.
            until(|| engine.shared.is_ordered(Order::HandOff));
            drop(reactor);
        });
        assert_eq!(other.queued(), 1);
        client.set_nonblocking(true).expect("nonblocking");
        assert_eq!(client.read(&mut [0]).expect_err("nothing yet").kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn clients_get_502_where_the_crashed_thread_keeps_the_connections_and_those_that_wait_for_nothing_get_nothing(
    ) {
        let queue = SharedQueue::new().expect("a queue");
        let engine = engine(&queue);
        let (mut waiting, mut idle) = (kept(&engine), kept(&engine));
        waiting.write_all(REQUEST).expect("write");
        let reactor = engine.shared.reactor();
        engine.exit_handler().crash();
        assert!(read_all(&waiting).starts_with("HTTP/1.1 502 "));
        idle.set_nonblocking(true).expect("nonblocking");
        assert_eq!(idle.read(&mut [0]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
        drop(reactor);
    }

    #[test]
    fn a_client_that_has_its_response_keeps_its_connection_when_another_thread_crashes() {
        let queue = SharedQueue::new().expect("a queue");
        let (engine, other) = (engine(&queue), queue.member().expect("a member").expect("free"));
        let _kept = kept(&engine);
        let (mut client, server) = pair();
        client.write_all(REQUEST).expect("write");
        let (crew, request) = (engine.shared.crew(), &engine.control.all_requests()[MAIN]);
        crew.open();
        assert_eq!(crew.next_turn(MAIN), Turn::Lead);
        let fd = server.as_raw_fd();
        let (connection, _) =
            engine.shared.reactor().greet(Client { fd: server.into(), peer: None, listener: 0 });
        request.begin(fd, connection.head().expect("a head").0, REQUEST);
        crew.begin_request(MAIN);
        // All of it has left, which the thread has not said yet.
        assert!(request.claim_response());
        std::thread::scope(|scope| {
            let crashed = scope.spawn(|| {
                engine.exit_handler().crash();
                other.queued()
            });
            // The helper waits for it from then on, for 300 ms at most: it has handed off the rest.
            until(|| other.queued() == 1);
            assert!(request.try_end());
            // Long enough to show it if nobody waited.
            std::thread::sleep(Duration::from_millis(30));
            engine.shared.reactor().queue(connection);
            crew.end_request(MAIN);
            assert_eq!(crashed.join().expect("no panic"), 2);
        });
        client.set_nonblocking(true).expect("nonblocking");
        assert_eq!(client.read(&mut [0]).expect_err("still open").kind(), ErrorKind::WouldBlock);
    }

    fn await_ending(engine: &Engine) {
        until(|| engine.control.is_ending());
    }

    #[test]
    fn a_request_that_a_thread_begins_while_another_one_crashes_is_answered() {
        let queue = SharedQueue::new().expect("a queue");
        let engine = engine(&queue);
        let (client, server) = pair();
        let mut head = fastrack_http::Head::default();
        head.parse(REQUEST, fastrack_http::Limits::default()).expect("a good head");
        std::thread::scope(|scope| {
            let reactor = engine.shared.reactor();
            scope.spawn(|| engine.exit_handler().crash());
            await_ending(&engine);
            // It has looked before, and is about to leave the engine for the application.
            std::thread::sleep(Duration::from_millis(20));
            engine.control.all_requests()[1].begin(server.as_raw_fd(), &head, REQUEST);
            drop(reactor);
        });
        assert!(read_all(&client).starts_with("HTTP/1.1 502 "));
    }
}
