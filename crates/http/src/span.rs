//! Places in a buffer, which stay valid when the buffer grows.

use std::ops::Range;

/// A place in the buffer that a head was parsed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Where `part` lies in `whole`. Both come from one parse, so `part` is
    /// inside `whole`; if it were not, the span would be empty, never wild.
    pub(crate) fn of(part: &[u8], whole: &[u8]) -> Span {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        match (u32::try_from(start), u32::try_from(start.wrapping_add(part.len()))) {
            (Ok(start), Ok(end)) if end as usize <= whole.len() => Span { start, end },
            _ => Span::default(),
        }
    }

    /// Where it begins.
    pub(crate) fn start(self) -> usize {
        self.start as usize
    }

    /// The bytes at this place of the buffer that was parsed.
    pub fn of_buffer(self, buffer: &[u8]) -> &[u8] {
        buffer.get(Range::from(self)).unwrap_or_default()
    }
}

impl From<Span> for Range<usize> {
    fn from(span: Span) -> Self {
        span.start as usize..span.end as usize
    }
}
