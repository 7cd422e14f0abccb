//! A body in chunks (RFC 9112 §7.1): what stands around its bytes.

/// Ends each chunk of a chunked body.
pub const CHUNK_END: &[u8] = b"\r\n";
/// Ends a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Writes the line before a chunk of `len` bytes into `out` and returns it.
pub fn chunk_size_line(len: u64, out: &mut [u8; 18]) -> &[u8] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut at = out.len() - 2;
    out[at..].copy_from_slice(CHUNK_END);
    let mut rest = len;
    loop {
        at -= 1;
        out[at] = DIGITS[(rest % 16) as usize];
        rest /= 16;
        if rest == 0 {
            return &out[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_line_is_hexadecimal() {
        let mut out = [0; 18];
        assert_eq!(chunk_size_line(0, &mut out), b"0\r\n");
        assert_eq!(chunk_size_line(26, &mut out), b"1a\r\n");
        assert_eq!(chunk_size_line(u64::MAX, &mut out), b"ffffffffffffffff\r\n");
    }
}
