//! The settings of the monitor.

use std::net::SocketAddr;
use std::path::PathBuf;

use fastrack_sys::AppUser;

/// The settings of a monitor, fixed at its start.
#[derive(Clone, Debug)]
pub struct MonitorSettings {
    /// The path of the unix socket; None for no unix socket.
    pub path: Option<PathBuf>,
    /// The app's user, if the master is root's: the socket may be in a directory of that user.
    pub user: Option<AppUser>,
    /// The TCP address, for clients with the token; None for no TCP.
    pub listen: Option<SocketAddr>,
    /// The token of TCP clients.
    pub token: Option<String>,
    /// The version of the server.
    pub version: String,
    /// The version of Ruby.
    pub ruby: String,
    /// The name of the machine or container.
    pub host: String,
    /// The number of requests that a worker may have in the app at once.
    pub threads: usize,
    /// The start of this master, in seconds of the monotonic clock.
    pub started_at: f64,
    /// Whether this master replaces an old one, which may still listen at the addresses.
    pub replaces: bool,
}
