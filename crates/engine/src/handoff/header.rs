//! The first bytes of a handoff message.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::conn::Arrival;

/// The version of the layout of messages and of the shared flags. Increment it with each change of either. A new master
/// with another version makes its own queue, and a message of another version is refused.
pub(super) const LAYOUT: &str = "fastrak7";

/// The first bytes of a message.
pub(super) const MAGIC: &[u8] = LAYOUT.as_bytes();

/// The length of a header, in bytes.
pub(super) const HEADER: usize = 104;

/// The fixed part of a message.
pub(super) struct Header {
    pub flags: Flags,
    /// A [`Kind`](crate::conn::Kind).
    pub kind: u8,
    pub peer: Option<SocketAddr>,
    /// The listener's id in the settings.
    pub listener: u64,
    /// The length of each part, in bytes.
    pub lengths: [usize; 3],
    pub served: u32,
    /// In milliseconds of the monotonic clock, which all processes share.
    pub deadline: u64,
    pub arrival: Arrival,
    /// The offset in the file, and the number of bytes from there.
    pub file: [u64; 2],
}

/// Flags of a connection: bits of one byte in the message, the first flag in the lowest bit.
#[derive(Clone, Copy)]
pub(super) struct Flags {
    /// A file travels with the message: see [`Transfer::file`](crate::conn::Transfer::file).
    pub has_file: bool,
    /// See [`Transfer::ends_chunk`](crate::conn::Transfer::ends_chunk).
    pub ends_chunk: bool,
    /// The bytes are in a file beside the message.
    pub is_aside: bool,
    /// The client has shut down its sending side.
    pub ended: bool,
    /// See [`Connection::answer_after_shutdown`](crate::conn::Connection::answer_after_shutdown).
    pub answer_after_shutdown: bool,
    /// See [`Transfer::is_spool`](crate::conn::Transfer::is_spool).
    pub is_spool: bool,
}

impl Flags {
    fn byte(self) -> u8 {
        let Flags { has_file, ends_chunk, is_aside, ended, answer_after_shutdown, is_spool } = self;
        let bits = [has_file, ends_chunk, is_aside, ended, answer_after_shutdown, is_spool];
        bits.into_iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(bit))
    }

    fn of(byte: u8) -> Self {
        let [has_file, ends_chunk, is_aside, ended, answer_after_shutdown, is_spool] =
            std::array::from_fn(|bit| byte >> bit & 1 == 1);
        Flags { has_file, ends_chunk, is_aside, ended, answer_after_shutdown, is_spool }
    }
}

impl Header {
    pub fn write(&self, message: &mut Vec<u8>) {
        message.extend_from_slice(MAGIC);
        message.extend_from_slice(&[self.flags.byte(), self.kind]);
        put_peer(message, self.peer);
        for number in self.lengths {
            message.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
        }
        message.extend_from_slice(&self.served.to_le_bytes());
        let Arrival { at, body_since, body_wait } = self.arrival;
        for number in [self.listener, self.deadline, at, body_since, body_wait, self.file[0], self.file[1]] {
            message.extend_from_slice(&number.to_le_bytes());
        }
        debug_assert!(message.len() <= HEADER);
        message.resize(HEADER, 0);
    }

    /// None if the message has another layout.
    pub fn read(message: &[u8]) -> Option<Self> {
        let (header, _) = message.split_at_checked(HEADER)?;
        let rest = header.strip_prefix(MAGIC)?;
        let ([flags, kind], rest) = rest.split_first_chunk()?;
        let (peer, mut rest) = rest.split_first_chunk::<19>()?;
        let mut number = || {
            let (bytes, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u32::from_le_bytes(*bytes))
        };
        let lengths = [number()? as usize, number()? as usize, number()? as usize];
        let served = number()?;
        let mut long = || Some(u64::from(number()?) | u64::from(number()?) << 32);
        let (listener, deadline) = (long()?, long()?);
        let arrival = Arrival { at: long()?, body_since: long()?, body_wait: long()? };
        let file = [long()?, long()?];
        let (flags, kind, peer) = (Flags::of(*flags), *kind, peer_of(peer));
        Some(Header { flags, kind, peer, listener, lengths, served, deadline, arrival, file })
    }
}

/// Writes 1, the port, and the address as IPv6; zeros without an address.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_has_its_bit() {
        let flags = Flags::of(0b10_0110);
        assert!(!flags.has_file && flags.ends_chunk && flags.is_aside);
        assert!(!flags.ended && !flags.answer_after_shutdown && flags.is_spool);
        assert_eq!([0b10_0110, 0b01_1001, 0].map(|byte| Flags::of(byte).byte()), [0b10_0110, 0b01_1001, 0]);
    }
}
