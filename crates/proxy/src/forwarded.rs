//! The client of a request: the peer, or the client that trusted proxies name.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{HeaderMap, HeaderName};

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The field in which a proxy names the client's scheme.
pub static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its address. A proxy in front tells no port: 0.
    pub address: SocketAddr,
    /// Whether it speaks TLS.
    pub is_https: bool,
}

/// The client: the peer, or the client that a trusted peer names.
///
/// Each proxy adds its own client at the end of X-Forwarded-For, so the list is read from its end, while the addresses are those of trusted
/// proxies. A client can write the beginning of the list, and is not believed.
pub fn client(
    peer: SocketAddr,
    is_tls: bool,
    fields: &HeaderMap,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Client {
    let mut client = Client { address: peer, is_https: is_tls };
    if !is_trusted(peer.ip()) {
        return client;
    }
    // The place of the client's address, counted from the end of the list.
    let mut place = None;
    for (index, member) in members_from_end(fields, &FORWARDED_FOR).enumerate() {
        // What is before garbage may be a stranger's.
        let Some(ip) = address(member) else { break };
        client.address = SocketAddr::new(ip, 0);
        place = Some(index);
        if !is_trusted(ip) {
            break;
        }
    }
    client.is_https = is_https(fields, place).unwrap_or(is_tls);
    client
}

/// Whether a list of schemes names a secure one for the client. A proxy that adds to X-Forwarded-For adds to this list, too, so the client's
/// scheme has the same `place` from the end. A shorter list begins with it.
fn is_https(fields: &HeaderMap, place: Option<usize>) -> Option<bool> {
    let mut schemes = members_from_end(fields, &FORWARDED_PROTO);
    let last = schemes.next()?;
    let scheme = schemes.take(place.unwrap_or(usize::MAX)).last().unwrap_or(last);
    let is_one_of = |names: [&str; 2]| names.iter().any(|name| scheme.eq_ignore_ascii_case(name.as_bytes()));
    if is_one_of(["https", "wss"]) {
        Some(true)
    } else {
        is_one_of(["http", "ws"]).then_some(false)
    }
}

/// Whether the schemes are a list. Rack takes the last one, which is that of the last proxy.
pub fn has_scheme_list(fields: &HeaderMap) -> bool {
    members_from_end(fields, &FORWARDED_PROTO).nth(1).is_some()
}

/// The members of a list of all fields of this name, the last one first. Empty members count for nothing (RFC 9110 §5.6.1.2).
fn members_from_end<'a>(fields: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = fields.get_all(name).iter().rev();
    let members = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// An address of X-Forwarded-For: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`.
fn address(member: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(member).ok()?;
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let in_brackets =
        || text.strip_prefix('[')?.strip_suffix(']')?.parse::<std::net::Ipv6Addr>().ok().map(IpAddr::from);
    text.parse().ok().or_else(with_port).or_else(in_brackets).map(|ip: IpAddr| ip.to_canonical())
}

/// Whether an address is one of a private network, where routers are: RFC 1918, RFC 6598 and RFC 4193. This machine's own are none.
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(ip) => ip.is_private() || matches!(ip.octets(), [100, 64..=127, ..]),
        IpAddr::V6(ip) => ip.is_unique_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    fn fields(lines: &[(&str, &[u8])]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(
                HeaderName::try_from(*name).expect("a name"),
                HeaderValue::from_bytes(value).expect("a value"),
            );
        }
        fields
    }

    fn named(lines: &[(&str, &[u8])], trusted: &[&str]) -> Client {
        let is_trusted = |ip: IpAddr| trusted.iter().any(|one| one.parse() == Ok(ip));
        client("10.0.0.1:5000".parse().expect("an address"), false, &fields(lines), is_trusted)
    }

    fn at(address: &str, is_https: bool) -> Client {
        Client { address: address.parse().expect("an address"), is_https }
    }

    #[test]
    fn only_a_trusted_proxy_names_the_client() {
        let lines = [("x-forwarded-for", &b"203.0.113.9"[..]), ("x-forwarded-proto", b"https")];
        assert_eq!(named(&lines, &[]), at("10.0.0.1:5000", false));
        assert_eq!(named(&lines, &["10.0.0.1"]), at("203.0.113.9:0", true));
    }

    #[test]
    fn addresses_are_read_from_the_end_while_they_are_trusted() {
        for (lines, expected) in [
            (&["6.6.6.6, 203.0.113.9"][..], "203.0.113.9:0"),
            (&["6.6.6.6, 203.0.113.9", "10.0.0.2"], "203.0.113.9:0"),
            (&["6.6.6.6, x, 203.0.113.9"], "203.0.113.9:0"),
            (&["127.0.0.1, x, 203.0.113.9, 10.0.0.2"], "203.0.113.9:0"),
            (&["\u{ff}, 203.0.113.9"], "203.0.113.9:0"),
            (&["\u{ff}", "203.0.113.9"], "203.0.113.9:0"),
            (&["unknown, 203.0.113.9"], "203.0.113.9:0"),
            (&["6.6.6.6, unknown, 10.0.0.2"], "10.0.0.2:0"),
            (&["6.6.6.6, unknown"], "10.0.0.1:5000"),
            (&["10.0.0.2"], "10.0.0.2:0"),
            (&["10.0.0.2, 10.0.0.1"], "10.0.0.2:0"),
            (&[" ,203.0.113.9,, ,10.0.0.2, ,"], "203.0.113.9:0"),
            (&[""], "10.0.0.1:5000"),
            (&["203.0.113.9:443"], "203.0.113.9:0"),
            (&["203.0.113.9:"], "10.0.0.1:5000"),
            (&["2001:db8::1"], "[2001:db8::1]:0"),
            (&["[2001:db8::1]"], "[2001:db8::1]:0"),
            (&["[2001:db8::1]:443, ::ffff:10.0.0.2"], "[2001:db8::1]:0"),
            (&["[203.0.113.9]"], "10.0.0.1:5000"),
        ] {
            let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", line.as_bytes())).collect();
            let found = named(&lines, &["10.0.0.1", "10.0.0.2"]);
            assert_eq!(found, at(expected, false), "{lines:?}");
        }
    }

    #[test]
    fn of_several_schemes_the_clients_is_at_the_place_of_its_address() {
        for (addresses, schemes, expected) in [
            ("", "https", true),
            ("", "HTTPS", true),
            ("", "wss", true),
            ("", "ws", false),
            ("", "http", false),
            ("", "gopher", false),
            ("", " ,https, http", true),
            ("203.0.113.9, 10.0.0.2", "https, http", true),
            ("6.6.6.6, 203.0.113.9, 10.0.0.2", "https, http, https", false),
            ("6.6.6.6, 203.0.113.9, 10.0.0.2", "https", true),
            ("203.0.113.9", "https, http", false),
        ] {
            let lines =
                [("x-forwarded-for", addresses.as_bytes()), ("x-forwarded-proto", schemes.as_bytes())];
            let found = named(&lines, &["10.0.0.1", "10.0.0.2"]);
            assert_eq!(found.is_https, expected, "{addresses:?} {schemes:?}");
        }
    }

    #[test]
    fn private_networks_are_not_this_machine() {
        for (address, expected) in [
            ("10.1.2.3", true),
            ("172.31.0.1", true),
            ("192.168.0.1", true),
            ("100.64.0.1", true),
            ("100.128.0.1", false),
            ("::ffff:10.1.2.3", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("203.0.113.9", false),
        ] {
            assert_eq!(is_private(address.parse().expect(address)), expected, "{address}");
        }
    }

    proptest! {
        /// Nothing that stands before the address that a trusted proxy has added changes the client.
        #[test]
        fn the_beginning_of_the_list_chooses_nobody(forged in prop::collection::vec("[ -~\u{80}-\u{ff}]{0,30}", 0..4), trusted in 0..3_usize) {
            let added = format!("{}203.0.113.9{}", if forged.is_empty() { "" } else { "," }, ", 10.0.0.2".repeat(trusted));
            let value = forged.join(",") + &added;
            let found = named(&[("x-forwarded-for", value.as_bytes())], &["10.0.0.1", "10.0.0.2"]);
            prop_assert_eq!(found, at("203.0.113.9:0", false));
        }
    }
}
