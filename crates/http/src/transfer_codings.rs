//! The Transfer-Encoding of a response.

/// How a response's body is encoded for its transfer, by the application's Transfer-Encoding (RFC 9112 §6.1, §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coding {
    /// Not at all.
    #[default]
    None,
    /// In chunks, and nothing else.
    Chunked,
    /// In some other way, then in chunks.
    CodedChunks,
    /// In some other way: only the close of the connection ends it.
    UntilClose,
}

/// The codings in their order, from all of the fields.
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

    /// The value of the field to be sent; empty if there is none.
    pub fn as_bytes(&self) -> &[u8] {
        &self.list
    }

    /// Adds the codings of a field. Empty list elements count for nothing (RFC 9110 §5.6.1.2). Neither does `identity`, an
    /// older word for no coding (RFC 9112 §7), nor `chunked` after `chunked`: no body is in chunks twice (§6.1).
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
