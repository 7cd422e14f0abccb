//! Nothing that a client sends is taken for this process's word about it, and a connection's own fields end here.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fastrack_proxy::fields::{remove_hop_by_hop, tell, Told, CLIENT};
use fastrack_proxy::forwarded::client;
use fastrack_proxy_fuzz::fields;
use hyper::header::HeaderMap;
use hyper::Version;
use libfuzzer_sys::fuzz_target;

const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 77);

/// Names that an app believes, as a worker makes keys of them.
const BELIEVED: [&str; 6] =
    ["FORWARDED", "X_REAL_IP", "X_CLIENT_IP", "TRUE_CLIENT_IP", "X_SENDFILE_TYPE", "X_ACCEL_MAPPING"];

/// Whether a proxy at this address is trusted: each address of 10.0.0.0/8.
fn is_trusted(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.octets()[0] == 10)
}

/// The address that X-Forwarded-For names, by another way than the proxy's: all fields as one text, from its end.
fn named(fields: &HeaderMap) -> SocketAddr {
    let lines: Vec<_> = fields.get_all("x-forwarded-for").iter().map(|line| line.as_bytes()).collect();
    let text = String::from_utf8_lossy(&lines.join(&b","[..])).into_owned();
    let mut client = PEER;
    for member in text.split(',').rev().map(|member| member.trim_matches([' ', '\t'])) {
        if member.is_empty() {
            continue;
        }
        let bare = member
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .filter(|rest| rest.contains(':'));
        let Some(ip) =
            bare.unwrap_or(member).parse().ok().or_else(|| Some(member.parse::<SocketAddr>().ok()?.ip()))
        else {
            break;
        };
        client = SocketAddr::new(IpAddr::to_canonical(&ip), 0);
        if !is_trusted(client.ip()) {
            break;
        }
    }
    client
}

fuzz_target!(|bytes: &[u8]| {
    let given = fields(bytes.split(|byte| *byte == b'\n'));
    for is_tls in [false, true] {
        // Nobody is trusted: the peer is the client, whatever the fields say.
        let own = client(PEER, is_tls, &given, |_| false);
        assert_eq!((own.address, own.is_https), (PEER, is_tls));
        // A trusted peer names the client: the last address that is not a trusted proxy's.
        assert_eq!(client(PEER, is_tls, &given, is_trusted).address, named(&given));
    }
    let mut kept = given.clone();
    remove_hop_by_hop(&mut kept);
    for name in ["connection", "te", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection"] {
        assert!(!kept.contains_key(name), "{name}");
    }
    for name in ["host", "content-length"] {
        assert_eq!(kept.get_all(name).iter().count(), given.get_all(name).iter().count(), "{name}");
    }
    let client = client(PEER, true, &given, |_| false);
    tell(
        &mut kept,
        Told { client, version: Version::HTTP_11, is_from_proxy: false, has_sendfile: false, target: None },
    );
    let word: Vec<_> = kept.get_all(&CLIENT).iter().collect();
    assert_eq!(word, ["10.0.0.1 77 https HTTP/1.1"]);
    for name in kept.keys() {
        let key = name.as_str().to_ascii_uppercase().replace('-', "_");
        assert!(!BELIEVED.contains(&&key[..]) && !key.starts_with("X_FORWARDED_"), "{name}");
    }
});
