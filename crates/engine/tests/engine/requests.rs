//! How requests come in, whole or in pieces, right or wrong.

use std::io::Write;

use crate::support::{closing, end_of_sending, read_all, Seen, Worker};
use fastrack_engine::{Finish, Settings};
use proptest::prelude::*;

fn seen(method: &str, path: &str, body: &[u8]) -> Seen {
    Seen { method: method.into(), path: path.into(), body: body.into(), in_file: false }
}

fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or(response)
}

#[test]
fn a_request_reaches_the_application_and_its_answer_the_client() {
    let mut worker = Worker::start(closing(), None);
    let response = worker.writer(b"GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(response.ends_with("\r\n\r\n        0"), "{response}");
    assert_eq!(worker.next_seen(), seen("GET", "/a", b""));
    assert_eq!(worker.stop(), Finish::Stopped);
    assert_eq!(worker.control.requests(), 1);
}

#[test]
fn a_body_of_known_length_stays_in_memory_up_to_a_mebibyte_and_goes_to_a_file_above() {
    let mut worker = Worker::start(closing(), None);
    for length in [1, 20_000, 1 << 20, (1 << 20) + 1, 3_000_000] {
        let body: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        let mut request =
            format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        request.extend_from_slice(&body);
        assert!(worker.writer(&request).ends_with(&length.to_string()));
        let expected = Seen { in_file: length > 1 << 20, ..seen("POST", "/", &body) };
        assert!(worker.next_seen() == expected, "{length}");
    }
    worker.stop();
}

#[test]
fn a_chunked_body_is_decoded_into_memory_or_a_file() {
    let mut worker = Worker::start(closing(), None);
    for chunks in [0, 1, 70, 900] {
        let chunk = [b'c'; 3000];
        let mut request = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for _ in 0..chunks {
            request.extend_from_slice(b"BB8\r\n");
            request.extend_from_slice(&chunk);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"0\r\n\r\n");
        assert!(worker.writer(&request).ends_with(&(chunks * 3000).to_string()));
        let expected = Seen { in_file: chunks * 3000 > 1 << 20, ..seen("POST", "/", &chunk.repeat(chunks)) };
        assert!(worker.next_seen() == expected, "{chunks}");
    }
    worker.stop();
}

#[test]
fn what_is_wrong_is_answered_and_never_reaches_the_application() {
    let mut worker = Worker::start(Settings { max_body: Some(10), ..closing() }, None);
    let cases = [
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("garbage\r\n\r\n", "400"),
        ("GET / HTTP/3.0\r\nHost: h\r\n\r\n", "505"),
        ("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabcd", "400"),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n", "413"),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n", "413"),
        ("POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\naGET /", "400"),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx", "400"),
        ("GET / HTTP/1.1\r\nHost: h\r\nExpect: x\r\n\r\n", "417"),
    ];
    for (request, code) in cases {
        let response = worker.writer(request.as_bytes());
        assert_eq!(status(&response), code, "{request:?}");
    }
    worker.stop();
    assert!(worker.seen.try_recv().is_err());
}

#[test]
fn a_refusal_is_read_even_by_a_client_that_is_still_sending() {
    let mut worker = Worker::start(Settings { max_body: Some(10), ..closing() }, None);
    let mut request = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\n\r\n".to_vec();
    request.resize(request.len() + 500_000, b'x');
    assert_eq!(status(&worker.writer(&request)), "413");
    worker.stop();
}

#[test]
fn a_server_that_keeps_no_connection_answers_the_first_of_several_requests_however_they_come() {
    let mut worker = Worker::start(closing(), None);
    for framing in ["Content-Length: 1\r\n\r\na", "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"] {
        let next = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let response = worker.writer(format!("POST / HTTP/1.1\r\nHost: h\r\n{framing}{next}").as_bytes());
        assert_eq!(status(&response), "200");
        let mut stream = worker.connect();
        write!(stream, "POST /hold HTTP/1.1\r\nHost: h\r\n{framing}").expect("write");
        while worker.next_seen().path != "/held" {}
        stream.write_all(next.as_bytes()).expect("write");
        worker.release_held();
        assert_eq!(status(&read_all(stream)), "200");
    }
    worker.stop();
}

