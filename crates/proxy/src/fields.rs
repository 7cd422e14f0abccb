//! Header fields: those that end at this process, and those that say who the client is.

use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::Version;

/// Tells a worker who the client is: address, port, scheme and protocol. The worker believes it on the proxy's socket only, see
/// `crates/http/src/forwarded.rs`.
pub static CLIENT: HeaderName = HeaderName::from_static("fastrack-client");

/// When the request came, in microseconds since 1970 (see docs/logs-and-stats.md).
static REQUEST_START: HeaderName = HeaderName::from_static("x-request-start");

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields about one connection (RFC 9110 §7.6.1). hyper writes those of the next one.
static HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// Fields in which a proxy names the client. On a listener with TLS no proxy is in front, so a client has set them itself. `forwarded` also
/// stands for all fields that begin with `x-forwarded-`.
const ABOUT_CLIENTS: [&str; 8] = [
    "forwarded",
    "x-real-ip",
    "x-client-ip",
    "client-ip",
    "true-client-ip",
    "x-request-start",
    "x-queue-start",
    "x-original-host",
];

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its address. A proxy in front tells no port: 0.
    pub address: SocketAddr,
    /// Whether it speaks TLS.
    pub is_https: bool,
}

/// Removes the fields that are for this connection only, and those that Connection names. Returns the protocol to which the client asks to
/// change.
pub fn remove_hop_by_hop(fields: &mut HeaderMap) -> Option<HeaderValue> {
    if !HOP_BY_HOP.iter().any(|name| fields.contains_key(name)) {
        return None;
    }
    let options = options(fields);
    let has_upgrade = options.iter().any(|option| option == "upgrade");
    let upgrade = if has_upgrade { fields.remove(header::UPGRADE) } else { None };
    HOP_BY_HOP.iter().for_each(|name| drop(fields.remove(name)));
    for option in &options {
        // A client must not have the host, the body's length or credentials removed.
        if !matches!(&option[..], "host" | "content-length" | "cookie" | "authorization") {
            fields.remove(&option[..]);
        }
    }
    upgrade
}

/// The options of the Connection fields, in lower case.
fn options(fields: &HeaderMap) -> Vec<String> {
    let values = fields.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|option| option.trim().to_ascii_lowercase()).collect()
}

