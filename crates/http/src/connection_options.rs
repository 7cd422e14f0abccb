//! What an application says about the connection (RFC 9110 §7.6.1).

/// The options of an application's Connection fields. These are never sent: only the server knows whether the connection stays
/// open.
#[derive(Debug, Default)]
pub(crate) struct ConnectionOptions {
    /// `close` is among them.
    pub close: bool,
    /// There is an Upgrade field, of which Connection has to tell (RFC 9110 §7.8).
    pub upgrade: bool,
    /// Names of fields that are for this connection alone, each with a comma behind it.
    names: Vec<u8>,
}

impl ConnectionOptions {
    pub fn clear(&mut self) {
        self.close = false;
        self.upgrade = false;
        self.names.clear();
    }

    /// Takes in a Connection field. Keep-Alive is never sent, Upgrade always with an option of the server's, and what
    /// Content-Length says is for all recipients.
    pub fn add(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if !OWN.iter().any(|own| option.eq_ignore_ascii_case(own)) {
                self.names.extend_from_slice(option);
                self.names.push(b',');
            }
        }
    }

    /// The fields that must not be sent without a Connection that names them.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.split(|byte| *byte == b',').filter(|name| !name.is_empty())
    }

    pub fn has_names(&self) -> bool {
        !self.names.is_empty()
    }
}

/// Options that name no field to be dropped.
const OWN: [&[u8]; 4] = [b"", b"keep-alive", b"upgrade", b"content-length"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_is_found_wherever_it_is_and_the_rest_names_fields() {
        for (value, close, names) in [
            ("close", true, &[][..]),
            (" Close\t", true, &[]),
            ("keep-alive, close", true, &[]),
            ("X-One,,close, X-Two", true, &["X-One", "X-Two"]),
            ("closed", false, &["closed"]),
            ("Keep-Alive, Upgrade", false, &[]),
            ("", false, &[]),
        ] {
            let mut options = ConnectionOptions::default();
            options.add(value.as_bytes());
            assert_eq!(options.close, close, "{value}");
            assert!(options.names().eq(names.iter().map(|name| name.as_bytes())), "{value}");
            assert_eq!(options.has_names(), !names.is_empty());
        }
    }
}
