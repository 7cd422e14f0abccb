//! The request's client, as the server's own proxy describes it in a field. The field counts on the proxy's socket only.

use std::net::{IpAddr, SocketAddr};

use crate::head::Head;

/// The field's name. Its value: address, port, scheme and protocol, and the target if the client has sent another one than the proxy. A space
/// is between two.
pub const FORWARDED_FIELD: &str = "Fastrack-Client";

/// The client of a request that the proxy has passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded<'a> {
    /// The client's address and port.
    pub peer: SocketAddr,
    /// Whether the client speaks TLS.
    pub is_https: bool,
    /// The client's protocol, `HTTP/2`.
    pub protocol: &'a [u8],
    /// The target as the client has sent it; None: the request has it.
    pub target: Option<&'a [u8]>,
}

impl<'a> Forwarded<'a> {
    /// Reads the field of `head`, which was parsed from `bytes`. None without the field, or if it makes no sense.
    pub fn of(head: &Head, bytes: &'a [u8]) -> Option<Self> {
        let is_own = |name: &[u8]| name.eq_ignore_ascii_case(FORWARDED_FIELD.as_bytes());
        let mut fields = head.fields.iter().filter(|field| field.known.is_none());
        let field = fields.find(|field| is_own(field.name.of_buffer(bytes)))?;
        Forwarded::parse(field.value.of_buffer(bytes))
    }

    fn parse(value: &'a [u8]) -> Option<Self> {
        let mut words = value.split(|byte| *byte == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let ip: IpAddr = word()?.parse().ok()?;
        let port: u16 = word()?.parse().ok()?;
        let is_https = match word()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let protocol = word()?.as_bytes();
        let is_protocol = matches!(protocol, b"HTTP/1.0" | b"HTTP/1.1" | b"HTTP/2");
        let target = words.next();
        (is_protocol && words.next().is_none()).then_some(Forwarded {
            peer: (ip, port).into(),
            is_https,
            protocol,
            target,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn the_field_tells_address_scheme_and_protocol() {
        for (value, peer, is_https, protocol, target) in [
            ("203.0.113.9 51234 https HTTP/2", "203.0.113.9:51234", true, "HTTP/2", None),
            ("2001:db8::1 0 http HTTP/1.0", "[2001:db8::1]:0", false, "HTTP/1.0", None),
            ("192.0.2.1 7 http HTTP/1.1 /a\"b", "192.0.2.1:7", false, "HTTP/1.1", Some(&b"/a\"b"[..])),
        ] {
            let peer = peer.parse().expect("an address");
            let expected = Forwarded { peer, is_https, protocol: protocol.as_bytes(), target };
            assert_eq!(Forwarded::parse(value.as_bytes()), Some(expected));
        }
    }

    #[test]
    fn what_makes_no_sense_tells_nothing() {
        for value in [
            "",
            "203.0.113.9",
            "203.0.113.9 51234 https",
            "203.0.113.9 51234 https HTTP/2 /target more",
            "203.0.113.9 512345 https HTTP/2",
            "localhost 1 https HTTP/2",
            "203.0.113.9 1 gopher HTTP/2",
            "203.0.113.9 1 https HTTP/9",
            "203.0.113.9  1 https HTTP/2",
        ] {
            assert_eq!(Forwarded::parse(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn the_field_is_found_in_any_spelling_of_its_case() {
        let bytes =
            b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nfastrack-CLIENT: 192.0.2.1 7 http HTTP/1.1\r\n\r\n";
        let mut head = Head::default();
        head.parse(bytes, Limits::default()).expect("a head");
        assert_eq!(Forwarded::of(&head, bytes).map(|found| found.peer.port()), Some(7));
        let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nFastrack_Client: 192.0.2.1 7 http HTTP/1.1\r\n\r\n";
        head.parse(bytes, Limits::default()).expect("a head");
        assert_eq!(Forwarded::of(&head, bytes), None);
    }
}
