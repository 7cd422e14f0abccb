//! The head of the PROXY protocol, versions 1 and 2: the address of the client, by a balancer in front
//! (haproxy.org, proxy-protocol.txt).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

/// The first bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of the longest line of version 1, with its end.
const LONGEST_LINE: usize = 107;

/// Bytes that version 2 may add to the addresses.
const MOST_EXTENSIONS: usize = 4096;

/// Reads the head, and nothing after it. Returns the client's address. None if the balancer itself is the client, or names no client.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut start = [0; 12];
    stream.read_exact(&mut start).await?;
    if &start == SIGNATURE {
        return read_v2(stream).await;
    }
    let mut line = start.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() >= LONGEST_LINE {
            return Err(wrong());
        }
        line.push(stream.read_u8().await?);
    }
    let line = std::str::from_utf8(&line).map_err(|_| wrong())?;
    let words: Vec<&str> = line.trim_end_matches("\r\n").split(' ').collect();
    match words[..] {
        ["PROXY", "UNKNOWN", ..] => Ok(None),
        ["PROXY", "TCP4", source, destination, port, other] => {
            destination.parse::<Ipv4Addr>().map_err(|_| wrong())?;
            let address = source.parse::<Ipv4Addr>().map_err(|_| wrong())?;
            other.parse::<u16>().map_err(|_| wrong())?;
            Ok(Some((address, port.parse().map_err(|_| wrong())?).into()))
        }
        ["PROXY", "TCP6", source, destination, port, other] => {
            destination.parse::<Ipv6Addr>().map_err(|_| wrong())?;
            let address = source.parse::<Ipv6Addr>().map_err(|_| wrong())?;
            other.parse::<u16>().map_err(|_| wrong())?;
            Ok(Some((address, port.parse().map_err(|_| wrong())?).into()))
        }
        _ => Err(wrong()),
    }
}

async fn read_v2(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let [command, family] = [stream.read_u8().await?, stream.read_u8().await?];
    let length = usize::from(stream.read_u16().await?);
    if command >> 4 != 2 || length > MOST_EXTENSIONS {
        return Err(wrong());
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    match (command & 0xF, family) {
        // LOCAL: a check of the balancer's own.
        (0, _) => Ok(None),
        (1, 0x11) => parse_v2::<4>(&rest, |bytes| Ipv4Addr::from(bytes).into()),
        (1, 0x21) => parse_v2::<16>(&rest, |bytes| Ipv6Addr::from(bytes).into()),
        // Another kind of socket.
        (1, _) => Ok(None),
        _ => Err(wrong()),
    }
}

/// Two addresses, and two ports.
fn parse_v2<const N: usize>(bytes: &[u8], ip: impl Fn([u8; N]) -> IpAddr) -> io::Result<Option<SocketAddr>> {
    let (source, rest) = bytes.split_first_chunk::<N>().ok_or_else(wrong)?;
    let port = rest.get(N..N + 2).filter(|_| rest.len() >= N + 4).ok_or_else(wrong)?;
    Ok(Some(SocketAddr::new(ip(*source), u16::from_be_bytes([port[0], port[1]]))))
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no head of the PROXY protocol")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> io::Result<(Option<SocketAddr>, usize)> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut rest = bytes;
        let found = runtime.block_on(read(&mut rest))?;
        Ok((found, rest.len()))
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        [SIGNATURE, &[command, family][..], &(rest.len() as u16).to_be_bytes(), rest].concat()
    }

    #[test]
    fn both_versions_tell_the_client_and_leave_what_follows() {
        let v6 = [[0x20; 16], [0x30; 16]].concat();
        for (head, expected) in [
            (b"PROXY TCP4 203.0.113.7 192.0.2.1 51234 443\r\n".to_vec(), Some("203.0.113.7:51234")),
            (b"PROXY TCP6 2001:db8::7 ::1 51234 443\r\n".to_vec(), Some("[2001:db8::7]:51234")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), None),
            (v2(0x21, 0x11, &[203, 0, 113, 7, 192, 0, 2, 1, 0xC8, 0x22, 1, 0xBB]), Some("203.0.113.7:51234")),
            (
                v2(0x21, 0x11, &[203, 0, 113, 7, 192, 0, 2, 1, 0xC8, 0x22, 1, 0xBB, 4, 0, 0]),
                Some("203.0.113.7:51234"),
            ),
            (
                v2(0x21, 0x21, &[&v6[..], &[0, 1, 0, 2]].concat()),
                Some("[2020:2020:2020:2020:2020:2020:2020:2020]:1"),
            ),
            (v2(0x20, 0x00, &[]), None),
            (v2(0x21, 0x31, &[0; 216]), None),
        ] {
            let found = parse(&[&head[..], b"GET /"].concat()).expect("a head");
            assert_eq!(found, (expected.map(|address| address.parse().expect("an address")), 5), "{head:?}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"PROXY TCP4 203.0.113.7 192.0.2.1 512345 443\r\n",
            b"PROXY TCP4 2001:db8::7 ::1 1 2\r\n",
            b"PROXY TCP4 203.0.113.7\r\n",
            b"PROXY TCP4 203.0.113.7 192.0.2.1 1 2",
            &v2(0x31, 0x11, &[0; 12]),
            &v2(0x21, 0x11, &[0; 8]),
            &v2(0x22, 0x11, &[0; 12]),
            &[b'P'; 300],
        ] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200), signed in any::<bool>()) {
            let start: &[u8] = if signed { SIGNATURE } else { b"" };
            let _ = parse(&[start, &bytes].concat());
        }
    }
}
