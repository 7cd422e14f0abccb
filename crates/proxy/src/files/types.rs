//! Media types of files, by their names.

use std::path::Path;

use hyper::header::HeaderValue;

/// The type of a file with this name. Text is UTF-8: without a charset some browsers take their own.
pub fn of(name: &Path) -> HeaderValue {
    let guess = mime_guess::from_path(name).first_raw().unwrap_or("application/octet-stream");
    if !has_charset(guess) {
        return HeaderValue::from_static(guess);
    }
    HeaderValue::try_from(format!("{guess}; charset=utf-8")).unwrap_or(HeaderValue::from_static(guess))
}

/// XML names its encoding itself, and the field would count more (RFC 7303 §3).
fn has_charset(media_type: &str) -> bool {
    media_type.starts_with("text/") && media_type != "text/xml"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_a_charset_and_all_else_has_none() {
        for (name, expected) in [
            ("a.css", "text/css; charset=utf-8"),
            ("a.html", "text/html; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("robots.txt", "text/plain; charset=utf-8"),
            ("feed.xml", "text/xml"),
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.woff2", "font/woff2"),
            ("a", "application/octet-stream"),
        ] {
            assert_eq!(of(Path::new(name)), expected, "{name}");
        }
    }
}
