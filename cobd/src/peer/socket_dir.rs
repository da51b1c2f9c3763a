//! The private folder for the Unix sockets between `zeromq` and the relay.
//!
//! Each link needs a socket during its setup: it is bound under a secret name, connected to once, and unlinked. At
//! start the folder is closed to other users and its old sockets are removed.

use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// The longest path that fits into a socket address.
const MAX_PATH: usize = 107;

/// The folder.
#[derive(Debug)]
pub(super) struct SocketDir {
    path: PathBuf,
    /// Held open: if the path is too long, its files are reached through `/proc/self/fd`.
    open: File,
}

/// A socket's name; unlinked when dropped.
#[derive(Debug)]
pub(super) struct SocketName {
    path: PathBuf,
    endpoint: String,
}

impl SocketDir {
    /// Creates the folder if necessary, closes it to other users, and removes the sockets of an earlier incarnation.
    /// The caller holds the lock of the state folder, so no other daemon uses it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(path)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let metadata = fs::symlink_metadata(path)?;
        if !metadata.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder"));
        }
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
        }
        if metadata.mode() & 0o077 != 0 {
            fs::set_permissions(path, Permissions::from_mode(0o700))?;
        }
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_socket() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Self { path: path.to_owned(), open: File::open(path)? })
    }

    /// A listening socket under a new name.
    pub(super) fn bind(&self) -> io::Result<(UnixListener, SocketName)> {
        // Every `RandomState` differs from the last, so a name can't occur twice.
        let name = format!("{:016x}", RandomState::new().hash_one(()));
        let short = PathBuf::from(format!("/proc/self/fd/{}/{name}", self.open.as_raw_fd()));
        let path = self.path.join(&name);
        let reach = if is_plain(&path) { &path } else { &short };
        let endpoint = format!("ipc://{}", reach.display());
        let listener = UnixListener::bind(reach)?;
        Ok((listener, SocketName { path, endpoint }))
    }
}

/// Whether `zeromq` and the system accept this path unchanged.
fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.len() <= MAX_PATH && !text.contains(char::is_control))
}

impl SocketName {
    /// The endpoint for `zeromq` to connect to.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

impl Drop for SocketName {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("can't remove the socket {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener as StdListener;

    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn names_are_unlinked_and_leftovers_removed() {
        let state = tempfile::tempdir().expect("folder");
        let path = state.path().join("a/sockets");
        drop(SocketDir::open(&path).expect("makes it"));
        assert_eq!(fs::metadata(&path).expect("exists").mode() & 0o777, 0o700);
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("opened to others");
        drop(StdListener::bind(path.join("left")).expect("a socket of an earlier life"));
        fs::write(path.join("other"), "not ours to remove").expect("a file");

        let sockets = SocketDir::open(&path).expect("again");
        assert_eq!(fs::metadata(&path).expect("exists").mode() & 0o777, 0o700);
        let (_listener, name) = sockets.bind().expect("binds");
        let (_second, _name) = sockets.bind().expect("binds another");
        assert_eq!(fs::read_dir(&path).expect("lists").count(), 3);
        drop(name);
        assert_eq!(fs::read_dir(&path).expect("lists").count(), 2);
    }

    #[tokio::test]
    async fn a_long_path_is_reached_through_the_open_folder() {
        let state = tempfile::tempdir().expect("folder");
        let path = state.path().join("long".repeat(40)).join("new\nline");
        let sockets = SocketDir::open(&path).expect("makes it");
        let (listener, name) = sockets.bind().expect("binds");
        let reach = name.endpoint().strip_prefix("ipc://").expect("an ipc endpoint");
        assert!(reach.len() <= MAX_PATH, "{reach}");
        let (_client, accepted) = tokio::join!(UnixStream::connect(reach), listener.accept());
        accepted.expect("accepts");
        drop(name);
        assert_eq!(fs::read_dir(&path).expect("lists").count(), 0);
    }

    #[test]
    fn a_socket_path_that_is_no_folder_is_refused() {
        let state = tempfile::tempdir().expect("folder");
        let path = state.path().join("file");
        fs::write(&path, "").expect("a file");
        assert!(SocketDir::open(&path).is_err());
        let link = state.path().join("link");
        std::os::unix::fs::symlink(state.path(), &link).expect("a link");
        assert!(SocketDir::open(&link).is_err());
    }
}
