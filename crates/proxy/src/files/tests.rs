use super::*;
use hyper::header::HeaderMap;
use hyper::Request;
use std::fs;
use tempfile::TempDir;

const TEXT: &str = "0123456789";

struct Public(TempDir);

impl Public {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let public = dir.path().join("public");
        fs::create_dir_all(public.join("docs")).expect("a folder");
        fs::write(dir.path().join("secret"), "secret").expect("a file");
        for (name, text) in [
            ("a.txt", TEXT),
            ("b.css", "plain"),
            ("b.css.br", "brotli"),
            ("b.css.gz", "gzip"),
            (".env", "secret"),
            ("page.html", "page"),
            ("docs/index.html", "index"),
            ("empty", ""),
        ] {
            fs::write(public.join(name), text).expect("a file");
        }
        std::os::unix::fs::symlink("../secret", public.join("link")).expect("a link");
        std::os::unix::fs::symlink("a.txt", public.join("inside")).expect("a link");
        Public(dir)
    }

    fn files(&self) -> Files {
        let cache_control = vec![("/b*".to_owned(), "public, max-age=60".to_owned())];
        self.files_by(&Rules { cache_control, ..Rules::default() })
    }

    fn files_by(&self, rules: &Rules) -> Files {
        Files::new(&self.0.path().join("public"), rules).expect("a folder")
    }

    fn get(&self, path: &str, lines: &[(&str, &str)]) -> Option<(u16, HeaderMap, String)> {
        answer(&self.files(), "GET", path, lines)
    }

    fn text(&self, path: &str) -> Option<String> {
        self.get(path, &[]).map(|(_, _, text)| text)
    }
}

fn answer(
    files: &Files,
    method: &str,
    path: &str,
    lines: &[(&str, &str)],
) -> Option<(u16, HeaderMap, String)> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).expect("a request").into_parts();
    now(async {
        let (head, mut content) = files.answer(&parts).await?.into_parts();
        let bytes = rest(&mut content).await.expect("a body");
        Some((head.status.as_u16(), head.headers, String::from_utf8(bytes).expect("text")))
    })
}

fn now<T>(future: impl std::future::Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

async fn rest(content: &mut Content) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(part) = content.next_part().await {
        bytes.extend_from_slice(&part?);
    }
    Ok(bytes)
}

#[test]
fn files_of_the_folder_are_served_and_no_others() {
    let folder = Public::new();
    for (path, expected) in [
        ("/a.txt", Some(TEXT)),
        ("/a.txt?v=1", Some(TEXT)),
        ("/inside", Some(TEXT)),
        ("/page", Some("page")),
        ("/page.html", Some("page")),
        ("/docs", Some("index")),
        ("/docs/", Some("index")),
        ("/empty", Some("")),
        ("/", None),
        ("/link", None),
        ("/.env", None),
        ("/%2eenv", None),
        ("/../secret", None),
        ("/docs/..%2f..%2fsecret", None),
        ("/missing", None),
    ] {
        assert_eq!(folder.text(path).as_deref(), expected, "{path}");
    }
    assert!(answer(&folder.files(), "POST", "/a.txt", &[]).is_none());
}

#[test]
fn a_compressed_form_is_sent_to_whom_takes_it() {
    let folder = Public::new();
    for (accept, expected, coding) in [
        ("br, gzip", "brotli", Some("br")),
        ("gzip", "gzip", Some("gzip")),
        ("zstd", "plain", None),
        ("identity", "plain", None),
    ] {
        let (_, fields, text) = folder.get("/b.css", &[("accept-encoding", accept)]).expect("a file");
        assert_eq!(
            (&text[..], fields.get("content-encoding").map(|value| value.as_bytes())),
            (expected, coding.map(str::as_bytes))
        );
        assert_eq!(fields["vary"], "accept-encoding");
        assert_eq!(fields["content-type"], "text/css; charset=utf-8");
        assert_eq!(fields["cache-control"], "public, max-age=60");
    }
    assert!(!folder.get("/a.txt", &[]).expect("a file").1.contains_key("vary"));
}

#[test]
fn a_client_that_has_the_file_gets_no_body() {
    let folder = Public::new();
    let (_, fields, _) = folder.get("/a.txt", &[]).expect("a file");
    let [etag, date] = ["etag", "last-modified"].map(|name| fields[name].to_str().expect("text").to_owned());
    for (lines, expected) in [
        (vec![("if-none-match", &etag[..])], 304),
        (vec![("if-none-match", "\"x\", *")], 304),
        (vec![("if-none-match", "\"x\""), ("if-modified-since", &date)], 200),
        (vec![("if-modified-since", &date)], 304),
        (vec![("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT")], 200),
        (vec![("if-modified-since", "nonsense")], 200),
        (vec![("if-match", &etag[..])], 200),
        (vec![("if-match", "\"x\"")], 412),
        (vec![("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT")], 412),
        (vec![("if-unmodified-since", &date)], 200),
    ] {
        let (status, fields, text) = folder.get("/a.txt", &lines).expect("a file");
        assert_eq!((status, text.is_empty()), (expected, expected != 200), "{lines:?}");
        assert_eq!(fields["etag"].to_str().ok(), Some(&etag[..]));
    }
    let weak = format!("W/{etag}");
    assert_eq!(folder.get("/a.txt", &[("if-none-match", &weak)]).expect("a file").0, 304);
    assert_eq!(folder.get("/a.txt", &[("if-match", &weak)]).expect("a file").0, 412);
}

