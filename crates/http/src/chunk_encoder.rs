//! The bytes around the data of a chunked body (RFC 9112 §7.1).

/// Ends each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";
/// Ends the body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Writes the line that starts a chunk of `len` bytes to `out`, and returns it.
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
