//! The result of parsing a prefix of the input.

/// Whether a parser has all the bytes it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The value is parsed.
    Complete,
    /// Valid so far; read more bytes and try again.
    Partial,
}
