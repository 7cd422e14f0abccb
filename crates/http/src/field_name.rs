//! Request field names, and their keys in a Rack environment.

/// Maximum length of an accepted field name, in bytes.
pub const MAX_FIELD_NAME_LEN: usize = 1024;

macro_rules! known_names {
    ($($variant:ident $name:literal $key:literal;)+) => {
        /// A common field name, whose environment key is made once.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)] // each variant is the field of that name
        pub enum KnownName { $($variant),+ }

        impl KnownName {
            /// All known names, ordered by index.
            pub const ALL: &'static [KnownName] = &[$(KnownName::$variant),+];

            /// The usual spelling.
            pub fn name(self) -> &'static str {
                match self { $(KnownName::$variant => $name),+ }
            }

            /// The key in a Rack environment.
            pub fn key(self) -> &'static str {
                match self { $(KnownName::$variant => $key),+ }
            }
        }
    };
}

known_names! {
    Accept "Accept" "HTTP_ACCEPT";
    AcceptCharset "Accept-Charset" "HTTP_ACCEPT_CHARSET";
    AcceptEncoding "Accept-Encoding" "HTTP_ACCEPT_ENCODING";
    AcceptLanguage "Accept-Language" "HTTP_ACCEPT_LANGUAGE";
    Authorization "Authorization" "HTTP_AUTHORIZATION";
    CacheControl "Cache-Control" "HTTP_CACHE_CONTROL";
    Connection "Connection" "HTTP_CONNECTION";
    ContentEncoding "Content-Encoding" "HTTP_CONTENT_ENCODING";
    ContentLength "Content-Length" "CONTENT_LENGTH";
    ContentType "Content-Type" "CONTENT_TYPE";
    Cookie "Cookie" "HTTP_COOKIE";
    Date "Date" "HTTP_DATE";
    Dnt "DNT" "HTTP_DNT";
    Expect "Expect" "HTTP_EXPECT";
    Forwarded "Forwarded" "HTTP_FORWARDED";
    From "From" "HTTP_FROM";
    Host "Host" "HTTP_HOST";
    IfMatch "If-Match" "HTTP_IF_MATCH";
    IfModifiedSince "If-Modified-Since" "HTTP_IF_MODIFIED_SINCE";
    IfNoneMatch "If-None-Match" "HTTP_IF_NONE_MATCH";
    IfRange "If-Range" "HTTP_IF_RANGE";
    IfUnmodifiedSince "If-Unmodified-Since" "HTTP_IF_UNMODIFIED_SINCE";
    KeepAlive "Keep-Alive" "HTTP_KEEP_ALIVE";
    Origin "Origin" "HTTP_ORIGIN";
    Pragma "Pragma" "HTTP_PRAGMA";
    Priority "Priority" "HTTP_PRIORITY";
    Range "Range" "HTTP_RANGE";
    Referer "Referer" "HTTP_REFERER";
    SecChUa "Sec-CH-UA" "HTTP_SEC_CH_UA";
    SecChUaMobile "Sec-CH-UA-Mobile" "HTTP_SEC_CH_UA_MOBILE";
    SecChUaPlatform "Sec-CH-UA-Platform" "HTTP_SEC_CH_UA_PLATFORM";
    SecFetchDest "Sec-Fetch-Dest" "HTTP_SEC_FETCH_DEST";
    SecFetchMode "Sec-Fetch-Mode" "HTTP_SEC_FETCH_MODE";
    SecFetchSite "Sec-Fetch-Site" "HTTP_SEC_FETCH_SITE";
    SecFetchUser "Sec-Fetch-User" "HTTP_SEC_FETCH_USER";
    SecWebsocketKey "Sec-WebSocket-Key" "HTTP_SEC_WEBSOCKET_KEY";
    SecWebsocketVersion "Sec-WebSocket-Version" "HTTP_SEC_WEBSOCKET_VERSION";
    Te "TE" "HTTP_TE";
    TransferEncoding "Transfer-Encoding" "HTTP_TRANSFER_ENCODING";
    Upgrade "Upgrade" "HTTP_UPGRADE";
    UpgradeInsecureRequests "Upgrade-Insecure-Requests" "HTTP_UPGRADE_INSECURE_REQUESTS";
    UserAgent "User-Agent" "HTTP_USER_AGENT";
    Via "Via" "HTTP_VIA";
    XCsrfToken "X-CSRF-Token" "HTTP_X_CSRF_TOKEN";
    XForwardedFor "X-Forwarded-For" "HTTP_X_FORWARDED_FOR";
    XForwardedHost "X-Forwarded-Host" "HTTP_X_FORWARDED_HOST";
    XForwardedPort "X-Forwarded-Port" "HTTP_X_FORWARDED_PORT";
    XForwardedProto "X-Forwarded-Proto" "HTTP_X_FORWARDED_PROTO";
    XQueueStart "X-Queue-Start" "HTTP_X_QUEUE_START";
    XRealIp "X-Real-IP" "HTTP_X_REAL_IP";
    XRequestId "X-Request-ID" "HTTP_X_REQUEST_ID";
    XRequestStart "X-Request-Start" "HTTP_X_REQUEST_START";
    XRequestedWith "X-Requested-With" "HTTP_X_REQUESTED_WITH";
}

