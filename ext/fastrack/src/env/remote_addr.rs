//! REMOTE_ADDR and REMOTE_PORT: the client's address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rb_sys::*;

use crate::ruby::{format_into, string};

/// Number of cached ports: behind a proxy, or on persistent connections, ports recur.
const CACHED_PORTS: usize = 64;

/// Caches the text of the last address, and Strings of ports, indexed by port modulo [`CACHED_PORTS`]. Envs share the Strings
/// of ports, which are frozen. Each env gets a new String of the address: the app may change it, as in Puma and Unicorn.
///
/// INVARIANT: lives on the stack, where the GC sees the values in it.
pub(crate) struct RemoteAddrCache {
    ip: IpAddr,
    text: [u8; MAX_ADDRESS_LEN],
    len: usize,
    ports: [Option<(u16, VALUE)>; CACHED_PORTS],
}

/// Maximum length of an address's text, in bytes: an IPv6 address with an IPv4 address in it.
const MAX_ADDRESS_LEN: usize = 48;

impl RemoteAddrCache {
    pub fn new() -> Self {
        let mut new = RemoteAddrCache {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            text: [0; MAX_ADDRESS_LEN],
            len: 0,
            ports: [None; CACHED_PORTS],
        };
        new.format(new.ip);
        new
    }

    fn format(&mut self, ip: IpAddr) {
        self.ip = ip;
        self.len = format_into(&mut self.text, ip).len();
    }

    /// The Strings of the peer's address and port.
    pub unsafe fn strings(&mut self, peer: SocketAddr) -> (VALUE, VALUE) {
        if self.ip != peer.ip() {
            self.format(peer.ip());
        }
        // SAFETY: as this function's.
        let address = unsafe { string(&self.text[..self.len]) };
        let slot = &mut self.ports[usize::from(peer.port()) % CACHED_PORTS];
        let port = match *slot {
            Some((number, string)) if number == peer.port() => string,
            _ => {
                let mut text = [0; 5];
                // SAFETY: as this function's.
                let string = unsafe { rb_obj_freeze(string(format_into(&mut text, peer.port()))) };
                *slot = Some((peer.port(), string));
                string
            }
        };
        (address, port)
    }
}
