use super::*;

const DATE: &Date = b"Sun, 06 Nov 1994 08:49:37 GMT";

fn started(code: u16) -> ResponseHead {
    let mut head = ResponseHead::default();
    head.start(code);
    head
}

fn text(head: &ResponseHead, persistence: Persistence) -> String {
    let mut out = Vec::new();
    head.write(DATE, persistence, &mut out);
    String::from_utf8(out).expect("utf-8")
}

fn written(code: u16, fields: &[(&str, &str)]) -> String {
    let mut head = started(code);
    for (name, value) in fields {
        head.field(name.as_bytes(), value.as_bytes()).expect("a valid field");
    }
    head.end_fields();
    text(&head, Persistence::Close)
}

#[test]
fn the_head_is_in_the_order_of_the_contract() {
    let text = written(200, &[("Content-Type", "text/plain"), ("X", "y")]);
    assert_eq!(
        text,
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: Fastrack\r\n\
         Content-Type: text/plain\r\nX: y\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn a_status_among_the_fields_is_not_sent() {
    assert_eq!(
        written(200, &[("status", "500"), ("Status", "404"), ("statux", "x")]),
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: Fastrack\r\nstatux: x\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn the_applications_date_and_server_win_and_its_connection_does_not() {
    let text =
        written(404, &[("date", "Foooo"), ("Connection", "keep-alive"), ("SERVER", "mine"), ("Dat", "x")]);
    assert_eq!(
        text,
        "HTTP/1.1 404 Not Found\r\ndate: Foooo\r\nSERVER: mine\r\nDat: x\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn the_client_is_told_whether_the_connection_persists() {
    for (persistence, end) in [
        (Persistence::Close, "\r\nConnection: close\r\n\r\n"),
        (Persistence::Implied, "\r\n\r\n"),
        (Persistence::Named, "\r\nConnection: keep-alive\r\n\r\n"),
        (Persistence::Upgraded, "\r\nConnection: Upgrade\r\n\r\n"),
    ] {
        assert_eq!(text(&started(204), persistence).split("Server: Fastrack").last(), Some(end));
    }
}

#[test]
fn an_interim_response_has_the_applications_fields_and_no_others() {
    let (mut head, mut out) = (started(103), Vec::new());
    head.write_interim(&mut out);
    assert!(out.is_empty());
    for (name, value) in [
        ("Link", "</a>\n</b>"),
        ("Content-Length", "5"),
        ("X-Hop", "1"),
        ("Connection", "close, x-hop"),
        ("Upgrade", "a"),
        ("Keep-Alive", "timeout=5"),
        ("Date", "now"),
    ] {
        head.field(name.as_bytes(), value.as_bytes()).expect("a valid field");
    }
    head.end_fields();
    head.write_interim(&mut out);
    assert_eq!(out, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\n");
}

#[test]
fn a_switch_of_protocols_names_the_other_one() {
    let mut head = started(200);
    head.switch_protocol(b"websocket").expect("a valid field");
    started(200).switch_protocol(b"a\r\nb").expect_err("two lines");
    let text = text(&head, Persistence::Upgraded);
    assert!(text.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{text}");
    assert!(text.ends_with("\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"), "{text}");
}

#[test]
fn the_length_is_known_only_where_there_is_one() {
    let length = |values: &[&str]| {
        let mut head = started(200);
        values.iter().for_each(|value| head.field(b"content-length", value.as_bytes()).expect("valid"));
        head.length()
    };
    assert_eq!(length(&[]), Length::Unknown);
    assert_eq!(length(&["12"]), Length::Known(12));
    assert_eq!(length(&["x", "12", "13", "12"]), Length::Known(12));
    for bad in ["-1", "x", "1\n2", " 1", "", "1, 1", "99999999999999999999"] {
        assert_eq!(length(&[bad]), Length::Unknown, "{bad:?}");
    }
}

#[test]
fn lines_become_fields_and_empty_ones_nothing() {
    let text =
        written(200, &[("A", "Foo\nBar"), ("B", "\nBaz"), ("C", "Fuga\n"), ("D", "x\n\ny"), ("E", "")]);
    assert!(
        text.contains("\r\nA: Foo\r\nA: Bar\r\nB: Baz\r\nC: Fuga\r\nD: x\r\nD: y\r\nE: \r\nConnection"),
        "{text}"
    );
}

#[test]
fn bytes_that_could_split_a_response_are_refused() {
    let mut head = started(200);
    assert_eq!(head.field(b"A", b"b\r\nC: d"), Err(FieldError::Value));
    assert_eq!(head.field(b"A", b"b\0"), Err(FieldError::Value));
    for bad in [b'\r', b'\0', 0x01, 0x0b, 0x1f, 0x7f] {
        for length in [0, 46, 47, 48, 200] {
            let value = [&vec![b'v'; length], &[bad][..]].concat();
            assert_eq!(head.field(b"A", &value), Err(FieldError::Value), "{length} bytes and {bad}");
        }
    }
    assert_eq!(head.field(b"A", "a\tb\u{e4}".as_bytes()), Ok(()));
    for name in ["", "A B", "A:", "A\r\nB", "\u{e4}"] {
        assert_eq!(head.field(name.as_bytes(), b"x"), Err(FieldError::Name), "{name}");
    }
}

#[test]
fn framing_is_dropped_where_it_is_forbidden() {
    assert!(!written(204, &[("Content-Length", "0")]).contains("Content-Length"));
    assert!(!written(101, &[("Transfer-Encoding", "chunked")]).contains("Transfer"));
    assert!(written(304, &[("Content-Length", "7")]).contains("Content-Length: 7"));
}

#[test]
fn a_response_is_framed_in_one_way_only() {
    let (length, coding, other) = (("Content-Length", "7"), ("transfer-encoding", "chunked"), ("X", "y"));
    let mut head = ResponseHead::default();
    // One head for all responses, so that lines are reused.
    for (fields, framing) in [
        (&[other, length, other][..], "Content-Length: 7\r\n"),
        (&[other, length, coding, other], "transfer-encoding: chunked\r\n"),
        (&[coding, length, other], "transfer-encoding: chunked\r\n"),
        (&[other, length, other], "Content-Length: 7\r\n"),
        (&[length, length, other], "Content-Length: 7\r\n"),
        (&[length, ("content-length", "8"), other], "Content-Length: 7\r\n"),
        (&[("Content-Length", "abc"), other], ""),
        (&[coding, other, other], "transfer-encoding: chunked\r\n"),
    ] {
        head.start(200);
        fields.iter().for_each(|(name, value)| {
            head.field(name.as_bytes(), value.as_bytes()).expect("valid");
        });
        let text = text(&head, Persistence::Implied).to_lowercase();
        let others = fields.iter().filter(|field| **field == other).count();
        assert_eq!(text.matches("x: y\r\n").count(), others, "{text}");
        assert_eq!(
            text.matches("content-length").count() + text.matches("transfer-encoding").count(),
            usize::from(!framing.is_empty()),
            "{text}"
        );
        assert!(text.contains(&framing.to_lowercase()), "{text}");
        let known = if framing.starts_with("Content") { Length::Known(7) } else { Length::Unknown };
        assert_eq!(
            (head.length(), head.coding() == Coding::Chunked),
            (known, framing.starts_with("transfer"))
        );
    }
}

#[test]
fn a_length_that_the_response_before_had_is_dropped_where_it_is_forbidden() {
    let mut head = ResponseHead::default();
    for (code, length) in [(200, Length::Known(7)), (204, Length::Unknown), (200, Length::Known(7))] {
        head.start(code);
        head.field(b"Content-Length", b"7").expect("valid");
        assert_eq!(head.length(), length);
        assert_eq!(text(&head, Persistence::Close).contains("Content-Length: 7"), code == 200);
    }
}

#[test]
fn a_205_has_no_length_of_the_applications() {
    let text = written(205, &[("Content-Length", "7"), ("Transfer-Encoding", "chunked")]);
    assert!(!text.contains("Content-Length") && !text.contains("Transfer"), "{text}");
}

#[test]
fn fields_named_by_connection_are_not_sent_without_it() {
    for (connection, sent) in [
        ("x-one", "X-Two: 2\r\nX-Three: 3\r\nContent-Length: 4\r\n"),
        ("close, X-ONE ,x-three", "X-Two: 2\r\nContent-Length: 4\r\n"),
        (
            "x-tw, x-threee, content-length",
            "X-One: 1\r\nX-One: 1b\r\nX-Two: 2\r\nX-Three: 3\r\nContent-Length: 4\r\n",
        ),
    ] {
        let own = [
            ("X-One", "1\n1b"),
            ("X-Two", "2"),
            ("X-Three", "3"),
            ("Content-Length", "4"),
            ("Keep-Alive", "max=9"),
        ];
        let before = [&[("Connection", connection)], &own[..]].concat();
        let behind = [&own[..], &[("connection", connection)]].concat();
        for fields in [before, behind] {
            let text = written(200, &fields);
            let (_, fields) = text.split_once("Fastrack\r\n").expect("the head");
            assert_eq!(fields, format!("{sent}Connection: close\r\n\r\n"));
        }
    }
}

#[test]
fn an_upgrade_is_named_by_connection() {
    for (code, persistence, connection) in [
        (426, Persistence::Close, "close, Upgrade"),
        (200, Persistence::Implied, "Upgrade"),
        (200, Persistence::Named, "keep-alive, Upgrade"),
        (101, Persistence::Upgraded, "Upgrade"),
    ] {
        let mut head = started(code);
        head.field(b"upgrade", b"a").expect("valid");
        let text = text(&head, persistence);
        assert!(text.ends_with(&format!("\r\nupgrade: a\r\nConnection: {connection}\r\n\r\n")), "{text}");
    }
}

#[test]
fn a_switch_of_protocols_names_no_third_one() {
    let mut head = started(200);
    head.field(b"upgrade", b"h2c").expect("valid");
    head.switch_protocol(b"websocket").expect("valid");
    let text = text(&head, Persistence::Upgraded);
    assert!(!text.contains("h2c") && text.contains("Upgrade: websocket\r\n"), "{text}");
}

#[test]
fn an_older_word_for_no_coding_is_none() {
    for value in ["identity", "", " , Identity"] {
        let mut head = started(200);
        head.field(b"Content-Length", b"7").expect("valid");
        head.field(b"Transfer-Encoding", value.as_bytes()).expect("valid");
        let text = text(&head, Persistence::Implied);
        assert!(!text.contains("Transfer") && text.contains("Content-Length: 7"), "{text}");
        assert!(!head.ends_by_close());
    }
    assert!(!written(200, &[("Transfer-Encoding", "gzip, identity")]).contains("identity"));
}
