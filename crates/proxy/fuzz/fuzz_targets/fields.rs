//! Nothing that a client sends is taken for this process's word about it, and a connection's own fields end here.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fastrack_proxy::fields::{client, remove_hop_by_hop, set_client, CLIENT};
use fastrack_proxy_fuzz::fields;
use hyper::Version;
use libfuzzer_sys::fuzz_target;

const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 77);

/// Names that an app believes, as a worker makes keys of them.
const BELIEVED: [&str; 4] = ["FORWARDED", "X_REAL_IP", "X_CLIENT_IP", "TRUE_CLIENT_IP"];

fuzz_target!(|bytes: &[u8]| {
    let given = fields(bytes.split(|byte| *byte == b'\n'));
    for is_tls in [false, true] {
        // Nobody is trusted: the peer is the client, whatever the fields say.
        let own = client(PEER, is_tls, &given, |_| false);
        assert_eq!((own.address, own.is_https), (PEER, is_tls));
        // A trusted peer may name a client, but no port, and nobody whom it does not name.
        let named = client(PEER, is_tls, &given, |address| address == PEER.ip());
        let text = format!("{:?}", given.get_all("x-forwarded-for").iter().collect::<Vec<_>>());
        assert!(named.address == PEER || named.address.port() == 0);
        assert!(named.address == PEER || !text.is_empty() && given.contains_key("x-forwarded-for"));
    }
    let mut kept = given.clone();
    remove_hop_by_hop(&mut kept);
    for name in ["connection", "te", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection"] {
        assert!(!kept.contains_key(name), "{name}");
    }
    for name in ["host", "content-length"] {
        assert_eq!(kept.get_all(name).iter().count(), given.get_all(name).iter().count(), "{name}");
    }
    set_client(&mut kept, client(PEER, true, &given, |_| false), Version::HTTP_11, true);
    let word: Vec<_> = kept.get_all(&CLIENT).iter().collect();
    assert_eq!(word, ["10.0.0.1 77 https HTTP/1.1"]);
    for name in kept.keys() {
        let key = name.as_str().to_ascii_uppercase().replace('-', "_");
        assert!(!BELIEVED.contains(&&key[..]) && !key.starts_with("X_FORWARDED_"), "{name}");
    }
});
