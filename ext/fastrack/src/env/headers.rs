//! Header fields as entries of the environment.

use rb_sys::*;

use fastrack_engine::Request;
use fastrack_http::{env_key, Field, KnownName, MAX_NAME};

use crate::env::build::string;
use crate::env::templates::Values;
use crate::ruby::interned::names;

/// Adds the values of the fields that the request's [`Shape`](crate::env::templates::Shape) names, in its order.
///
/// # Safety
/// Under protect, with the GVL. Owns nothing while it calls Ruby.
pub(crate) unsafe fn add_known(values: &mut Values, request: &Request<'_>) {
    let known = |field: &&Field| field.known.is_some_and(|name| name != KnownName::TransferEncoding);
    for field in request.head.fields.iter().filter(known) {
        // SAFETY: as this function's.
        values.add(unsafe { string(field.value.of_buffer(request.bytes)) });
    }
}

/// Sets the other fields: those with uncommon names, and where `has_known` is false, or names come twice, all.
///
/// # Safety
/// Under protect, with the GVL. Owns nothing while it calls Ruby.
pub(crate) unsafe fn set_others(env: VALUE, request: &Request<'_>, has_known: bool) {
    let due = |field: &&Field| {
        if has_known {
            field.known.is_none()
        } else {
            field.known != Some(KnownName::TransferEncoding)
        }
    };
    // SAFETY: as this function's; the iterators borrow and own nothing.
    unsafe {
        if request.head.clashes {
            return add_clashing(env, request);
        }
        for field in request.head.fields.iter().filter(due) {
            rb_hash_aset(env, key(field, request), string(field.value.of_buffer(request.bytes)));
        }
    }
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
