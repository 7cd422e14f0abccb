//! The user as which a root process acts.

use std::path::PathBuf;

/// The user as which a root process acts on a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Access {
    /// As root. The path is without links, and only root can change where it leads.
    Root(PathBuf),
    /// As the user, who can change where the path leads.
    User,
    /// A link of root leads to this descriptor of this process, as /dev/stdout does. A socket cannot be opened by such
    /// a path.
    OwnDescriptor(i32),
}
