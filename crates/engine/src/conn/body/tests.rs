//! Bodies over a pair of sockets.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use fastrack_http::Limits;

use super::*;
use crate::claim::RequestSettings;
use crate::conn::body::will_stream;

struct Client {
    client: UnixStream,
    server: UnixStream,
    reader: Mutex<BodyReader>,
}

impl Client {
    /// A client that has sent a head and a part of the body.
    fn new(fields: &str, part: &[u8], settings: &Settings) -> Self {
        let (client, server) = UnixStream::pair().expect("a pair");
        server.set_nonblocking(true).expect("nonblocking");
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
        let mut buf = ReadBuf { bytes: head.into_bytes(), ..ReadBuf::default() };
        buf.head.parse(&buf.bytes, Limits::default()).expect("a good head");
        buf.bytes.extend_from_slice(part);
        assert_eq!(will_stream(&buf, settings), Ok(true));
        let control = Control::new(-1, [], &RequestSettings::default()).expect("a control");
        let control = Arc::new(control);
        let reader = BodyReader::new(&mut buf, settings, control.request_of(0), &control);
        assert_eq!(buf.bytes.len(), buf.head.len);
        Client { client, server, reader: Mutex::new(reader) }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).expect("write");
    }

    fn stream(&self) -> BodyStream<'_> {
        BodyStream::new(self.server.as_fd(), &self.reader)
    }

    /// The bytes of the body, and the reason for its end.
    fn read(&self) -> (Vec<u8>, Result<BodyRead, BodyError>) {
        let mut body = Vec::new();
        loop {
            match self.stream().read(1000, &mut |bytes| body.extend_from_slice(bytes)) {
                Ok(BodyRead::Taken) => {}
                end => return (body, end),
            }
        }
    }

    fn rest(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        rest.append(self.stream().reader().rest());
        rest
    }
}

#[test]
fn a_body_that_was_read_ahead_can_still_be_read_and_the_bytes_after_it_are_known() {
    let framings: [(&str, &[u8], &[u8]); 2] = [
        ("Content-Length: 8", b"abc", b"defghGET"),
        ("Transfer-Encoding: chunked", b"3\r\nabc\r\n5", b"\r\ndefgh\r\n0\r\n\r\nGET"),
    ];
    for (framing, first, second) in framings {
        let mut client = Client::new(framing, first, &Settings::default());
        assert_eq!(client.stream().read_ahead(), Ok(ReadAhead::Blocked));
        client.send(second);
        assert_eq!(client.stream().read_ahead(), Ok(ReadAhead::Whole));
        client.stream().peek_pipelined(&mut |bytes| assert_eq!(bytes, b"GET"));
        assert_eq!(client.read(), (b"abcdefgh".to_vec(), Ok(BodyRead::End)));
    }
}

#[test]
fn a_body_is_read_ahead_up_to_a_mebibyte_and_no_error_in_it_is_missed() {
    let part = vec![b'x'; MAX_READ_AHEAD + 1];
    let client = Client::new("Content-Length: 1048580", &part, &Settings::default());
    assert_eq!(client.stream().read_ahead(), Ok(ReadAhead::TooMuch));
    assert_eq!(client.read().0.len(), part.len());
    assert_eq!(client.stream().read_ahead(), Ok(ReadAhead::Blocked));
    let mut client = Client::new("Transfer-Encoding: chunked", b"3\r\nabc\r\n", &Settings::default());
    client.send(b"zz\r\n");
    assert_eq!(client.stream().read_ahead(), Err(BodyError::Refused(Error::Chunk)));
}

#[test]
fn a_body_is_read_as_it_arrives_and_the_bytes_after_it_are_the_next_request() {
    let framings: [(&str, &[u8], &[u8]); 2] = [
        ("Content-Length: 8", b"abc", b"defghGET"),
        ("Transfer-Encoding: chunked", b"3\r\nabc\r\n5", b"\r\ndefgh\r\n0\r\n\r\nGET"),
    ];
    for (framing, first, second) in framings {
        let mut client = Client::new(framing, first, &Settings::default());
        assert_eq!(client.read(), (b"abc".to_vec(), Ok(BodyRead::Blocked)));
        client.send(second);
        assert_eq!(client.read(), (b"defgh".to_vec(), Ok(BodyRead::End)));
        assert_eq!(client.read(), (Vec::new(), Ok(BodyRead::End)));
        assert_eq!(client.rest(), b"GET");
        assert!(client.stream().reader().receive_rest(client.server.as_fd(), true));
    }
}

#[test]
fn a_read_returns_no_more_than_was_asked_for() {
    let client = Client::new("Content-Length: 8", b"abc", &Settings::default());
    for expected in [&b"ab"[..], b"c"] {
        let mut got = Vec::new();
        assert_eq!(client.stream().read(2, &mut |bytes| got.extend_from_slice(bytes)), Ok(BodyRead::Taken));
        assert_eq!(got, expected);
    }
}

