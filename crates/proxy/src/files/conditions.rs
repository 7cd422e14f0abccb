//! Conditions of a request for a file (RFC 9110 §13).

use std::time::SystemTime;

use hyper::header::{self, HeaderMap, HeaderValue};

use super::cache::Variant;

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

/// Checks the conditions in the order of RFC 9110 §13.2.2.
pub fn check(fields: &HeaderMap, file: &Variant) -> Outcome {
    if fields.contains_key(header::IF_MATCH) {
        if !names(fields, header::IF_MATCH, &file.etag, false) {
            return Outcome::Failed;
        }
    } else if date(fields, header::IF_UNMODIFIED_SINCE).is_some_and(|date| file.modified > date) {
        return Outcome::Failed;
    }
    if fields.contains_key(header::IF_NONE_MATCH) {
        if names(fields, header::IF_NONE_MATCH, &file.etag, true) {
            return Outcome::NotModified;
        }
    } else if date(fields, header::IF_MODIFIED_SINCE).is_some_and(|date| file.modified <= date) {
        return Outcome::NotModified;
    }
    Outcome::Send
}

/// Whether a range is wanted of this very file (RFC 9110 §13.1.5).
pub fn if_range(fields: &HeaderMap, file: &Variant) -> bool {
    let Some(value) = fields.get(header::IF_RANGE) else { return true };
    value == file.etag || value == file.last_modified
}

/// Whether a list of entity tags has this one. `is_weak`: W/ makes no difference.
fn names(fields: &HeaderMap, name: header::HeaderName, etag: &HeaderValue, is_weak: bool) -> bool {
    let values = fields.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).any(|tag| {
        let strong = if is_weak { tag.strip_prefix("W/").unwrap_or(tag) } else { tag };
        tag == "*" || strong.as_bytes() == etag.as_bytes()
    })
}

/// A date; None without one, or if it is none: then there is no condition.
fn date(fields: &HeaderMap, name: header::HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(fields.get(name)?.to_str().ok()?).ok()
}
