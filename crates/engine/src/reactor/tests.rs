use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::*;
use crate::accept::Client;
use crate::claim::RequestSettings;
use crate::conn::{Phase, Spooling, Step, WriteBuf};
use crate::handoff::SharedQueue;
use crate::patience::until;

mod responses;

pub(super) fn reactor() -> Reactor {
    let control = Control::new(-1, [], &RequestSettings::default()).expect("a control");
    let table = Table::new(Spooling::new(&Settings::default())).expect("a poller");
    let poller = Arc::new(fastrack_sys::Poller::new().expect("a poller"));
    let lead = Lead::new(crate::accept::Listeners::new(Vec::new()), poller, None);
    Reactor::new(Settings::default(), Arc::new(control), table, None, lead)
}

pub(super) fn pair() -> (UnixStream, Box<Connection>) {
    let (client, server) = UnixStream::pair().expect("a pair");
    server.set_nonblocking(true).expect("nonblocking");
    (client, connection(server.into()))
}

fn connection(fd: OwnedFd) -> Box<Connection> {
    Connection::new(Client { fd, peer: None, listener: 0 })
}

/// A client whose connection is kept.
pub(super) fn kept(reactor: &mut Reactor) -> UnixStream {
    let (client, connection) = pair();
    reactor.park(connection, u64::MAX);
    client
}

/// A connection with the rest of a response.
fn sending(reactor: &mut Reactor, deadline: u64) -> UnixStream {
    let (client, mut connection) = pair();
    let mut write_buf = WriteBuf::default();
    write_buf.push(&[std::io::IoSlice::new(&vec![b'r'; 1_000_000])], 0).expect("room");
    connection.send_later((write_buf, None), true, false);
    reactor.park(connection, deadline);
    client
}

pub(super) const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn the_helper_leaves_the_rest_when_the_other_thread_is_back() {
    let mut reactor = reactor();
    let clients: Vec<_> = (0..5).map(|_| kept(&mut reactor)).collect();
    clients.iter().for_each(|mut client| client.write_all(REQUEST).expect("write"));
    reactor.drive(&|| true, &|_| false);
    assert_eq!((reactor.ready.len(), reactor.events()), (0, 5));
    let asked = std::cell::Cell::new(0);
    reactor.drive(&|| asked.replace(asked.get() + 1) == 2, &|_| false);
    assert_eq!((reactor.ready.len(), reactor.events()), (2, 3));
    reactor.drive(&|| false, &|_| false);
    assert_eq!((reactor.ready.len(), reactor.events()), (5, 0));
}

#[test]
fn one_of_several_connections_with_events_goes_to_an_idle_worker() {
    let queue = SharedQueue::new().expect("a queue");
    let queue_handle = || queue.handle().expect("a member").expect("free");
    let (mut reactor, other) = (Reactor { queue_handle: Some(queue_handle()), ..reactor() }, queue_handle());
    let clients = [pair(), pair()].map(|(mut client, mut connection)| {
        client.write_all(REQUEST).expect("write");
        assert_eq!(reactor.read(&mut connection), Step::Ready);
        assert_eq!(connection.next_request(&reactor.settings), Step::Wait);
        reactor.park(connection, u64::MAX);
        client.write_all(REQUEST).expect("write");
        client
    });
    reactor.poll().expect("polled");
    assert!(!reactor.give_one() && reactor.events() == 2, "nobody is idle");
    other.set_idle(true);
    assert!(reactor.give_one());
    assert_eq!((reactor.events(), reactor.table.len(), other.queued()), (1, 1, 1));
    // The kernel still has the request of the given connection. The other worker reads it.
    let mut its = Reactor { queue_handle: Some(other), ..self::reactor() };
    assert!(its.take_request().is_none());
    its.poll().expect("polled");
    assert!(its.handle_events().is_some() && reactor.handle_events().is_some());
    drop(clients);
}

#[test]
fn the_helper_leaves_overdue_connections_when_the_other_thread_is_back() {
    let mut reactor = reactor();
    let clients = [pair(), pair(), pair()].map(|(client, connection)| {
        reactor.park(connection, 1);
        client
    });
    reactor.expire(&|| true);
    assert_eq!(reactor.table.len(), 2);
    reactor.expire(&|| false);
    assert!(reactor.is_done());
    drop(clients);
}

#[test]
fn a_connection_that_cannot_be_watched_is_closed() {
    let mut reactor = reactor();
    for _ in 0..100 {
        // The kernel never watches a regular file (EPERM, epoll_ctl(2)).
        let file = std::fs::File::open(std::env::current_exe().expect("a path")).expect("a file");
        reactor.park(connection(file.into()), u64::MAX);
    }
    assert!(reactor.is_done() && reactor.next_deadline().is_none());
    let warnings = reactor.take_warnings();
    // There is one warning a second.
    assert!((1..50).contains(&warnings.len()), "{warnings:?}");
    assert!(warnings[0].starts_with("cannot wait for a client: "), "{warnings:?}");
}