#[test]
fn an_error_comes_after_the_good_data_and_stays() {
    let chunked = "Transfer-Encoding: chunked";
    let small = Settings { max_body: Some(5), ..Settings::default() };
    let cases: [(&str, &str, &str, Settings, Error); 3] = [
        (chunked, "", "3\r\nabc\r\nzz\r\n", Settings::default(), Error::Chunk),
        (chunked, "3\r\nabc\r\n", "3\r\ndef\r\n", small, Error::BodyTooLarge),
        ("Connection: close\r\nContent-Length: 3", "", "abcGET", Settings::default(), Error::Framing),
    ];
    for (fields, first, second, settings, error) in cases {
        let mut client = Client::new(fields, first.as_bytes(), &settings);
        client.send(second.as_bytes());
        assert_eq!(client.read(), (b"abc".to_vec(), Err(BodyError::Refused(error))));
        assert_eq!(client.read(), (Vec::new(), Err(BodyError::Refused(error))));
        assert!(!client.stream().is_almost_read());
    }
}

#[test]
fn a_client_that_disconnects_does_not_end_the_body() {
    for framing in ["Content-Length: 8", "Transfer-Encoding: chunked"] {
        let client = Client::new(framing, b"1\r\na", &Settings::default());
        client.client.shutdown(std::net::Shutdown::Write).expect("shutdown");
        assert_eq!(client.read().1, Err(BodyError::Gone));
    }
}

#[test]
fn a_client_that_pauses_for_too_long_times_out_however_much_it_has_sent_before() {
    let settings = Settings { body_timeout: 50, ..Settings::default() };
    let mut client = Client::new("Content-Length: 8", b"", &settings);
    let before = fastrack_sys::monotonic_millis() - 49;
    client.reader.get_mut().expect("free").stalled = Some(before);
    client.send(b"a");
    assert_eq!(client.read(), (b"a".to_vec(), Ok(BodyRead::Blocked)));
    let began = fastrack_sys::monotonic_millis();
    while client.read().1 == Ok(BodyRead::Blocked) {
        client.stream().wait();
    }
    assert!(fastrack_sys::monotonic_millis() >= began + 50);
    assert_eq!(client.read().1, Err(BodyError::Refused(Error::Timeout)));
}

#[test]
fn a_stop_shortens_the_timeout_of_a_silent_client() {
    let client = Client::new("Content-Length: 8", b"", &Settings::default());
    {
        let mut reader = client.reader.lock().expect("free");
        reader.control.stop();
        reader.stalled = Some(0);
    }
    client.client.shutdown(std::net::Shutdown::Write).expect("shutdown");
    client.stream().wait();
    let reader = client.reader.lock().expect("free");
    assert_eq!((reader.timeout, reader.failure), (STOP_TIME, None));
}

#[test]
fn a_client_that_awaits_100_continue_gets_it_once_and_not_after_the_response_has_begun() {
    let fields = "Expect: 100-continue\r\nContent-Length: 3";
    let mut client = Client::new(fields, b"", &Settings::default());
    assert_eq!((client.read().1, client.read().1), (Ok(BodyRead::Blocked), Ok(BodyRead::Blocked)));
    let mut interim = [0; 64];
    assert_eq!(client.client.read(&mut interim).expect("asked"), b"HTTP/1.1 100 Continue\r\n\r\n".len());
    client.send(b"abc");
    assert_eq!(client.read(), (b"abc".to_vec(), Ok(BodyRead::End)));
    let mut client = Client::new(fields, b"", &Settings::default());
    assert!(!client.stream().is_almost_read());
    assert_eq!(client.read().1, Ok(BodyRead::Blocked));
    client.client.set_nonblocking(true).expect("nonblocking");
    assert_eq!(client.client.read(&mut interim).expect_err("nothing").kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_short_rest_is_received_ahead_and_can_still_be_read() {
    let mut client = Client::new("Content-Length: 60000", b"abc", &Settings::default());
    assert!(!client.stream().is_almost_read());
    client.send(&[b'x'; 59_997]);
    assert!(client.stream().is_almost_read());
    assert_eq!(client.read().0.len(), 60_000);
}

#[test]
fn a_long_rest_is_not_skipped() {
    let mut client = Client::new("Content-Length: 10000000", b"abc", &Settings::default());
    client.client.set_nonblocking(true).expect("nonblocking");
    while client.client.write(&[b'x'; 65_536]).is_ok() {}
    client.client.set_nonblocking(false).expect("blocking");
    let reader = client.reader.get_mut().expect("free");
    assert!(!reader.receive_rest(client.server.as_fd(), true) && reader.may_have_unread());
    assert!(matches!(reader.frame, Frame::Length(left) if left > 9_800_000));
}

#[test]
fn a_body_that_has_arrived_is_not_streamed() {
    for (fields, body) in [
        ("Content-Length: 3", "abc"),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
        ("Content-Length: 0", ""),
        ("X: y", ""),
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n{body}GET");
        let mut buf = ReadBuf { bytes: request.into_bytes(), ..ReadBuf::default() };
        buf.head.parse(&buf.bytes, Limits::default()).expect("a good head");
        assert_eq!(will_stream(&buf, &Settings::default()), Ok(false), "{fields}");
    }
}
