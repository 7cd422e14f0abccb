//! Where an event stream can end.

/// The last bytes of an event stream.
#[derive(Debug)]
pub struct Tail([u8; 4]);

impl Default for Tail {
    /// Before the first event a stream can end, as after one.
    fn default() -> Self {
        Tail(*b"\n\n\n\n")
    }
}

impl Tail {
    /// Notes bytes that have come.
    pub fn note(&mut self, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(4)..];
        self.0.rotate_left(last.len());
        self.0[4 - last.len()..].copy_from_slice(last);
    }

    /// Whether the bytes end with an empty line. A line ends with CR, LF, or both (HTML, 9.2.5).
    pub fn ends_event(&self) -> bool {
        [&b"\n\n"[..], b"\r\r", b"\r\n\r\n"].iter().any(|end| self.0.ends_with(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stream_can_end_after_an_empty_line_however_it_arrives() {
        for (parts, expected) in [
            (&["data: 1\n\n"][..], true),
            (&["data: 1\n", "\n"], true),
            (&["data: 1\r\n\r", "\n"], true),
            (&["data: 1\r", "\r"], true),
            (&["data: 1\n\n", "data: 2\n"], false),
            (&["data: 1\n\n", "d"], false),
            (&["data: 1\r\n"], false),
            (&[], true),
        ] {
            let mut tail = Tail::default();
            parts.iter().for_each(|part| tail.note(part.as_bytes()));
            assert_eq!(tail.ends_event(), expected, "{parts:?}");
        }
    }
}
