//! A valid request is parsed back to its parts. The answer to any bytes does not depend on the cuts between them. A
//! response has no unexpected lines.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use fastrack_http::{split_authority, Coding, Date, Head, Length, Limits, Persistence, ResponseHead};

mod answer;

use answer::{answer, Answer};

/// The parts of a request.
#[derive(Clone, Debug)]
struct Written {
    method: String,
    path: String,
    query: Option<String>,
    fields: Vec<(String, Vec<u8>)>,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    None,
    Length(Vec<u8>),
    /// Chunks with their extensions, and trailers.
    Chunks(Vec<(Vec<u8>, String)>, Vec<String>),
}

/// Valid field values (RFC 9110 §5.5), trimmed.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![8 => b' '..=b'~', 1 => Just(b'\t'), 1 => 0x80..=0xff_u8];
    vec(byte, 0..30).prop_map(|bytes| bytes.trim_ascii().to_vec())
}

fn body() -> impl Strategy<Value = Body> {
    let data = || vec(any::<u8>(), 0..50);
    let chunk = (vec(any::<u8>(), 1..40), "(;[a-z]{1,5}(=(\"[ -!#-\\[\\]-~]{0,6}\"|[a-z0-9]{1,4}))?){0,2}");
    prop_oneof![
        Just(Body::None),
        data().prop_map(Body::Length),
        (vec(chunk, 0..5), vec("[A-Za-z-]{1,9}: ?[ -~]{0,9}", 0..3))
            .prop_map(|(chunks, trailers)| Body::Chunks(chunks, trailers)),
    ]
}

fn request() -> impl Strategy<Value = Written> {
    let path = "/([a-zA-Z0-9/._~!$&'()*+,;=:@-]|%[0-9A-F]{2}|é){0,30}";
    let query = proptest::option::of("([a-zA-Z0-9/?_.=&;-]|%[0-9A-F]{2}){0,20}");
    // The parser treats no name that begins with X- specially.
    let fields = vec(("(X|x)-[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}", value()), 0..12);
    ("[A-Z!#$%&'*+.^_`|~a-z0-9-]{1,32}", path, query, fields, body())
        .prop_filter("CONNECT is refused", |parts| parts.0 != "CONNECT")
        .prop_map(|(method, path, query, fields, body)| Written { method, path, query, fields, body })
}

impl Written {
    fn bytes(&self) -> Vec<u8> {
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        let mut bytes = format!("{} {}{query} HTTP/1.1\r\nHost: a\r\n", self.method, self.path).into_bytes();
        for (name, value) in &self.fields {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        self.write_body(&mut bytes);
        bytes
    }

    fn write_body(&self, bytes: &mut Vec<u8>) {
        match &self.body {
            Body::None => bytes.extend_from_slice(b"\r\n"),
            Body::Length(data) => {
                bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", data.len()).as_bytes());
                bytes.extend_from_slice(data);
            }
            Body::Chunks(chunks, trailers) => {
                bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                for (data, extension) in chunks {
                    bytes.extend_from_slice(format!("{:x}{extension}\r\n", data.len()).as_bytes());
                    bytes.extend_from_slice(data);
                    bytes.extend_from_slice(b"\r\n");
                }
                let trailers: String = trailers.iter().map(|line| format!("{line}\r\n")).collect();
                bytes.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
            }
        }
    }

    fn data(&self) -> Vec<u8> {
        match &self.body {
            Body::None => Vec::new(),
            Body::Length(data) => data.clone(),
            Body::Chunks(chunks, _) => chunks.iter().flat_map(|(data, _)| data.clone()).collect(),
        }
    }
}

/// Cuts `bytes` into pieces.
fn cut<'a>(bytes: &'a [u8], places: &[Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_written_is_read(request in request(), places in vec(any::<Index>(), 0..6)) {
        let bytes = request.bytes();
        let Answer::Taken(seen) = answer(cut(&bytes, &places)) else {
            return Err(TestCaseError::fail(format!("{}", bytes.escape_ascii())));
        };
        prop_assert_eq!(&seen["method"], request.method.as_bytes());
        prop_assert_eq!(&seen["path"], request.path.as_bytes());
        prop_assert_eq!(&seen["query"], request.query.as_deref().unwrap_or_default().as_bytes());
        prop_assert_eq!(&seen["body"], &request.data());

        let mut head = Head::default();
        head.parse(&bytes, Limits::default()).expect("taken");
        for ((name, value), field) in request.fields.iter().zip(&head.fields[1..]) {
            prop_assert_eq!(name.as_bytes(), field.name.of_buffer(&bytes));
            prop_assert_eq!(&value[..], field.value.of_buffer(&bytes));
        }
    }

    #[test]
    fn what_is_nearly_right_is_answered_the_same_however_it_is_cut(
        request in request(),
        at in any::<Index>(),
        removed in 0..6_usize,
        added in "(\r|\n|\r\n|\t| |:|;|,|\0|%|x|5|é|chunked|Host: b\r\n|HTTP/1.1){0,3}",
        places in vec(any::<Index>(), 0..6),
    ) {
        let mut bytes = request.bytes();
        let from = at.index(bytes.len());
        let to = bytes.len().min(from + removed);
        bytes.splice(from..to, added.bytes());
        prop_assert_eq!(answer(cut(&bytes, &places)), answer([&bytes[..]]), "{}", bytes.escape_ascii());
    }

    #[test]
    fn garbage_is_answered_the_same_however_it_is_cut(bytes in vec(any::<u8>(), 0..80), places in vec(any::<Index>(), 0..6)) {
        prop_assert_eq!(answer(cut(&bytes, &places)), answer([&bytes[..]]));
    }
}

const DATE: &Date = b"Sun, 06 Nov 1994 08:49:37 GMT";

/// Names and values: some special, some invalid, most of them repeated.
fn some_fields() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = "(a|A|b|date|server|connection|Connection|keep-alive|Upgrade|content-length|Content-Length|transfer-encoding|Transfer-Encoding|x y)";
    let value = "(|1|12|2|close|a, Close| b ,keep-alive|content-length|chunked|gzip|identity|gzip, chunked|chunked\ngzip|1\n2|\nx|a\r|x{50})";
    vec((name, value), 0..5)
}