// INVARIANT: Head keeps known names as the bits of a u64.
const _: () = assert!(KnownName::ALL.len() <= 64);

impl KnownName {
    /// Finds a name, compared without case.
    ///
    /// At most six known names have the same length: comparing them is faster than a perfect hash, which reads each byte
    /// twice.
    pub fn find(name: &[u8]) -> Option<KnownName> {
        use KnownName::*;
        let candidates: &[KnownName] = match name.len() {
            2 => &[Te],
            3 => &[Via, Dnt],
            4 => &[Host, From, Date],
            5 => &[Range],
            6 => &[Accept, Cookie, Origin, Expect, Pragma],
            7 => &[Referer, Upgrade],
            8 => &[IfMatch, IfRange, Priority],
            9 => &[SecChUa, XRealIp, Forwarded],
            10 => &[UserAgent, Connection, KeepAlive],
            12 => &[ContentType, XRequestId, XCsrfToken],
            13 => &[CacheControl, IfNoneMatch, Authorization, XQueueStart],
            14 => &[ContentLength, SecFetchMode, SecFetchDest, SecFetchSite, SecFetchUser, AcceptCharset],
            15 => &[AcceptEncoding, AcceptLanguage, XForwardedFor, XRequestStart],
            16 => &[SecChUaMobile, XForwardedHost, XForwardedPort, XRequestedWith, ContentEncoding],
            17 => &[IfModifiedSince, XForwardedProto, TransferEncoding, SecWebsocketKey],
            18 => &[SecChUaPlatform],
            19 => &[IfUnmodifiedSince],
            21 => &[SecWebsocketVersion],
            25 => &[UpgradeInsecureRequests],
            _ => &[],
        };
        // Most clients use the usual spelling, and an exact comparison is faster.
        let same = candidates.iter().copied().find(|known| known.name().as_bytes() == name);
        same.or_else(|| {
            candidates.iter().copied().find(|known| known.name().as_bytes().eq_ignore_ascii_case(name))
        })
    }

    /// The name's bit in a set of known names.
    pub(crate) fn bit(self) -> u64 {
        1 << (self as u8)
    }
}

/// The Rack key of a field, written to `out`: `HTTP_`, then the name in upper case with underscores for dashes (Rack
/// SPEC, "The Environment"). None if the name is longer than [`MAX_FIELD_NAME_LEN`].
pub fn env_key<'a>(name: &[u8], out: &'a mut [u8; MAX_FIELD_NAME_LEN + 5]) -> Option<&'a [u8]> {
    if name.len() > MAX_FIELD_NAME_LEN {
        return None;
    }
    out[..5].copy_from_slice(b"HTTP_");
    for (to, from) in out[5..].iter_mut().zip(name) {
        *to = if *from == b'-' { b'_' } else { from.to_ascii_uppercase() };
    }
    Some(&out[..5 + name.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_found_whatever_its_case() {
        for known in KnownName::ALL {
            let name = known.name();
            assert_eq!(KnownName::find(name.as_bytes()), Some(*known), "{name}");
            assert_eq!(KnownName::find(name.to_uppercase().as_bytes()), Some(*known), "{name}");
            assert_eq!(KnownName::find(name.to_lowercase().as_bytes()), Some(*known), "{name}");
        }
    }

    #[test]
    fn names_are_compared_whole() {
        for name in ["Hos", "Hostt", "Hose", "", "Content_Length", "Con"] {
            assert_eq!(KnownName::find(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn the_key_of_a_known_name_is_the_general_rule_but_for_two() {
        let mut buf = [0; MAX_FIELD_NAME_LEN + 5];
        for known in KnownName::ALL {
            let general = env_key(known.name().as_bytes(), &mut buf).expect("short name");
            let general = std::str::from_utf8(general).expect("ascii");
            match known {
                KnownName::ContentLength | KnownName::ContentType => {
                    assert_eq!(format!("HTTP_{}", known.key()), general)
                }
                _ => assert_eq!(known.key(), general),
            }
        }
    }

    #[test]
    fn a_name_over_the_limit_has_no_key() {
        let mut buf = [0; MAX_FIELD_NAME_LEN + 5];
        assert!(env_key(&[b'a'; MAX_FIELD_NAME_LEN], &mut buf).is_some());
        assert!(env_key(&[b'a'; MAX_FIELD_NAME_LEN + 1], &mut buf).is_none());
    }
}
