//! Whatever a request says, only files of the folder are sent, and each status has the bytes that it promises.

#![no_main]

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::OnceLock;

use fastrack_proxy::files::{Files, Rules};
use fastrack_proxy_fuzz::fields;
use hyper::{Request, Response, StatusCode};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

const TEXT: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const SECRET: &[u8] = b"SECRET";

/// The folder with its files. A secret lies outside of it.
fn folder() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("fastrack-fuzz-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let public = dir.join("public");
        fs::create_dir_all(public.join("a/.b")).expect("a folder");
        for name in ["a/b", "a/index.html", "b.html", "a.br", "a/b.gz"] {
            fs::write(public.join(name), TEXT).expect("a file");
        }
        for name in ["../b", "../public.b", ".b", "a/.b/b"] {
            fs::write(public.join(name), SECRET).expect("a file");
        }
        symlink("../b", public.join("c")).expect("a link");
        symlink("..", public.join("d")).expect("a link");
        symlink("a", public.join("e")).expect("a link");
        let cache_control = vec![("/a/*b*".to_owned(), "no-cache".to_owned())];
        Files::new(&public, &Rules { cache_control, ..Rules::default() }).expect("a folder")
    })
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_current_thread().build().expect("a runtime"))
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

fn check(head: &Response<()>, body: &[u8]) {
    let field = |name: &str| head.headers().get(name).map(|value| value.to_str().expect("text"));
    let is_multipart = field("content-type").is_some_and(|value| value.starts_with("multipart/"));
    match head.status() {
        StatusCode::OK => assert_eq!(body, TEXT),
        StatusCode::PARTIAL_CONTENT if is_multipart => assert!(body.ends_with(b"--\r\n")),
        StatusCode::PARTIAL_CONTENT => {
            let (range, length) = field("content-range")
                .and_then(|range| range.strip_prefix("bytes ")?.split_once('/'))
                .expect("a range");
            let (first, last) = range.split_once('-').expect("a range");
            assert_eq!((number(length), body), (TEXT.len(), &TEXT[number(first)..=number(last)]));
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            assert_eq!(
                (field("content-range"), body),
                (Some(&format!("bytes */{}", TEXT.len())[..]), &b""[..])
            );
        }
        StatusCode::NOT_MODIFIED | StatusCode::PRECONDITION_FAILED => assert_eq!(body, b""),
        status => panic!("{status}"),
    }
}

// The first line is a path, and the others are fields.
fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let Ok(mut request) = Request::builder().uri(lines.next().unwrap_or_default()).body(()) else { return };
    *request.headers_mut() = fields(lines);
    let parts = request.into_parts().0;
    let Some(response) = runtime().block_on(folder().answer(&parts)) else { return };
    let (head, mut content) = response.into_parts();
    let promised = content.left();
    let mut body = Vec::new();
    while let Some(part) = runtime().block_on(content.next_part()) {
        body.extend_from_slice(&part.expect("a part"));
    }
    assert_eq!(body.len() as u64, promised);
    assert!(!body.windows(SECRET.len()).any(|part| part == SECRET));
    check(&Response::from_parts(head, ()), &body);
});
