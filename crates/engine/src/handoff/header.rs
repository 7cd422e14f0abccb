//! The fixed part of a handoff message.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The first bytes of a message: the version of its layout.
pub(super) const MAGIC: &[u8; 8] = b"fastrak2";

/// Length of a header, in bytes.
pub(super) const HEADER: usize = 64;

/// A body is in the read buffer, decoded, or in a file.
pub(super) const DECODED: u8 = 1;
pub(super) const FILE: u8 = 2;
/// The bytes are in a file beside the message.
pub(super) const ASIDE: u8 = 4;
/// The client has shut down its sending side.
pub(super) const ENDED: u8 = 8;
/// See [`Connection::pipelined`](crate::conn::Connection::pipelined).
pub(super) const PIPELINED: u8 = 16;

#[derive(Clone, Copy)]
pub(super) struct Header {
    pub flags: u8,
    pub peer: Option<SocketAddr>,
    /// The listener's id in the settings.
    pub listener: u64,
    /// How many bytes there are of the request as received, decoded, and after it.
    pub lengths: [usize; 3],
    pub served: u32,
    /// Length of a decoded body.
    pub body: u64,
}

impl Header {
    pub fn write(&self, message: &mut Vec<u8>) {
        message.extend_from_slice(MAGIC);
        message.push(self.flags);
        put_peer(message, self.peer);
        message.extend_from_slice(&self.listener.to_le_bytes());
        for number in self.lengths {
            message.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
        }
        message.extend_from_slice(&self.served.to_le_bytes());
        message.extend_from_slice(&self.body.to_le_bytes());
        debug_assert!(message.len() <= HEADER);
        message.resize(HEADER, 0);
    }

    /// None if the message has another layout.
    pub fn read(message: &[u8]) -> Option<Self> {
        let (header, _) = message.split_at_checked(HEADER)?;
        let rest = header.strip_prefix(MAGIC)?;
        let (flags, rest) = rest.split_first()?;
        let (peer, rest) = rest.split_first_chunk::<19>()?;
        let (listener, mut rest) = rest.split_first_chunk::<8>()?;
        let listener = u64::from_le_bytes(*listener);
        let mut number = || {
            let (bytes, after) = rest.split_first_chunk::<4>()?;
            rest = after;
            Some(u32::from_le_bytes(*bytes))
        };
        let lengths = [number()? as usize, number()? as usize, number()? as usize];
        let served = number()?;
        let body = u64::from_le_bytes(*rest.first_chunk()?);
        Some(Header { flags: *flags, peer: peer_of(peer), listener, lengths, served, body })
    }
}

/// 1, the port, and the address as IPv6; zeros if there is none.
fn put_peer(message: &mut Vec<u8>, peer: Option<SocketAddr>) {
    let address = match peer.map(|peer| peer.ip()) {
        None => Ipv6Addr::UNSPECIFIED,
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped(),
        Some(IpAddr::V6(address)) => address,
    };
    message.push(u8::from(peer.is_some()));
    message.extend_from_slice(&peer.map_or(0, |peer| peer.port()).to_le_bytes());
    message.extend_from_slice(&address.octets());
}

fn peer_of([there, low, high, address @ ..]: &[u8; 19]) -> Option<SocketAddr> {
    let address = Ipv6Addr::from(*address).to_canonical();
    (*there == 1).then(|| SocketAddr::new(address, u16::from_le_bytes([*low, *high])))
}
