//! The engine's settings.

use std::path::PathBuf;

use fastrack_http::Limits;

use crate::access_log::AccessLogSettings;
use crate::claim::RequestSettings;

/// Time for a partly received request to arrive when the engine stops, in milliseconds.
pub(crate) const STOP_TIME: u64 = 5_000;

/// The default of [`Settings::idle_time_on_stop`], in milliseconds.
pub(crate) const STOP_TIME_IDLE: u64 = 250;

/// Pause before a call that failed for lack of a descriptor, memory or another resource is repeated, in milliseconds.
pub(crate) const SHORTAGE_PAUSE: u64 = 20;

/// Descriptors reserved for the files and sockets of the application.
const RESERVED_DESCRIPTORS: usize = 64;

/// The number of descriptors that connections may use.
pub(crate) fn own_descriptors() -> usize {
    let all = fastrack_sys::fd_limit();
    all.saturating_sub(RESERVED_DESCRIPTORS).max(all / 2)
}

/// How the engine treats its connections. All times are in milliseconds, all sizes in bytes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time for the whole head of a request.
    pub header_timeout: u64,
    /// Time for each wait for more of a request's body.
    pub body_timeout: u64,
    /// How long a client may receive nothing of a response.
    pub write_timeout: u64,
    /// Whether connections are kept open between requests.
    pub keep_alive: bool,
    /// How long a connection may be idle between two requests.
    pub keep_alive_timeout: u64,
    /// How long an idle connection stays open when the engine stops, unless another worker takes it over or the
    /// server [drains](crate::Control::drain). The response to its next request has `Connection: close`.
    pub idle_time_on_stop: u64,
    /// Requests per connection; 0 is no limit.
    pub keep_alive_requests: u32,
    /// Bytes of a response that are buffered in memory for a slow client while the application continues.
    pub response_buffer: usize,
    /// Bytes of a response that go to a file beyond [`response_buffer`](Self::response_buffer); 0 is no file.
    pub max_response_spool: u64,
    /// How long a request may wait for the application; 0 is no limit. A longer wait is answered with 503.
    pub max_queue_time: u64,
    /// Limits of a request's head.
    pub limits: Limits,
    /// The longest body that is accepted; None is no limit.
    pub max_body: Option<u64>,
    /// Whether the application is called before the body is complete and reads the body itself.
    pub stream_body: bool,
    /// Directory for bodies over 1 MiB, and for the unsent parts of responses to slow clients.
    pub tmpdir: PathBuf,
    /// Whether the application gets the path percent-decoded.
    pub decode_path: bool,
    /// The ids of the listeners in the shared queue, followed by the ids of closed listeners with open connections.
    pub listeners: Vec<u64>,
    /// The index of the listener whose clients are the server's own proxy. On that listener a field of the request names the client.
    pub proxy_listener: Option<usize>,
    /// The access log; None is no log.
    pub access_log: Option<AccessLogSettings>,
    /// Time limits and scoreboard of requests.
    pub requests: RequestSettings,
    /// Limits the time of a worker whose master is gone; None is no limit.
    pub orphan: Option<OrphanSettings>,
}

/// How a worker ends whose master is gone, and which has not stopped in time.
#[derive(Clone, Debug)]
pub struct OrphanSettings {
    /// Time from the end of the master, in milliseconds.
    pub time: u64,
    /// The line for the log.
    pub line: String,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            header_timeout: 300_000,
            body_timeout: 300_000,
            write_timeout: 300_000,
            keep_alive: true,
            keep_alive_timeout: 95_000,
            idle_time_on_stop: STOP_TIME_IDLE,
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
            proxy_listener: None,
            access_log: None,
            requests: RequestSettings::default(),
            orphan: None,
        }
    }
}
