//! Long responses that clients do not read to their end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use fastrack_engine::Settings;

use crate::support::{closing, read_all, Worker};

const LENGTH: usize = 8_000_000;

/// A client that has sent a request, and reads nothing.
fn asked(worker: &Worker, path: &str) -> TcpStream {
    let mut stream = worker.connect();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    stream
}

fn assert_whole(stream: TcpStream) {
    let text = read_all(stream);
    let body = text.strip_prefix("HTTP/1.1 200 OK\r\n\r\n").expect("a head");
    assert!(body.len() == LENGTH && body.bytes().all(|byte| byte == b'x'));
}

#[test]
fn a_client_that_reads_nothing_of_a_long_response_holds_no_worker() {
    let mut worker = Worker::start(closing(), None);
    let slow = [(); 3].map(|()| {
        let stream = asked(&worker, "/large");
        assert_eq!(worker.next_seen().path, "/large");
        stream
    });
    assert!(worker.writer(b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n").ends_with('0'));
    slow.into_iter().for_each(assert_whole);
    worker.stop();
}

#[test]
fn the_worker_waits_for_the_client_where_there_is_no_spool_or_it_is_full() {
    for max_response_spool in [0, 1_000_000] {
        let mut worker = Worker::start(Settings { max_response_spool, ..closing() }, None);
        let slow = asked(&worker, "/large");
        worker.seen.recv_timeout(Duration::from_millis(100)).expect_err("it waits");
        assert_whole(slow);
        assert_eq!(worker.next_seen().path, "/large");
        worker.stop();
    }
}

#[test]
fn a_client_gets_what_was_passed_while_the_application_has_nothing_to_send() {
    let mut worker = Worker::start(closing(), None);
    let mut stream = asked(&worker, "/quiet");
    assert_eq!(worker.next_seen().path, "/held");
    let mut text = vec![0; "HTTP/1.1 200 OK\r\n\r\n".len() + LENGTH];
    stream.read_exact(&mut text).expect("all of it");
    worker.release_held();
    assert_eq!(read_all(stream), "");
    worker.stop();
}
