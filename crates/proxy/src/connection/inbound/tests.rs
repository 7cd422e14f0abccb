use super::*;
use crate::connection::tests::connection;

/// All that hyper would read of these pieces.
fn read(inbound: &mut Inbound, connection: &Connection, pieces: &[&[u8]]) -> io::Result<Vec<u8>> {
    let mut pieces = pieces.iter();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut all = Vec::new();
    loop {
        let mut space = [0; 100_000];
        let mut buf = ReadBuf::new(&mut space);
        let next = inbound.poll_read(connection, &mut cx, &mut buf, |_, buf| {
            let Some(piece) = pieces.next() else { return Poll::Pending };
            buf.put_slice(piece);
            Poll::Ready(Ok(()))
        });
        match next {
            Poll::Ready(Ok(())) if !buf.filled().is_empty() => all.extend_from_slice(buf.filled()),
            Poll::Ready(Ok(())) | Poll::Pending => return Ok(all),
            Poll::Ready(Err(error)) => return Err(error),
        }
    }
}

fn inbound(may_be_h2: bool) -> Inbound {
    Inbound::new(Limits::default(), may_be_h2)
}

#[test]
fn requests_pass_as_they_are_however_they_are_cut() {
    let bytes = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for may_be_h2 in [false, true] {
        for cut in 0..bytes.len() {
            let (before, after) = bytes.split_at(cut);
            let pieces = if cut == 0 { vec![after] } else { vec![before, after] };
            let connection = connection();
            let all = read(&mut inbound(may_be_h2), &connection, &pieces).expect("requests");
            assert_eq!(all, bytes, "{cut}");
            assert!(connection.notes.take().is_none());
        }
    }
}

#[test]
fn a_broken_head_reaches_hyper_as_another_request_with_a_note() {
    let good = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let bad = b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let connection = connection();
    let mut inbound = inbound(false);
    let all = read(&mut inbound, &connection, &[&[&good[..], bad].concat(), good]).expect("requests");
    assert_eq!(all, [good, REFUSED].concat());
    assert!(connection.notes.take().is_none());
    assert!(matches!(connection.notes.take(), Some(Note::Refused(fastrack_http::Error::Framing))));
}

#[test]
fn a_broken_chunk_is_an_error_after_what_came_before() {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let connection = connection();
    let error =
        read(&mut inbound(false), &connection, &[head, b"3\r\nabc\r\n", b"3 \r\n"]).expect_err("an error");
    let found = error.get_ref().and_then(|error| error.downcast_ref());
    assert_eq!(found, Some(&fastrack_http::Error::Chunk));
}

#[test]
fn hyper_gets_a_target_that_it_takes_and_the_handler_the_one_that_was_sent() {
    for (line, expected, sent) in [
        ("GET /a\"b<c>?d`e HTTP/1.1", "GET /a%22b%3Cc%3E?d%60e HTTP/1.1", Some("/a\"b<c>?d`e")),
        ("GET http://b/c?d HTTP/1.0", "GET /c?d HTTP/1.0", Some("http://b/c?d")),
        ("GET http://b HTTP/1.1", "GET / HTTP/1.1", Some("http://b")),
        ("GET /a HTTP/1.5", "GET /a HTTP/1.1", None),
        ("OPTIONS * HTTP/1.1", "OPTIONS * HTTP/1.1", None),
    ] {
        let connection = connection();
        let rest = "\r\nHost: a\r\nX: \"y\"\r\n\r\n";
        let bytes = format!("{line}{rest}");
        let all = read(&mut inbound(false), &connection, &[bytes.as_bytes()]).expect("a request");
        assert_eq!(String::from_utf8(all).expect("a text"), format!("{expected}{rest}"));
        match (connection.notes.take(), sent) {
            (Some(Note::Target(target)), Some(sent)) => assert_eq!(target, sent),
            (note, sent) => assert!(note.is_none() && sent.is_none(), "{line}"),
        }
    }
}

#[test]
fn http2_passes_where_the_client_may_choose_it() {
    let bytes = [PREFACE, b"\0\0\0\x04\0\0\0\0\0"].concat();
    for cut in 1..bytes.len() {
        let (before, after) = bytes.split_at(cut);
        assert_eq!(read(&mut inbound(true), &connection(), &[before, after]).expect("bytes"), bytes);
        assert_eq!(read(&mut inbound(false), &connection(), &[before, after]).expect("bytes"), REFUSED);
    }
}

#[test]
fn bytes_behind_a_request_for_another_protocol_wait_for_its_response() {
    let ask = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    let next = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
    for is_changed in [false, true] {
        let connection = connection();
        let mut inbound = inbound(false);
        let both = [&ask[..], next].concat();
        assert_eq!(read(&mut inbound, &connection, &[&both]).expect("a request"), ask);
        let request = connection.begin_request(hyper::Version::HTTP_11);
        assert!(connection.notes.take().is_none());
        assert_eq!(read(&mut inbound, &connection, &[]).expect("nothing"), b"");
        if is_changed {
            request.becomes_tunnel();
            assert_eq!(
                read(&mut inbound, &connection, &[b"\0x"]).expect("bytes"),
                [&next[..], b"\0x"].concat()
            );
        } else {
            drop(request);
            assert_eq!(read(&mut inbound, &connection, &[]).expect("a request"), next);
        }
    }
}

#[test]
fn the_clients_end_comes_after_the_response() {
    let connection = connection();
    let mut inbound = inbound(false);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut poll = |inbound: &mut Inbound| {
        let mut space = [0; 10];
        let mut buf = ReadBuf::new(&mut space);
        inbound.poll_read(&connection, &mut cx, &mut buf, |_, _| Poll::Ready(Ok(())))
    };
    read(&mut inbound, &connection, &[b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"]).expect("a request");
    assert!(poll(&mut inbound).is_pending());
    let request = connection.begin_request(hyper::Version::HTTP_11);
    assert!(connection.notes.take().is_none());
    assert!(poll(&mut inbound).is_pending());
    drop(request);
    assert!(poll(&mut inbound).is_ready());
}

#[test]
fn the_clients_end_within_a_body_is_told_at_once() {
    let connection = connection();
    let mut inbound = inbound(false);
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";
    read(&mut inbound, &connection, &[head, b"a"]).expect("a part");
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut space = [0; 10];
    let mut buf = ReadBuf::new(&mut space);
    assert!(inbound.poll_read(&connection, &mut cx, &mut buf, |_, _| Poll::Ready(Ok(()))).is_ready());
}

#[test]
fn a_client_owes_the_rest_of_a_body() {
    let connection = connection();
    drop(connection.begin_request(hyper::Version::HTTP_11));
    let mut inbound = inbound(false);
    let time = std::time::Duration::ZERO;
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe";
    read(&mut inbound, &connection, &[head]).expect("a request");
    assert!(!connection.is_quiet(time));
    read(&mut inbound, &connection, &[b"llo"]).expect("the rest");
    assert!(connection.is_quiet(time));
}
