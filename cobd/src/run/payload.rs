//! Lays out the files of kinds and change objects in a folder for their actions.
//!
//! The folder is the working folder of the actions, so `./check.sh` is found. It is named after its content: the same
//! files give the same folder, which is created once and checked when it is used again.
//!
//! Rules: it appears whole or not at all; a name never leads outside it; no link is followed.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use cob_types::BlobHash;
use cob_types::canonical;
use cob_types::kind::{PayloadFile, check_payload_name};
use serde_bytes::ByteBuf;

use super::job::read_capped;
use crate::durable::{self, TEMP_SUFFIX};

/// The reason why the files can't be laid out.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// A name that could lead outside the folder.
    #[error("payload file {name:?}: {what}")]
    Name {
        /// The name.
        name: String,
        /// The fault of the name.
        what: &'static str,
    },
    /// The bundle lacks the content of a file.
    #[error("payload file {name:?}: its content {blob} is not in the bundle")]
    Missing {
        /// The file.
        name: String,
        /// The content.
        blob: BlobHash,
    },
    /// The content does not match its hash.
    #[error("payload file {name:?}: its content does not have the hash {blob}")]
    Corrupt {
        /// The file.
        name: String,
        /// The hash.
        blob: BlobHash,
    },
    /// The file system reported an error.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Lays the files out below `root` and returns their folder, which is empty without files. Threads may call this at the
