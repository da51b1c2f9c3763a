//! Secrets on a host: encrypted in the bundle, opened for a single job, deleted with it.
//!
//! A job whose content names secrets gets a private folder in memory (tmpfs), never on a disk:
//!
//! ```text
//!   /dev/shm/cob-UID-…/jobs/JOB/      values, the opened content, and what the action prints and exports
//!   /dev/shm/cob-UID-…/services/COB/  the environment of a service until it has begun, and what it prints
//!   /dev/shm/cob-UID-…/containers/COB/  the secret variables of a container while it runs
//! ```
//!
//! Rules: keys are read when values are opened, and wiped; the daemon keeps no value. Data that moves from the private
//! folder into the job's own contains no value. The runner deletes the folder after the end of the action; the folder
//! of a killed runner is deleted with the job, or at the next start of a daemon.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cob_trust::seal;
use cob_types::canonical;
use cob_types::secret::{self, SecretId};
use tracing::warn;
use zeroize::Zeroizing;

use super::redact::Redactor;
use crate::durable::{self, Sync};
use crate::identity::Keys;

/// The default place for folders in memory.
const IN_MEMORY: &str = "/dev/shm";
/// The file in the state folder with the name of another folder, if the default is taken.
const NOTED: &str = "secrets-folder";
/// The file with the values in a private folder.
const VALUES: &str = "values";
/// The most bytes of all values of a job together.
const MAX_VALUES: usize = 64 << 20;
/// `f_type` of tmpfs and ramfs.
const MEMORY_FILE_SYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Encrypted values by id, as in a bundle.
pub type Sealed = BTreeMap<SecretId, Vec<u8>>;

/// Decrypts the secrets of this host.
#[derive(Debug, Clone)]
pub struct Opener {
    identity: PathBuf,
    /// Shared by clones: the folder changes if another user has taken its name.
    root: Arc<Mutex<PathBuf>>,
    /// The state folder, if the folder is not configured.
    notes: Option<PathBuf>,
}

/// Decrypted values; wiped when dropped.
#[derive(Default)]
pub(crate) struct Opened(BTreeMap<SecretId, Zeroizing<String>>);

impl Opener {
    /// Decrypts with the key in this file, or with its successor. `folder` must be in memory; default: a folder below
    /// `/dev/shm` for this state folder.
    #[must_use]
    pub fn new(identity: &Path, state_dir: &Path, folder: Option<&Path>) -> Self {
        let by_default = || {
            let real = state_dir.canonicalize().unwrap_or_else(|_| state_dir.to_owned());
            let name = canonical::fingerprint(&[real.as_os_str().as_encoded_bytes()]).to_string();
            let user = rustix::process::geteuid().as_raw();
            Path::new(IN_MEMORY).join(format!("cob-{user}-{}", &name[..16]))
        };
        let notes = folder.is_none().then(|| state_dir.to_owned());
        let root = folder.map_or_else(by_default, Path::to_owned);
        // An earlier incarnation may have found the name taken.
        let noted = notes.as_deref().and_then(noted).filter(|noted| is_taken(&root) || is_ours(noted));
        let root = Arc::new(Mutex::new(noted.unwrap_or(root)));
        Self { identity: identity.to_owned(), root, notes }
    }

    /// The root folder. Below `/dev/shm` any user may create it first: then another folder with an unpredictable name
    /// is used, and the name is recorded for later incarnations.
    fn root(&self) -> PathBuf {
        let mut root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state_dir) = self.notes.as_deref().filter(|_| is_taken(&root)) {
            let random = RandomState::new().hash_one(&*root);
            let name = root.file_name().unwrap_or_default().to_string_lossy();
            let other = root.with_file_name(format!("{}-{random:016x}", name.chars().take(48).collect::<String>()));
            let bytes = other.as_os_str().as_encoded_bytes();
            match durable::write_file(state_dir, NOTED, 0o600, bytes, Sync::Later) {
                Ok(()) => {
                    warn!(taken = %root.display(), instead = %other.display(), "another user has made the folder of secrets");
                    *root = other;
                }
                Err(error) => warn!(taken = %root.display(), %error, "another folder of secrets can't be noted"),
            }
        }
        root.clone()
    }

    /// The file with the key of this host.
    pub(crate) fn identity(&self) -> &Path {
        &self.identity
    }

    /// Checks whether these values can be decrypted.
    ///
    /// # Errors
    /// The reason, as text.
    pub fn try_open<'a>(&self, sealed: impl Iterator<Item = (&'a SecretId, &'a [u8])>) -> Result<(), String> {
        self.open(sealed).map(drop)
    }

    pub(crate) fn open<'a>(&self, sealed: impl Iterator<Item = (&'a SecretId, &'a [u8])>) -> Result<Opened, String> {
        let mut sealed = sealed.peekable();
        let mut opened = Opened::default();
        if sealed.peek().is_none() {
            return Ok(opened);
        }
        let keys = Keys::load(&self.identity).map_err(|e| format!("its secrets can't be opened: {e}"))?;
        if keys.all().is_empty() {
            return Err(format!("its secrets can't be opened: this host has no key ({})", self.identity.display()));
        }
        for (id, bytes) in sealed {
            let value = seal::open_from_bundle(keys.all(), bytes)
                .map_err(|e| format!("the secret {id}: {e}; this host has {}", keys.named()))?;
            let text = std::str::from_utf8(&value).map_err(|_| format!("the secret {id} is no text"))?;
            opened.0.insert(*id, Zeroizing::new(text.to_owned()));
        }
        Ok(opened)
    }

    /// The private folder of a job.
    pub(super) fn job_folder(&self, name: &str) -> PathBuf {
        self.root().join("jobs").join(name)
    }

    /// The private folder of a service.
    pub(crate) fn service_folder(&self, name: &str) -> PathBuf {
        self.root().join("services").join(name)
    }

    /// The private folder of a container.
    pub(crate) fn container_folder(&self, name: &str) -> PathBuf {
        self.root().join("containers").join(name)
    }

    /// Creates a private folder, in memory and for this user alone.
    pub(super) fn make(&self, folder: &Path) -> io::Result<()> {
        let root = self.root();
        make_private(&root)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.parent().unwrap_or(&root))?;
        remove(folder)?;
        fs::DirBuilder::new().mode(0o700).create(folder)
    }

    /// Deletes the private folders `what/NAME` unless `lives` accepts the name. `what` is `jobs`, `services` or `containers`.
    pub(crate) fn clear(&self, what: &str, lives: impl Fn(&str) -> bool) {
        let Ok(entries) = fs::read_dir(self.root().join(what)) else { return };
        for entry in entries.flatten() {
            if !entry.file_name().to_str().is_some_and(&lives) {
                // A folder that can't be deleted now is tried again at the next start.
                let _ = remove(&entry.path());
            }
        }
    }
}

