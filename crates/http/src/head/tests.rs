use super::*;

fn parse(text: &str) -> Result<(Status, Head), Error> {
    let mut head = Head::default();
    head.parse(text.as_bytes(), Limits::default()).map(|status| (status, head))
}

fn refused(text: &str) -> Option<Error> {
    parse(text).err()
}

const BROWSER: &str = "GET /a?b HTTP/1.1\r\nHost: h\r\nX-One:  two \r\nAccept: */*\r\nX-One: 3\r\n\r\nrest";

#[test]
fn a_whole_head_is_split_into_its_parts() {
    let (status, head) = parse(BROWSER).expect("valid");
    let at = |span: Span| std::str::from_utf8(span.of_buffer(BROWSER.as_bytes())).expect("utf-8");
    assert_eq!(status, Status::Complete);
    assert_eq!((at(head.method), at(head.target)), ("GET", "/a?b"));
    assert_eq!(head.request_line(BROWSER.as_bytes()), b"GET /a?b HTTP/1.1");
    assert_eq!(head.version, Version::Http11);
    assert_eq!(&BROWSER[head.len..], "rest");
    let fields: Vec<_> =
        head.fields.iter().map(|field| (at(field.name), at(field.value), field.known)).collect();
    assert_eq!(fields[0], ("Host", "h", Some(KnownName::Host)));
    assert_eq!(fields[1], ("X-One", "two", None));
    assert_eq!(fields[2], ("Accept", "*/*", Some(KnownName::Accept)));
    assert!(head.has_duplicate_env_keys);
}

#[test]
fn the_target_is_split_into_its_parts() {
    let parts = |target: &str| {
        let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        let (_, head) = parse(&text).expect("valid");
        let at = |span: Span| String::from_utf8(span.of_buffer(text.as_bytes()).to_vec()).expect("utf-8");
        let path = String::from_utf8(head.path(text.as_bytes()).to_vec()).expect("utf-8");
        (path, at(head.query), head.authority.map(at))
    };
    assert_eq!(parts("/a%20b?c=d"), ("/a%20b".into(), "c=d".into(), None));
    assert_eq!(parts("http://a:1?c"), ("/".into(), "c".into(), Some("a:1".into())));
    for (sent, target) in [("/a?b#c?d", "/a?b"), ("/#", "/"), ("/?#", "/?"), ("http://a#b", "http://a")] {
        let text = format!("\r\nGET {sent} HTTP/1.0\r\n\r\n");
        let (_, head) = parse(&text).expect("valid");
        assert_eq!(head.target.of_buffer(text.as_bytes()), target.as_bytes());
        assert_eq!(head.request_line(text.as_bytes()), format!("GET {sent} HTTP/1.0").as_bytes());
    }
    assert_eq!(refused("GET a HTTP/1.1\r\nHost: h\r\n\r\n"), Some(Error::Target));
}

#[test]
fn a_field_name_too_long_for_a_key_is_refused() {
    let long = "a".repeat(MAX_FIELD_NAME_LEN + 1);
    assert_eq!(
        refused(&format!("GET / HTTP/1.1\r\nHost: h\r\n{long}: b\r\n\r\n")),
        Some(Error::HeadTooLarge)
    );
}

#[test]
fn every_prefix_of_a_valid_head_is_partial() {
    let end = BROWSER.len() - "rest".len();
    for cut in 0..end {
        let (status, _) = parse(&BROWSER[..cut]).expect("a prefix is never an error");
        assert_eq!(status, Status::Partial, "{cut}");
    }
}

#[test]
fn env_keys_are_unique_unless_a_name_is_repeated_or_has_an_underscore() {
    let has_duplicates = |fields: &str| {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        parse(&text).expect("valid").1.has_duplicate_env_keys
    };
    assert!(!has_duplicates("X-A: 1\r\nX-B: 2\r\n"));
    assert!(has_duplicates("X_A: 1\r\n"));
    assert!(has_duplicates("X-A: 1\r\nx-a: 1\r\n"));
    assert!(has_duplicates("Cookie: 1\r\ncookie: 1\r\n"));
}

