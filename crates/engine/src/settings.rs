//! What the engine's user may choose.

use std::path::PathBuf;

use fastrack_http::Limits;

use crate::reactor::STOP_TIME_IDLE;
use crate::watch::active_request::WatchSettings;

/// How the engine treats its connections.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a request's head may take altogether, in milliseconds, as all times here.
    pub header_timeout: u64,
    /// How long each wait for more of a request's body may take.
    pub body_timeout: u64,
    /// How long a client may take nothing of a response.
    pub write_timeout: u64,
    /// Whether connections are kept open from request to request.
    pub keep_alive: bool,
    /// How long a connection may be idle between two requests.
    pub keep_alive_timeout: u64,
    /// How long an idle connection gets when the engine stops, no other worker takes it over and the server is not to
    /// [drain](crate::Control::drain): its next request is answered, and told to be the last.
    pub parting_time: u64,
    /// How many requests one connection may carry; 0 is no limit.
    pub keep_alive_requests: u32,
    /// How much of a response may wait for a slow client while the application goes on, in bytes.
    pub response_buffer: usize,
    /// How large a request's head may be.
    pub limits: Limits,
    /// The longest body that is accepted, in bytes.
    pub max_body: Option<u64>,
    /// Whether the application is called before the body is whole, and reads the rest itself.
    pub stream_body: bool,
    /// Where bodies over 1 MiB are kept.
    pub tmpdir: PathBuf,
    /// Whether the path is shown to the application percent-decoded.
    pub decode_path: bool,
    /// What the listeners are known by to all who share the workers' queue, in their order here; then those of listeners
    /// that are gone, by which connections have come that are still kept.
    pub listeners: Vec<u64>,
    /// How the application's requests are watched.
    pub watch: WatchSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            header_timeout: 300_000,
            body_timeout: 300_000,
            write_timeout: 300_000,
            keep_alive: true,
            keep_alive_timeout: 95_000,
            parting_time: STOP_TIME_IDLE,
            keep_alive_requests: 0,
            response_buffer: 1024 * 1024,
            limits: Limits::default(),
            max_body: None,
            stream_body: false,
            tmpdir: std::env::temp_dir(),
            decode_path: false,
            listeners: Vec::new(),
            watch: WatchSettings::default(),
        }
    }
}
