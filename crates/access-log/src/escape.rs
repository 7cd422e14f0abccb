//! Makes a client's text safe for a log: no client can begin a line of its own, or end a quoted text.

use std::borrow::Cow;
use std::io::Write;

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

/// The text as far as the limit, if no byte needs an escape, as in most requests.
fn plain(text: &[u8], limit: usize) -> Option<&[u8]> {
    // Without an early end, so that the compiler looks at many bytes at once.
    text.iter().fold(true, |all, byte| all & is_plain(*byte)).then(|| &text[..text.len().min(limit)])
}

/// Appends `text`, in at most `limit` bytes. Bytes other than printable ASCII become `\xHH`, and so do `"` and `\`, as in logs of
/// nginx and Apache.
pub(super) fn quoted(text: &[u8], limit: usize, out: &mut Vec<u8>) {
    if let Some(text) = plain(text, limit) {
        return out.extend_from_slice(text);
    }
    let end = out.len() + limit;
    for byte in text {
        let before = out.len();
        if is_plain(*byte) {
            out.push(*byte);
        } else {
            // Writing to memory does not fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
        if out.len() > end {
            return out.truncate(before);
        }
    }
}

/// Appends `text` as a JSON string with its quotes (RFC 8259 §7), in at most `limit` bytes between the quotes. Bytes that are not UTF-8
/// are read as ISO 8859-1.
pub(super) fn json(text: &[u8], limit: usize, out: &mut Vec<u8>) {
    if let Some(text) = plain(text, limit) {
        out.push(b'"');
        out.extend_from_slice(text);
        return out.push(b'"');
    }
    let text = std::str::from_utf8(text)
        .map_or_else(|_| Cow::from(text.iter().copied().map(char::from).collect::<String>()), Cow::from);
    let start = out.len();
    let mut length = text.len().min(limit);
    loop {
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut *out, &text[..length]);
        let excess = (out.len() - start - 2).saturating_sub(limit);
        if excess == 0 {
            return;
        }
        // Escapes have made the text too long. The longest escape, `\u0000`, stands for one byte.
        out.truncate(start);
        length -= excess.div_ceil(6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(escape: fn(&[u8], usize, &mut Vec<u8>), text: &[u8], limit: usize) -> String {
        let mut out = Vec::new();
        escape(text, limit, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn no_text_ends_its_line_or_its_quotes() {
        for byte in 0..=255 {
            let text = [b'a', byte, b'b'];
            let quoted = of(quoted, &text, 999);
            assert!(quoted.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"'), "{byte}");
            let json = of(json, &text, 999);
            assert!(json.bytes().all(|byte| byte >= b' '), "{byte}");
            let read: String = serde_json::from_str(&json).expect("JSON");
            assert_eq!(read, String::from_iter(text.map(char::from)));
        }
        assert_eq!(of(quoted, b"a\"b\\c\n\xff\x7f", 99), "a\\x22b\\x5cc\\x0a\\xff\\x7f");
        assert_eq!(of(json, "gr\u{fc}n".as_bytes(), 99), "\"gr\u{fc}n\"");
    }

    #[test]
    fn a_long_text_is_cut_and_never_inside_an_escape_or_a_character() {
        assert_eq!(of(quoted, b"abcdef", 3), "abc");
        assert_eq!(of(quoted, b"ab\n\n", 9), "ab\\x0a");
        assert_eq!(of(json, b"abcdef", 3), "\"abc\"");
        assert_eq!(of(json, "aa\u{fc}\u{fc}".as_bytes(), 3), "\"aa\"");
        assert_eq!(of(json, "\u{fc}\u{fc}\u{fc}".as_bytes(), 5), "\"\u{fc}\u{fc}\"");
        assert_eq!(of(json, b"\x01\x01\x01", 12), "\"\\u0001\\u0001\"");
        // Shorter than the limit, until its quotes are escaped.
        assert_eq!(of(json, "\"\"\u{fc}".as_bytes(), 5), "\"\\\"\\\"\"");
    }
}
