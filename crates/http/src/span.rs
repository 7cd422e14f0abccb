//! Positions in a buffer. They stay valid when the buffer grows.

use std::ops::Range;

/// A range of the buffer that a head was parsed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The position of `part`, a slice of `whole`. The span of anything else is empty.
    pub(crate) fn of(part: &[u8], whole: &[u8]) -> Span {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        match (u32::try_from(start), u32::try_from(start.wrapping_add(part.len()))) {
            (Ok(start), Ok(end)) if end as usize <= whole.len() => Span { start, end },
            _ => Span::default(),
        }
    }

    pub(crate) fn start(self) -> usize {
        self.start as usize
    }

    /// These bytes of the buffer.
    pub fn of_buffer(self, buffer: &[u8]) -> &[u8] {
        buffer.get(Range::from(self)).unwrap_or_default()
    }
}

impl From<Span> for Range<usize> {
    fn from(span: Span) -> Self {
        span.start as usize..span.end as usize
    }
}