#[test]
fn a_crlf_after_a_body_means_nothing() {
    let mut worker = Worker::start(closing(), None);
    let response = worker.writer(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\r\n");
    assert_eq!(status(&response), "200");
    worker.stop();
}

#[test]
fn a_truncated_request_closes_the_connection_without_calling_the_application() {
    let mut worker = Worker::start(closing(), None);
    for request in ["GET / HT", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabc"] {
        let mut stream = worker.connect();
        stream.write_all(request.as_bytes()).expect("write");
        end_of_sending(&stream);
        assert_eq!(read_all(stream), "");
    }
    worker.stop();
    assert!(worker.seen.try_recv().is_err());
}

#[test]
fn the_interim_response_comes_before_the_body_is_sent() {
    let mut worker = Worker::start(closing(), None);
    let mut stream = worker.connect();
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        .expect("write");
    let mut interim = [0; 25];
    std::io::Read::read_exact(&mut stream, &mut interim).expect("an interim response");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"ab").expect("write");
    assert_eq!(status(&read_all(stream)), "200");
    worker.stop();
}

#[test]
fn the_path_is_decoded_on_request_only() {
    for (decode_path, path) in [(false, "/a%20b"), (true, "/a b")] {
        let mut worker = Worker::start(Settings { decode_path, ..closing() }, None);
        worker.writer(b"GET /a%20b HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(worker.next_seen(), seen("GET", path, b""));
        let broken = worker.writer(b"GET /a%2 HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(status(&broken), if decode_path { "400" } else { "200" });
        worker.stop();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_request_is_the_same_however_it_is_cut(cuts in prop::collection::vec(0_usize..150, 0..5), chunked: bool) {
        let mut worker = Worker::start(closing(), None);
        let request: &[u8] = if chunked {
            b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n3;e=f\r\nefg\r\n0\r\nT: r\r\n\r\n"
        } else {
            b"\r\nPOST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\nCookie: a\r\nCookie: b\r\n\r\nabcdefg"
        };
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % request.len()).collect();
        cuts.sort_unstable();
        cuts.push(request.len());
        let mut stream = worker.connect();
        stream.set_nodelay(true).expect("nodelay");
        let mut sent = 0;
        for cut in cuts {
            stream.write_all(&request[sent..cut]).expect("write");
            sent = cut;
            std::thread::yield_now();
        }
        let response = read_all(stream);
        prop_assert_eq!(status(&response), "200");
        prop_assert_eq!(worker.next_seen(), seen("POST", "/x", b"abcdefg"));
        worker.stop();
    }

    #[test]
    fn garbage_ends_in_a_refusal_or_a_close_and_never_in_a_panic(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
        let mut worker = Worker::start(closing(), None);
        let mut stream = worker.connect();
        stream.write_all(&bytes).expect("write");
        end_of_sending(&stream);
        let response = read_all(stream);
        prop_assert!(response.is_empty() || response.starts_with("HTTP/1.1 "), "{}", response);
        prop_assert_eq!(worker.stop(), Finish::Stopped);
    }
}

#[test]
fn a_body_that_is_under_way_is_read_by_the_application_if_that_is_wanted() {
    let settings = Settings { stream_body: true, ..Settings::default() };
    let mut worker = Worker::start(settings, None);
    let mut stream = worker.connect();
    // The application has read these bytes before the client sends the rest.
    stream.write_all(b"POST /only/2 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab").expect("write");
    assert_eq!(worker.next_seen(), seen("POST", "/only/2", b"ab"));
    assert_eq!(status(&read_all(stream)), "200");
    let mut stream = worker.connect();
    stream
        .write_all(b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        .expect("write");
    stream.write_all(b"0\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("write");
    assert_eq!(worker.next_seen(), seen("POST", "/a", b"abc"));
    assert_eq!(worker.next_seen(), seen("GET", "/b", b""));
    assert_eq!(read_all(stream).matches("HTTP/1.1 200").count(), 2);
    worker.stop();
}
