use super::*;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Bytes;
use proptest::prelude::*;
use std::io::Read;

fn accepted(value: &str) -> Vec<&'static str> {
    let mut fields = HeaderMap::new();
    fields.append(header::ACCEPT_ENCODING, HeaderValue::try_from(value).expect("a value"));
    Accepted::of(&fields).codings().map(Coding::name).collect()
}

#[test]
fn weights_decide_and_then_the_order_of_this_server() {
    for (value, expected) in [
        ("gzip, deflate, br, zstd", &["zstd", "br", "gzip"][..]),
        ("gzip;q=1.0, br;q=0.5", &["gzip", "br"]),
        ("br;q=0, gzip", &["gzip"]),
        ("*", &["zstd", "br", "gzip"]),
        ("*;q=0.1, zstd;q=0", &["br", "gzip"]),
        ("GZIP ; Q=0.3", &["gzip"]),
        ("x-gzip", &["gzip"]),
        ("identity", &[]),
        ("", &[]),
        ("gzip;q=2, br;q=-1, zstd;q=NaN", &[]),
        ("gzip;level=9", &[]),
    ] {
        assert_eq!(accepted(value), expected, "{value}");
    }
    assert_eq!(Accepted::of(&HeaderMap::new()).codings().count(), 0);
}

#[test]
fn text_is_compressed_and_pictures_are_not() {
    for name in [
        "text/html; charset=utf-8",
        "TEXT/CSS",
        "application/json",
        "image/svg+xml",
        "application/ld+json",
        "text/event-stream",
    ] {
        assert!(is_text(name), "{name}");
    }
    for name in
        ["image/png", "application/octet-stream", "video/mp4", "application/zip", "font/woff2", "", "text"]
    {
        assert!(!is_text(name), "{name}");
    }
}

fn eligible(status: u16, lines: &[(&'static str, &'static str)], length: Option<u64>) -> bool {
    let fields =
        lines.iter().map(|(name, value)| (name.parse().expect("a name"), HeaderValue::from_static(value)));
    is_eligible(StatusCode::from_u16(status).expect("a status"), &fields.collect(), length)
}

#[test]
fn what_must_stay_as_it_is_is_not_eligible() {
    let html = ("content-type", "text/html");
    assert!(eligible(200, &[html], Some(1024)));
    assert!(eligible(404, &[html], None));
    assert!(!eligible(200, &[html], Some(1023)));
    assert!(!eligible(206, &[html], None));
    assert!(!eligible(204, &[html], None));
    assert!(!eligible(304, &[html], None));
    assert!(!eligible(200, &[], None));
    for other in [
        ("content-encoding", "gzip"),
        ("content-range", "bytes 0-1/2"),
        ("cache-control", "public, No-Transform"),
    ] {
        assert!(!eligible(200, &[html, other], None), "{other:?}");
    }
}

#[test]
fn the_fields_tell_of_the_compression() {
    let mut fields = HeaderMap::new();
    for (name, value) in
        [("etag", "\"a\""), ("content-length", "5000"), ("accept-ranges", "bytes"), ("vary", "Cookie")]
    {
        fields.insert(name, HeaderValue::from_static(value));
    }
    set_vary(&mut fields);
    set_vary(&mut fields);
    set_fields(&mut fields, Coding::Brotli);
    assert_eq!(fields["etag"], "W/\"a\"");
    assert_eq!(fields["content-encoding"], "br");
    assert_eq!(fields.get_all("vary").iter().collect::<Vec<_>>(), ["Cookie", "accept-encoding"]);
    assert!(!fields.contains_key("content-length") && !fields.contains_key("accept-ranges"));
    set_fields(&mut fields, Coding::Gzip);
    assert_eq!(fields["etag"], "W/\"a\"");
}

fn decode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match coding {
        Coding::Zstd => zstd::stream::read::Decoder::new(bytes).expect("zstd").read_to_end(&mut out),
        Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out),
        Coding::Gzip => flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut out),
    }
    .expect("a whole stream");
    out
}

/// A body of these parts; the app pauses after each.
struct Paused(Vec<&'static [u8]>, bool);

impl Body for Paused {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.1 = !self.1;
        if self.1 || self.0.is_empty() {
            return Poll::Ready(
                (!self.0.is_empty()).then(|| Ok(Frame::data(Bytes::from_static(self.0.remove(0))))),
            );
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[tokio::test]
async fn each_part_arrives_before_the_next_one_is_there() {
    for coding in Coding::ALL {
        let mut body = Compressed::new(Paused(vec![b"data: 1\n\n", b"data: 2\n\n"], false), coding)
            .ok()
            .expect("an encoder");
        let mut bytes = Vec::new();
        for expected in [&b"data: 1\n\n"[..], b"data: 1\n\ndata: 2\n\n"] {
            let part = body.frame().await.expect("a part").expect("no error").into_data().expect("data");
            bytes.extend_from_slice(&part);
            assert_eq!(decode_start(coding, &bytes, expected.len()), expected, "{coding:?}");
        }
        while let Some(part) = body.frame().await {
            bytes.extend_from_slice(&part.expect("no error").into_data().expect("data"));
        }
        assert_eq!(decode(coding, &bytes), b"data: 1\n\ndata: 2\n\n");
    }
}

/// The first bytes of a stream whose end has not come yet.
fn decode_start(coding: Coding, bytes: &[u8], count: usize) -> Vec<u8> {
    let mut out = vec![0; count];
    match coding {
        Coding::Zstd => zstd::stream::read::Decoder::new(bytes).expect("zstd").read_exact(&mut out),
        Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_exact(&mut out),
        Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_exact(&mut out),
    }
    .expect("so many bytes");
    out
}

#[tokio::test]
async fn the_same_page_has_different_lengths() {
    let page: String =
        (0..300).map(|number| format!("<li class=\"item\">Item number {}</li>\n", number * number)).collect();
    for coding in Coding::ALL {
        let mut lengths = std::collections::HashSet::new();
        for _ in 0..50 {
            let page = http_body_util::Full::new(Bytes::from(page.clone()));
            lengths.insert(
                Compressed::new(page, coding)
                    .expect("an encoder")
                    .collect()
                    .await
                    .expect("a body")
                    .to_bytes()
                    .len(),
            );
        }
        assert!(lengths.len() > 5, "{coding:?}: {lengths:?}");
    }
}

proptest! {
    #[test]
    fn what_is_compressed_is_what_was_sent(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..20)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for coding in Coding::ALL {
            let frames: Vec<Result<_, Error>> = parts.iter().map(|part| Ok(Frame::data(Bytes::from(part.clone())))).collect();
            let body = StreamBody::new(Frames(frames.into_iter()));
            let sent = runtime.block_on(Compressed::new(body, coding).ok().expect("an encoder").collect()).expect("a body");
            prop_assert_eq!(decode(coding, &sent.to_bytes()), parts.concat());
        }
    }

    #[test]
    fn any_accept_encoding_is_read(value in "[ -~]{0,60}") {
        accepted(&value);
    }
}

struct Frames(std::vec::IntoIter<Result<Frame<Bytes>, Error>>);

impl futures_core::Stream for Frames {
    type Item = Result<Frame<Bytes>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next())
    }
}
