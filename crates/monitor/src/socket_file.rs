//! The addresses of the monitor: a unix socket with its file, and a TCP port.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use fastrack_sys::{Access, AppUser};

/// The longest path of a unix socket, in bytes: sun_path without its final NUL (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// The identity of a file: device, inode, and time of change, because the file system reuses inodes.
type Identity = (u64, u64, i64, i64);

/// The file of a unix socket that only its owner may open.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The user to act as in a directory of this user; None to act as this process.
    user: Option<AppUser>,
    file: Identity,
}

impl SocketFile {
    /// Listens at the path. An existing socket is replaced in one step if no process listens there, or if this master
    /// `replaces` another one.
    ///
    /// # Errors
    /// InvalidInput for a path that is too long, AlreadyExists for a file that is no socket, AddrInUse for a
    /// socket in use, and the errors of bind(2).
    pub fn create(path: &Path, user: Option<&AppUser>, replaces: bool) -> io::Result<(Self, UnixListener)> {
        let length = beside(path).as_os_str().len();
        if length > MAX_SOCKET_PATH {
            let text = format!("the path is {} bytes too long for a socket", length - MAX_SOCKET_PATH);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (file, listener) = at(path, user, |path| Self::make(path, replaces))?;
        listener.set_nonblocking(true)?;
        Ok((SocketFile { path: path.to_owned(), user: user.cloned(), file }, listener))
    }

    fn make(path: &Path, replaces: bool) -> io::Result<(Identity, UnixListener)> {
        if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is not a socket"));
        }
        if !replaces && fastrack_sys::is_listened_at(path) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
        }
        let temporary = beside(path);
        remove_stale(&temporary);
        let listener = fastrack_sys::bind_private(&temporary)?;
        let placed = identity(&temporary).and_then(|file| fs::rename(&temporary, path).map(|()| file));
        if placed.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        Ok((placed?, listener))
    }

    /// Whether the file at the path is still this one, not that of a new master.
    pub fn is_ours(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.file)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = at(&self.path, self.user.as_ref(), |path| {
            if identity(path)? == self.file {
                fs::remove_file(path)?;
            }
            Ok(())
        });
    }
}

/// The temporary path of the socket, before the rename.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    name.into()
}

/// Calls `act` as the user who can change where the path leads, or as root if no other user can.
fn at<T>(path: &Path, user: Option<&AppUser>, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let Some(user) = user else { return act(path) };
    match user.access(path, false)? {
        Access::Root(path) => act(&path),
        Access::User | Access::OwnDescriptor(_) => user.act(|| act(path))?,
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

/// Listens on a port, without waiting for clients.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
