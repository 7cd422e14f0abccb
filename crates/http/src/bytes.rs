//! Bytes that the grammar of HTTP allows in tokens, hosts and targets.

/// Whether `bytes` are a valid token (RFC 9110 §5.6.2): a method or a field name.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| is_tchar(*byte))
}

/// Whether a token may contain `byte`.
pub(crate) fn is_tchar(byte: u8) -> bool {
    const MAP: [bool; 256] = map(b"!#$%&'*+-.^_`|~");
    MAP[usize::from(byte)]
}

/// Whether a host name may contain `byte` (RFC 3986 §3.2.2, reg-name). The percent sign is excluded.
pub(crate) fn is_in_host(byte: u8) -> bool {
    const MAP: [bool; 256] = map(b"-._~!$&'()*+,;=");
    MAP[usize::from(byte)]
}

/// Whether a request target may contain `byte`: not white space and not a control byte.
pub(crate) fn is_in_target(byte: u8) -> bool {
    !matches!(byte, 0..=b' ' | 0x7f)
}

/// A table by byte: true for ASCII letters, ASCII digits and `others`.
const fn map(others: &[u8]) -> [bool; 256] {
    let mut map = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        map[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        map[others[at] as usize] = true;
        at += 1;
    }
    map
}
