//! From a request's path to a file of a folder, and to nothing else.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use percent_encoding::percent_decode_str;

/// The folder of files about the site.
const WELL_KNOWN: &[u8] = b".well-known";

/// Names that a path may stand for, relative to the folder, as in ActionDispatch::Static: the file itself, `page.html`, and `index.html` in
/// the folder of that name. None: no file has such a path.
pub fn candidates(path: &str) -> Option<Vec<PathBuf>> {
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    let segments: Vec<&[u8]> =
        decoded.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()).collect();
    if !decoded.starts_with(b"/") || decoded.contains(&0) || has_hidden(segments.iter().copied()) {
        return None;
    }
    let name = segments.join(&b'/');
    let file = |name: Vec<u8>| PathBuf::from(OsString::from_vec(name));
    if name.is_empty() {
        return Some(vec![file(b"index.html".to_vec())]);
    }
    let page = file([&name[..], b".html"].concat());
    let index = file([&name[..], b"/index.html"].concat());
    Some(vec![file(name), page, index])
}

/// Whether a path below a folder leads through names with a dot in front: `..`, and names that are not for all, such as .git and .env.
/// The folder's own .well-known is for all (RFC 8615).
fn has_hidden<'a>(mut names: impl Iterator<Item = &'a [u8]>) -> bool {
    let is_hidden = |name: &[u8]| name.starts_with(b".");
    names.next().is_some_and(|first| is_hidden(first) && first != WELL_KNOWN) || names.any(is_hidden)
}

/// Whether this path, relative to a folder, may name one of the folder's files.
pub fn is_public(name: &Path) -> bool {
    let is_normal = |part| matches!(part, Component::Normal(_));
    name.components().all(is_normal) && !has_hidden(name.iter().map(|part| part.as_encoded_bytes()))
}

/// Whether a path fits a pattern, in which a star stands for any text.
pub fn matches(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = path.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn first(path: &str) -> Option<String> {
        candidates(path).map(|names| names[0].to_string_lossy().into_owned())
    }

    #[test]
    fn a_path_names_a_file_however_it_is_written() {
        for (path, expected) in [
            ("/", Some("index.html")),
            ("/a.css", Some("a.css")),
            ("//a//b.css", Some("a/b.css")),
            ("/a%20b", Some("a b")),
            ("/a%2Fb", Some("a/b")),
            ("/%61", Some("a")),
            ("/a..b", Some("a..b")),
            ("/../a", None),
            ("/a/../b", None),
            ("/%2e%2e/a", None),
            ("/a/%2E%2e%2fb", None),
            ("/.env", None),
            ("/a/.git/config", None),
            ("/%2eenv", None),
            ("/a%00.css", None),
            ("/.well-known/security.txt", Some(".well-known/security.txt")),
            ("/%2ewell-known/a/b", Some(".well-known/a/b")),
            ("/.well-known/.a", None),
            ("/a/.well-known/b", None),
            ("/.well-knownx/a", None),
            ("/.well-known/../a", None),
            ("*", None),
            ("", None),
        ] {
            assert_eq!(first(path).as_deref(), expected, "{path}");
        }
        assert_eq!(
            candidates("/page"),
            Some(["page", "page.html", "page/index.html"].map(PathBuf::from).to_vec())
        );
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, path, expected) in [
            ("/assets/*", "/assets/a/b.css", true),
            ("/assets/*", "/asset/a", false),
            ("*.css", "/a.css", true),
            ("*.css", "/a.css.map", false),
            ("/a*b*c", "/a1b2c", true),
            ("/a*b*c", "/ac", false),
            ("/a*a", "/a", false),
            ("/robots.txt", "/robots.txt", true),
            ("/robots.txt", "/robots.txt2", false),
            ("*", "/", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    proptest! {
        #[test]
        fn no_candidate_leaves_the_folder(path in "/[a.%2eEfF/5c\\\\0]{0,30}") {
            for name in candidates(&path).into_iter().flatten() {
                prop_assert!(name.is_relative() && is_public(&name), "{:?}", name);
            }
        }
    }
}
