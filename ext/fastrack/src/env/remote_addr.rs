//! REMOTE_ADDR and REMOTE_PORT: the client's address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rb_sys::*;

use crate::ruby::{format_into, string};

/// How many ports are kept: behind a proxy, or on kept connections, the same ones come again and again.
const PORTS: usize = 64;

/// The text of the last address, and the Strings of the last port of each remainder by [`PORTS`], which are frozen: many envs
/// share them. Each env has its own String of the address, which the app may change, as under Puma and Unicorn.
///
/// INVARIANT: lives on the stack, where the GC sees the values in it.
pub(crate) struct RemoteAddrCache {
    ip: IpAddr,
    text: [u8; LONGEST],
    len: usize,
    ports: [Option<(u16, VALUE)>; PORTS],
}

/// In bytes; an IPv6 address that has an IPv4 address in it.
const LONGEST: usize = 48;

impl RemoteAddrCache {
    pub fn new() -> Self {
        let mut new = RemoteAddrCache {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            text: [0; LONGEST],
            len: 0,
            ports: [None; PORTS],
        };
        new.format(new.ip);
        new
    }

    fn format(&mut self, ip: IpAddr) {
        self.ip = ip;
        self.len = format_into(&mut self.text, ip).len();
    }

    /// Address and port.
    pub unsafe fn strings(&mut self, peer: SocketAddr) -> (VALUE, VALUE) {
        if self.ip != peer.ip() {
            self.format(peer.ip());
        }
        // SAFETY: as this function's.
        let address = unsafe { string(&self.text[..self.len]) };
        let place = &mut self.ports[usize::from(peer.port()) % PORTS];
        let port = match *place {
            Some((number, string)) if number == peer.port() => string,
            _ => {
                let mut text = [0; 5];
                // SAFETY: as this function's.
                let string = unsafe { rb_obj_freeze(string(format_into(&mut text, peer.port()))) };
                *place = Some((peer.port(), string));
                string
            }
        };
        (address, port)
    }
}