proptest! {
    #[test]
    fn an_authority_is_its_host_and_its_port(host in "[a-z0-9._-]{1,20}|\\[[0-9a-f:.]{2,20}\\]", port in "[0-9]{0,6}") {
        prop_assert_eq!(split_authority(host.as_bytes()), (host.as_bytes(), &b""[..]));
        let both = format!("{host}:{port}");
        prop_assert_eq!(split_authority(both.as_bytes()), (host.as_bytes(), port.as_bytes()));
    }
}

proptest! {
    #[test]
    fn a_head_does_not_depend_on_those_before_it(responses in vec((prop::sample::select(vec![200_u16, 204, 304, 404, 100]), some_fields()), 1..8)) {
        let mut kept = ResponseHead::default();
        for (code, fields) in responses {
            let mut fresh = ResponseHead::default();
            let mut heads = [Vec::new(), Vec::new()];
            let mut said = Vec::new();
            for (head, out) in [&mut kept, &mut fresh].into_iter().zip(&mut heads) {
                head.start(code);
                let results: Vec<_> = fields.iter().map(|(name, value)| head.field(name.as_bytes(), value.as_bytes())).collect();
                head.end_fields();
                head.write(DATE, Persistence::Implied, out);
                said.push((results, head.length(), head.coding(), head.wants_close()));
            }
            prop_assert_eq!(&said[0], &said[1]);
            prop_assert_eq!(&heads[0], &heads[1]);
        }
    }

    /// As `Sender` frames it: a client of this version can tell where the body ends, and in one way only.
    #[test]
    fn a_response_ends_in_one_way(code in prop::sample::select(vec![200_u16, 404, 426, 205]), fields in some_fields(), http_11: bool, chunks: bool) {
        let mut head = ResponseHead::default();
        head.start(code);
        let taken: Vec<_> = fields.iter().filter(|(name, value)| head.field(name.as_bytes(), value.as_bytes()).is_ok()).collect();
        head.end_fields();
        if !http_11 {
            head.drop_codings();
        }
        if chunks && http_11 && code != 205 && head.is_unframed() {
            head.frame_chunked();
        } else if code == 205 {
            head.frame_length(0);
        }
        let persistence = if head.ends_by_close() || head.wants_close() { Persistence::Close } else { Persistence::Implied };
        let mut out = Vec::new();
        head.write(DATE, persistence, &mut out);
        let text = String::from_utf8(out).expect("utf-8").to_lowercase();
        let values = |name: &str| -> Vec<&str> { text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect() };
        let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
        let closes = values("connection").iter().any(|value| value.split(", ").any(|option| option == "close"));
        prop_assert!(lengths.len() + codings.len() <= 1, "{}", text);
        prop_assert!(http_11 || codings.is_empty(), "{}", text);
        match (&lengths[..], &codings[..]) {
            ([length], []) => prop_assert_eq!(head.length(), Length::Known(length.parse().expect("a number"))),
            ([], [codings]) if codings.ends_with("chunked") => prop_assert_ne!(head.coding(), Coding::UntilClose),
            _ => prop_assert!(closes, "{}", text),
        }
        prop_assert!(code != 205 || lengths == ["0"], "{}", text);
        // Connection and Upgrade come together, and no other field is about the connection.
        prop_assert!(values("connection").len() <= 1 && values("keep-alive").is_empty(), "{}", text);
        let names_upgrade = values("connection").iter().any(|value| value.contains("upgrade"));
        prop_assert_eq!(names_upgrade, !values("upgrade").is_empty(), "{}", text);
        let asked = |(name, value): &&(String, String)| name.eq_ignore_ascii_case("connection") && value.to_lowercase().split([',', '\n']).any(|option| option.trim() == "close");
        prop_assert!(closes || !taken.iter().any(asked), "{}", text);
    }

    #[test]
    fn no_field_can_add_a_line_of_its_own(name in vec(any::<u8>(), 0..12), value in vec(any::<u8>(), 0..24)) {
        let mut head = ResponseHead::default();
        head.start(200);
        let accepted = head.field(&name, &value).is_ok();
        let mut out = Vec::new();
        head.write(DATE, Persistence::Close, &mut out);
        // The server adds three lines and an empty one. All others are the application's.
        let lines: Vec<_> = out.split(|byte| *byte == b'\n').collect();
        prop_assert!(lines.iter().all(|line| line.is_empty() || line.ends_with(b"\r")));
        prop_assert_eq!(out.windows(4).filter(|four| four == b"\r\n\r\n").count(), 1);
        let several = value.contains(&b'\n');
        let parts = value.split(|byte| *byte == b'\n').filter(|part| !(several && part.is_empty())).count();
        let ours = [&b"date"[..], b"server", b"connection", b"upgrade", b"keep-alive"].iter().any(|own| name.eq_ignore_ascii_case(own));
        if accepted && !ours {
            prop_assert_eq!(lines.len(), 6 + parts);
        }
    }
}
