//! Counters of this process, for the master's status.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident $key:literal;)*) => {
        $($(#[$doc])* pub static $name: AtomicU64 = AtomicU64::new(0);)*

        /// All counters as a JSON object.
        pub fn json() -> serde_json::Value {
            serde_json::json!({ $($key: $name.load(Relaxed),)* })
        }
    };
}

counters! {
    /// Clients that have connected.
    CONNECTIONS "connections";
    /// Clients that are connected.
    OPEN "open";
    /// TLS handshakes that were completed.
    HANDSHAKES "handshakes";
    /// Of these, those of a known session.
    RESUMED "resumed";
    /// TLS handshakes that have failed.
    HANDSHAKE_ERRORS "handshake_errors";
    /// Requests.
    REQUESTS "requests";
    /// Requests that were answered with a file.
    FILES "files";
    /// Requests that came by HTTP/2.
    H2_REQUESTS "h2_requests";
    /// Requests that got 502, of whatever cause.
    BAD_GATEWAY "bad_gateway";
    /// Requests that got 502, because their worker died.
    WORKER_DIED "worker_died";
    /// Requests that got 502, because no worker could be reached.
    NO_WORKER "no_worker";
    /// Requests that got 502, because the worker's response made no sense.
    BAD_RESPONSE "bad_response";
    /// Requests that got 503, because all workers' backlog was full, or a descriptor was missing.
    SHORTAGE "shortage";
    /// Requests whose client has left in its upload, or has broken its framing.
    BROKEN_UPLOADS "broken_uploads";
    /// Requests that another worker has answered, after theirs died.
    RETRIED "retried";
    /// Bytes that compression has saved.
    BYTES_SAVED "bytes_saved";
}