#[test]
fn one_range_and_several() {
    let folder = Public::new();
    let (status, fields, text) = folder.get("/a.txt", &[("range", "bytes=2-4")]).expect("a file");
    assert_eq!(
        (status, &fields["content-range"], &text[..]),
        (206, &HeaderValue::from_static("bytes 2-4/10"), "234")
    );
    let (status, fields, text) = folder.get("/a.txt", &[("range", "bytes=0-1,-2")]).expect("a file");
    let kind = fields["content-type"].to_str().expect("text");
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
    let part = |range: &str, text: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/10\r\n\r\n{text}"
        )
    };
    assert_eq!(
        (status, text),
        (206, format!("{}{}\r\n--{boundary}--\r\n", part("0-1", "01"), part("8-9", "89")))
    );
    let (status, fields, text) = folder.get("/a.txt", &[("range", "bytes=10-")]).expect("a file");
    assert_eq!(
        (status, &fields["content-range"], &text[..]),
        (416, &HeaderValue::from_static("bytes */10"), "")
    );
    // Those of the file itself, whatever else the client takes.
    let (status, fields, text) =
        folder.get("/b.css", &[("range", "bytes=0-0"), ("accept-encoding", "br")]).expect("a file");
    assert_eq!((status, fields.contains_key("content-encoding"), &text[..]), (206, false, "p"));
}

#[test]
fn a_range_of_another_file_is_not_sent() {
    let folder = Public::new();
    let (_, fields, _) = folder.get("/a.txt", &[]).expect("a file");
    for (value, expected) in
        [(&fields["etag"], 206), (&fields["last-modified"], 206), (&HeaderValue::from_static("\"x\""), 200)]
    {
        let lines = [("range", "bytes=0-0"), ("if-range", value.to_str().expect("text"))];
        assert_eq!(folder.get("/a.txt", &lines).expect("a file").0, expected, "{value:?}");
    }
}

#[test]
fn a_file_that_changes_is_seen_to_have_changed() {
    let folder = Public::new();
    let files = folder.files();
    let get = || answer(&files, "GET", "/a.txt", &[]).expect("a file");
    let (_, before, _) = get();
    // A new file of another length, which is what a deploy brings.
    fs::write(folder.0.path().join("public/a.txt"), "another text").expect("a file");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while get().2 != "another text" {
        assert!(std::time::Instant::now() < deadline, "the old file is still served");
    }
    assert_ne!(get().1["etag"], before["etag"]);
}

/// Text that is too long to be kept in memory.
fn long(letter: char) -> String {
    letter.to_string().repeat(200_000)
}

#[test]
fn a_file_that_another_one_replaces_is_sent_whole_with_its_own_tag() {
    let folder = Public::new();
    let files = folder.files();
    let public = folder.0.path().join("public");
    for (name, length) in [("small", 10), ("large", 200_000)] {
        let texts =
            ['a', 'b', 'c'].iter().enumerate().map(|(more, letter)| letter.to_string().repeat(length + more));
        let mut tags = std::collections::HashMap::new();
        for text in texts {
            // As a deploy does it, or rsync: another file takes the name.
            fs::write(public.join("new"), text).expect("a file");
            fs::rename(public.join("new"), public.join(name)).expect("a move");
            let (status, fields, sent) = answer(&files, "GET", &format!("/{name}"), &[]).expect("a file");
            assert_eq!(status, 200);
            let known = tags.entry(fields["etag"].clone()).or_insert(sent.clone());
            assert!(*known == sent, "{name}: one tag for two files");
        }
    }
}

#[test]
fn a_large_file_that_was_replaced_or_removed_is_not_sent_any_more() {
    let folder = Public::new();
    let files = folder.files();
    let path = folder.0.path().join("public/large");
    fs::write(&path, long('a')).expect("a file");
    let get = || answer(&files, "GET", "/large", &[]).map(|(_, _, text)| text);
    assert_eq!(get(), Some(long('a')));
    fs::write(&path, long('b') + "b").expect("a file");
    assert_eq!(get(), Some(long('b') + "b"));
    fs::remove_file(&path).expect("a file");
    assert_eq!(get(), None);
}

