//! Responses that clients have not read to their end, and long bodies.

use super::*;

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
fn a_response_that_is_due_is_not_cut_off_when_its_client_has_taken_something() {
    let mut reactor = reactor();
    let mut clients = [sending(&mut reactor, 1), sending(&mut reactor, 1)];
    // The socket's buffer is full after this.
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
    // The body has one byte more than fits into memory, so it takes one write when the end has arrived.
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
