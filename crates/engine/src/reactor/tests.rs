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
    // Its request is still with the kernel, for the other one to read.
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
        // A refusal of epoll_ctl(2) for good: of a regular file (EPERM).
        let file = std::fs::File::open(std::env::current_exe().expect("a path")).expect("a file");
        reactor.park(connection(file.into()), u64::MAX);
    }
    assert!(reactor.is_done() && reactor.next_deadline().is_none());
    let warnings = reactor.take_warnings();
    // One in each second.
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
        // A moment after the last look at it.
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

/// A connection with the rest of a response.
fn sending(reactor: &mut Reactor, deadline: u64) -> UnixStream {
    let (client, mut connection) = pair();
    let mut write_buf = WriteBuf::default();
    write_buf.push(&[std::io::IoSlice::new(&vec![b'r'; 1_000_000])], 0).expect("room");
    connection.send_later((write_buf, None), true, false);
    reactor.park(connection, deadline);
    client
}

#[test]
fn while_stopping_a_client_that_takes_a_response_keeps_its_time_and_one_that_sends_a_body_gets_it_anew() {
    let mut reactor = reactor();
    let _sending = sending(&mut reactor, u64::MAX);
    reactor.begin_stop();
    assert_eq!(reactor.next_deadline(), Some(u64::MAX));
    let (mut client, mut connection) = pair();
    client.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nb").expect("write");
    assert_eq!(reactor.read(&mut connection), Step::Wait);
    reactor.park(connection, u64::MAX);
    let first = reactor.next_deadline().expect("a deadline");
    assert!(first < fastrack_sys::monotonic_millis() + 6_000);
    let now = fastrack_sys::monotonic_millis();
    until(|| fastrack_sys::monotonic_millis() > now);
    client.write_all(b"o").expect("write");
    reactor.poll().expect("polled");
    assert!(reactor.handle_events().is_none());
    reactor.expire(&|| false);
    assert!(reactor.table.due(first).is_none());
}

#[test]
fn a_response_stays_until_a_successor_is_there_and_its_deadline_with_it() {
    let queue = SharedQueue::new().expect("a queue");
    let queue_handle = || queue.handle().expect("a member").expect("free");
    let (mut reactor, other) = (Reactor { queue_handle: Some(queue_handle()), ..reactor() }, queue_handle());
    let deadline = fastrack_sys::monotonic_millis() + 60_000;
    let _client = sending(&mut reactor, deadline);
    reactor.begin_stop();
    reactor.poll().expect("polled");
    assert!(reactor.handle_events().is_none());
    let (connection, look) = reactor.table.take(0).expect("parked");
    assert!(look < deadline && connection.deadline > look);
    reactor.park_here(connection, 1);
    reactor.expire(&|| false);
    assert!(reactor.next_deadline().is_some_and(|next| next > 1));
    let (connection, _) = reactor.table.take(0).expect("still there");
    assert!(connection.deadline >= deadline);
    other.set_serving(true);
    reactor.park_here(connection, 1);
    reactor.expire(&|| false);
    assert_eq!((reactor.is_done(), other.queued()), (true, 1));
}

