//! The engine's settings.

use std::path::PathBuf;

use fastrack_http::Limits;

use crate::access_log::AccessLogSettings;
use crate::claim::RequestSettings;

/// How long a request that has begun gets to arrive whole when the engine stops, in milliseconds.
pub(crate) const STOP_TIME: u64 = 5_000;

/// How long an idle client gets then by default, in milliseconds.
pub(crate) const STOP_TIME_IDLE: u64 = 250;

/// How long this process waits, in milliseconds, when it has no free descriptor and no connection that could make room, and
/// until it tries again what has failed for lack of something.
pub(crate) const SHORTAGE_PAUSE: u64 = 20;

/// Descriptors left to the application for its files and sockets.
const RESERVED_DESCRIPTORS: usize = 64;

/// How many descriptors connections may have.
pub(crate) fn own_descriptors() -> usize {
    let all = fastrack_sys::fd_limit();
    all.saturating_sub(RESERVED_DESCRIPTORS).max(all / 2)
}

/// How the engine treats its connections. All times are in milliseconds, all sizes in bytes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For the whole head of a request.
    pub header_timeout: u64,
    /// For each wait for more of a request's body.
    pub body_timeout: u64,
    /// How long a client may take nothing of a response.
    pub write_timeout: u64,
    /// Whether connections are kept open between requests.
    pub keep_alive: bool,
    /// How long a connection may be idle between two requests.
    pub keep_alive_timeout: u64,
    /// How long an idle connection stays open when the engine stops, unless another worker takes it over or the
    /// server [drains](crate::Control::drain). Its next request is answered with `Connection: close`.
    pub parting_time: u64,
    /// Requests per connection; 0 is no limit.
    pub keep_alive_requests: u32,
    /// How much of a response is buffered for a slow client while the application goes on.
    pub response_buffer: usize,
    /// How much of it is kept in a file beyond that; 0 is nothing.
    pub max_response_spool: u64,
    /// How long a request may wait for the application; 0 is no limit.
    pub max_queue_time: u64,
    /// Limits of a request's head.
    pub limits: Limits,
    /// The longest body that is accepted.
    pub max_body: Option<u64>,
    /// Whether the application is called before the body is complete, and reads the rest itself.
    pub stream_body: bool,
    /// Directory for bodies over 1 MiB, and for what slow clients have not taken of their responses.
    pub tmpdir: PathBuf,
    /// Whether the application gets the path percent-decoded.
    pub decode_path: bool,
    /// The listeners' ids in the shared queue, then those of closed listeners whose connections are still open.
    pub listeners: Vec<u64>,
    /// Where a line about each request goes, if anywhere.
    pub access_log: Option<AccessLogSettings>,
    /// How requests are watched.
    pub requests: RequestSettings,
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
            max_response_spool: 1024 * 1024 * 1024,
            max_queue_time: 0,
            limits: Limits::default(),
            max_body: None,
            stream_body: false,
            tmpdir: std::env::temp_dir(),
            decode_path: false,
            listeners: Vec::new(),
            access_log: None,
            requests: RequestSettings::default(),
        }
    }
}
