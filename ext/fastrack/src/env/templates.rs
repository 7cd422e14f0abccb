//! Templates of envs that already have the keys of a client's header fields.
//!
//! Clients send the same fields in the same order again and again. So an env is a copy of a Hash made once for this order:
//! the first entries have the request's keys in a known order, and only values are written, one after the other. No key is
//! hashed, no entry looked up, no table grows.
//!
//! The entries of a template: [`callback_keys`], [`request_bound_keys`], [`request_keys`], the header fields,
//! [`optional_keys`], then the listener's constants.
//!
//! SERVER_NAME and SERVER_PORT are the listener's, for requests that name no host. The SERVER_PORT of a template with Host
//! is http's default port.

use rb_sys::*;

use fastrack_http::{Head, KnownName};

use crate::env::request_bound::request_bound_keys;
use crate::ruby::{interned, NIL};

/// Number of [`request_keys`].
pub(crate) const REQUEST_KEYS: usize = 5;

/// Number of [`optional_keys`].
pub(crate) const OPTIONAL_KEYS: usize = 5;

/// Number of [`callback_keys`].
pub(crate) const CALLBACK_KEYS: usize = 2;

/// Maximum number of header fields in a template. A request with more fields uses the listener's template.
pub(crate) const MAX_HEADERS: usize = 32;

/// Number of cached templates. A client that keeps changing the order of fields does not enlarge the cache.
const MAX_TEMPLATES: usize = 16;

/// Keys of the Arrays for callbacks after the response. A listener's template has both, the first only (Rack 2), or none.
pub(crate) fn callback_keys() -> [VALUE; CALLBACK_KEYS] {
    let interned = interned();
    [interned.after_reply, interned.response_finished]
}

/// Keys with a new value in each request.
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

/// Keys for which many requests need the template's value (HTTP/1.1, no port, no query). These keys come last among the
/// written entries: writing stops after the last new value.
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

/// Identifies a template: the listener, and the common header fields in order. Transfer-Encoding is left out, as in env.
#[derive(Clone, Copy)]
pub(crate) struct TemplateKey {
    listener: usize,
    names: [u8; MAX_HEADERS],
    len: usize,
}

impl TemplateKey {
    /// The key for a request. The key has no header fields if env keys may be duplicate, or if there are too many fields.
    pub fn of(listener: usize, head: &Head) -> Self {
        let mut key = TemplateKey { listener, names: [0; MAX_HEADERS], len: 0 };
        if head.has_duplicate_env_keys || head.fields.len() > MAX_HEADERS {
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

    /// The key's index in the cache. Any hash will do: two keys with the same index only miss more often.
    fn index(&self) -> usize {
        let mix = |sum: usize, name: &u8| sum.wrapping_mul(31).wrapping_add(usize::from(*name) + 1);
        let sum = self.names().iter().fold(self.listener, mix);
        (sum ^ (sum >> 8)) % MAX_TEMPLATES
    }
}

/// A cache of templates.
///
/// INVARIANT: lives on the stack, where the GC sees the values in it.
pub(crate) struct EnvTemplates {
    /// An Array with each listener's template, without header fields.
    base: VALUE,
    cached: [Option<Cached>; MAX_TEMPLATES],
}

struct Cached {
    key: TemplateKey,
    template: VALUE,
    /// The last look-up at this index had another key.
    missed: bool,
}

impl EnvTemplates {
    pub fn new(base: VALUE) -> Self {
        EnvTemplates { base, cached: [const { None }; MAX_TEMPLATES] }
    }

    /// The template to copy, and whether it has the entries of the key's header fields.
    pub unsafe fn find(&mut self, key: &TemplateKey) -> (VALUE, bool) {
        // SAFETY: as this function's; `base` is an Array.
        let base = unsafe { rb_ary_entry(self.base, key.listener as _) };
        if key.len == 0 {
            return (base, false);
        }
        let slot = &mut self.cached[key.index()];
        match slot {
            Some(cached) if cached.key.matches(key) => {
                cached.missed = false;
                return (cached.template, true);
            }
            // A new template costs as much as several requests: only the second miss in a row replaces a template.
            Some(cached) if !cached.missed => {
                cached.missed = true;
                return (base, false);
            }
            _ => {}
        }
        // SAFETY: as this function's.
        let template = unsafe { make_template(base, key.names()) };
        *slot = Some(Cached { key: *key, template, missed: false });
        (template, true)
    }
}

/// A template with the entries of the Hash `base` and of the header fields with these numbers.
pub(crate) unsafe fn make_template(base: VALUE, fields: &[u8]) -> VALUE {
    // SAFETY: as this function's; the Hash is on the stack, and the iterators own nothing.
    unsafe {
        let made = rb_hash_new();
        let callbacks = callback_keys().into_iter().filter(|key| rb_hash_lookup(base, *key) != NIL);
        // In the listener's template, true stands for an object that its requests get.
        let request_bound =
            request_bound_keys().into_iter().filter(|key| rb_hash_lookup(base, *key) == Qtrue as VALUE);
        let names_host = fields.contains(&(KnownName::Host as u8));
        let fields = fields.iter().map(|number| interned().key_at(*number));
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