/// same time, even with the same files.
///
/// # Errors
/// [`PayloadError`]; the folder is unchanged then.
pub fn materialise(
    root: &Path,
    files: &BTreeMap<String, PayloadFile>,
    blobs: &BTreeMap<BlobHash, ByteBuf>,
) -> Result<PathBuf, PayloadError> {
    check_names(files)?;
    let folder = root.join(name_of(files));
    if is_whole(&folder, files) {
        return Ok(folder);
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(failed(root))?;
    static BEGUN: AtomicU64 = AtomicU64::new(0);
    let temp = PathBuf::from(format!("{}.{}{TEMP_SUFFIX}", folder.display(), BEGUN.fetch_add(1, Ordering::Relaxed)));
    remove(&temp)?;
    if let Err(error) = fill(&temp, files, blobs) {
        // Report the first error; the next start deletes the rest.
        let _ = remove(&temp);
        return Err(error);
    }
    let placed = put_in_place(&temp, &folder, files);
    // It is left over if another thread was faster, or if the rename failed.
    placed.and(remove(&temp))?;
    durable::sync_folder(root).map_err(failed(root))?;
    Ok(folder)
}

/// Renames `temp` to the folder, unless that is whole by now.
fn put_in_place(temp: &Path, folder: &Path, files: &BTreeMap<String, PayloadFile>) -> Result<(), PayloadError> {
    // One thread at a time: between the check and the removal another thread could place the folder and rely on it.
    static PLACING: Mutex<()> = Mutex::new(());
    let _placing = PLACING.lock().unwrap_or_else(PoisonError::into_inner);
    if is_whole(folder, files) {
        return Ok(());
    }
    // The folder was changed: an action has written into its working folder.
    remove(folder)?;
    fs::rename(temp, folder).map_err(failed(folder))
}

/// A name derived from all names, modes and contents.
fn name_of(files: &BTreeMap<String, PayloadFile>) -> String {
    let modes: Vec<_> = files.values().map(|f| mode(f).to_be_bytes()).collect();
    let mut parts: Vec<&[u8]> = Vec::with_capacity(files.len() * 3);
    for ((name, file), mode) in files.iter().zip(&modes) {
        parts.extend([name.as_bytes(), mode.as_slice(), file.blob.0.as_slice()]);
    }
    canonical::fingerprint(&parts).to_string()
}

/// Permission bits, without special bits (set-uid and the like).
fn mode(file: &PayloadFile) -> u32 {
    file.mode & 0o777
}

fn check_names(files: &BTreeMap<String, PayloadFile>) -> Result<(), PayloadError> {
    files.keys().try_for_each(|name| {
        let checked = check_payload_name(name, |other| files.contains_key(other));
        checked.map_err(|what| PayloadError::Name { name: name.clone(), what })
    })
}

fn fill(
    temp: &Path,
    files: &BTreeMap<String, PayloadFile>,
    blobs: &BTreeMap<BlobHash, ByteBuf>,
) -> Result<(), PayloadError> {
    fs::DirBuilder::new().mode(0o755).create(temp).map_err(failed(temp))?;
    let mut folders = std::collections::BTreeSet::from([temp.to_owned()]);
    for (name, file) in files {
        let missing = || PayloadError::Missing { name: name.clone(), blob: file.blob };
        let bytes = blobs.get(&file.blob).ok_or_else(missing)?;
        if canonical::blob_hash(bytes) != file.blob {
            return Err(PayloadError::Corrupt { name: name.clone(), blob: file.blob });
        }
        let path = temp.join(name);
        let parent = path.parent().unwrap_or(temp);
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(failed(parent))?;
        folders.extend(parent.ancestors().take_while(|a| a.starts_with(temp)).map(Path::to_owned));
        let write = || -> io::Result<()> {
            let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            out.write_all(bytes)?;
            // Independent of the daemon's mask.
            out.set_permissions(fs::Permissions::from_mode(mode(file)))?;
            out.sync_all()
        };
        write().map_err(failed(&path))?;
    }
    folders.iter().try_for_each(|f| durable::sync_folder(f).map_err(failed(f)))
}

/// Whether the folder holds each file with the right content.
fn is_whole(folder: &Path, files: &BTreeMap<String, PayloadFile>) -> bool {
    folder.is_dir()
        && files.iter().all(|(name, file)| {
            let path = folder.join(name);
            let Ok(meta) = fs::symlink_metadata(&path) else { return false };
            let length = usize::try_from(meta.len()).unwrap_or(usize::MAX);
            meta.permissions().mode() & 0o7777 == mode(file)
                && read_capped(&path, length).is_ok_and(|bytes| canonical::blob_hash(&bytes) == file.blob)
        })
}

fn remove(folder: &Path) -> Result<(), PayloadError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(folder)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> PayloadError {
    let path = path.to_owned();
    move |source| PayloadError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Blobs = BTreeMap<BlobHash, ByteBuf>;

    fn payload(files: &[(&str, u32, &str)]) -> (BTreeMap<String, PayloadFile>, Blobs) {
        let (mut all, mut blobs) = (BTreeMap::new(), Blobs::new());
        for (name, mode, text) in files {
            let blob = canonical::blob_hash(text.as_bytes());
            all.insert((*name).to_owned(), PayloadFile { mode: *mode, blob });
            blobs.insert(blob, ByteBuf::from(text.as_bytes()));
        }
        (all, blobs)
    }

    #[test]
    fn files_get_their_place_mode_and_content() {
        let root = tempfile::tempdir().expect("folder");
        let (files, blobs) = payload(&[("check.sh", 0o755, "#!/bin/sh\n"), ("lib/a/x", 0o4640, "x")]);
        let folder = materialise(root.path(), &files, &blobs).expect("made");
        assert_eq!(fs::read_to_string(folder.join("lib/a/x")).expect("read"), "x");
        let mode = |name: &str| fs::metadata(folder.join(name)).expect("there").permissions().mode() & 0o7777;
        assert_eq!((mode("check.sh"), mode("lib/a/x")), (0o755, 0o640));
        assert_eq!(materialise(root.path(), &files, &blobs).expect("there"), folder);
        let (other, blobs) = payload(&[("check.sh", 0o700, "#!/bin/sh\n"), ("lib/a/x", 0o640, "x")]);
        assert_ne!(materialise(root.path(), &other, &blobs).expect("made"), folder);
        let empty = materialise(root.path(), &BTreeMap::new(), &Blobs::new()).expect("made");
        assert_eq!(fs::read_dir(empty).expect("list").count(), 0);
    }

    #[test]
    fn a_changed_or_incomplete_payload_is_written_again() {
        let root = tempfile::tempdir().expect("folder");
        let (files, blobs) = payload(&[("a", 0o644, "one"), ("b", 0o644, "two")]);
        let folder = materialise(root.path(), &files, &blobs).expect("made");
        let outside = root.path().join("outside");
        fs::write(&outside, "keep").expect("written");
        for spoil in [
            &|| fs::write(folder.join("a"), "other").expect("written") as (),
            &|| fs::remove_file(folder.join("b")).expect("removed"),
            &|| fs::set_permissions(folder.join("a"), fs::Permissions::from_mode(0o777)).expect("set"),
            &|| {
                fs::remove_file(folder.join("a")).expect("removed");
                std::os::unix::fs::symlink(&outside, folder.join("a")).expect("linked");
            },
            &|| fs::create_dir_all(folder.with_extension("tmp").join("x")).expect("made"),
        ] as [&dyn Fn(); 5]
        {
            spoil();
            assert_eq!(materialise(root.path(), &files, &blobs).expect("made"), folder);
            assert_eq!(fs::read_to_string(folder.join("a")).expect("read"), "one");
            assert!(is_whole(&folder, &files));
        }
        assert_eq!(fs::read_to_string(&outside).expect("read"), "keep");
    }

    #[test]
    fn threads_that_write_the_same_payload_do_not_conflict() {
        let root = tempfile::tempdir().expect("a folder");
        let (files, blobs) = payload(&[("a", 0o644, "one"), ("b/c", 0o755, "two")]);
        for round in 0..400 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let folder = materialise(root.path(), &files, &blobs).expect("in place");
                        assert!(is_whole(&folder, &files), "round {round}");
                    });
                }
            });
            let left: Vec<_> = fs::read_dir(root.path()).expect("listed").flatten().map(|e| e.path()).collect();
            assert_eq!(left.len(), 1, "{left:?}");
            remove(&left[0]).expect("for the next round");
        }
        let killed = root.path().join(format!("abc.7{TEMP_SUFFIX}"));
        fs::create_dir_all(killed.join("half")).expect("made");
        let folder = materialise(root.path(), &files, &blobs).expect("in place");
        durable::sweep(root.path());
        assert!(!killed.exists() && is_whole(&folder, &files));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let root = tempfile::tempdir().expect("folder");
        let long = "x".repeat(256);
        for name in ["/etc/x", "../x", "a/../../x", "./x", "a//b", "", "a/", "a\0b", &long] {
            let (files, blobs) = payload(&[(name, 0o644, "x")]);
            let error = materialise(root.path(), &files, &blobs);
            assert!(matches!(error, Err(PayloadError::Name { .. })), "{name:?}: {error:?}");
        }
        let (files, blobs) = payload(&[("a", 0o644, "x"), ("a/b/c", 0o644, "y")]);
        assert!(matches!(materialise(root.path(), &files, &blobs), Err(PayloadError::Name { .. })));
        assert_eq!(fs::read_dir(root.path()).expect("list").count(), 0);
    }

    #[test]
    fn content_that_is_missing_or_wrong_is_named() {
        let root = tempfile::tempdir().expect("folder");
        let (files, mut blobs) = payload(&[("a", 0o644, "x")]);
        assert!(matches!(materialise(root.path(), &files, &Blobs::new()), Err(PayloadError::Missing { .. })));
        blobs.values_mut().for_each(|b| b.push(1));
        assert!(matches!(materialise(root.path(), &files, &blobs), Err(PayloadError::Corrupt { .. })));
        assert_eq!(fs::read_dir(root.path()).expect("list").count(), 0);
    }
}
