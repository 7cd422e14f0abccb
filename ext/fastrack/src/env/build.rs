//! The Rack environment of a request (Rack SPEC, "The Environment").

use std::io::Write;

use rb_sys::*;

use fastrack_engine::{Content, Request};
use fastrack_http::{Framing, KnownName, Version};

use crate::env::headers as fields;
use crate::env::protocol;
use crate::env::remote_addr::PeerCache;
use crate::env::templates::{Shape, Shapes, Values};
use crate::ruby::interned::names;
use crate::ruby::roots::Roots;

/// Builds the environment, and says which Hash it is a copy of: what was known before, and what this request says.
/// `input` replaces the template's unless it is nil. With `rack_3_1` it has what Rack 3.1 added.
///
/// # Safety
/// Under protect, with the GVL. Owns nothing while it calls Ruby.
pub(crate) unsafe fn build(
    request: &Request<'_>,
    input: VALUE,
    roots: Roots,
    caches: &mut Caches,
    rack_3_1: bool,
) -> (VALUE, VALUE) {
    let names = names();
    let head = request.head;
    let shape = Shape::of(request.listener, head);
    // SAFETY: as this function's; all values are on the stack or in the Hash.
    unsafe {
        let (template, has_fields) = caches.shapes.template(&shape, roots);
        let mut values = Values::none();
        add_leading(&mut values, request, roots, &mut caches.peers);
        if has_fields {
            fields::add_known(&mut values, request);
        }
        let env = values.copy_of(template);
        fields::set_others(env, request, has_fields);
        if head.has(KnownName::Upgrade) && rack_3_1 {
            let protocols = protocol::offered(request);
            if protocols != Qnil as VALUE {
                rb_hash_aset(env, names.rack_protocol, protocols);
            }
        }
        if let Some(authority) = head.authority {
            rb_hash_aset(env, names.key(KnownName::Host), string(authority.of_buffer(request.bytes)));
        }
        set_body(env, request, input);
        (env, template)
    }
}

/// What the environments of one engine have in common, and is not made again.
#[derive(Default)]
pub(crate) struct Caches {
    shapes: Shapes,
    peers: PeerCache,
}

/// The entries that [`shapes`](crate::env::templates) names, in their order.
unsafe fn add_leading(values: &mut Values, request: &Request<'_>, roots: Roots, peers: &mut PeerCache) {
    let names = names();
    let head = request.head;
    // SAFETY: under protect; all values are on the stack.
    unsafe {
        let method = head.method.of_buffer(request.bytes);
        values.add(names.method(method).unwrap_or_else(|| string(method)));
        values.add(string(head.target.of_buffer(request.bytes)));
        values.add(string(request.path));
        match head.query.of_buffer(request.bytes) {
            b"" => values.leave(),
            query => values.add(string(query)),
        }
        values.add(if head.version == Version::Http11 { names.http_11 } else { names.http_10 });
        if let Some(peer) = request.peer {
            let (address, port) = peers.strings(peer, roots);
            values.add(address);
            values.add(port);
        } else {
            values.leave();
            values.leave();
        }
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
unsafe fn set_body(env: VALUE, request: &Request<'_>, input: VALUE) {
    let names = names();
    // SAFETY: under protect, and owning nothing.
    unsafe {
        if input != Qnil as VALUE {
            rb_hash_aset(env, names.rack_input, input);
        }
        if request.head.framing == Framing::Chunked {
            let length = match request.content {
                Content::None => 0,
                Content::Memory(bytes) => bytes.len() as u64,
                Content::File(_, length) => length,
                Content::Stream(_) => {
                    rb_hash_aset(env, names.key(KnownName::TransferEncoding), names.chunked);
                    return;
                }
            };
            let mut text = [0; 48];
            rb_hash_aset(env, names.key(KnownName::ContentLength), string(printed(&mut text, length)));
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
