//! Header fields as entries of the environment.

use rb_sys::*;

use fastrack_engine::Request;
use fastrack_http::{env_key, Field, KnownName, MAX_NAME};

use crate::env::{string, Pairs};
use crate::names::names;

/// Adds the request's fields; whether Upgrade is one of them.
///
/// # Safety
/// Under protect, with the GVL. Owns nothing while it calls Ruby.
pub(crate) unsafe fn add(pairs: &mut Pairs, env: VALUE, request: &Request<'_>) -> bool {
    let mut is_upgrade = false;
    // SAFETY: as this function's.
    unsafe {
        if request.head.clashes {
            pairs.flush();
            add_clashing(env, request);
            return request.head.fields.iter().any(|field| field.known == Some(KnownName::Upgrade));
        }
        for field in &request.head.fields {
            if field.known != Some(KnownName::TransferEncoding) {
                is_upgrade |= field.known == Some(KnownName::Upgrade);
                pairs.add(key(field, request), string(field.value.of_buffer(request.bytes)));
            }
        }
    }
    is_upgrade
}

unsafe fn key(field: &Field, request: &Request<'_>) -> VALUE {
    if let Some(known) = field.known {
        return names().key(known);
    }
    let mut buffer = [0; MAX_NAME + 5];
    // A longer name was refused with the head.
    let key = env_key(field.name.of_buffer(request.bytes), &mut buffer).unwrap_or_default();
    // SAFETY: under protect; a key starts with HTTP_, so its pointer is a real one.
    unsafe { rb_enc_interned_str(key.as_ptr().cast(), key.len() as _, rb_utf8_encoding()) }
}

/// Where names come twice, or could be taken for each other: repeated fields
/// are joined (RFC 9110 §5.3), and a name with an underscore is heard only
/// when the name with a dash was not sent, lest a client overwrite what a
/// proxy in front has set.
unsafe fn add_clashing(env: VALUE, request: &Request<'_>) {
    let spelt_with_underscore = |field: &&Field| field.name.of_buffer(request.bytes).contains(&b'_');
    let fields = &request.head.fields;
    // SAFETY: under protect; the iterators borrow and own nothing.
    unsafe {
        for field in fields.iter().filter(|field| !spelt_with_underscore(field)) {
            if field.known != Some(KnownName::TransferEncoding) {
                join(env, key(field, request), field, request);
            }
        }
        for field in fields.iter().filter(spelt_with_underscore) {
            let key = key(field, request);
            let is_free = rb_hash_lookup2(env, key, Qundef as VALUE) == Qundef as VALUE;
            if is_free && !imitates_framing(field.name.of_buffer(request.bytes)) {
                rb_hash_aset(env, key, string(field.value.of_buffer(request.bytes)));
            }
        }
    }
}

/// Sets an entry, or appends to what an earlier field has set.
unsafe fn join(env: VALUE, key: VALUE, field: &Field, request: &Request<'_>) {
    let value = field.value.of_buffer(request.bytes);
    // SAFETY: under protect; every value is on the stack or in the Hash.
    unsafe {
        let earlier = rb_hash_lookup2(env, key, Qundef as VALUE);
        if earlier == Qundef as VALUE {
            rb_hash_aset(env, key, string(value));
            return;
        }
        // Cookies have a separator of their own (RFC 6265 §5.4, RFC 9113 §8.2.3).
        let separator: &[u8] = if field.known == Some(KnownName::Cookie) { b"; " } else { b", " };
        rb_str_cat(earlier, separator.as_ptr().cast(), separator.len() as _);
        rb_str_append(earlier, string(value));
    }
}

/// Whether a name passes for one of those that say where a request ends.
fn imitates_framing(name: &[u8]) -> bool {
    let is = |framing: &[u8]| {
        name.len() == framing.len()
            && name
                .iter()
                .zip(framing)
                .all(|(byte, wanted)| byte.eq_ignore_ascii_case(wanted) || (*byte == b'_' && *wanted == b'-'))
    };
    is(b"Content-Length") || is(b"Transfer-Encoding")
}
