//! Builds the env of a request.

use rb_sys::*;

use fastrack_engine::{Content, Request};
use fastrack_http::{Framing, KnownName, Version};

use crate::env::leading_values::LeadingValues;
use crate::env::remote_addr::RemoteAddrCache;
use crate::env::request_bound::{Offered, RequestBoundObjects};
use crate::env::templates::{EnvTemplates, TemplateKey};
use crate::env::{forwarded, headers, protocol, server_name, times};
use crate::ruby::{format_into, interned, string, NIL};

/// Builds the envs of one thread's requests, and caches their common parts.
///
/// INVARIANT: lives on the stack, where the GC sees the values in it.
pub(crate) struct EnvBuilder {
    templates: EnvTemplates,
    remote_addrs: RemoteAddrCache,
    /// Rack 3.1 or later.
    rack_3_1: bool,
    /// Number of callback Arrays in each env.
    callbacks: usize,
    request_bound: RequestBoundObjects,
    /// The index of the listener whose clients are the server's own proxy.
    proxy_listener: Option<usize>,
    /// Whether a request without X-Request-Start gets one.
    request_start: bool,
}

impl EnvBuilder {
    /// `templates` is an Array with one template for each listener.
    pub fn new(
        templates: VALUE,
        rack_3_1: bool,
        callbacks: usize,
        offered: Offered,
        proxy_listener: Option<usize>,
        request_start: bool,
    ) -> Self {
        EnvBuilder {
            templates: EnvTemplates::new(templates),
            remote_addrs: RemoteAddrCache::new(),
            rack_3_1,
            callbacks,
            request_bound: RequestBoundObjects::new(&offered),
            proxy_listener,
            request_start,
        }
    }

    /// The env of the request with this number. A nil `input` leaves the template's input.
    pub unsafe fn build(&mut self, request: &Request<'_>, number: usize, input: VALUE) -> VALUE {
        let interned = interned();
        let head = request.head;
        // SAFETY: as this function's; all values are on the stack or in the Hash.
        unsafe {
            let (template, has_header_keys) = self.templates.find(&TemplateKey::of(request.listener, head));
            let mut values = LeadingValues::new();
            // Each request gets its own Arrays: an app may keep one, and add to it when the request is over.
            for _ in 0..self.callbacks {
                values.push(rb_ary_new_capa(0));
            }
            self.request_bound.make(number, |value| values.push(value));
            self.add_target_and_peer(&mut values, request);
            let host = if has_header_keys { headers::add_known(&mut values, request) } else { NIL };
            server_name::add(&mut values, request, host);
            add_optional(&mut values, request);
            let env = values.copy_into_dup(template);
            headers::set_others(env, request, has_header_keys);
            if head.has(KnownName::Upgrade) && self.rack_3_1 {
                let protocols = protocol::offered(request);
                if protocols != NIL {
                    rb_hash_aset(env, interned.rack_protocol, protocols);
                }
            }
            if let Some(authority) = head.authority {
                rb_hash_aset(env, interned.key(KnownName::Host), string(authority.of_buffer(request.bytes)));
            }
            if input != NIL {
                rb_hash_aset(env, interned.rack_input, input);
            }
            if head.framing == Framing::Chunked {
                set_chunked_length(env, &request.content);
            }
            if times::are_told(request, self.request_start) {
                times::set(env, request, self.request_start);
            }
            // A proxy's request comes by a unix socket.
            if request.peer.is_none() && self.proxy_listener == Some(request.listener) {
                forwarded::set(env, request, &mut self.remote_addrs);
            }
            env
        }
    }

    /// PATH_INFO. The SPEC before Rack 3.1 has none for `OPTIONS *`: empty, as in Unicorn.
    fn path_info<'a>(&self, request: &Request<'a>) -> &'a [u8] {
        match request.path {
            b"*" if !self.rack_3_1 => b"",
            path => path,
        }
    }

    /// Adds the values of a template's request keys, in their order.
    unsafe fn add_target_and_peer(&mut self, values: &mut LeadingValues, request: &Request<'_>) {
        let head = request.head;
        // SAFETY: under protect; all values are on the stack.
        unsafe {
            values.push(string(head.method.of_buffer(request.bytes)));
            values.push(string(head.target.of_buffer(request.bytes)));
            values.push(string(self.path_info(request)));
            if let Some(peer) = request.peer {
                let (address, port) = self.remote_addrs.strings(peer);
                values.push(address);
                values.push(port);
            } else {
                values.keep_template_value();
                values.keep_template_value();
            }
        }
    }
}

/// Adds the values of a template's optional keys, in their order. [`server_name::add`] has added the first two.
unsafe fn add_optional(values: &mut LeadingValues, request: &Request<'_>) {
    let interned = interned();
    let head = request.head;
    // SAFETY: under protect; all values are on the stack.
    unsafe {
        match head.query.of_buffer(request.bytes) {
            b"" => values.keep_template_value(),
            query => values.push(string(query)),
        }
        // Most requests have waited 0 µs. Other times need no object on the heap: small Floats are immediate (flonum).
        match request.queue_time {
            0 => values.keep_template_value(),
            micros => values.push(rb_float_new(micros as f64 / 1_000_000.0)),
        }
        match head.version {
            Version::Http11 => values.keep_template_value(),
            Version::Http10 => values.push(interned.http_10),
        }
    }
}

/// Sets the CONTENT_LENGTH of a chunked body (RFC 9112 §7.1.3). A body that is still arriving has no length yet: then
/// HTTP_TRANSFER_ENCODING tells the app that there is a body.
unsafe fn set_chunked_length(env: VALUE, content: &Content<'_>) {
    let interned = interned();
    let length = match content {
        Content::None => 0,
        Content::Memory(bytes) => bytes.len() as u64,
        Content::File(_, length) => *length,
        Content::Stream(_) => {
            // SAFETY: under protect, and owning nothing.
            unsafe { rb_hash_aset(env, interned.key(KnownName::TransferEncoding), interned.chunked) };
            return;
        }
    };
    let mut digits = [0; 20];
    // SAFETY: under protect, and owning nothing.
    unsafe {
        let length = string(format_into(&mut digits, length));
        rb_hash_aset(env, interned.key(KnownName::ContentLength), length);
    }
}
