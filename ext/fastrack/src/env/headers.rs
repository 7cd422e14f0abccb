//! Header fields as entries of the env.

use rb_sys::*;

use fastrack_engine::Request;
use fastrack_http::{env_key, Field, KnownName, MAX_FIELD_NAME_LEN};

use crate::env::leading_values::LeadingValues;
use crate::ruby::{interned, string, NIL, UNDEF};

/// Adds the values of the common fields, in the order of the request's
/// [`TemplateKey`](crate::env::templates::TemplateKey). Returns the value of Host, or nil.
pub(crate) unsafe fn add_known(values: &mut LeadingValues, request: &Request<'_>) -> VALUE {
    let known = |field: &&Field| field.known.is_some_and(|name| name != KnownName::TransferEncoding);
    let mut host = NIL;
    for field in request.head.fields.iter().filter(known) {
        // SAFETY: as this function's.
        let value = unsafe { value(field, request) };
        if field.known == Some(KnownName::Host) {
            host = value;
        }
        values.push(value);
    }
    host
}

/// Sets the fields that the template lacks: the fields with uncommon names if `has_known`, else all fields.
pub(crate) unsafe fn set_others(env: VALUE, request: &Request<'_>, has_known: bool) {
    // SAFETY: as this function's; the iterators own nothing.
    unsafe {
        if request.head.has_duplicate_env_keys {
            return set_duplicates(env, request);
        }
        for field in &request.head.fields {
            let is_missing = match field.known {
                None => !is_version(field.name.of_buffer(request.bytes)),
                Some(name) => !has_known && name != KnownName::TransferEncoding,
            };
            if is_missing {
                rb_hash_aset(env, key(field, request), value(field, request));
            }
        }
    }
}

unsafe fn value(field: &Field, request: &Request<'_>) -> VALUE {
    // SAFETY: under protect.
    unsafe { string(field.value.of_buffer(request.bytes)) }
}

unsafe fn key(field: &Field, request: &Request<'_>) -> VALUE {
    if let Some(known) = field.known {
        return interned().key(known);
    }
    let mut buffer = [0; MAX_FIELD_NAME_LEN + 5];
    // The parser has refused requests with a longer name.
    let key = env_key(field.name.of_buffer(request.bytes), &mut buffer).unwrap_or_default();
    // SAFETY: under protect; a key starts with HTTP_, so its pointer is not dangling.
    unsafe { rb_enc_interned_str(key.as_ptr().cast(), key.len() as _, rb_utf8_encoding()) }
}

/// Sets the fields of a request in which several fields may have the same env key. Repeated fields are joined (RFC 9110
/// §5.3). A name with an underscore is ignored beside the same name with a dash, so that clients cannot override a proxy's
/// fields.
unsafe fn set_duplicates(env: VALUE, request: &Request<'_>) {
    let has_underscore = |field: &&Field| field.name.of_buffer(request.bytes).contains(&b'_');
    let fields = &request.head.fields;
    // SAFETY: under protect; the iterators own nothing.
    unsafe {
        for field in fields.iter().filter(|field| !has_underscore(field)) {
            let name = field.name.of_buffer(request.bytes);
            if field.known != Some(KnownName::TransferEncoding) && !is_version(name) {
                join(env, key(field, request), field, request);
            }
        }
        for field in fields.iter().filter(has_underscore) {
            let key = key(field, request);
            let is_free = rb_hash_lookup2(env, key, UNDEF) == UNDEF;
            if is_free && !imitates_reserved(field.name.of_buffer(request.bytes)) {
                rb_hash_aset(env, key, value(field, request));
            }
        }
    }
}

/// Sets an entry, or appends to the value of an earlier field.
unsafe fn join(env: VALUE, key: VALUE, field: &Field, request: &Request<'_>) {
    // SAFETY: under protect; every value is on the stack or in the Hash.
    unsafe {
        let value = value(field, request);
        let earlier = rb_hash_lookup2(env, key, UNDEF);
        if earlier == UNDEF {
            rb_hash_aset(env, key, value);
            return;
        }
        // Cookies have a separator of their own (RFC 6265 §5.4, RFC 9113 §8.2.3).
        let separator: &[u8] = if field.known == Some(KnownName::Cookie) { b"; " } else { b", " };
        rb_str_cat(earlier, separator.as_ptr().cast(), separator.len() as _);
        rb_str_append(earlier, value);
    }
}

/// Whether a field has the env key HTTP_VERSION, which Rack 3.0 and older versions of Rails read as the protocol's version.
fn is_version(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"version")
}

/// Whether a name, with underscores read as dashes, is Transfer-Encoding, Content-Length or Content-Type. The server sets
/// the first in env itself, and the SPEC forbids the keys HTTP_CONTENT_LENGTH and HTTP_CONTENT_TYPE.
fn imitates_reserved(name: &[u8]) -> bool {
    let is_like = |reserved: &[u8]| {
        let same = |(byte, wanted): (&u8, &u8)| {
            byte.eq_ignore_ascii_case(wanted) || (*byte == b'_' && *wanted == b'-')
        };
        name.len() == reserved.len() && name.iter().zip(reserved).all(same)
    };
    is_like(b"Content-Length") || is_like(b"Content-Type") || is_like(b"Transfer-Encoding")
}
