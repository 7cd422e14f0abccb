//! Header fields: those that end at this process, and those that say who the client is.

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::Version;

use crate::forwarded::{self, Client, FORWARDED_PROTO};

/// Tells a worker who the client is: address, port, scheme and protocol, and the target if it was sent in another way. The worker believes it on the proxy's socket only, see
/// `crates/http/src/forwarded.rs`.
pub static CLIENT: HeaderName = HeaderName::from_static("fastrack-client");

/// When the request came, in microseconds since 1970 (see docs/logs-and-stats.md).
static REQUEST_START: HeaderName = HeaderName::from_static("x-request-start");

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

/// Fields in which proxies name the client, and what it has asked for. They count only from trusted proxies. `forwarded` also stands for all
/// fields that begin with `x-forwarded-`. docs/proxy.md has the same list.
const ABOUT_CLIENTS: [&str; 13] = [
    "forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
    "x-request-start",
    "x-queue-start",
    "x-original-host",
    "x-scheme",
    "front-end-https",
];

/// Has the app name files instead of sending them (Rack::Sendfile). Only this process asks for it.
static SENDFILE_TYPE: HeaderName = HeaderName::from_static("x-sendfile-type");

/// Fields by which a proxy has Rack::Sendfile name files, and map their paths. A client must not.
const ABOUT_FILES: [&str; 2] = ["x-sendfile-type", "x-accel-mapping"];

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

/// Whether a client of HTTP/1.0 keeps its connection.
pub fn stays(fields: &HeaderMap) -> bool {
    let options = options(fields);
    let has = |word: &str| options.iter().any(|option| option == word);
    has("keep-alive") && !has("close")
}

/// The options of the Connection fields, in lower case.
fn options(fields: &HeaderMap) -> Vec<String> {
    let values = fields.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|option| option.trim().to_ascii_lowercase()).collect()
}

/// What a worker is to know of a request besides its own fields.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Who has sent it.
    pub client: Client,
    /// The client's protocol.
    pub version: Version,
    /// Whether the peer is a proxy whose fields about the client count.
    pub is_from_proxy: bool,
    /// Whether the app may name files in X-Sendfile.
    pub has_sendfile: bool,
    /// The target as the client has sent it, if the request has another one.
    pub target: Option<&'a [u8]>,
}

/// Sets the fields by which this process speaks with the worker, and removes a client's own ones.
pub fn tell(fields: &mut HeaderMap, told: Told<'_>) {
    let Told { client, version, is_from_proxy, has_sendfile, target } = told;
    remove_forged(fields, is_from_proxy);
    fields.insert(&CLIENT, word(client, version, target));
    if has_sendfile {
        fields.insert(&SENDFILE_TYPE, HeaderValue::from_static("X-Sendfile"));
    }
    if forwarded::has_scheme_list(fields) {
        let scheme = HeaderValue::from_static(scheme(client.is_https));
        fields.insert(&FORWARDED_PROTO, scheme);
    }
    if !fields.contains_key(&REQUEST_START) {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        fields.insert(&REQUEST_START, text(format!("t={micros}")));
    }
}

fn scheme(is_https: bool) -> &'static str {
    if is_https {
        "https"
    } else {
        "http"
    }
}

fn word(Client { address, is_https }: Client, version: Version, target: Option<&[u8]>) -> HeaderValue {
    let (scheme, protocol) = (scheme(is_https), protocol(version));
    let word = format!("{} {} {scheme} {protocol}", address.ip().to_canonical(), address.port());
    match target {
        None => text(word),
        Some(target) => {
            let word = [word.as_bytes(), b" ", target].concat();
            HeaderValue::from_bytes(&word).unwrap_or(HeaderValue::from_static(""))
        }
    }
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

/// Removes fields that count only from proxies, in any spelling: in env a dash and an underscore are the same.
fn remove_forged(fields: &mut HeaderMap, is_from_proxy: bool) {
    let is_forged = |name: &HeaderName| {
        let name = name.as_str();
        let is_one_of = |names: &[&str]| names.iter().any(|one| is_like(name, one));
        is_one_of(&ABOUT_FILES)
            || !is_from_proxy && (name.get(..12).is_some_and(is_prefix) || is_one_of(&ABOUT_CLIENTS))
    };
    let names: Vec<HeaderName> = fields.keys().filter(|name| is_forged(name)).cloned().collect();
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

    /// What a worker is told of a client of HTTP/2 with TLS.
    fn told(is_from_proxy: bool) -> Told<'static> {
        let client = Client { address: "203.0.113.9:77".parse().expect("an address"), is_https: true };
        Told { client, version: Version::HTTP_2, is_from_proxy, has_sendfile: false, target: None }
    }

    fn sorted_names(fields: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = fields.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
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
        tell(&mut fields, told(false));
        let words: Vec<_> = fields.get_all(&CLIENT).iter().collect();
        assert_eq!(words, ["203.0.113.9 77 https HTTP/2"]);
        assert_eq!(sorted_names(&fields), ["fastrack-client", "x-forwarded", "x-request-start"]);
        assert_eq!(fields.len(), 3);
    }

    #[test]
    fn a_trusted_proxys_words_are_kept() {
        let mut fields = fields(&[("x-forwarded-host", "a"), ("x-forwarded-proto", "https, http")]);
        tell(&mut fields, told(true));
        let expected = ["fastrack-client", "x-forwarded-host", "x-forwarded-proto", "x-request-start"];
        assert_eq!(sorted_names(&fields), expected);
        assert_eq!(fields.get(&FORWARDED_PROTO), Some(&HeaderValue::from_static("https")));
    }

    #[test]
    fn nobody_but_this_process_asks_for_names_of_files() {
        let names =
            ["x-sendfile-type", "X_Sendfile_Type", "x-accel-mapping", "x_accel-mapping", "x-sendfile_type"];
        for is_from_proxy in [false, true] {
            let mut fields = fields(&names.map(|name| (name, "X-Accel-Redirect")));
            tell(&mut fields, told(is_from_proxy));
            assert_eq!(sorted_names(&fields), ["fastrack-client", "x-request-start"]);
            tell(&mut fields, Told { has_sendfile: true, ..told(is_from_proxy) });
            assert_eq!(fields.get(&SENDFILE_TYPE), Some(&HeaderValue::from_static("X-Sendfile")));
        }
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
            tell(&mut fields, told(false));
            let kept = fields.iter().filter(|(name, _)| **name != CLIENT && **name != REQUEST_START).count();
            // The worker drops the name with an underscore, because the name with a dash is there, too.
            prop_assert!(kept == 0 || name == "fastrack_client");
            prop_assert_eq!(fields.get_all(&CLIENT).iter().count(), 1);
        }
    }
}
