//! The file of a private key. Its content is never read into a message, a note or an answer.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use cob_kinds::KeyType;
use serde_json::{Map, Value, json};

use super::super::{accounts, earlier, place};
use super::openssl;
use crate::durable::{self, Sync};
use crate::kinds::native::{Host, inspect};

/// The key of the type in a state.
pub(super) const KEY: &str = "key";
/// Its value for a file that has no key, or a key with a password.
const UNREADABLE: &str = "no private key that openssl reads without a password";

/// The desired file.
#[derive(Debug)]
pub(super) struct KeyFile {
    pub(super) host: Host,
    pub(super) file: String,
    pub(super) key_type: KeyType,
    mode: u32,
    owner: Option<Result<u32, String>>,
    group: Option<Result<u32, String>>,
}

impl KeyFile {
    pub(super) fn new(
        host: &Host,
        file: &str,
        key_type: KeyType,
        mode: Option<u32>,
        (owner, group): (Option<&String>, Option<&String>),
    ) -> Result<Self, String> {
        Ok(Self {
            host: host.clone(),
            file: file.to_owned(),
            key_type,
            mode: mode.ok_or("content: `mode` is not a file mode")?,
            owner: owner.map(|name| accounts::uid(host, name)),
            group: group.map(|name| accounts::gid(host, name)),
        })
    }

    pub(super) fn path(&self) -> Result<PathBuf, String> {
        place::real(&self.host, &self.file)
    }

    /// The owner and the group, if the content names them.
    fn ids(&self) -> Result<(Option<u32>, Option<u32>), String> {
        Ok((self.owner.clone().transpose()?, self.group.clone().transpose()?))
    }

    pub(super) fn of_use(&self) -> Result<(), String> {
        self.ids().map(|_| ())
    }

    pub(super) fn look(&self) -> Result<Map<String, Value>, String> {
        let path = self.path()?;
        let found = match inspect(&path)? {
            None => json!({ KEY: "not there" }),
            Some(meta) if meta.is_file() => {
                let key = match openssl::public_key(&path)? {
                    Some(public) => openssl::type_of(&public)?,
                    None => UNREADABLE.to_owned(),
                };
                let mut found = json!({ KEY: key, "key_mode": format!("{:04o}", meta.mode() & 0o7777) });
                for (key, wanted, id) in
                    [("key_owner", &self.owner, meta.uid()), ("key_group", &self.group, meta.gid())]
                {
                    if wanted.is_some() {
                        found[key] = json!(id);
                    }
                }
                found
            }
            Some(meta) => json!({ KEY: if meta.is_symlink() { "a link" } else { "no regular file" } }),
        };
        Ok(map(found))
    }

    pub(super) fn wanted(&self) -> Map<String, Value> {
        let mut wanted = json!({ KEY: self.key_type.name(), "key_mode": format!("{:04o}", self.mode) });
        for (key, id) in [("key_owner", &self.owner), ("key_group", &self.group)] {
            if let Some(id) = id {
                wanted[key] = id.as_ref().map_or_else(|why| json!(why), |id| json!(id));
            }
        }
        map(wanted)
    }

    /// Whether the key is there, of the desired type. Its mode and its owner may differ.
    ///
    /// # Errors
    /// The file at this place must not be replaced.
    pub(super) fn is_usable(&self) -> Result<bool, String> {
        let (path, found) = (self.path()?, self.look()?);
        let meta = inspect(&path)?;
        if found[KEY] == json!(UNREADABLE) && meta.as_ref().is_some_and(|meta| meta.len() > 0) {
            // The key may be the only one of its kind, such as that of an authority.
            return Err(format!("{}: it has {UNREADABLE}; move it away, and COB makes a key", path.display()));
        }
        if meta.is_some_and(|meta| meta.is_dir()) {
            return Err(format!("{}: a folder is at the place of the private key: move it away", path.display()));
        }
        Ok(found[KEY] == json!(self.key_type.name()))
    }

    /// Makes the key, unless it is there; a usable key keeps its content.
    pub(super) fn apply(&self) -> Result<(), String> {
        if self.is_usable()? { self.protect() } else { self.put(&openssl::new_key(self.key_type)?) }
    }

    /// Gives the file its mode and its owner.
    pub(super) fn protect(&self) -> Result<(), String> {
        let (path, ids) = (self.path()?, self.ids()?);
        let set = File::open(&path).and_then(|file| {
            accounts::give(&file, ids)?;
            file.set_permissions(fs::Permissions::from_mode(self.mode))?;
            file.sync_all()
        });
        set.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Puts a key into the file.
    pub(super) fn put(&self, text: &str) -> Result<(), String> {
        let (path, ids) = (self.path()?, self.ids()?);
        place::make_folders(&path)?;
        let (folder, name) = earlier::parts(&path)?;
        let fill = |file: &mut File| {
            file.write_all(text.as_bytes())?;
            accounts::give(file, ids)
        };
        let written = durable::write_file_with(folder, name, self.mode, Sync::Now, fill);
        written.map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// The keys of an object.
pub(super) fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}
