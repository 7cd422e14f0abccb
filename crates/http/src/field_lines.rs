//! The encoded field lines of a response.
//!
//! Applications send the same fields in most responses. If a field equals the field at the same index of the previous
//! response, its line is copied from that response, already validated and encoded.

/// Field lines in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct FieldLines {
    bytes: Vec<u8>,
    /// One entry per field of the application.
    lines: Vec<Line>,
}

/// The position of a field's line, and the lengths of name and value in bytes.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: usize,
    name_len: usize,
    value_len: usize,
    /// The parsed value, if the field is a Content-Length.
    content_length: Option<u64>,
}

/// Stands for a field that the next response must not copy: the field has no line or several, or it also changes other
/// state of the response head. No field has a name of this length.
const NOT_REUSABLE: Line = Line { start: 0, name_len: usize::MAX, value_len: 0, content_length: None };

impl FieldLines {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lines.clear();
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a field of one line that the next response may reuse. `content_length` is the parsed value of a
    /// Content-Length.
    pub fn push(&mut self, name: &[u8], value: &[u8], content_length: Option<u64>) {
        let start = self.bytes.len();
        self.lines.push(Line { start, name_len: name.len(), value_len: value.len(), content_length });
        self.push_line(name, value);
    }

    /// Adds a line that no later response reuses.
    pub fn push_line(&mut self, name: &[u8], value: &[u8]) {
        write_line(name, value, &mut self.bytes);
    }

    /// Removes the last Content-Length.
    pub fn drop_length(&mut self) {
        let Some(index) = self.lines.iter().rposition(|line| line.content_length.is_some()) else { return };
        let dropped = std::mem::replace(&mut self.lines[index], NOT_REUSABLE);
        let size = dropped.name_len + dropped.value_len + 4;
        self.bytes.drain(dropped.start..dropped.start + size);
        self.lines[index + 1..].iter_mut().for_each(|line| line.start = line.start.saturating_sub(size));
    }

    /// Removes the lines of the field `name`, compared without case. The next response reuses none of the other lines.
    #[cold]
    pub fn drop_named(&mut self, name: &[u8]) {
        let is_dropped = |line: &[u8]| {
            line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name)
        };
        let lines = self.bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_dropped(line));
        self.bytes = lines.flatten().copied().collect();
        self.lines.fill(NOT_REUSABLE);
    }

    /// Records a field that the next response must not copy.
    pub fn note_not_reusable(&mut self) {
        self.lines.push(NOT_REUSABLE);
    }

    /// Copies the next field's line from `previous`. Returns None if `previous` has another field at this index, else the
    /// parsed value of a Content-Length.
    pub fn reuse(&mut self, previous: &FieldLines, name: &[u8], value: &[u8]) -> Option<Option<u64>> {
        let line = previous.lines.get(self.lines.len())?;
        let Line { name_len, value_len, .. } = *line;
        if name_len != name.len() || value_len != value.len() {
            return None;
        }
        let bytes = &previous.bytes[line.start..][..name_len + value_len + 4];
        if &bytes[..name_len] != name || &bytes[name_len + 2..][..value_len] != value {
            return None;
        }
        self.lines.push(Line { start: self.bytes.len(), ..*line });
        self.bytes.extend_from_slice(bytes);
        Some(line.content_length)
    }
}

/// Appends a field line.
pub(crate) fn write_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_reused_if_name_and_value_and_index_are_the_same() {
        let mut before = FieldLines::default();
        before.push(b"a", b"1", None);
        before.push(b"content-length", b"12", Some(12));
        let mut lines = FieldLines::default();
        assert_eq!(lines.reuse(&before, b"content-length", b"12"), None);
        assert_eq!(lines.reuse(&before, b"A", b"1"), None);
        assert_eq!(lines.reuse(&before, b"a", b"2"), None);
        assert_eq!(lines.reuse(&before, b"a", b""), None);
        assert_eq!(lines.reuse(&before, b"a", b"1"), Some(None));
        assert_eq!(lines.reuse(&before, b"content-length", b"12"), Some(Some(12)));
        assert_eq!(lines.reuse(&before, b"content-length", b"12"), None);
        assert_eq!(lines.as_bytes(), before.as_bytes());
    }

    #[test]
    fn a_reused_line_is_reused_again_even_with_other_lines_between() {
        let mut before = FieldLines::default();
        before.push(b"a", b"1", None);
        before.note_not_reusable();
        before.push_line(b"b", b"1");
        before.push_line(b"b", b"2");
        before.push(b"c", b"3", None);
        let mut lines = FieldLines::default();
        lines.push_line(b"own", b"0");
        assert_eq!(lines.reuse(&before, b"a", b"1"), Some(None));
        assert_eq!(lines.reuse(&before, b"b", b"1"), None);
        lines.note_not_reusable();
        assert_eq!(lines.reuse(&before, b"c", b"3"), Some(None));
        let mut last = FieldLines::default();
        assert_eq!(last.reuse(&lines, b"a", b"1"), Some(None));
        last.note_not_reusable();
        assert_eq!(last.reuse(&lines, b"c", b"3"), Some(None));
        assert_eq!(last.as_bytes(), b"a: 1\r\nc: 3\r\n");
    }
}
