//! The Expect field (RFC 9110 §10.1.1).

/// What the client waits for before it sends the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expectation {
    /// Nothing: the body comes by itself.
    #[default]
    None,
    /// `100-continue`: the client waits for an interim response.
    Continue,
}

impl Expectation {
    /// Reads a field value; None for an expectation that is not known.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        value.eq_ignore_ascii_case(b"100-continue").then_some(Expectation::Continue)
    }
}
