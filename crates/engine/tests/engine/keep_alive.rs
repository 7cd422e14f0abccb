//! Connections that carry more than one request.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{end_of_sending, read_all, Worker};
use fastrack_engine::{Finish, Settings};
use proptest::prelude::*;

/// The answer of the tests' application to a request with a body of this length.
fn answer(length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{length:>9}")
}

/// Reads this number of bytes from the connection.
fn take(stream: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).expect("an answer");
    String::from_utf8(bytes).expect("utf-8")
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes()
}

fn post(path: &str, body: &[u8], chunk: Option<usize>) -> Vec<u8> {
    let Some(chunk) = chunk else {
        let mut request =
            format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        request.extend_from_slice(body);
        return request;
    };
    let mut request =
        format!("POST {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
    for part in body.chunks(chunk) {
        request.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        request.extend_from_slice(part);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    request
}

#[test]
fn a_connection_carries_one_request_after_the_other() {
    let mut worker = Worker::start(Settings::default(), None);
    let mut stream = worker.connect();
    for index in 0..100 {
        stream.write_all(&get(&format!("/{index}"))).expect("write");
        assert_eq!(take(&mut stream, answer(0).len()), answer(0));
        assert_eq!(worker.next_seen().path, format!("/{index}"));
    }
    worker.stop();
    assert_eq!(read_all(stream), "");
    assert_eq!(worker.control.requests(), 100);
}

#[test]
fn the_last_of_as_many_requests_as_a_connection_may_carry_ends_it_without_a_reset() {
    let mut worker = Worker::start(Settings { keep_alive_requests: 3, ..Settings::default() }, None);
    let mut stream = worker.connect();
    stream.write_all(&get("/").repeat(2)).expect("write");
    take(&mut stream, 2 * answer(0).len());
    // One read does not take all of this, so a part is unread when the connection is closed.
    stream.write_all(&get("/").repeat(2000)).expect("write");
    assert_eq!(read_all(stream), answer(0));
    worker.stop();
    assert_eq!(worker.control.requests(), 3);
}

#[test]
fn the_end_of_sending_comes_after_the_requests_before_it() {
    let mut worker = Worker::start(Settings::default(), None);
    let mut stream = worker.connect();
    stream.write_all(&get("/").repeat(5)).expect("write");
    end_of_sending(&stream);
    assert_eq!(read_all(stream), answer(0).repeat(5));
    worker.stop();
}

#[test]
fn an_idle_connection_is_closed_without_a_word_and_half_a_request_with_408() {
    let settings =
        Settings { keep_alive_timeout: 200, header_timeout: 200, body_timeout: 200, ..Settings::default() };
    let mut worker = Worker::start(settings, None);
    for half in ["", "GET / HT", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab"] {
        let mut stream = worker.connect();
        // Both parts are sent at once. A client that pauses for longer than the limit would be idle.
        stream.write_all(&[&get("/"), half.as_bytes()].concat()).expect("write");
        take(&mut stream, answer(0).len());
        let rest = read_all(stream);
        assert!(
            rest.is_empty() == half.is_empty() && (rest.is_empty() || rest.starts_with("HTTP/1.1 408 ")),
            "{rest}"
        );
    }
    worker.stop();
}

#[test]
fn a_client_that_has_sent_its_body_is_not_asked_for_it() {
    let mut worker = Worker::start(Settings::default(), None);
    let mut stream = worker.connect();
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab")
        .expect("write");
    assert_eq!(take(&mut stream, answer(2).len()), answer(2));
    worker.stop();
}

#[test]
fn a_client_that_sends_requests_but_reads_nothing_keeps_nobody_busy() {
    let mut worker = Worker::start(Settings::default(), None);
    let mut stream = worker.connect();
    // The requests are more than one read takes. The first response is more than any socket takes at once.
    let mut requests = get("/array");
    requests.extend(get("/").repeat(1000));
    stream.write_all(&requests).expect("write");
    assert_eq!(worker.next_seen().path, "/array");
    let mut other = worker.connect();
    for _ in 0..3 {
        other.write_all(&get("/other")).expect("write");
        take(&mut other, answer(0).len());
        assert_eq!(worker.next_seen().path, "/other");
    }
    let (head, body) = ("HTTP/1.1 200 OK\r\nContent-Length: 8000000\r\n\r\n", 8_000_000);
    take(&mut stream, head.len() + body);
    assert_eq!(take(&mut stream, 1000 * answer(0).len()), answer(0).repeat(1000));
    worker.stop();
}

#[test]
fn a_stop_closes_what_is_idle_at_once() {
    let mut worker = Worker::start(Settings::default(), None);
    let mut stream = worker.connect();
    stream.write_all(&get("/")).expect("write");
    take(&mut stream, answer(0).len());
    assert_eq!(worker.stop(), Finish::Stopped);
    assert_eq!(read_all(stream), "");
}

#[derive(Clone, Debug)]
struct Asked {
    body: Option<usize>,
    chunk: Option<usize>,
}

fn asked() -> impl Strategy<Value = Asked> {
    let body = prop_oneof![
        4 => Just(None),
        4 => (0_usize..300).prop_map(Some),
        3 => (0_usize..70_000).prop_map(Some),
        1 => (1_048_000_usize..1_100_000).prop_map(Some),
    ];
    (body, prop::option::of(1_usize..40_000)).prop_map(|(body, chunk)| Asked { body, chunk })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_pipeline_is_answered_in_order_however_it_is_cut(
        requests in prop::collection::vec(asked(), 1..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut worker = Worker::start(Settings::default(), None);
        let mut bytes = Vec::new();
        let mut expected = String::new();
        for (index, asked) in requests.iter().enumerate() {
            let path = format!("/{index}");
            let body: Vec<u8> = (0..asked.body.unwrap_or(0)).map(|at| (at % 251 + index) as u8).collect();
            let request = asked.body.map_or_else(|| get(&path), |_| post(&path, &body, asked.chunk));
            bytes.extend(request);
            expected.push_str(&answer(body.len()));
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let mut stream = worker.connect();
        stream.set_nodelay(true).expect("nodelay");
        let mut sent = 0;
        for cut in cuts {
            stream.write_all(&bytes[sent..cut]).expect("write");
            sent = cut;
            std::thread::yield_now();
        }
        prop_assert_eq!(take(&mut stream, expected.len()), expected);
        // The client ends its sending only now. A waiting request of a client that seems to have left would be dropped.
        end_of_sending(&stream);
        prop_assert_eq!(read_all(stream), "");
        for (index, asked) in requests.iter().enumerate() {
            let seen = worker.next_seen();
            prop_assert_eq!(&seen.path, &format!("/{index}"));
            let whole = seen.body.iter().enumerate().all(|(at, byte)| *byte == (at % 251 + index) as u8);
            prop_assert!(whole && seen.body.len() == asked.body.unwrap_or(0));
        }
        worker.stop();
    }
}
