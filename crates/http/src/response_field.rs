//! What may stand in a field of a response.

use std::fmt;

/// Why a field of the application's response cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// The name is not a token (RFC 9110 §5.6.2).
    Name,
    /// The value has a CR, LF or NUL in it (RFC 9110 §5.5).
    Value,
}

impl FieldError {
    /// What is wrong, in words that follow the field's name.
    pub fn text(self) -> &'static str {
        match self {
            FieldError::Name => "is not a valid header name",
            FieldError::Value => "has a value with CR, LF or NUL in it",
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.text())
    }
}

impl std::error::Error for FieldError {}

/// Whether every byte may stand in a field name (RFC 9110 §5.6.2).
pub(crate) fn is_token(name: &[u8]) -> bool {
    const TOKEN: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            table[byte] = matches!(byte as u8,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
                | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z');
            byte += 1;
        }
        table
    };
    !name.is_empty() && name.iter().all(|byte| TOKEN[usize::from(*byte)])
}