impl Opened {
    /// Writes the values into a private folder.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let values: BTreeMap<&SecretId, &str> = self.0.iter().map(|(id, value)| (id, value.as_str())).collect();
        let bytes = Zeroizing::new(serde_json::to_vec(&values)?);
        durable::write_file(folder, VALUES, 0o600, &bytes, Sync::Later)
    }

    /// Reads the values of a private folder.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let bytes = Zeroizing::new(super::read_capped(&folder.join(VALUES), MAX_VALUES)?);
        let values: BTreeMap<SecretId, String> = serde_json::from_slice(&bytes)?;
        Ok(Self(values.into_iter().map(|(id, value)| (id, Zeroizing::new(value))).collect()))
    }

    /// Reads the values of a private folder and deletes them there.
    pub(crate) fn take(folder: &Path) -> io::Result<Self> {
        let opened = Self::read(folder)?;
        fs::remove_file(folder.join(VALUES))?;
        Ok(opened)
    }

    /// A text with values in place of placeholders.
    pub(crate) fn put_into_text(&self, text: &str) -> Result<String, String> {
        secret::replace_text(text, &mut |id| self.value(id)).map_err(unknown)
    }

    /// A JSON text with values in place of placeholders.
    pub(super) fn put_into_json(&self, text: &str) -> Result<Zeroizing<String>, String> {
        let mut json: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("its content: {e}"))?;
        secret::replace(&mut json, &mut |id| self.value(id)).map_err(unknown)?;
        Ok(Zeroizing::new(json.to_string()))
    }

    fn value(&self, id: SecretId) -> Option<String> {
        self.0.get(&id).map(|value| value.as_str().to_owned())
    }

    /// The values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|value| value.as_str())
    }

    /// A redactor that finds these values in output.
    pub(crate) fn redactor(&self) -> Redactor {
        Redactor::of(self.values())
    }
}

fn unknown(id: SecretId) -> String {
    format!("its content names the secret {id}, which this host did not receive")
}

/// The folder that an earlier incarnation has recorded.
fn noted(state_dir: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(state_dir.join(NOTED)).ok()?;
    Some(PathBuf::from(text)).filter(|path| path.parent() == Some(Path::new(IN_MEMORY)))
}

/// Whether it is a folder of this user alone.
fn is_ours(folder: &Path) -> bool {
    let own = |meta: &fs::Metadata| meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o077 == 0;
    fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir() && own(&meta))
}

/// Whether the path exists and is not a folder of this user alone.
fn is_taken(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok() && !is_ours(folder)
}

/// Ensures a folder in memory that is accessible to this user alone; creates it if necessary.
fn make_private(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let wrong =
        |what: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{}: {what}", folder.display())));
    let meta = fs::symlink_metadata(folder)?;
    if !meta.is_dir() {
        return wrong("not a folder");
    }
    if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
        return wrong(
            "not this user's alone; has another user made it? `secrets_dir` in cobd.toml names another place",
        );
    }
    #[expect(clippy::cast_sign_loss, reason = "a number whose bits count; its type differs by machine")]
    let kind = rustix::fs::statfs(folder)?.f_type as u64 & 0xffff_ffff;
    if MEMORY_FILE_SYSTEMS.contains(&kind) {
        return Ok(());
    }
    wrong("not in memory (tmpfs), and secrets go to no disk; `secrets_dir` in cobd.toml names another place")
}

/// Deletes a folder, if it exists.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secrets_folder_taken_by_another_user_does_not_block_jobs() {
        let state = tempfile::tempdir().expect("a folder");
        let opener = || Opener::new(&state.path().join("identity.key"), state.path(), None);
        let taken = opener().root();
        // As if created by another user: it is open to others.
        fs::create_dir(&taken).expect("made");
        fs::set_permissions(&taken, fs::Permissions::from_mode(0o777)).expect("opened to all");
        let first = opener();
        let folder = first.job_folder("j1");
        first.make(&folder).expect("made elsewhere");
        assert!(!folder.starts_with(&taken) && folder.is_dir() && fs::read_dir(&taken).expect("listed").count() == 0);
        // Later incarnations find it, even if the name is free again.
        assert_eq!(opener().job_folder("j1"), folder);
        fs::remove_dir(&taken).expect("removed");
        assert_eq!(opener().job_folder("j1"), folder);
        fs::remove_dir_all(opener().root()).expect("removed");
        assert_eq!(opener().root(), taken, "after the machine was started again");
        // A configured folder is used or refused, never replaced.
        let named = Opener::new(&state.path().join("identity.key"), state.path(), Some(&taken));
        assert_eq!(named.root(), taken);
    }
}
