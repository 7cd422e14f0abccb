//! What the engine's user may choose.

use std::path::PathBuf;

use fastrack_http::Limits;

/// How the engine treats its connections.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a request's head may take altogether, and each wait for more of its body or for a client
    /// to take more of a response, in milliseconds.
    pub timeout: u64,
    /// How large a request's head may be.
    pub limits: Limits,
    /// The longest body that is accepted, in bytes.
    pub max_body: Option<u64>,
    /// Where bodies over 1 MiB are kept.
    pub tmpdir: PathBuf,
    /// Whether the path is shown to the application percent-decoded.
    pub decode_path: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            timeout: 300_000,
            limits: Limits::default(),
            max_body: None,
            tmpdir: std::env::temp_dir(),
            decode_path: false,
        }
    }
}
