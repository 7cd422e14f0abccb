//! The grammar of chunk extensions (RFC 9112 §7.1.1).
//!
//! The server ignores extensions, but rejects malformed ones: a proxy could read them differently, and see other chunks.

use crate::bytes::is_tchar;

/// The position of the parser in the grammar of a chunk extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extension {
    /// After the semicolon: white space, then the name.
    Start,
    Name,
    /// White space after the name.
    AfterName,
    /// After the equals sign: white space, then the value.
    Equals,
    /// A value that is a token.
    Token,
    /// Inside the quotes of a value.
    Quoted,
    /// After a backslash in a quoted value.
    Escaped,
    /// After the closing quote of a value.
    EndQuote,
    /// White space after a value, before the next semicolon.
    AfterValue,
}

impl Extension {
    /// The position after `byte`; None if the grammar forbids the byte here.
    pub fn step(self, byte: u8) -> Option<Self> {
        use Extension::*;
        let text = matches!(byte, b'\t' | b' '..=b'~' | 0x80..=0xff);
        Some(match (self, byte) {
            (Name | AfterName | Token | EndQuote | AfterValue, b';') => Start,
            (Start | AfterName | Equals | AfterValue, b' ' | b'\t') => self,
            (Name, b' ' | b'\t') => AfterName,
            (Token | EndQuote, b' ' | b'\t') => AfterValue,
            (Name | AfterName, b'=') => Equals,
            (Equals, b'"') => Quoted,
            (Quoted, b'"') => EndQuote,
            (Quoted, b'\\') => Escaped,
            (Quoted | Escaped, _) if text => Quoted,
            (Start | Name, byte) if is_tchar(byte) => Name,
            (Equals | Token, byte) if is_tchar(byte) => Token,
            _ => return None,
        })
    }

    /// A text that brings a parser from [`Start`](Self::Start) to this position.
    pub fn replay(self) -> &'static str {
        match self {
            Extension::Start => "",
            Extension::Name => "a",
            Extension::AfterName => "a ",
            Extension::Equals => "a=",
            Extension::Token => "a=a",
            Extension::Quoted => "a=\"",
            Extension::Escaped => "a=\"\\",
            Extension::EndQuote => "a=\"\"",
            Extension::AfterValue => "a=a ",
        }
    }

    /// Whether the size line may end here.
    pub fn may_end(self) -> bool {
        matches!(self, Extension::Name | Extension::Token | Extension::EndQuote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_valid(text: &str) -> bool {
        let end = text.bytes().try_fold(Extension::Start, Extension::step);
        end.is_some_and(Extension::may_end)
    }

    #[test]
    fn extensions_are_names_with_tokens_or_quoted_strings() {
        for good in ["a", "a=b", "a=\"\"", "a=\"b;c=\\\"d\\\\\"", " a = b ; c", "a;b=\"\u{e4}\"", "!#$=~"] {
            assert!(is_valid(good), "{good}");
        }
        for bad in [
            "",
            " ",
            "=b",
            "a=",
            "a;",
            "bad[=x",
            "a=[",
            "a b",
            "a ",
            "a=b ",
            "a=b\t",
            "a=\"b\" ",
            "a=b c",
            "a=\"b",
            "a=\"b\\\"",
            "a=\"b\"c",
            "a=\"\u{1}\"",
            ";",
        ] {
            assert!(!is_valid(bad), "{bad}");
        }
    }
}
