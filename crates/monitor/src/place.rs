//! The monitor's addresses.

use std::fs::{self, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// In bytes: sun_path without its end (unix(7)).
const LONGEST: usize = 107;

/// What tells a file from any other that may get its name: inodes are used again.
type Identity = (u64, u64, i64, i64);

/// A unix socket with a file that only its owner may open.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    file: Identity,
}

impl Place {
    /// Listens there. A socket that is there is replaced in one step: that of a killed master, or, if this one `replaces` another, that
    /// one's.
    pub fn take(path: &Path, replaces: bool) -> io::Result<(Self, UnixListener)> {
        if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is not a socket"));
        }
        if !replaces && fastrack_sys::is_listened_at(path) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
        }
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}", std::process::id()));
        let temporary = PathBuf::from(temporary);
        let (length, most) = (temporary.as_os_str().len(), LONGEST);
        if length > most {
            let text = format!("the path is {} bytes too long for a socket", length - most);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        remove_stale(&temporary);
        let listener = fastrack_sys::bind_private(&temporary)?;
        let placed = Self::place(&temporary, path);
        if placed.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        listener.set_nonblocking(true)?;
        Ok((Place { path: path.to_owned(), file: placed? }, listener))
    }

    /// The socket is made with its mode. This is for systems that take none for a socket.
    fn place(temporary: &Path, path: &Path) -> io::Result<Identity> {
        fs::set_permissions(temporary, Permissions::from_mode(0o600))?;
        let file = identity(temporary)?;
        fs::rename(temporary, path)?;
        Ok(file)
    }

    /// Whether the file is still this one, and not a new master's.
    pub fn is_ours(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.file)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_ours() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn remove_stale(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        let _ = fs::remove_file(path);
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
}

/// Listens on a port of this machine alone.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_loopback() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no loopback address"));
    }
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
