//! REMOTE_ADDR and REMOTE_PORT: the client's address.

use std::net::{IpAddr, SocketAddr};

use rb_sys::*;

use crate::ruby::{format_into, string};

/// How many ports are kept: behind a proxy, or on kept connections, the same ones come again and again.
const PORTS: usize = 64;

/// The Strings of the last address, and of the last port of each remainder by [`PORTS`]. They are frozen, since many
/// envs share them.
///
/// INVARIANT: lives on the stack, where the GC sees the values in it.
pub(crate) struct RemoteAddrCache {
    address: Option<(IpAddr, VALUE)>,
    ports: [Option<(u16, VALUE)>; PORTS],
}

impl RemoteAddrCache {
    pub fn new() -> Self {
        RemoteAddrCache { address: None, ports: [None; PORTS] }
    }

    /// Address and port.
    pub unsafe fn strings(&mut self, peer: SocketAddr) -> (VALUE, VALUE) {
        let mut text = [0; 48];
        let address = match self.address {
            Some((ip, string)) if ip == peer.ip() => string,
            _ => {
                // SAFETY: as this function's.
                let string = unsafe { rb_obj_freeze(string(format_into(&mut text, peer.ip()))) };
                self.address = Some((peer.ip(), string));
                string
            }
        };
        let place = &mut self.ports[usize::from(peer.port()) % PORTS];
        let port = match *place {
            Some((number, string)) if number == peer.port() => string,
            _ => {
                // SAFETY: as this function's.
                let string = unsafe { rb_obj_freeze(string(format_into(&mut text, peer.port()))) };
                *place = Some((peer.port(), string));
                string
            }
        };
        (address, port)
    }
}
