//! Settings from the master: one JSON document a line, on the proxy's standard input.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use fastrack_http::Limits;
use serde::Deserialize;

use crate::connection::Times;
use crate::files::Rules;
use crate::forwarded::is_private;
use crate::tls::CertificateFiles;

/// All settings. A later document replaces an earlier one, except for the number of threads, the workers' socket and ACME.
#[derive(Clone, Debug, Deserialize)]
pub struct Settings {
    /// The number of the order, for the answer.
    #[serde(default)]
    pub number: u64,
    /// How many descriptors come with the line. Other fields name them by their numbers, from 0 on.
    #[serde(default)]
    pub descriptors: usize,
    /// Whether a certificate that cannot be used, and has no earlier one, is an error. Otherwise its listener refuses handshakes, and the others
    /// serve.
    #[serde(default)]
    pub strict: bool,
    /// The listeners.
    pub listeners: Vec<Listener>,
    /// The unix socket of the workers. The first settings count.
    pub upstream: PathBuf,
    /// The descriptor of its file (open(2), O_PATH): the path may lead through folders that this process's user may not enter.
    #[serde(default)]
    pub upstream_descriptor: Option<usize>,
    /// The descriptor for standard error, which the master's log has.
    #[serde(default)]
    pub stderr: Option<usize>,
    /// Threads that serve clients.
    #[serde(default = "one")]
    pub threads: usize,
    /// Whether clients without TLS may speak HTTP/2, too.
    #[serde(default)]
    pub h2c: bool,
    /// Seconds that a client gets for a TLS handshake, and for a request's head.
    #[serde(default = "header_timeout")]
    pub header_timeout: f64,
    /// Seconds that a connection may stay open without a request.
    #[serde(default = "keep_alive_timeout")]
    pub keep_alive_timeout: f64,
    /// Requests that a connection of HTTP/1 may carry; 0: no limit.
    #[serde(default)]
    pub keep_alive_requests: u32,
    /// Seconds until a client takes more of a response.
    #[serde(default = "write_timeout")]
    pub write_timeout: f64,
    /// Seconds that requests get when the proxy stops.
    #[serde(default = "header_timeout")]
    pub graceful_timeout: f64,
    /// Connections of all clients together, for each thread.
    #[serde(default = "max_connections")]
    pub max_connections: usize,
    /// TLS handshakes a second of all clients together; None: as many as come.
    #[serde(default)]
    pub max_ssl_rate: Option<u32>,
    /// Requests that one HTTP/2 connection may have at once.
    #[serde(default = "max_streams")]
    pub max_streams: u32,
    /// Bytes of a request's line and fields.
    #[serde(default = "max_header_size")]
    pub max_header_size: usize,
    /// Fields of a request.
    #[serde(default = "max_header_fields")]
    pub max_header_fields: usize,
    /// Bytes of a request's target.
    #[serde(default = "max_request_target")]
    pub max_request_target: usize,
    /// Patterns of paths that [`Listener::redirect_to`] is not for.
    #[serde(default)]
    pub force_ssl_except: Vec<String>,
    /// Networks of proxies whose word about the client counts. None: see [`is_from_proxy`](Self::is_from_proxy).
    #[serde(default)]
    pub trusted_proxies: Option<Vec<Network>>,
    /// Files that are answered without the app.
    #[serde(default)]
    pub public_files: Option<PathBuf>,
    /// Pairs of a pattern of paths and the Cache-Control of these files. The first match counts.
    #[serde(default)]
    pub cache_control: Vec<(String, String)>,
    /// Fields of all responses with such a file: names and values.
    #[serde(default)]
    pub public_file_headers: Vec<(String, String)>,
    /// Folders to which links among these files may lead.
    #[serde(default)]
    pub public_links: Vec<PathBuf>,
    /// The folder of the files that the app may name in X-Sendfile.
    #[serde(default)]
    pub sendfile_root: Option<PathBuf>,
    /// Folders of public files of other releases whose code serves as well.
    #[serde(default)]
    pub other_public_files: Vec<PathBuf>,
    /// Folders of files for X-Sendfile of these.
    #[serde(default)]
    pub other_sendfile_roots: Vec<PathBuf>,
    /// The access log, which has lines of this process's own answers, too.
    #[serde(default)]
    pub access_log: Option<crate::access_log::Settings>,
    /// The source of certificates that no listener names.
    #[serde(default)]
    pub acme: Option<crate::acme::Settings>,
    /// Whether responses of the app, and files, are compressed.
    #[serde(default)]
    pub compress: bool,
}

