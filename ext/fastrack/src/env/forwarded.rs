//! The client of a request that the server's own proxy has passed on, as if it had connected to this worker.

use rb_sys::*;

use fastrack_engine::Request;
use fastrack_http::{split_authority, KnownName};

use crate::env::remote_addr::RemoteAddrCache;
use crate::ruby::interned;

/// Sets what the proxy says of the client, and removes the field by which it says so.
#[cold]
pub(super) unsafe fn set(env: VALUE, request: &Request<'_>, remote_addrs: &mut RemoteAddrCache) {
    let interned = interned();
    let Some(client) = request.forwarded() else { return };
    // SAFETY: under protect; all values are on the stack or in the Hash.
    unsafe {
        let (address, port) = remote_addrs.strings(client.peer);
        rb_hash_aset(env, interned.remote_addr, address);
        rb_hash_aset(env, interned.remote_port, port);
        if client.is_https {
            rb_hash_aset(env, interned.url_scheme, interned.https);
            if !names_port(request) {
                rb_hash_aset(env, interned.server_port, interned.port_443);
            }
        }
        match client.protocol {
            b"HTTP/2" => rb_hash_aset(env, interned.server_protocol, interned.http_2),
            b"HTTP/1.0" => rb_hash_aset(env, interned.server_protocol, interned.http_10),
            _ => interned.server_protocol,
        };
        rb_hash_delete(env, interned.http_fastrack_client);
    }
}

/// Whether the request's host has a port.
fn names_port(request: &Request<'_>) -> bool {
    let host = request.head.authority.or_else(|| request.head.value(KnownName::Host));
    let host = host.map(|host| host.of_buffer(request.bytes));
    host.is_some_and(|host| !split_authority(host).1.is_empty())
}