#[test]
fn a_connection_that_can_no_longer_be_watched_is_closed() {
    let mut reactor = reactor();
    let mut client = kept(&mut reactor);
    let key = reactor.table.keys()[0];
    let (mut connection, _) = reactor.table.take(key).expect("parked");
    reactor.table.poller().remove(&*connection).expect("watched");
    let mut write_buf = WriteBuf::default();
    write_buf.push(&[std::io::IoSlice::new(b"rest")], 0).expect("room");
    connection.send_later((write_buf, None), true, false);
    reactor.park(connection, u64::MAX);
    assert!(reactor.is_done() && reactor.next_deadline().is_none());
    assert_eq!(reactor.control.tracked_fds(), 0);
    assert_eq!(client.read(&mut [0; 1]).expect("the end"), 0);
}

#[test]
fn a_waiting_request_is_dropped_only_when_its_client_has_disconnected() {
    let mut reactor = reactor();
    for (leaves, dropped) in [(false, 0), (true, 1)] {
        let (mut client, mut connection) = pair();
        client.write_all(REQUEST).expect("write");
        assert_eq!(reactor.read(&mut connection), Step::Ready);
        reactor.queue(connection);
        client.shutdown(Shutdown::Write).expect("shutdown");
        let client = (!leaves).then_some(client);
        assert_eq!(reactor.take_ready().is_some(), client.is_some());
        assert_eq!(reactor.control.dropped(), dropped);
    }
}

#[test]
fn a_pipelined_request_is_not_dropped_when_its_client_shuts_down_sending_even_after_a_handoff() {
    let queue = SharedQueue::new().expect("a queue");
    let queue_handle = Some(queue.handle().expect("a member").expect("free"));
    let mut reactor = Reactor { queue_handle, ..self::reactor() };
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    for travels in [false, true] {
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connect");
        let (server, peer) = listener.accept().expect("accept");
        server.set_nonblocking(true).expect("nonblocking");
        client.write_all(&REQUEST.repeat(2)).expect("write");
        fastrack_sys::wait_readable(server.as_fd(), u64::MAX).expect("wait");
        let mut connection = Connection::new(Client { fd: server.into(), peer: Some(peer), listener: 0 });
        assert_eq!(reactor.read(&mut connection), Step::Ready);
        let Next::Ready(connection) = reactor.response_sent(connection, true, 1) else {
            panic!("another request")
        };
        // The client leaves a moment after the last look at it.
        client.shutdown(Shutdown::Write).expect("shutdown");
        until(|| fastrack_sys::has_peer_closed(connection.as_fd()));
        let taken = if travels {
            reactor.give_or_queue(connection);
            reactor.take_request()
        } else {
            reactor.queue(connection);
            reactor.take_ready()
        };
        assert!(taken.is_some() && reactor.control.dropped() == 0, "travels: {travels}");
    }
}

#[test]
fn an_empty_line_before_a_request_is_ignored() {
    let mut reactor = reactor();
    let (mut client, mut connection) = pair();
    connection.served = 1;
    for (sent, step, phase) in [
        (&b"\r"[..], Step::Wait, Phase::Idle),
        (b"\n", Step::Wait, Phase::Idle),
        (b"G", Step::Wait, Phase::Head),
        (&REQUEST[1..], Step::Ready, Phase::Body),
    ] {
        client.write_all(sent).expect("write");
        assert_eq!(reactor.read(&mut connection), step);
        assert_eq!(connection.phase(), phase);
        connection.release_empty_buffer(&mut reactor.read_bufs);
    }
    let request = connection.request(&reactor.settings).expect("a request");
    assert_eq!(request.path, b"/");
}

#[test]
fn shared_requests_wait_behind_those_in_the_queue_and_the_first_of_all_stays() {
    let queue = SharedQueue::new().expect("a queue");
    let queue_handle = || queue.handle().expect("a member").expect("free");
    let (mut reactor, other) = (Reactor { queue_handle: Some(queue_handle()), ..reactor() }, queue_handle());
    other.set_serving(true);
    let mut clients: Vec<_> = (0..3).map(|_| kept(&mut reactor)).collect();
    clients.iter_mut().for_each(|client| client.write_all(REQUEST).expect("write"));
    reactor.poll().expect("polled");
    let first = reactor.share(None, false).expect("the first");
    assert_eq!((first.key, reactor.events(), other.queued()), (Some(0), 0, 2));
    // The connection is no longer the one to be served first.
    reactor.queue(first);
    assert!(reactor.share(None, false).is_none());
    assert_eq!((reactor.has_ready(), other.queued()), (false, 3));
}

