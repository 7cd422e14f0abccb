//! The encoded field lines of a response.
//!
//! Applications send the same fields in most responses. A field that equals the one in the same place of the previous
//! response is copied from there, already validated and encoded.

/// Field lines in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct FieldLines {
    bytes: Vec<u8>,
    /// One entry for each field of the application.
    lines: Vec<Line>,
}

/// The line of one field, by its place in the bytes and its lengths.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: usize,
    name: usize,
    value: usize,
    /// The value of a Content-Length.
    length: Option<u64>,
}

/// A field that cannot be reused: it has several lines, or none, or sets more than its line.
const UNIQUE: Line = Line { start: 0, name: usize::MAX, value: 0, length: None };

impl FieldLines {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lines.clear();
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a field of one line that the next response may reuse. `length` is its value as a Content-Length.
    pub fn push(&mut self, name: &[u8], value: &[u8], length: Option<u64>) {
        self.lines.push(Line { start: self.bytes.len(), name: name.len(), value: value.len(), length });
        self.push_line(name, value);
    }

    /// Adds a line that cannot be reused.
    pub fn push_line(&mut self, name: &[u8], value: &[u8]) {
        write_line(name, value, &mut self.bytes);
    }

    /// Takes the last Content-Length out again.
    pub fn drop_length(&mut self) {
        let Some(index) = self.lines.iter().rposition(|line| line.length.is_some()) else { return };
        let dropped = std::mem::replace(&mut self.lines[index], UNIQUE);
        let size = dropped.name + dropped.value + 4;
        self.bytes.drain(dropped.start..dropped.start + size);
        self.lines[index + 1..].iter_mut().for_each(|line| line.start = line.start.saturating_sub(size));
    }

    /// Takes out the lines of a field, in any case. The next response reuses none of the others.
    #[cold]
    pub fn drop_named(&mut self, name: &[u8]) {
        let is_dropped = |line: &[u8]| {
            line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name)
        };
        let lines = self.bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_dropped(line));
        self.bytes = lines.flatten().copied().collect();
        self.lines.fill(UNIQUE);
    }

    /// Records a field that cannot be reused.
    pub fn note_unique(&mut self) {
        self.lines.push(UNIQUE);
    }

    /// Copies the next field's line if `previous` has the same field in this place. Returns its Content-Length, if it
    /// is one.
    pub fn reuse(&mut self, previous: &FieldLines, name: &[u8], value: &[u8]) -> Option<Option<u64>> {
        let line = previous.lines.get(self.lines.len())?;
        if line.name != name.len() || line.value != value.len() {
            return None;
        }
        let bytes = &previous.bytes[line.start..][..line.name + line.value + 4];
        if &bytes[..line.name] != name || &bytes[line.name + 2..][..line.value] != value {
            return None;
        }
        self.lines.push(Line { start: self.bytes.len(), ..*line });
        self.bytes.extend_from_slice(bytes);
        Some(line.length)
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
    fn a_line_is_repeated_where_name_and_value_and_place_are_the_same() {
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
    fn what_was_repeated_is_repeated_again_though_other_lines_are_between() {
        let mut before = FieldLines::default();
        before.push(b"a", b"1", None);
        before.note_unique();
        before.push_line(b"b", b"1");
        before.push_line(b"b", b"2");
        before.push(b"c", b"3", None);
        let mut lines = FieldLines::default();
        lines.push_line(b"own", b"0");
        assert_eq!(lines.reuse(&before, b"a", b"1"), Some(None));
        assert_eq!(lines.reuse(&before, b"b", b"1"), None);
        lines.note_unique();
        assert_eq!(lines.reuse(&before, b"c", b"3"), Some(None));
        let mut last = FieldLines::default();
        assert_eq!(last.reuse(&lines, b"a", b"1"), Some(None));
        last.note_unique();
        assert_eq!(last.reuse(&lines, b"c", b"3"), Some(None));
        assert_eq!(last.as_bytes(), b"a: 1\r\nc: 3\r\n");
    }
}
