//! The field lines of a response, laid out, and those of the response before.
//!
//! Applications send the same fields again and again. What was found to be valid and laid out for the last response is
//! copied for this one, where it has the same field in the same place.

/// Field lines in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct FieldLines {
    bytes: Vec<u8>,
    /// One for each field that the application has named.
    lines: Vec<Line>,
}

/// Where the line of one field is.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: usize,
    name: usize,
    value: usize,
    /// What a Content-Length says.
    length: Option<u64>,
}

/// A field that has to be looked at anew each time: several lines, or none, or more than a line comes of it.
const UNIQUE: Line = Line { start: 0, name: usize::MAX, value: 0, length: None };

impl FieldLines {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lines.clear();
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a field's line, to be taken for the next response as well. `length` is what it says of the body.
    pub fn push(&mut self, name: &[u8], value: &[u8], length: Option<u64>) {
        self.lines.push(Line { start: self.bytes.len(), name: name.len(), value: value.len(), length });
        self.push_line(name, value);
    }

    /// Adds a line, which is one of several or means more than it says.
    pub fn push_line(&mut self, name: &[u8], value: &[u8]) {
        lay_out(name, value, &mut self.bytes);
    }

    /// Notes that a field has come of which nothing can be taken for the next response.
    pub fn note_unique(&mut self) {
        self.lines.push(UNIQUE);
    }

    /// Adds the next field's line if `before` has the same in this place, and gives what it says of the body's length.
    pub fn repeat(&mut self, before: &FieldLines, name: &[u8], value: &[u8]) -> Option<Option<u64>> {
        let line = before.lines.get(self.lines.len())?;
        if line.name != name.len() || line.value != value.len() {
            return None;
        }
        let bytes = &before.bytes[line.start..][..line.name + line.value + 4];
        if &bytes[..line.name] != name || &bytes[line.name + 2..][..line.value] != value {
            return None;
        }
        self.lines.push(Line { start: self.bytes.len(), ..*line });
        self.bytes.extend_from_slice(bytes);
        Some(line.length)
    }
}

/// Appends a field's line.
pub(crate) fn lay_out(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
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
        assert_eq!(lines.repeat(&before, b"content-length", b"12"), None);
        assert_eq!(lines.repeat(&before, b"A", b"1"), None);
        assert_eq!(lines.repeat(&before, b"a", b"2"), None);
        assert_eq!(lines.repeat(&before, b"a", b""), None);
        assert_eq!(lines.repeat(&before, b"a", b"1"), Some(None));
        assert_eq!(lines.repeat(&before, b"content-length", b"12"), Some(Some(12)));
        assert_eq!(lines.repeat(&before, b"content-length", b"12"), None);
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
        assert_eq!(lines.repeat(&before, b"a", b"1"), Some(None));
        assert_eq!(lines.repeat(&before, b"b", b"1"), None);
        lines.note_unique();
        assert_eq!(lines.repeat(&before, b"c", b"3"), Some(None));
        let mut last = FieldLines::default();
        assert_eq!(last.repeat(&lines, b"a", b"1"), Some(None));
        last.note_unique();
        assert_eq!(last.repeat(&lines, b"c", b"3"), Some(None));
        assert_eq!(last.as_bytes(), b"a: 1\r\nc: 3\r\n");
    }
}