/// One listener.
#[derive(Clone, Debug, Deserialize)]
pub struct Listener {
    /// Its address, "0.0.0.0:443", for the log and for requests that name no host.
    pub name: String,
    /// The socket's descriptor; None in a check.
    #[serde(default)]
    pub descriptor: Option<usize>,
    /// The socket's inode, which tells one that is open already.
    #[serde(default)]
    pub identity: u64,
    /// None without TLS.
    #[serde(default)]
    pub certificates: Option<CertificateFiles>,
    /// Earlier ones, for the case that these cannot be used.
    #[serde(default)]
    pub kept_certificates: Option<CertificateFiles>,
    /// The port of the TLS listener to which all requests are redirected; None: they are answered.
    #[serde(default)]
    pub redirect_to: Option<u16>,
    /// Whether each connection begins with a head of the PROXY protocol.
    #[serde(default)]
    pub proxy_protocol: bool,
}

impl Listener {
    /// Whether the other one is this socket, served in the same way. Files of certificates may differ.
    pub fn is_same(&self, other: &Listener) -> bool {
        let parts = |one: &Listener| {
            (one.identity, one.name.clone(), one.redirect_to, one.proxy_protocol, one.certificates.is_none())
        };
        parts(self) == parts(other)
    }
}

/// A network, "10.0.0.0/8", or one address.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Network {
    address: u128,
    /// Bits of the host, counted from the right.
    host_bits: u32,
    is_v6: bool,
}

impl crate::orders::Document for Settings {
    fn descriptors(&self) -> usize {
        self.descriptors
    }
}

impl Settings {
    /// How long clients may take.
    pub fn times(&self) -> Times {
        Times {
            head: seconds(self.header_timeout),
            idle: seconds(self.keep_alive_timeout),
            write: seconds(self.write_timeout),
        }
    }

    /// Limits of a request's head, which are the workers', too.
    pub fn limits(&self) -> Limits {
        Limits { target: self.max_request_target, head: self.max_header_size, fields: self.max_header_fields }
    }

    /// The rules for [`public_files`](Self::public_files).
    pub fn file_rules(&self) -> Rules {
        Rules {
            cache_control: self.cache_control.clone(),
            fields: self.public_file_headers.clone(),
            links: self.public_links.clone(),
            compress: self.compress,
        }
    }

    /// Whether this address is one of a trusted proxy.
    pub fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().flatten().any(|network| network.has(address))
    }

    /// Whether the app gets what a peer says of the client in fields such as X-Forwarded-Host. While no trusted proxies are named, a peer in a
    /// private network is a router, if this process does no TLS for it: a platform's router names the scheme so.
    pub fn is_from_proxy(&self, peer: IpAddr, is_tls: bool) -> bool {
        match self.trusted_proxies {
            Some(_) => self.is_trusted(peer),
            None => !is_tls && is_private(peer),
        }
    }
}

impl Network {
    /// Whether the address is in the network.
    pub fn has(&self, address: IpAddr) -> bool {
        let (bits, is_v6) = bits_of(address);
        is_v6 == self.is_v6 && (bits ^ self.address).checked_shr(self.host_bits).unwrap_or(0) == 0
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (address, length) = text.split_once('/').map_or((&text[..], None), |(a, l)| (a, Some(l)));
        let wrong = || format!("{text:?} is no network, such as 10.0.0.0/8");
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (bits, is_v6) = bits_of(address);
        let most: u32 = if is_v6 { 128 } else { 32 };
        let length = length.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        let host_bits = most.checked_sub(length).ok_or_else(wrong)?;
        Ok(Network { address: bits, host_bits, is_v6 })
    }
}

/// An IPv4 address in an IPv6 one (RFC 4291 §2.5.5.2) counts as the IPv4 address.
fn bits_of(address: IpAddr) -> (u128, bool) {
    match address.to_canonical() {
        IpAddr::V4(address) => (u32::from(address).into(), false),
        IpAddr::V6(address) => (address.into(), true),
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn one() -> usize {
    1
}

fn header_timeout() -> f64 {
    30.0
}

fn keep_alive_timeout() -> f64 {
    95.0
}

fn write_timeout() -> f64 {
    60.0
}

fn max_connections() -> usize {
    65_536
}

fn max_streams() -> u32 {
    128
}

fn max_header_size() -> usize {
    65_536
}

fn max_header_fields() -> usize {
    128
}

fn max_request_target() -> usize {
    16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Result<Network, String> {
        Network::try_from(text.to_owned())
    }

    #[test]
    fn a_network_has_its_own_addresses_only() {
        for (text, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
        ] {
            let found = network(text).expect(text).has(address.parse().expect(address));
            assert_eq!(found, expected, "{address} in {text}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "a/8"] {
            assert!(network(text).is_err(), "{text}");
        }
    }
}