/// The client: the peer, or the client that a trusted peer names.
pub fn client(
    peer: SocketAddr,
    is_tls: bool,
    fields: &HeaderMap,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Client {
    let own = Client { address: peer, is_https: is_tls };
    if !is_trusted(peer.ip()) {
        return own;
    }
    let values = || fields.get_all(&FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<IpAddr> =
        values().flat_map(|value| value.split(',')).map_while(|one| address(one.trim())).collect();
    // Each proxy adds its own client at the end. So the last address that belongs to no trusted proxy is the client's.
    let address = named.iter().rev().find(|one| !is_trusted(**one)).or(named.first());
    let proto = fields.get(&FORWARDED_PROTO).map(HeaderValue::as_bytes);
    Client {
        address: address.map_or(peer, |ip| SocketAddr::new(*ip, 0)),
        is_https: proto.map_or(is_tls, |proto| proto.eq_ignore_ascii_case(b"https")),
    }
}

/// An address of X-Forwarded-For, which may have a port.
fn address(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(with_port).map(|ip: IpAddr| ip.to_canonical())
}

/// Sets the field that names the client. `is_edge`: no proxy is in front, so the client's own fields about it are removed.
pub fn set_client(fields: &mut HeaderMap, client: Client, version: Version, is_edge: bool) {
    if is_edge {
        remove_about_clients(fields);
    }
    fields.insert(&CLIENT, word(client, version));
    if !fields.contains_key(&REQUEST_START) {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        fields.insert(&REQUEST_START, text(format!("t={micros}")));
    }
}

fn word(Client { address, is_https }: Client, version: Version) -> HeaderValue {
    let scheme = if is_https { "https" } else { "http" };
    let protocol = protocol(version);
    text(format!("{} {} {scheme} {protocol}", address.ip().to_canonical(), address.port()))
}

/// The protocol as the app and the access log have it.
pub fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

fn text(text: String) -> HeaderValue {
    // Digits, letters and dots only.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// Removes fields about the client in any spelling: in env a dash and an underscore are the same.
fn remove_about_clients(fields: &mut HeaderMap) {
    let is_about_client = |name: &HeaderName| {
        let name = name.as_str();
        let is_like = |one: &&str| is_like(name, one);
        name.get(..12).is_some_and(is_prefix) || ABOUT_CLIENTS.iter().any(is_like)
    };
    let names: Vec<HeaderName> = fields.keys().filter(|name| is_about_client(name)).cloned().collect();
    names.iter().for_each(|name| drop(fields.remove(name)));
}

fn is_prefix(start: &str) -> bool {
    is_like(start, "x-forwarded-")
}

fn is_like(name: &str, wanted: &str) -> bool {
    name.len() == wanted.len()
        && name
            .bytes()
            .zip(wanted.bytes())
            .all(|(byte, wanted)| byte == wanted || (byte == b'_' && wanted == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(lines: &[(&str, &str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(
                HeaderName::try_from(*name).expect("a name"),
                HeaderValue::try_from(*value).expect("a value"),
            );
        }
        fields
    }

    fn named(lines: &[(&str, &str)], trusted: &[&str]) -> Client {
        let is_trusted = |ip: IpAddr| trusted.iter().any(|one| one.parse() == Ok(ip));
        client("10.0.0.1:5000".parse().expect("an address"), false, &fields(lines), is_trusted)
    }

    fn at(address: &str, is_https: bool) -> Client {
        Client { address: address.parse().expect("an address"), is_https }
    }

    #[test]
    fn only_a_trusted_proxy_names_the_client() {
        let lines = [("x-forwarded-for", "203.0.113.9"), ("x-forwarded-proto", "https")];
        assert_eq!(named(&lines, &[]), at("10.0.0.1:5000", false));
        assert_eq!(named(&lines, &["10.0.0.1"]), at("203.0.113.9:0", true));
    }

    #[test]
    fn of_several_addresses_the_last_untrusted_one_is_the_client() {
        let lines = [("x-forwarded-for", "6.6.6.6, 203.0.113.9"), ("x-forwarded-for", "10.0.0.2")];
        assert_eq!(named(&lines, &["10.0.0.1", "10.0.0.2"]), at("203.0.113.9:0", false));
        assert_eq!(named(&lines, &["10.0.0.1"]), at("10.0.0.2:0", false));
        assert_eq!(
            named(&[("x-forwarded-for", "10.0.0.2")], &["10.0.0.1", "10.0.0.2"]),
            at("10.0.0.2:0", false)
        );
        assert_eq!(
            named(&[("x-forwarded-for", "[2001:db8::1]:443")], &["10.0.0.1"]),
            at("[2001:db8::1]:0", false)
        );
    }

    #[test]
    fn a_clients_own_words_about_itself_are_removed() {
        let lines = [
            "x-forwarded-for",
            "X-Forwarded-Host",
            "x_forwarded_proto",
            "forwarded",
            "x-real-ip",
            "x_request_start",
            "X-Queue-Start",
        ];
        let mut fields = fields(&lines.map(|name| (name, "6.6.6.6")));
        fields.append("fastrack-client", HeaderValue::from_static("6.6.6.6 1 https HTTP/2"));
        fields.append("fastrack-client", HeaderValue::from_static("6.6.6.7 1 https HTTP/2"));
        fields.append("x-forwarded", HeaderValue::from_static("kept"));
        set_client(&mut fields, at("203.0.113.9:77", true), Version::HTTP_2, true);
        let words: Vec<_> = fields.get_all(&CLIENT).iter().collect();
        assert_eq!(words, ["203.0.113.9 77 https HTTP/2"]);
        let mut names: Vec<_> = fields.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["fastrack-client", "x-forwarded", "x-request-start"]);
        assert_eq!(fields.len(), 3);
    }

    #[test]
    fn fields_that_connection_names_end_here() {
        let mut fields = fields(&[
            ("connection", "close, X-Own"),
            ("Connection", "Upgrade, Host"),
            ("upgrade", "websocket"),
            ("x-own", "1"),
            ("te", "trailers"),
            ("host", "h"),
        ]);
        assert_eq!(remove_hop_by_hop(&mut fields), Some(HeaderValue::from_static("websocket")));
        assert_eq!(fields.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["host"]);
    }

    #[test]
    fn an_upgrade_that_connection_does_not_name_is_none() {
        let mut fields = fields(&[("upgrade", "websocket"), ("connection", "keep-alive")]);
        assert_eq!(remove_hop_by_hop(&mut fields), None);
        assert!(fields.is_empty());
    }

    proptest! {
        #[test]
        fn no_field_of_a_client_survives_as_the_proxys_word(
            name in "[xX][-_][fF]orwarded[-_][a-z_-]{1,8}|fastrack[-_]client|x[-_]real[-_]ip|forwarded",
            value in "[ -~]{0,40}",
        ) {
            let mut fields = HeaderMap::new();
            fields.append(HeaderName::try_from(&name[..]).expect("a name"), HeaderValue::try_from(&value[..]).expect("a value"));
            set_client(&mut fields, at("203.0.113.9:77", true), Version::HTTP_11, true);
            let kept = fields.iter().filter(|(name, _)| **name != CLIENT && **name != REQUEST_START).count();
            // The worker drops the name with an underscore, because the name with a dash is there, too.
            prop_assert!(kept == 0 || name == "fastrack_client");
            prop_assert_eq!(fields.get_all(&CLIENT).iter().count(), 1);
        }
    }
}