#[test]
fn a_response_stays_while_a_request_is_before_it_in_the_queue_unless_time_is_up() {
    let queue = SharedQueue::new().expect("a queue");
    let queue_handle = || queue.handle().expect("a member").expect("free");
    let (mut reactor, other) = (Reactor { queue_handle: Some(queue_handle()), ..reactor() }, queue_handle());
    other.set_serving(true);
    let (mut asking, mut connection) = pair();
    asking.write_all(REQUEST).expect("write");
    assert_eq!(reactor.read(&mut connection), Step::Ready);
    reactor.give_or_queue(connection);
    let _client = sending(&mut reactor, u64::MAX);
    reactor.begin_stop();
    assert_eq!((reactor.table.len(), other.queued()), (1, 1));
    reactor.stopping.set_deadline(1);
    let (connection, _) = reactor.table.take(0).expect("still there");
    reactor.park(connection, u64::MAX);
    assert_eq!((reactor.table.len(), other.queued()), (0, 2));
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
    // It is no longer the first.
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
fn a_response_that_is_due_is_not_cut_off_when_its_client_has_taken_something() {
    let mut reactor = reactor();
    let mut clients = [sending(&mut reactor, 1), sending(&mut reactor, 1)];
    // What the socket holds at most.
    reactor.poll().expect("polled");
    assert!(reactor.handle_events().is_none());
    for key in reactor.table.keys() {
        let (connection, _) = reactor.table.take(key).expect("parked");
        reactor.park(connection, 1);
    }
    clients[0].read_exact(&mut [0; 100_000]).expect("read");
    reactor.expire(&|| false);
    assert_eq!(reactor.table.len(), 1);
    assert!(reactor.next_deadline().expect("a deadline") > 1);
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
    // A response has been sent, and the client has sent nothing yet; or the next request is there.
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

#[test]
fn beyond_a_limit_incomplete_bodies_go_to_files() {
    let mut reactor = reactor();
    let plain =
        [&b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"[..], &[b'b'; 999_999]].concat();
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nf4240\r\n";
    let chunked = [&head[..], &[b'b'; 1_000_000]].concat();
    let mut clients: Vec<_> = (0..100)
        .map(|index| {
            let (mut client, mut connection) = pair();
            let (part, rest) =
                if index % 2 == 0 { (&plain, &b"b"[..]) } else { (&chunked, &b"\r\n0\r\n\r\n"[..]) };
            for piece in part.chunks(100_000) {
                client.write_all(piece).expect("write");
                assert_eq!(reactor.read(&mut connection), Step::Wait);
            }
            reactor.park(connection, u64::MAX);
            (client, rest)
        })
        .collect();
    assert_eq!(reactor.table.len(), 100);
    until(|| {
        reactor.poll().expect("polled");
        assert!(reactor.handle_events().is_none());
        reactor.table.body_memory() <= 64 * 1024 * 1024 && !reactor.has_pending()
    });
    clients.iter_mut().for_each(|(client, rest)| client.write_all(rest).expect("write"));
    let mut in_files = 0;
    while reactor.table.body_memory() > 0 {
        reactor.poll().expect("polled");
        let Some(connection) = reactor.handle_events() else { continue };
        let (in_file, length) = match connection.request(reactor.settings()).expect("a request").content {
            crate::conn::Content::File(mut file, length) => {
                assert_eq!(std::io::copy(&mut file, &mut std::io::sink()).expect("read"), length);
                (1, length)
            }
            crate::conn::Content::Memory(bytes) => (0, bytes.len() as u64),
            _ => panic!("a body"),
        };
        assert_eq!(length, 1_000_000);
        in_files += in_file;
        reactor.close(connection);
    }
    assert!((20..100).contains(&in_files), "{in_files}");
}

#[test]
fn a_request_is_read_that_arrives_with_the_end_of_a_bodys_last_write() {
    let mut reactor = reactor();
    let mut client = kept(&mut reactor);
    // One byte more than stays in memory: one write, when the end has arrived.
    let body = "x".repeat((1 << 20) + 1);
    let mut post =
        format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}", body.len());
    let end = post.split_off(post.len() - 1) + "\r\n0\r\n\r\n";
    let pieces = post.as_bytes().chunks(50_000).chain([end.as_bytes()]);
    for piece in pieces {
        client.write_all(piece).expect("room");
        reactor.drive(&|| false, &|_| false);
    }
    client.write_all(REQUEST).expect("room");
    until(|| reactor.table.disk().has_news());
    reactor.drive(&|| false, &|_| false);
    let connection = reactor.take_ready().expect("the body is complete");
    let next = reactor.response_sent(connection, true, fastrack_sys::monotonic_millis());
    assert!(matches!(next, Next::Kept), "the next request was read too early for this test");
    reactor.drive(&|| false, &|_| false);
    assert_eq!(reactor.ready.len(), 1);
}
