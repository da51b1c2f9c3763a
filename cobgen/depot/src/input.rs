//! Reads files named by the user, which may be of any sort; reads and replaces the JSON files in the depot's folder.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::depot::sync_folder;
use crate::error::DepotError;

/// The bytes of a regular file of at most `most` bytes. Devices and pipes, which may never end, are refused.
///
/// # Errors
/// The system's error; or when it is another sort of file, or longer.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    // The file may grow after its length was checked.
    bounded(File::open(path)?, most)
}

fn bounded(from: impl io::Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {} MiB", most >> 20)));
    }
    Ok(bytes)
}

/// The JSON of a file in the depot's folder; `None` if the file does not exist.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path, most: u64) -> Result<Option<T>, DepotError> {
    let damaged = |why: String| DepotError::Enrolments { path: path.to_owned(), why };
    let read = File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map(|_| bytes)
    });
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DepotError::io(format!("can't read {}", path.display()))(error)),
    };
    if bytes.len() as u64 > most {
        return Err(damaged(format!("it is longer than {most} bytes")));
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|error| damaged(cob_types::words::form(error)))
}

/// Replaces a file in the depot's folder by JSON, atomically; `aside` starts the name of the temporary file.
pub(crate) fn write_json(path: &Path, aside: &str, mode: u32, value: &impl Serialize) -> Result<(), DepotError> {
    let write = || -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut text = serde_json::to_vec_pretty(value)?;
        text.push(b'\n');
        let mut file = tempfile::Builder::new().prefix(aside).tempfile_in(folder)?;
        file.write_all(&text)?;
        file.as_file().sync_all()?;
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
        file.persist(path).map_err(|error| error.error)?;
        sync_folder(folder)
    };
    write().map_err(DepotError::io(format!("can't write {}", path.display())))
}

/// The same as [`read`] for a text.
///
/// # Errors
/// As [`read`]; and when it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text(read(path, most)?)
}

/// The text of a file that the user names; `-` is the standard input.
///
/// # Errors
/// As [`read_text`].
pub fn read_given(path: &Path, most: u64) -> io::Result<String> {
    if path != Path::new("-") {
        return read_text(path, most);
    }
    text(bounded(io::stdin().lock(), most)?)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_folders_and_too_long_files_are_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).expect("made");
        for path in [&link, dir.path()] {
            assert!(read(path, 1 << 20).expect_err("refused").to_string().contains("no regular file"));
        }
        let file = dir.path().join("file");
        std::fs::write(&file, vec![b'x'; (1 << 20) + 1]).expect("written");
        assert!(read(&file, 1 << 20).expect_err("refused").to_string().contains("longer than 1 MiB"));
        assert_eq!(read_text(&file, 2 << 20).expect("read").len(), (1 << 20) + 1);
        std::fs::write(&file, b"\xff").expect("written");
        assert!(read_text(&file, 9).is_err());
    }
}
