//! Parses heads again and again, for counting what one costs:
//! `valgrind --tool=callgrind --toggle-collect='*Head*parse*' target/release/examples/parse_heads browser 1000`
//! gives the instructions of 1000 heads.

use fastrack_http::{Head, Limits};

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

fn main() {
    let mut arguments = std::env::args().skip(1);
    let bytes = match arguments.next().as_deref() {
        Some("hello") => HELLO,
        Some("browser") | None => BROWSER,
        Some(other) => panic!("hello or browser, not {other}"),
    };
    let times: u32 = arguments.next().map_or(1, |text| text.parse().expect("a number"));
    let mut head = Head::default();
    for _ in 0..times {
        let parsed = head.parse(std::hint::black_box(bytes), Limits::default());
        std::hint::black_box(&parsed).expect("a valid head");
    }
}
