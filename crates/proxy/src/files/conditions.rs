//! Conditions of a request for a file (RFC 9110 §13).

use std::time::SystemTime;

use hyper::header::{self, HeaderMap, HeaderValue};

/// The outcome of the conditions.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client gets the file.
    Send,
    /// The client has the file: 304.
    NotModified,
    /// The client wants another file: 412.
    Failed,
}

/// Checks the conditions of `fields`, in the order of RFC 9110 §13.2.2, by the tag and the date that the response `sent` has.
pub fn check(fields: &HeaderMap, sent: &HeaderMap) -> Outcome {
    let etag = sent.get(header::ETAG);
    if fields.contains_key(header::IF_MATCH) {
        if !names(fields, header::IF_MATCH, etag, Comparison::Strong) {
            return Outcome::Failed;
        }
    } else if is_newer(fields, header::IF_UNMODIFIED_SINCE, sent) == Some(true) {
        return Outcome::Failed;
    }
    if fields.contains_key(header::IF_NONE_MATCH) {
        if names(fields, header::IF_NONE_MATCH, etag, Comparison::Weak) {
            return Outcome::NotModified;
        }
    } else if is_newer(fields, header::IF_MODIFIED_SINCE, sent) == Some(false) {
        return Outcome::NotModified;
    }
    Outcome::Send
}

/// Whether a client with this If-None-Match has the response with this tag.
pub fn has(fields: &HeaderMap, etag: &HeaderValue) -> bool {
    names(fields, header::IF_NONE_MATCH, Some(etag), Comparison::Weak)
}

/// Whether a range is wanted of this very response (RFC 9110 §13.1.5).
pub fn if_range(fields: &HeaderMap, sent: &HeaderMap) -> bool {
    let Some(value) = fields.get(header::IF_RANGE) else { return true };
    let is_weak = value.as_bytes().starts_with(b"W/");
    !is_weak && [header::ETAG, header::LAST_MODIFIED].iter().any(|name| sent.get(name) == Some(value))
}

/// How entity tags are compared (RFC 9110 §8.8.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    /// W/ makes no difference.
    Weak,
    /// A tag with W/ equals none.
    Strong,
}

/// Whether a list of entity tags has this one, or is a star.
fn names(fields: &HeaderMap, name: header::HeaderName, etag: Option<&HeaderValue>, by: Comparison) -> bool {
    let own = etag.map(HeaderValue::as_bytes).and_then(|mut etag| next_tag(&mut etag));
    let is_own = |tag: Tag<'_>| match (tag, own) {
        (Tag::Any, _) => true,
        (Tag::One { opaque, is_weak }, Some(Tag::One { opaque: own, is_weak: is_own_weak })) => {
            opaque == own && (by == Comparison::Weak || !(is_weak || is_own_weak))
        }
        _ => false,
    };
    let mut values = fields.get_all(name).iter().map(HeaderValue::as_bytes);
    values.any(|mut list| std::iter::from_fn(|| next_tag(&mut list)).any(is_own))
}

/// A member of a list of entity tags.
#[derive(Clone, Copy, Debug)]
enum Tag<'a> {
    /// The star: whatever there is.
    Any,
    /// A tag, without its quotes.
    One { opaque: &'a [u8], is_weak: bool },
}

/// Takes the next member of a list. A tag may contain commas. None at the end, and at text that is no tag.
fn next_tag<'a>(list: &mut &'a [u8]) -> Option<Tag<'a>> {
    let start = list.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
    let rest = &list[start..];
    if let Some(rest) = rest.strip_prefix(b"*") {
        *list = rest;
        return Some(Tag::Any);
    }
    let strong = rest.strip_prefix(b"W/").unwrap_or(rest);
    let quoted = strong.strip_prefix(b"\"")?;
    let end = quoted.iter().position(|byte| *byte == b'"')?;
    *list = &quoted[end + 1..];
    Some(Tag::One { opaque: &quoted[..end], is_weak: strong.len() < rest.len() })
}

/// Whether the response is newer than the date in this field; None without one of the two dates, or if one is none: then there is no condition.
fn is_newer(fields: &HeaderMap, name: header::HeaderName, sent: &HeaderMap) -> Option<bool> {
    let given = date(fields, name)?;
    Some(date(sent, header::LAST_MODIFIED)? > given)
}

fn date(fields: &HeaderMap, name: header::HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(fields.get(name)?.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn tags_are_compared_weakly_for_304_and_strongly_for_412() {
        for (etag, asked, for_304, for_412) in [
            ("\"a\"", "\"a\"", true, true),
            ("\"a\"", "W/\"a\"", true, false),
            ("W/\"a\"", "W/\"a\"", true, false),
            ("W/\"a\"", "\"a\"", true, false),
            ("\"a,b\"", "\"x\", \"a,b\"", true, true),
            ("\"b\"", "\"a,b\"", false, false),
            ("\"a\"", "*", true, true),
            ("\"a\"", "\"b\" ,\t\"a\"", true, true),
            ("\"a\"", "a", false, false),
            ("\"a\"", "\"a", false, false),
            ("\"a\"", "", false, false),
        ] {
            let sent = fields(&[("etag", etag)]);
            let outcome = |name| check(&fields(&[(name, asked)]), &sent);
            assert_eq!(outcome("if-none-match") == Outcome::NotModified, for_304, "{etag} {asked}");
            assert_eq!(outcome("if-match") == Outcome::Send, for_412, "{etag} {asked}");
        }
    }

    #[test]
    fn a_weak_tag_gives_no_range() {
        let sent = fields(&[("etag", "W/\"a\"")]);
        assert!(!if_range(&fields(&[("if-range", "W/\"a\"")]), &sent));
        assert!(if_range(&fields(&[]), &sent));
    }
}
