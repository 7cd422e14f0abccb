//! The Connection fields of a response, as set by the application (RFC 9110 §7.6.1).

/// The options of the application's Connection fields. The server sends its own Connection instead: only the server knows
/// whether the connection stays open.
#[derive(Debug, Default)]
pub(crate) struct ConnectionOptions {
    /// The application sent the option `close`.
    pub close: bool,
    /// The response has an Upgrade field: Connection must name the field (RFC 9110 §7.8).
    pub upgrade: bool,
    /// Names of fields for this connection alone, each followed by a comma.
    names: Vec<u8>,
}

impl ConnectionOptions {
    pub fn clear(&mut self) {
        self.close = false;
        self.upgrade = false;
        self.names.clear();
    }

    /// Adds the options of a Connection field.
    pub fn add(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if !NAMES_NO_FIELD.iter().any(|known| option.eq_ignore_ascii_case(known)) {
                self.names.extend_from_slice(option);
                self.names.push(b',');
            }
        }
    }

    /// Names of fields that must not be sent, since no Connection with their names is sent.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.split(|byte| *byte == b',').filter(|name| !name.is_empty())
    }

    pub fn has_names(&self) -> bool {
        !self.names.is_empty()
    }
}

/// Options that name no field to drop: Keep-Alive is never sent, Upgrade is named by the server's own Connection, and
/// Content-Length is for all recipients.
const NAMES_NO_FIELD: [&[u8]; 4] = [b"", b"keep-alive", b"upgrade", b"content-length"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_is_found_at_any_place_and_other_options_name_fields() {
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
