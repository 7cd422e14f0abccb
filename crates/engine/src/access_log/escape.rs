//! Makes texts of clients safe for a log: no client can begin a line of its own, or end a quoted text.

/// Bytes looked at together.
const STEP: usize = 16;

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

/// Appends `text` with all but printable ASCII as `\xHH`, and `"` and `\` too, as nginx and Apache do. At most `most`
/// bytes.
pub(super) fn quoted(text: &[u8], most: usize, out: &mut Vec<u8>) {
    escape(text, most, out, |byte, out| {
        out.extend_from_slice(b"\\x");
        out.extend_from_slice(&hex(byte));
    });
}

/// Appends `text` for a JSON string (RFC 8259 §7). Bytes that are no UTF-8 are taken for ISO 8859-1.
pub(super) fn json(text: &[u8], most: usize, out: &mut Vec<u8>) {
    if is_clean(text) {
        return out.extend_from_slice(&text[..text.len().min(most)]);
    }
    let is_utf8 = std::str::from_utf8(text).is_ok();
    let start = out.len();
    escape(text, most, out, |byte, out| match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        0x80.. if is_utf8 => out.push(byte),
        _ => {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&hex(byte));
        }
    });
    if is_utf8 {
        // It may have been cut in the middle of a character: escapes make it longer.
        let whole = std::str::from_utf8(&out[start..]).map_or_else(|error| error.valid_up_to(), str::len);
        out.truncate(start + whole);
    }
}

fn escape(text: &[u8], most: usize, out: &mut Vec<u8>, special: impl Fn(u8, &mut Vec<u8>)) {
    if is_clean(text) {
        return out.extend_from_slice(&text[..text.len().min(most)]);
    }
    let end = out.len() + most;
    for byte in text {
        let before = out.len();
        if is_plain(*byte) {
            out.push(*byte);
        } else {
            special(*byte, out);
        }
        if out.len() > end {
            return out.truncate(before);
        }
    }
}

/// Whether no byte needs an escape. What is left of the steps is looked at together with bytes before it, once more: that takes
/// no loop.
fn is_clean(text: &[u8]) -> bool {
    let is_plain = |bytes: &[u8]| bytes.iter().fold(true, |clean, byte| clean & is_plain(*byte));
    match text.last_chunk::<STEP>() {
        Some(last) => text.chunks_exact(STEP).all(is_plain) && is_plain(last),
        None => is_short_clean(text),
    }
}

fn is_short_clean(text: &[u8]) -> bool {
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return !has_special(u64::from_ne_bytes(*first)) && !has_special(u64::from_ne_bytes(*last));
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_ne_bytes(*half)));
        return !has_special(first << u32::BITS | last);
    }
    text.iter().all(|byte| is_plain(*byte))
}

/// Whether any of eight bytes is not plain. Carries go from a special byte only.
fn has_special(bytes: u64) -> bool {
    const ONE: u64 = u64::MAX / 0xff;
    let below = |bytes: u64, limit: u64| bytes.wrapping_sub(ONE * limit) & !bytes;
    let equal = |byte: u8| below(bytes ^ (ONE * u64::from(byte)), 1);
    let above = bytes | bytes.wrapping_add(ONE * (0x7f - u64::from(b'~')));
    (above | below(bytes, b' '.into()) | equal(b'"') | equal(b'\\')) & (ONE * 0x80) != 0
}

fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(escape: fn(&[u8], usize, &mut Vec<u8>), text: &[u8], most: usize) -> String {
        let mut out = b"<".to_vec();
        escape(text, most, &mut out);
        String::from_utf8(out).expect("text")[1..].to_owned()
    }

    #[test]
    fn no_text_ends_its_line_or_its_quotes() {
        for byte in 0..=255 {
            for before in (0..20).chain([40]) {
                let text = [&vec![b'a'; before][..], &[byte], b"b"].concat();
                let quoted = of(quoted, &text, 999);
                assert!(quoted.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"'), "{byte}");
                let json = of(json, &text, 999);
                assert!(json.bytes().all(|byte| byte >= b' '), "{byte}");
                assert!(!json.replace("\\\\", "").replace("\\\"", "").contains('"'), "{byte}");
            }
        }
        assert_eq!(of(quoted, b"a\"b\\c\n\xff\x7f", 99), "a\\x22b\\x5cc\\x0a\\xff\\x7f");
        assert_eq!(of(json, b"a\"b\\c\n\xff\x7f", 99), "a\\\"b\\\\c\\u000a\\u00ff\\u007f");
        assert_eq!(of(json, "gr\u{fc}n".as_bytes(), 99), "gr\u{fc}n");
    }

    #[test]
    fn a_text_is_clean_where_each_byte_is() {
        for length in 0..40 {
            assert!(is_clean(&vec![b'~'; length]) && is_clean(&vec![b' '; length]));
            for (at, byte) in (0..length).flat_map(|at| (0..=255).map(move |byte| (at, byte))) {
                let mut text = vec![b'#'; length];
                text[at] = byte;
                assert_eq!(is_clean(&text), is_plain(byte), "{byte} at {at} of {length}");
            }
        }
    }

    #[test]
    fn a_long_text_is_cut_and_never_inside_an_escape_or_a_character() {
        assert_eq!(of(quoted, b"abcdef", 3), "abc");
        assert_eq!(of(quoted, b"ab\n\n", 9), "ab\\x0a");
        assert_eq!(of(json, "aa\u{fc}\u{fc}".as_bytes(), 3), "aa");
        assert_eq!(of(json, "\u{fc}\u{fc}\u{fc}".as_bytes(), 5), "\u{fc}\u{fc}");
        // Shorter than the limit, until its quotes are escaped.
        assert_eq!(of(json, "\"\"\u{fc}".as_bytes(), 5), "\\\"\\\"");
    }
}
