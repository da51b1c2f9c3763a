//! The Unix socket of an API: only its owner may connect.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// The reason why a socket can't be bound.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another program answers at the socket.
    #[error("another program answers at {}: stop it first, or choose another socket", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path is not a socket.
    #[error("{} is no socket: it is left alone; move it away or choose another socket", path.display())]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// The system call failed.
    #[error("the socket {} can't be made: {source}{}", path.display(), remedy(source, path))]
    Io {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The remedy if the socket can't be made.
fn remedy(error: &io::Error, path: &Path) -> String {
    let folder = folder_of(path).display();
    let kind = error.kind();
    if kind == io::ErrorKind::NotFound {
        format!("; there is no folder {folder}: make it (with systemd: `RuntimeDirectory=`), or choose another socket")
    } else if kind == io::ErrorKind::PermissionDenied {
        format!("; this user may not write in {folder}: become root, or choose another socket")
    } else if kind == io::ErrorKind::InvalidInput {
        "; the path of a socket has at most 107 bytes: choose a shorter path".to_owned()
    } else {
        String::new()
    }
}

/// The bound Unix socket of an API.
#[derive(Debug)]
pub struct OwnerSocket {
    listener: UnixListener,
    /// Drops after the listener: the name is removed last.
    name: SocketName,
}

impl OwnerSocket {
    /// Binds the socket with mode 0600. Replaces the socket file of a dead program, but not a socket at which a program
    /// answers.
    ///
    /// # Errors
    /// [`SocketError`] names the obstacle.
    pub async fn bind(path: &Path) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Io { path: path.to_owned(), source };
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NoSocket { path: path.to_owned() }),
            Ok(_) => match UnixStream::connect(path).await {
                Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {}
                Ok(_) => return Err(SocketError::InUse { path: path.to_owned() }),
                Err(e) => return Err(failed(e)),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(e)),
        }
        // Bound inside a private folder and renamed: at no moment can other users connect, and a rename
        // replaces the old name.
        let private =
            tempfile::Builder::new().prefix(".s").rand_bytes(4).tempdir_in(folder_of(path)).map_err(failed)?;
        let inner = private.path().join("s");
        let listener = UnixListener::bind(&inner).map_err(failed)?;
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let inode = std::fs::symlink_metadata(&inner).map_err(failed)?.ino();
        std::fs::rename(&inner, path).map_err(failed)?;
        Ok(Self { listener, name: SocketName { path: path.to_owned(), inode } })
    }

    /// The next connection.
    ///
    /// # Errors
    /// The connection could not be accepted (mostly: no file descriptor is left).
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.name.path
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// Removes the socket's name, if it still belongs to this socket.
#[derive(Debug)]
struct SocketName {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketName {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            // The next program detects and replaces a stale name.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_socket_is_private_and_only_a_stale_socket_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("api.sock");
        let first = OwnerSocket::bind(&path).await.expect("bound");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert!(matches!(OwnerSocket::bind(&path).await, Err(SocketError::InUse { .. })));
        drop(first);
        assert!(!path.exists(), "the name went with the server");

        drop(std::os::unix::net::UnixListener::bind(&path).expect("a stale socket"));
        assert!(path.exists());
        let second = OwnerSocket::bind(&path).await.expect("a stale socket is replaced");
        drop(second);

        std::fs::write(&path, "precious").expect("written");
        assert!(matches!(OwnerSocket::bind(&path).await, Err(SocketError::NoSocket { .. })));
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "precious");
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("read").collect();
        assert_eq!(left.len(), 1, "no private folder is left: {left:?}");
    }
}