#[test]
fn a_busy_worker_goes_on_with_slow_clients_at_the_head_of_the_queue_if_nobody_is_idle() {
    let queue = SharedQueue::new().expect("a queue");
    let queue_handle = || queue.handle().expect("a member").expect("free");
    let (mut gives, mut takes) = (
        Reactor { queue_handle: Some(queue_handle()), ..reactor() },
        Reactor { queue_handle: Some(queue_handle()), ..reactor() },
    );
    let idle = queue_handle();
    idle.set_idle(true);
    let mut client = sending(&mut gives, u64::MAX);
    let (mut body, mut connection) = pair();
    body.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nb").expect("write");
    assert_eq!(gives.read(&mut connection), Step::Wait);
    gives.park(connection, u64::MAX);
    let (mut asking, mut connection) = pair();
    asking.write_all(REQUEST).expect("write");
    assert_eq!(gives.read(&mut connection), Step::Ready);
    gives.queue(connection);
    // The response comes first.
    gives.hand_off_all();
    assert_eq!(idle.queued(), 3);
    takes.drive(&|| false, &|_| false);
    assert_eq!((takes.table.len(), idle.queued()), (0, 3));
    idle.set_idle(false);
    takes.drive(&|| false, &|_| false);
    assert_eq!((takes.table.len(), idle.queued()), (1, 2));
    let mut got = 0;
    while got < 1_000_000 {
        got += client.read(&mut [0; 100_000]).expect("the rest");
        takes.drive(&|| false, &|_| false);
    }
    assert!(takes.take_request().is_some() && idle.queued() == 1);
    takes.drive(&|| false, &|_| false);
    assert_eq!((takes.table.len(), idle.queued()), (2, 0));
}

#[test]
fn when_the_process_ends_all_connections_go_to_another_worker_with_their_deadlines() {
    let queue = SharedQueue::new().expect("a queue");
    let queue_handle = || queue.handle().expect("a member").expect("free");
    let (mut reactor, other) = (Reactor { queue_handle: Some(queue_handle()), ..reactor() }, queue_handle());
    other.set_serving(true);
    let deadline = fastrack_sys::monotonic_millis() + 60_000;
    let (mut body, mut connection) = pair();
    body.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nb").expect("write");
    assert_eq!(reactor.read(&mut connection), Step::Wait);
    reactor.park(connection, deadline);
    let mut rest = sending(&mut reactor, deadline);
    let (mut refused, connection) = pair();
    reactor.lingering_close(connection);
    reactor.hand_off_all();
    assert_eq!((other.queued(), reactor.is_done()), (3, true));
    let mut its = Reactor { queue_handle: Some(other), ..self::reactor() };
    assert!(its.take_request().is_none());
    assert_eq!(its.table.len(), 3);
    assert!(its.table.due(deadline - 1).is_some(), "the refused one");
    body.write_all(b"o").expect("write");
    refused.write_all(b"more").expect("write");
    let mut got = 0;
    while got < 1_000_000 {
        got += rest.read(&mut [0; 100_000]).expect("the rest");
        its.poll().expect("polled");
        its.handle_events().into_iter().for_each(|connection| its.queue(connection));
    }
    let connection = its.take_ready().expect("a request");
    let request = connection.request(its.settings()).expect("a request");
    assert!(matches!(request.content, crate::conn::Content::Memory(b"bo")));
    assert_eq!(refused.read(&mut [0]).expect("the end"), 0);
}

#[test]
fn what_a_thread_comes_back_with_after_that_goes_to_another_worker_too() {
    let queue = SharedQueue::new().expect("a queue");
    let queue_handle = || queue.handle().expect("a member").expect("free");
    let (mut reactor, other) = (Reactor { queue_handle: Some(queue_handle()), ..reactor() }, queue_handle());
    other.set_serving(true);
    reactor.hand_off_all();
    let mut its = Reactor { queue_handle: Some(other), ..self::reactor() };
    // One client has its response and has sent nothing yet. The other one has sent its next request.
    let (mut kept, connection) = pair();
    reactor.park_in_phase(connection);
    let (mut next, mut connection) = pair();
    next.write_all(b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    assert_eq!(reactor.read(&mut connection), Step::Ready);
    reactor.queue(connection);
    assert!(reactor.is_done());
    kept.write_all(b"GET /kept HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    for path in [&b"/next"[..], b"/kept"] {
        its.poll().expect("polled");
        let connection = its.take_request().or_else(|| its.handle_events()).expect("a request");
        assert_eq!(connection.request(its.settings()).expect("a request").path, path);
        its.close(connection);
    }
}
