//! Reason phrases of status codes, and the status codes without a body.

use std::sync::LazyLock;

use http::StatusCode;

static REASONS: LazyLock<[&str; 600]> = LazyLock::new(|| std::array::from_fn(|code| registered(code as u16)));

/// The reason phrase of a status code by the IANA registry. Unregistered codes get the name of their class.
pub fn reason(code: u16) -> &'static str {
    match code {
        200 => "OK",
        _ => REASONS.get(usize::from(code)).unwrap_or(&"Error"),
    }
}

fn registered(code: u16) -> &'static str {
    match code {
        203 => "Non-Authoritative Information",
        // Renamed by RFC 9110.
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        _ => StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason()).unwrap_or(class(code)),
    }
}

fn class(code: u16) -> &'static str {
    match code / 100 {
        1 => "Informational",
        2 => "Success",
        3 => "Redirection",
        4 => "Client Error",
        _ => "Error",
    }
}

/// Whether responses with this status never have a body (RFC 9110 §6.4.1, §15.3.6).
pub fn has_no_body(code: u16) -> bool {
    matches!(code, 100..=199 | 204 | 205 | 304)
}
