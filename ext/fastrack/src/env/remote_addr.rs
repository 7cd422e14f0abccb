//! REMOTE_ADDR and REMOTE_PORT: where the client is.

use std::net::{IpAddr, SocketAddr};

use rb_sys::*;

use crate::env::build::{printed, string};
use crate::ruby::roots::Roots;

/// Ports whose text is kept: behind a proxy, or on kept connections, the same ones come again and again.
const PORTS: usize = 64;

/// The strings of the last addresses and ports, which the roots keep alive: the address first, then each port in the
/// place that its number gives it. They are frozen, since many environments have them.
pub(crate) struct PeerCache {
    address: Option<IpAddr>,
    ports: [Option<u16>; PORTS],
}

impl PeerCache {
    /// How many strings the roots have to keep for it.
    pub const STRINGS: usize = 1 + PORTS;

    /// Both for an environment.
    ///
    /// # Safety
    /// Under protect, with the GVL. Owns nothing while it calls Ruby.
    pub unsafe fn strings(&mut self, peer: SocketAddr, roots: Roots) -> (VALUE, VALUE) {
        let mut text = [0; 48];
        // SAFETY: as this function's; the strings are on the stack until the roots have them.
        unsafe {
            let strings = roots.peers();
            if self.address != Some(peer.ip()) {
                let address = rb_obj_freeze(string(printed(&mut text, peer.ip())));
                RARRAY_ASET(strings, 0, address);
                self.address = Some(peer.ip());
            }
            let place = usize::from(peer.port()) % PORTS;
            if self.ports[place] != Some(peer.port()) {
                let port = rb_obj_freeze(string(printed(&mut text, peer.port())));
                RARRAY_ASET(strings, 1 + place as isize, port);
                self.ports[place] = Some(peer.port());
            }
            (RARRAY_AREF(strings, 0), RARRAY_AREF(strings, 1 + place as isize))
        }
    }
}

impl Default for PeerCache {
    fn default() -> Self {
        PeerCache { address: None, ports: [None; PORTS] }
    }
}
