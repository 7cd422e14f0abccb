//! Which bytes may stand where.

/// A token's (RFC 9110 §5.6.2): a method's, a field name's.
pub(crate) fn is_tchar(byte: u8) -> bool {
    const MAP: [bool; 256] = map(b"!#$%&'*+-.^_`|~");
    MAP[usize::from(byte)]
}

/// A host name's, but for the percent sign (RFC 3986 §3.2.2, reg-name).
pub(crate) fn is_in_host(byte: u8) -> bool {
    const MAP: [bool; 256] = map(b"-._~!$&'()*+,;=");
    MAP[usize::from(byte)]
}

/// A request target's: nothing that could end it.
pub(crate) fn is_in_target(byte: u8) -> bool {
    !matches!(byte, 0..=b' ' | 0x7f)
}

/// Letters, digits and those.
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
