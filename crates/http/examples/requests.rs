//! Repeats the native part of a request, so that `bench/instructions` can count instructions.
//!
//! `requests hello|browser parse|respond|respond-anew TIMES`. With respond-anew, no field has the same index as in the
//! previous response.

use std::hint::black_box;

use fastrack_http::{DateCache, Head, Limits, Persistence, ResponseHead};

const HELLO: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost:9292\r\n\r\n";

const BROWSER: &[u8] = b"GET /articles/42?page=2&sort=date HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    Connection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Dest: document\r\n\
    Referer: https://www.example.com/articles\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-US,en;q=0.9\r\n\
    Cookie: _session=Zm9vYmFyYmF6cXV4; theme=dark; consent=1\r\n\
    X-Forwarded-For: 192.0.2.7\r\n\r\n";

/// The response's fields, as in bench/apps/browser.ru.
const BROWSER_FIELDS: [(&[u8], &[u8]); 10] = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-length", b"10240"),
    (b"cache-control", b"private, max-age=0, must-revalidate"),
    (b"etag", b"W/\"7d1f0c2b9a4e4b66\""),
    (b"vary", b"accept-encoding, accept-language"),
    (b"set-cookie", b"session=9f2d6c1e8b7a4f35; path=/; httponly; samesite=lax"),
    (b"x-frame-options", b"SAMEORIGIN"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"strict-origin-when-cross-origin"),
    (b"x-header-bytes", b"some"),
];

const HELLO_FIELDS: [(&[u8], &[u8]); 2] = [(b"content-type", b"text/plain"), (b"content-length", b"12")];

fn parse(bytes: &[u8], times: u32) {
    let mut head = Head::default();
    for _ in 0..times {
        let parsed = head.parse(black_box(bytes), Limits::default());
        black_box(&parsed).expect("a valid head");
    }
}

fn respond(fields: &[(&[u8], &[u8])], anew: bool, times: u32) {
    let (mut head, mut date, mut out) = (ResponseHead::default(), DateCache::default(), Vec::new());
    let mut others = fields.to_vec();
    if anew {
        others.rotate_left(1);
    }
    for time in 0..times {
        head.start(black_box(200));
        for (name, value) in black_box(if time % 2 == 0 { fields } else { &others }) {
            head.field(name, value).expect("a valid field");
        }
        out.clear();
        head.write(date.at(black_box(1_700_000_000)), Persistence::Implied, &mut out);
        black_box(&out);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [request, part, times] = &arguments[..] else { panic!("requests hello|browser parse|respond TIMES") };
    let (bytes, fields) = match request.as_str() {
        "hello" => (HELLO, &HELLO_FIELDS[..]),
        "browser" => (BROWSER, &BROWSER_FIELDS[..]),
        other => panic!("hello or browser, not {other}"),
    };
    let times = times.parse().expect("a number");
    match part.as_str() {
        "parse" => parse(bytes, times),
        "respond" => respond(fields, false, times),
        "respond-anew" => respond(fields, true, times),
        other => panic!("parse, respond or respond-anew, not {other}"),
    }
}
