//! Templates of envs that already have the keys of a client's header fields.
//!
//! Clients send the same fields in the same order again and again. So an env is a copy of a Hash that was made once for
//! this order: its first entries have the request's keys in a known order, and only their values are written, one after
//! the other. No key is hashed, no entry looked up, no table grows.
//!
//! The entries of a template: [`callback_keys`], [`request_bound_keys`], [`request_keys`], the header fields, [`optional_keys`], then the
//! listener's constants.
//!
//! SERVER_NAME and SERVER_PORT are the listener's, for requests that name no host. A template with Host has the port of http.

use rb_sys::*;

use fastrack_http::{Head, KnownName};

use crate::env::request_bound::request_bound_keys;
use crate::ruby::{interned, NIL};

/// How many [`request_keys`] there are.
pub(crate) const REQUEST_KEYS: usize = 5;

/// How many [`optional_keys`] there are.
pub(crate) const OPTIONAL_KEYS: usize = 5;

/// How many [`callback_keys`] there are.
pub(crate) const CALLBACK_KEYS: usize = 2;

/// A request with more header fields gets the listener's template.
pub(crate) const MAX_HEADERS: usize = 32;

/// How many templates are kept. A client that sends another order of fields each time makes this no larger.
const CAPACITY: usize = 16;

/// The entries for what the app wants called after the response; a listener may have the first only (Rack 2), or none.
pub(crate) fn callback_keys() -> [VALUE; CALLBACK_KEYS] {
    let interned = interned();
    [interned.after_reply, interned.response_finished]
}

/// The entries that each request fills.
fn request_keys() -> [VALUE; REQUEST_KEYS] {
    let interned = interned();
    [
        interned.request_method,
        interned.request_uri,
        interned.path_info,
        interned.remote_addr,
        interned.remote_port,
    ]
}

/// The entries that many requests leave as the template has them (HTTP/1.1, no port, no query). They come last, and the writing
/// ends with the last one that is another.
fn optional_keys() -> [VALUE; OPTIONAL_KEYS] {
    let interned = interned();
    [
        interned.server_name,
        interned.server_port,
        interned.query_string,
        interned.queue_time,
        interned.server_protocol,
    ]
}

/// What a template is made for: the listener, and the common header fields in their order, without Transfer-Encoding,
/// which is not in the env.
#[derive(Clone, Copy)]
pub(crate) struct TemplateKey {
    listener: usize,
    names: [u8; MAX_HEADERS],
    len: usize,
}

impl TemplateKey {
    /// It has no header fields if names clash, or there are too many.
    pub fn of(listener: usize, head: &Head) -> Self {
        let mut key = TemplateKey { listener, names: [0; MAX_HEADERS], len: 0 };
        if head.clashes || head.fields.len() > MAX_HEADERS {
            return key;
        }
        for known in head.fields.iter().filter_map(|field| field.known) {
            if known != KnownName::TransferEncoding {
                key.names[key.len] = known as u8;
                key.len += 1;
            }
        }
        key
    }

    fn names(&self) -> &[u8] {
        &self.names[..self.len]
    }

    fn matches(&self, other: &TemplateKey) -> bool {
        self.listener == other.listener && self.names() == other.names()
    }

    /// Its place in the cache. Any hash will do: two keys with the same place only miss more often.
    fn index(&self) -> usize {
        let mix = |sum: usize, name: &u8| sum.wrapping_mul(31).wrapping_add(usize::from(*name) + 1);
        let sum = self.names().iter().fold(self.listener, mix);
        (sum ^ (sum >> 8)) % CAPACITY
    }
}

/// The templates used last.
///
/// INVARIANT: lives on the stack, where the GC sees the values in it.
pub(crate) struct EnvTemplates {
    /// An Array: each listener's template, without header fields.
    base: VALUE,
    cached: [Option<Cached>; CAPACITY],
}

struct Cached {
    key: TemplateKey,
    template: VALUE,
    /// The last request that looked here had another key.
    missed: bool,
}

impl EnvTemplates {
    pub fn new(base: VALUE) -> Self {
        EnvTemplates { base, cached: [const { None }; CAPACITY] }
    }

    /// The template to copy, and whether it has the entries of the key's header fields.
    pub unsafe fn find(&mut self, key: &TemplateKey) -> (VALUE, bool) {
        // SAFETY: as this function's; `base` is an Array.
        let base = unsafe { rb_ary_entry(self.base, key.listener as _) };
        if key.len == 0 {
            return (base, false);
        }
        let place = &mut self.cached[key.index()];
        match place {
            Some(cached) if cached.key.matches(key) => {
                cached.missed = false;
                return (cached.template, true);
            }
            // A new template costs as much as some requests: only a second miss in a row replaces the old one.
            Some(cached) if !cached.missed => {
                cached.missed = true;
                return (base, false);
            }
            _ => {}
        }
        // SAFETY: as this function's.
        let template = unsafe { make_template(base, key.names()) };
        *place = Some(Cached { key: *key, template, missed: false });
        (template, true)
    }
}

/// A template with the entries of the Hash `base` and of the header fields with these numbers.
pub(crate) unsafe fn make_template(base: VALUE, fields: &[u8]) -> VALUE {
    // SAFETY: as this function's; the Hash is on the stack, and the iterators own nothing.
    unsafe {
        let made = rb_hash_new();
        let callbacks = callback_keys().into_iter().filter(|key| rb_hash_lookup(base, *key) != NIL);
        // The listener's template has true for those that its requests get.
        let request_bound =
            request_bound_keys().into_iter().filter(|key| rb_hash_lookup(base, *key) == Qtrue as VALUE);
        let names_host = fields.contains(&(KnownName::Host as u8));
        let fields = fields.iter().map(|number| interned().known(*number));
        for key in callbacks.chain(request_bound).chain(request_keys()).chain(fields).chain(optional_keys()) {
            rb_hash_aset(made, key, NIL);
        }
        rb_hash_update_by(made, base, None);
        if names_host {
            rb_hash_aset(made, interned().server_port, interned().port_80);
        }
        made
    }
}
