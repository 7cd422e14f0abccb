//! The Rack environment of a request (Rack SPEC, "The Environment").

use std::io::Write;

use rb_sys::*;

use fastrack_engine::{Content, Request};
use fastrack_http::{Framing, KnownName, Version};

use crate::fields;
use crate::names::names;
use crate::peer::PeerCache;
use crate::protocol;
use crate::roots::Roots;

/// Pairs that are collected before they go into the Hash together, which is cheaper than one by one.
const BATCH: usize = 24;

/// Keys and values on the stack, where the GC sees them, on their way into a Hash.
pub(crate) struct Pairs {
    hash: VALUE,
    list: [VALUE; 2 * BATCH],
    filled: usize,
}

impl Pairs {
    fn into_hash(hash: VALUE) -> Self {
        Pairs { hash, list: [Qnil as VALUE; 2 * BATCH], filled: 0 }
    }

    pub unsafe fn add(&mut self, key: VALUE, value: VALUE) {
        self.list[self.filled] = key;
        self.list[self.filled + 1] = value;
        self.filled += 2;
        if self.filled == self.list.len() {
            // SAFETY: under protect, as whoever calls this.
            unsafe { self.flush() };
        }
    }

    pub unsafe fn flush(&mut self) {
        // SAFETY: the first `filled` entries are keys and values by turns.
        unsafe { rb_hash_bulk_insert(self.filled as _, self.list.as_ptr(), self.hash) };
        self.filled = 0;
    }
}

/// Builds the environment: the listener's template, and what this request says; `input` replaces the
/// template's unless it is nil. With `rack_3_1` it has what Rack 3.1 added.
///
/// # Safety
/// Under protect, with the GVL. Owns nothing while it calls Ruby.
pub(crate) unsafe fn build(
    request: &Request<'_>,
    input: VALUE,
    roots: Roots,
    peers: &mut PeerCache,
    rack_3_1: bool,
) -> VALUE {
    let names = names();
    // SAFETY: as this function's; all values are on the stack or in the Hash.
    unsafe {
        let env = rb_hash_dup(roots.template(request.listener));
        let mut pairs = Pairs::into_hash(env);
        let head = request.head;
        let method = head.method.of_buffer(request.bytes);
        pairs.add(names.request_method, names.method(method).unwrap_or_else(|| string(method)));
        pairs.add(names.request_uri, string(head.target.of_buffer(request.bytes)));
        pairs.add(names.path_info, string(request.path));
        let query = head.query.of_buffer(request.bytes);
        if !query.is_empty() {
            pairs.add(names.query_string, string(query));
        }
        let http_11 = head.version == Version::Http11;
        pairs.add(names.server_protocol, if http_11 { names.http_11 } else { names.http_10 });
        if let Some(peer) = request.peer {
            peers.add(&mut pairs, peer, roots);
        }
        let is_upgrade = fields::add(&mut pairs, env, request);
        if is_upgrade && rack_3_1 {
            let protocols = protocol::offered(request);
            if protocols != Qnil as VALUE {
                pairs.add(names.rack_protocol, protocols);
            }
        }
        if let Some(authority) = head.authority {
            pairs.add(names.key(KnownName::Host), string(authority.of_buffer(request.bytes)));
        }
        add_body(&mut pairs, request, input);
        pairs.flush();
        env
    }
}

/// The text of an address or a port; 48 bytes are enough for any.
pub(crate) fn printed(buffer: &mut [u8; 48], value: impl std::fmt::Display) -> &[u8] {
    let mut rest = &mut buffer[..];
    let fits = write!(rest, "{value}").is_ok();
    let left = rest.len();
    &buffer[..if fits { 48 - left } else { 0 }]
}

/// The input; and a chunked body's length, if it is known by now (RFC 9112 §7.1.3). Else the application has to know
/// that there is a body without one.
unsafe fn add_body(pairs: &mut Pairs, request: &Request<'_>, input: VALUE) {
    let names = names();
    // SAFETY: under protect, and owning nothing.
    unsafe {
        if input != Qnil as VALUE {
            pairs.add(names.rack_input, input);
        }
        if request.head.framing == Framing::Chunked {
            let length = match request.content {
                Content::None => 0,
                Content::Memory(bytes) => bytes.len() as u64,
                Content::File(_, length) => length,
                Content::Stream(_) => {
                    return pairs.add(names.key(KnownName::TransferEncoding), names.chunked);
                }
            };
            let mut text = [0; 48];
            pairs.add(names.key(KnownName::ContentLength), string(printed(&mut text, length)));
        }
    }
}

/// A new binary String.
///
/// # Safety
/// Under protect, with the GVL.
pub(crate) unsafe fn string(bytes: &[u8]) -> VALUE {
    // Rust's pointer of an empty slice points nowhere, and Ruby 3.1 reads it.
    let pointer = if bytes.is_empty() { c"".as_ptr() } else { bytes.as_ptr().cast() };
    // SAFETY: the pointer is valid for the length.
    unsafe { rb_str_new(pointer, bytes.len() as _) }
}