#[test]
fn a_connection_lasts_as_its_version_and_its_fields_say() {
    let persistent = |version: &str, fields: &str| {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        parse(&text).expect(fields).1.is_persistent()
    };
    assert!(persistent("1.1", ""));
    assert!(!persistent("1.0", ""));
    assert!(persistent("1.0", "Connection: Keep-Alive\r\n"));
    assert!(persistent("1.1", "Connection: Upgrade, HTTP2-Settings\r\n"));
    for version in ["1.0", "1.1"] {
        assert!(!persistent(version, "Connection: foo ,CLOSE\r\n"));
        assert!(!persistent(version, "Connection: close\r\nConnection: keep-alive\r\n"));
        assert!(!persistent(version, "Connection: keep-alive\r\nConnection: close\r\n"));
    }
}

#[test]
fn framing_and_expectation_are_read_without_case() {
    let framing =
        |fields: &str| parse(&format!("POST / HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n")).expect(fields).1;
    assert_eq!(framing("content-LENGTH: 12").framing, Framing::Length(12));
    assert_eq!(framing("transfer-encoding: Chunked").framing, Framing::Chunked);
    assert_eq!(framing("EXPECT: 100-Continue").expectation, Expectation::Continue);
    assert_eq!(framing("X: y").framing, Framing::None);
}

#[test]
fn a_request_that_could_mean_two_things_is_refused() {
    let request = |fields: &str| refused(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
    assert_eq!(request("Content-Length: 1\r\nTransfer-Encoding: chunked"), Some(Error::Framing));
    assert_eq!(request("Transfer-Encoding: chunked\r\nContent-Length: 1"), Some(Error::Framing));
    assert_eq!(request("Content-Length: 1\r\nContent-Length: 2"), Some(Error::Framing));
    assert_eq!(request("Content-Length: 1\r\nContent-Length: 1"), Some(Error::Framing));
    assert_eq!(request("Content-Length: 1, 1"), Some(Error::Framing));
    assert_eq!(request("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), Some(Error::Framing));
    assert_eq!(request("Transfer-Encoding: gzip, chunked"), Some(Error::NotImplemented));
    assert_eq!(request("Host: b"), Some(Error::Host));
    for host in ["", ":80", "a b", "a/b", "a@b", "<a>", "a\\b", "a,b#"] {
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")), Some(Error::Host), "{host}");
    }
    for host in ["a", "a.b:80", "[::1]:80", "a_b-c~%41!$&'()*+,;="] {
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")), None, "{host}");
    }
    assert_eq!(refused("GET * HTTP/1.1\r\nHost: a\r\n\r\n"), Some(Error::Target));
    assert_eq!(refused("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), None);
    assert_eq!(request("Expect: the-unexpected"), Some(Error::Expectation));
    assert_eq!(request("Content-Length : 1"), Some(Error::Syntax));
    assert_eq!(request("X: a\rb"), Some(Error::Syntax));
    assert_eq!(request("X: a\0b"), Some(Error::Syntax));
    assert_eq!(request("X: a\r\n folded"), Some(Error::Syntax));
    assert_eq!(refused("GET / HTTP/1.1\r\nX: y\r\n\r\n"), Some(Error::Host));
    assert_eq!(refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Some(Error::Framing));
    assert_eq!(refused("GET / HTTP/1.0\r\n\r\n"), None);
    assert_eq!(refused("GET / HTTP/1.0\r\nExpect: the-unexpected\r\n\r\n"), None);
}

#[test]
fn versions_and_garbage_are_told_apart() {
    assert_eq!(refused("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), Some(Error::Version));
    for other in ["2.0", "0.9", "3.1"] {
        assert_eq!(refused(&format!("GET / HTTP/{other}\r\nHost: a\r\n\r\n")), Some(Error::Version));
    }
    for bad in ["1", "1.", "01.01", "1.x", "1.10", "2", "2.", "x"] {
        assert_eq!(refused(&format!("GET / HTTP/{bad}\r\nHost: a\r\n\r\n")), Some(Error::Syntax), "{bad}");
    }
    let (_, head) = parse("GET /a?b HTTP/1.7\r\nHost: a\r\n\r\n").expect("as HTTP/1.1");
    assert_eq!((head.version, head.len, head.fields.len()), (Version::Http11, 30, 1));
    assert_eq!(refused("GET / FTP/1.1\r\nHost: a\r\n\r\n"), Some(Error::Syntax));
    assert_eq!(refused("\x16\x03\x01\x02\x00"), Some(Error::Syntax));
    assert_eq!(refused("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), Some(Error::Syntax));
}