#[test]
fn a_small_file_that_is_removed_becomes_the_apps() {
    let folder = Public::new();
    let files = folder.files();
    let get = || answer(&files, "GET", "/a.txt", &[]).map(|(status, _, text)| (status, text));
    assert_eq!(get(), Some((200, TEXT.into())));
    fs::remove_file(folder.0.path().join("public/a.txt")).expect("a file");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while let Some(found) = get() {
        assert_eq!(found, (200, TEXT.into()));
        assert!(std::time::Instant::now() < deadline, "the old file is still served");
    }
}

#[test]
fn a_body_of_a_file_that_changes_meanwhile_has_no_end() {
    let folder = Public::new();
    let files = folder.files();
    let path = folder.0.path().join("public/large");
    for other in [long('b'), long('a') + "a", "b".into()] {
        fs::write(&path, long('a')).expect("a file");
        let (parts, ()) = Request::get("/large").body(()).expect("a request").into_parts();
        now(async {
            let mut content = files.answer(&parts).await.expect("a file").into_body();
            content.next_part().await.expect("a part").expect("bytes");
            fs::write(&path, other).expect("a file");
            rest(&mut content).await.expect_err("no whole body");
        });
    }
}

#[test]
fn a_link_that_takes_the_place_of_a_file_leads_nobody_out() {
    let folder = Public::new();
    let root = folder.0.path().canonicalize().expect("a path");
    let outside = root.join("outside");
    fs::create_dir(&outside).expect("a folder");
    fs::write(outside.join("index.html"), "secret").expect("a file");
    for (file, name, target) in [("a.txt", "a.txt", "../secret"), ("docs/index.html", "docs", "../outside")] {
        let public = root.join("public");
        fs::rename(public.join(name), root.join("before")).expect("a move");
        std::os::unix::fs::symlink(target, public.join(name)).expect("a link");
        assert_eq!(folder.text(&format!("/{file}")), None);
        fs::remove_file(public.join(name)).expect("a link");
        fs::rename(root.join("before"), public.join(name)).expect("a move");
        assert!(folder.text(&format!("/{file}")).is_some());
    }
}

#[test]
fn the_cache_has_few_open_files_and_few_bytes() {
    let folder = Public::new();
    let public = folder.0.path().canonicalize().expect("a path").join("public");
    let own = folders::Folder::new(&public, &[]).expect("a folder");
    let bounds = Bounds { paths: 100, bytes: 1000, descriptors: 8 };
    let cache = Cache::new(bounds);
    let mut entries = Vec::new();
    for number in 0..50 {
        let names = [format!("large{number}"), format!("small{number}")];
        fs::write(public.join(&names[0]), long('a')).expect("a file");
        fs::write(public.join(&names[1]), "a".repeat(100)).expect("a file");
        for name in names {
            let found = Found::by_names(&own, &[name.clone().into()], Wait::Allowed).expect("a look");
            let entry = Entry::load(found.expect("a file"), None, Wait::Allowed).expect("an entry");
            entries.push(Arc::downgrade(&entry));
            cache.set(&name, Some(entry));
            // It is asked for again and again, so it stays.
            cache.get("large0");
        }
    }
    let kept: Vec<_> = entries.iter().filter_map(std::sync::Weak::upgrade).collect();
    assert!(kept.iter().map(|entry| entry.descriptors()).sum::<usize>() <= bounds.descriptors);
    assert!(kept.iter().map(|entry| entry.bytes()).sum::<usize>() <= bounds.bytes);
    assert!(matches!(cache.get("large0"), Known::Fresh(Some(_)) | Known::Stale(Some(_))));
    assert!(matches!(cache.get("large1"), Known::Nothing));
}

fn script() -> String {
    (0..5000).map(|number| format!("let variable{number} = {};\n", number * number)).collect()
}

#[test]
fn a_form_is_made_once_however_many_ask() {
    let folder = Public::new();
    fs::write(folder.0.path().join("public/app.js"), script()).expect("a file");
    let files = folder.files_by(&Rules { compress: true, ..Rules::default() });
    let (parts, ()) =
        Request::get("/app.js").header("accept-encoding", "gzip").body(()).expect("a request").into_parts();
    now(async {
        let all = (0..20).map(|_| files.answer(&parts));
        let mut addresses = std::collections::HashSet::new();
        for response in all {
            let mut content = response.await.expect("a file").into_body();
            let part = content.next_part().await.expect("a part").expect("bytes");
            assert!(part.len() < script().len() / 3);
            addresses.insert(part.as_ptr() as usize);
        }
        assert_eq!(addresses.len(), 1, "the same bytes for all");
    });
}

#[test]
fn forms_have_their_share_of_memory_and_no_more() {
    let reserve = || std::iter::from_fn(|| forms::Kept::reserve(8 * 1024 * 1024).ok()).collect::<Vec<_>>();
    let kept = reserve();
    assert!((3..=4).contains(&kept.len()), "{}", kept.len());
    drop(kept);
    assert_eq!(reserve().iter().skip(2).count().min(1), 1);
}
