use super::*;
use proptest::prelude::*;

/// Times with the most digits.
const LONGEST: Timings = Timings {
    queue: u64::MAX,
    upload: u64::MAX,
    app: u64::MAX,
    gvl: Some(crate::GvlTimings { wait: u64::MAX, running: u64::MAX, off: u64::MAX }),
    send: u64::MAX,
};

const REQUEST: &[u8] = b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nUser-Agent: u \"a\"\r\nX-Request-Id: r-1\r\n\r\n";

fn head(bytes: &[u8]) -> Head {
    let mut head = Head::default();
    head.parse(bytes, fastrack_http::Limits::default()).expect("a good head");
    head
}

fn line<'a>(head: &Head, bytes: &'a [u8]) -> Line<'a> {
    Line {
        request: Request::of(head, bytes),
        address: Some([127, 0, 0, 1].into()),
        protocol: None,
        status: 200,
        length: 12,
        time: 1_795_355_237_045,
        duration: 1_234_567,
        queue_time: 89,
        timings: None,
    }
}

fn written(format: Format, worker: Option<u64>, line: &Line) -> String {
    let mut out = Vec::new();
    LineWriter::new(format, worker).write(line, &mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn a_line_of_the_proxy_has_no_worker_and_one_without_a_request_says_so() {
    let line = Line { request: Request::default(), status: 400, ..line(&head(REQUEST), REQUEST) };
    assert_eq!(
        written(Format::Combined, None, &line),
        "127.0.0.1 - - [22/Nov/2026:13:47:17 +0000] \"-\" 400 12 \"-\" \"-\"\n"
    );
    let found: serde_json::Value = serde_json::from_str(&written(Format::Json, None, &line)).expect("JSON");
    assert_eq!(
        (&found["worker"], &found["method"], &found["status"]),
        (&serde_json::Value::Null, &"".into(), &400.into())
    );
}

#[test]
fn no_line_is_longer_than_a_pipe_takes_at_once() {
    let long = "\u{fc}\"".repeat(2_000);
    let bytes = format!(
        "GET /{} HTTP/1.1\r\nHost: h\r\nReferer: {long}\r\nUser-Agent: {long}\r\nX-Request-Id: {long}\r\n\r\n",
        "a\"".repeat(3_000)
    );
    let head = head(bytes.as_bytes());
    for format in [Format::Combined, Format::Json] {
        let mut writer = LineWriter::new(format, Some(u64::MAX));
        let mut out = Vec::new();
        let line = Line {
            address: Some(std::net::Ipv6Addr::LOCALHOST.into()),
            time: u64::MAX,
            duration: u64::MAX,
            queue_time: u64::MAX,
            length: u64::MAX,
            timings: Some(LONGEST),
            ..line(&head, bytes.as_bytes())
        };
        writer.write(&line, &mut out);
        assert!(out.len() > 3_000 && out.len() <= LINE_LIMIT && out.ends_with(b"\n"), "{}", out.len());
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}

/// What a line in JSON says of a text: bytes that are no UTF-8 are ISO 8859-1.
fn text_of(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().copied().map(char::from).collect(), str::to_owned)
}

#[test]
fn a_line_in_json_has_the_division_of_the_time_that_was_measured() {
    let head = head(REQUEST);
    let said = |timings| {
        let text = written(Format::Json, Some(0), &Line { timings, ..line(&head, REQUEST) });
        let found: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        ["queue_time", "upload", "app", "gvl_wait", "running", "off_gvl", "send"]
            .map(|key| found.get(key).map(micros))
    };
    let timings = Timings { queue: 89, upload: 1, app: 9, gvl: None, send: 1_000_006 };
    assert_eq!(said(None), [Some(89), None, None, None, None, None, None]);
    assert_eq!(said(Some(timings)), [Some(89), Some(1), Some(9), None, None, None, Some(1_000_006)]);
    let gvl = Some(crate::GvlTimings { wait: 2, running: 3, off: 4 });
    let expected = [89, 1, 9, 2, 3, 4, 1_000_006].map(Some);
    assert_eq!(said(Some(Timings { gvl, ..timings })), expected);
}

fn value_of(head: &Head, bytes: &[u8], name: &str) -> serde_json::Value {
    let is_name =
        |field: &&fastrack_http::Field| field.name.of_buffer(bytes).eq_ignore_ascii_case(name.as_bytes());
    let field = head.fields.iter().find(is_name);
    field.map_or(serde_json::Value::Null, |field| text_of(field.value.of_buffer(bytes)).into())
}

/// Seconds as a number of microseconds.
fn micros(value: &serde_json::Value) -> u64 {
    (value.as_f64().expect("a number") * 1e6).round() as u64
}

#[test]
fn a_line_has_the_protocol_that_the_clients_proxy_names() {
    let head = head(REQUEST);
    for (format, expected) in
        [(Format::Combined, "\"GET /a?b=c HTTP/2\" 200"), (Format::Json, "\"target\":\"/a?b=c\"")]
    {
        let mut out = Vec::new();
        LineWriter::new(format, Some(0))
            .write(&Line { protocol: Some(b"HTTP/2"), ..line(&head, REQUEST) }, &mut out);
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains(expected), "{text}");
    }
}

proptest! {
    #[test]
    fn a_line_in_json_is_json_and_says_what_the_request_was(
        method in "GET|[A-Z!#$%&'*+.^_`|~-]{1,12}",
        target in "/[!-~]{0,50}",
        fields in prop::collection::vec(
            ("(X-Request-Id|User-Agent|Referer|Accept)", prop_oneof![
                prop::collection::vec(prop_oneof![Just(b'\t'), b' '..=b'~', 0x80..=0xff_u8], 0..30),
                "[ -~\u{a0}-\u{fff}\u{1f600}]{0,30}".prop_map(String::into_bytes),
            ]),
            0..4,
        ),
        numbers in (prop_oneof![Just(0_u16), 100..1000_u16], prop_oneof![0..1000_u64, any::<u64>()]),
        times in (0..4_102_444_800_000_u64, prop_oneof![0..20_000_000_u64, 0..1_u64 << 50], prop_oneof![Just(0), 0..20_000_000_u64]),
        address in any::<Option<IpAddr>>(),
    ) {
        let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n").into_bytes();
        fields.iter().for_each(|(name, value)| bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat()));
        bytes.extend(b"\r\n");
        let mut head = Head::default();
        prop_assume!(matches!(head.parse(&bytes, fastrack_http::Limits::default()), Ok(fastrack_http::Status::Complete)));
        let ((status, length), (time, duration, queue_time)) = (numbers, times);
        let line = Line { address, status, length, time, duration, queue_time, ..line(&head, &bytes) };
        let (mut writer, mut out) = (LineWriter::new(Format::Json, Some(7)), Vec::new());
        writer.write(&line, &mut out);
        prop_assert!(out.ends_with(b"\x7d\n") && out.iter().filter(|byte| **byte < b' ').count() == 1);
        let found: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        let (mut date, said) = (fastrack_http::DateCache::default(), found["time"].as_str().expect("a time"));
        let date = std::str::from_utf8(date.at(time / 1000)).expect("text");
        let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
        let month = &months[said[5..7].parse::<usize>().expect("a month") * 3 - 3..][..3];
        let shown = format!("{} {month} {} {}", &said[8..10], &said[..4], &said[11..19]);
        prop_assert_eq!(shown, &date[5..25]);
        prop_assert_eq!(&said[19..], format!(".{:03}Z", time % 1000));
        prop_assert_eq!((micros(&found["duration"]), micros(&found["queue_time"])), (duration, queue_time));
        prop_assert_eq!((&found["status"], &found["bytes"]), (&status.into(), &length.into()));
        prop_assert_eq!((&found["worker"], &found["pid"]), (&7.into(), &std::process::id().into()));
        prop_assert_eq!(&found["remote_addr"], &serde_json::json!(address.map(|address| address.to_string())));
        let without_fragment = target.split('#').next();
        prop_assert_eq!(found["method"].as_str(), Some(method.as_str()));
        prop_assert_eq!(found["target"].as_str(), without_fragment);
        for (key, name) in [("request_id", "X-Request-Id"), ("user_agent", "User-Agent"), ("referer", "Referer")] {
            prop_assert_eq!(&found[key], &value_of(&head, &bytes, name));
        }
        prop_assert_eq!(found.as_object().expect("an object").len(), 13);
    }
}
