use std::io::{ErrorKind, Read, Write};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::accept::Client;
use crate::baton::MAIN;
use crate::handoff::SharedQueue;
use crate::helper::Turn;
use crate::patience::{patience, until};
use crate::request_state::RequestSettings;
use crate::settings::Settings;
use crate::worker::Engine;

use super::{on_fatal_signal, Ending, Stage};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// An engine, seen as what ends it.
struct Ends(Arc<Ending>, #[expect(dead_code, reason = "its helper serves the test")] Engine);

impl Deref for Ends {
    type Target = Ending;

    fn deref(&self) -> &Ending {
        &self.0
    }
}

fn engine(queue: &SharedQueue) -> Ends {
    let watch = RequestSettings { threads: 3, ..RequestSettings::default() };
    let settings = Settings { requests: watch, ..Settings::default() };
    let engine = Engine::new(Vec::new(), None, settings, Some(queue)).expect("an engine");
    Ends(engine.ending(), engine)
}

fn pair() -> (UnixStream, UnixStream) {
    let (client, server) = UnixStream::pair().expect("a pair");
    server.set_nonblocking(true).expect("nonblocking");
    client.set_read_timeout(Some(patience())).expect("a timeout");
    (client, server)
}

/// A client whose connection is kept.
fn kept(engine: &Ending) -> UnixStream {
    let (client, server) = pair();
    let mut reactor = engine.shared.reactor();
    let (connection, step) = reactor.read_first(Client { fd: server.into(), peer: None, listener: 0 });
    let next = reactor.settle_new(connection, step);
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
    let [ended, next] = engines.each_ref().map(|engine| &engine.0);
    let counts = || [Arc::strong_count(ended), Arc::strong_count(next)];
    let before = counts();
    ended.handle_fatal_signals(anchor as *const ());
    next.handle_fatal_signals(anchor as *const ());
    assert_eq!(counts(), [before[0] + 1, before[1]]);
    next.leave_fatal_signals();
    ended.leave_fatal_signals();
    assert_eq!(counts(), before);
    next.handle_fatal_signals(anchor as *const ());
    on_fatal_signal();
    assert_ne!(next.stage(), Stage::GoesOn);
    assert_eq!(ended.stage(), Stage::GoesOn);
    next.leave_fatal_signals();
}

#[test]
fn connections_go_on_elsewhere_though_a_thread_that_has_them_waits_for_a_processor() {
    let queue = SharedQueue::new().expect("a queue");
    let (engine, other) = (engine(&queue), queue.handle().expect("a member").expect("free"));
    let mut client = kept(&engine);
    client.write_all(REQUEST).expect("write");
    std::thread::scope(|scope| {
        let reactor = engine.shared.reactor();
        scope.spawn(|| engine.crash());
        // The helper waits for it from then on, for a second at most.
        until(|| engine.stage() == Stage::Asked);
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
    engine.crash();
    assert!(read_all(&waiting).starts_with("HTTP/1.1 502 "));
    idle.set_nonblocking(true).expect("nonblocking");
    assert_eq!(idle.read(&mut [0]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    drop(reactor);
}

#[test]
fn a_client_that_has_its_response_keeps_its_connection_when_another_thread_crashes() {
    let queue = SharedQueue::new().expect("a queue");
    let (engine, other) = (engine(&queue), queue.handle().expect("a member").expect("free"));
    let _kept = kept(&engine);
    let (mut client, server) = pair();
    client.write_all(REQUEST).expect("write");
    let (app_threads, request) = (engine.shared.app_threads(), &engine.control.all_requests()[MAIN]);
    let mut reactor = engine.shared.reactor();
    reactor.threads.is_open = true;
    assert_eq!(app_threads.next_turn(&mut reactor.threads, MAIN), Turn::Lead);
    let fd = server.as_raw_fd();
    let (connection, _) = reactor.read_first(Client { fd: server.into(), peer: None, listener: 0 });
    request.begin(fd, connection.head().expect("a head").0, REQUEST);
    app_threads.begin_request(&mut reactor.threads, MAIN);
    drop(reactor);
    // All of it has left, which the thread has not said yet.
    assert!(request.claim_response());
    std::thread::scope(|scope| {
        let crashed = scope.spawn(|| {
            engine.crash();
            other.queued()
        });
        // The helper waits for it from then on, for 300 ms at most: it has handed off the rest.
        until(|| other.queued() == 1);
        assert!(request.try_end());
        // Long enough to show it if nobody waited.
        std::thread::sleep(Duration::from_millis(30));
        let mut reactor = engine.shared.reactor();
        reactor.queue(connection);
        app_threads.end_request(&mut reactor.threads, MAIN);
        drop(reactor);
        assert_eq!(crashed.join().expect("no panic"), 2);
    });
    client.set_nonblocking(true).expect("nonblocking");
    assert_eq!(client.read(&mut [0]).expect_err("still open").kind(), ErrorKind::WouldBlock);
}

fn await_ending(engine: &Ending) {
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
        scope.spawn(|| engine.crash());
        await_ending(&engine);
        // It has looked before, and is about to leave the engine for the application.
        std::thread::sleep(Duration::from_millis(20));
        engine.control.all_requests()[1].begin(server.as_raw_fd(), &head, REQUEST);
        drop(reactor);
    });
    assert!(read_all(&client).starts_with("HTTP/1.1 502 "));
}
