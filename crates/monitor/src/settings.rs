//! What the monitor is told at its start.

use std::net::SocketAddr;
use std::path::PathBuf;

use fastrack_sys::AppUser;

/// What does not change.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to have a unix socket.
    pub path: Option<PathBuf>,
    /// The app's user, in a master of root's: the socket may be in a folder of that user's.
    pub user: Option<AppUser>,
    /// An address to listen on, for whoever knows the token.
    pub listen: Option<SocketAddr>,
    /// What its clients have to know.
    pub token: Option<String>,
    /// The server's.
    pub version: String,
    /// Which Ruby it runs on.
    pub ruby: String,
    /// The machine's or container's name.
    pub host: String,
    /// Requests that a worker may have in the app at once.
    pub threads: usize,
    /// In seconds of the monotonic clock.
    pub started_at: f64,
    /// Whether an old master may still be there, which this one replaces.
    pub patient: bool,
}
