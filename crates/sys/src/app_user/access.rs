//! As whom root's process acts.

use std::path::PathBuf;

/// As whom a process of root's acts on a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Access {
    /// As root. This is the path without links; nobody but root can change where it leads.
    Root(PathBuf),
    /// As the user, who can change where the path leads.
    User,
    /// Root's link leads to a descriptor of this process, as /dev/stdout does. To open it anew by its path may be impossible (sockets).
    OwnDescriptor(i32),
}
