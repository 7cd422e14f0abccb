//! The times of a request that autoscalers and APM agents read: when it began, and how long its body took.

use rb_sys::*;

use fastrack_engine::Request;
use fastrack_http::{Framing, KnownName};
use fastrack_sys::epoch_micros;

use crate::ruby::{interned, string};

/// Whether [`set`] has something to set.
#[inline]
pub(super) fn are_told(request: &Request<'_>, request_start: bool) -> bool {
    request_start || has_body(request)
}

/// Sets `puma.request_body_wait` (milliseconds, a Float as in Puma) of a request with a body. With `request_start`,
/// also sets the `HTTP_X_REQUEST_START` that no router has sent: when the head arrived, as `t=` and the seconds since
/// 1970.
pub(super) unsafe fn set(env: VALUE, request: &Request<'_>, request_start: bool) {
    let interned = interned();
    // SAFETY: under protect; all values are on the stack or in the Hash, and no Rust value here owns memory.
    unsafe {
        if has_body(request) {
            rb_hash_aset(env, interned.request_body_wait, rb_float_new(request.body_wait as f64));
        }
        if request_start && !request.head.has(KnownName::XRequestStart) {
            let waited = request.queue_time.saturating_add(request.body_wait.saturating_mul(1000));
            let began = epoch_micros().saturating_sub(waited);
            let mut text = [0; 32];
            rb_hash_aset(env, interned.key(KnownName::XRequestStart), string(seconds(began, &mut text)));
        }
    }
}

fn has_body(request: &Request<'_>) -> bool {
    !matches!(request.head.framing, Framing::None | Framing::Length(0))
}

/// `t=`, and the microseconds as seconds with six decimals.
fn seconds(micros: u64, text: &mut [u8; 32]) -> &[u8] {
    use std::io::Write;

    let mut rest = &mut text[..];
    let written = write!(rest, "t={}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let left = rest.len();
    let end = if written.is_ok() { text.len() - left } else { 0 };
    &text[..end]
}
