//! The Transfer-Encoding of a response.

/// The transfer coding of a response's body, by the application's Transfer-Encoding (RFC 9112 §6.1, §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coding {
    /// No coding.
    #[default]
    None,
    /// `chunked` alone.
    Chunked,
    /// Other codings, then `chunked`.
    CodedChunks,
    /// Other codings without a final `chunked`: the close of the connection ends the body.
    UntilClose,
}

/// The codings of all Transfer-Encoding fields, in order.
#[derive(Debug, Default)]
pub(crate) struct TransferCodings {
    list: Vec<u8>,
    coding: Coding,
}

impl TransferCodings {
    pub fn clear(&mut self) {
        self.list.clear();
        self.coding = Coding::None;
    }

    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// The value of the Transfer-Encoding to send; empty without codings.
    pub fn as_bytes(&self) -> &[u8] {
        &self.list
    }

    /// Adds the codings of a field. Ignored are empty list elements (RFC 9110 §5.6.1.2), `identity`, which is an older word
    /// for no coding (RFC 9112 §7), and `chunked` after `chunked`: a body is never chunked twice (RFC 9112 §6.1).
    pub fn add(&mut self, value: &[u8]) {
        let codings = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        for coding in codings.filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
        {
            self.add_one(coding);
        }
    }

    /// Adds one coding, trimmed.
    pub fn add_one(&mut self, coding: &[u8]) {
        self.coding = match (self.coding, coding.eq_ignore_ascii_case(b"chunked")) {
            (Coding::Chunked | Coding::CodedChunks, true) => return,
            (Coding::None, true) => Coding::Chunked,
            (Coding::UntilClose, true) => Coding::CodedChunks,
            (_, false) => Coding::UntilClose,
        };
        if !self.list.is_empty() {
            self.list.extend_from_slice(b", ");
        }
        self.list.extend_from_slice(coding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_coding_says_where_the_body_ends() {
        for (values, coding, list) in [
            (&[""][..], Coding::None, ""),
            (&["identity"], Coding::None, ""),
            (&[" , Identity,\t"], Coding::None, ""),
            (&["chunked"], Coding::Chunked, "chunked"),
            (&["identity, Chunked"], Coding::Chunked, "Chunked"),
            (&["chunked", "chunked, chunked"], Coding::Chunked, "chunked"),
            (&["gzip"], Coding::UntilClose, "gzip"),
            (&["gzip,chunked"], Coding::CodedChunks, "gzip, chunked"),
            (&["gzip", "chunked"], Coding::CodedChunks, "gzip, chunked"),
            (&["chunked", "gzip"], Coding::UntilClose, "chunked, gzip"),
            (&["xchunked"], Coding::UntilClose, "xchunked"),
        ] {
            let mut codings = TransferCodings::default();
            values.iter().for_each(|value| codings.add(value.as_bytes()));
            assert_eq!((codings.coding(), codings.as_bytes()), (coding, list.as_bytes()), "{values:?}");
        }
    }
}
