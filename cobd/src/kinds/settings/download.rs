//! The kind back end `download`: a file from a web server, with a known checksum.
//!
//! The file appears at its place only after its checksum is right.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use cob_kinds::Download;
use serde_json::{Value, json};

use super::fetch::{self, Fetch, PART};
use super::{Entry, Setting, Spec, accounts, earlier, place};
use crate::durable::{self, Sync};
use crate::kinds::native::{Host, NOTE, inspect};

/// The earlier file, in the own folder.
const EARLIER: &str = "earlier";
/// The checksum and the addresses of the last download, for a file without a known checksum.
const FETCHED: &str = "fetched.json";

/// The back end `download`.
#[derive(Debug)]
pub(super) struct DownloadSetting;

/// The desired file.
#[derive(Debug)]
struct Downloaded {
    host: Host,
    content: Download,
    /// The checksum in small letters.
    sha256: Option<String>,
    mode: u32,
    owner: Result<Option<u32>, String>,
    group: Result<Option<u32>, String>,
    own: PathBuf,
    /// The end of the transition.
    deadline: Instant,
}

impl Setting for DownloadSetting {
    type Content = Download;

    fn spec(&self, Entry { content, host, own, longest, .. }: Entry<Download>) -> Result<Box<dyn Spec>, String> {
        let mode = content.mode().ok_or("content: `mode` is not a file mode")?;
        let sha256 = content.sha256.as_ref().map(|sum| sum.to_ascii_lowercase());
        let owner = content.owner.as_ref().map(|name| accounts::uid(&host, name)).transpose();
        let group = content.group.as_ref().map(|name| accounts::gid(&host, name)).transpose();
        let deadline = Instant::now() + longest * 9 / 5;
        Ok(Box::new(Downloaded { host, content, sha256, mode, owner, group, own, deadline }))
    }

    fn notes(&self) -> &'static [&'static str] {
        &[NOTE, EARLIER, FETCHED, PART]
    }
}

impl Downloaded {
    fn path(&self) -> Result<PathBuf, String> {
        place::real(&self.host, &self.content.to)
    }

    /// The checksum of the last download from these addresses.
    fn fetched(&self) -> Option<String> {
        let text = fs::read_to_string(self.own.join(FETCHED)).ok()?;
        let fetched: Value = serde_json::from_str(&text).ok()?;
        let is_from_here = fetched["addresses"] == json!(self.content.addresses());
        fetched["sha256"].as_str().filter(|_| is_from_here).map(str::to_owned)
    }

    /// Downloads the file and puts it at its place.
    fn fetch(&self, path: &Path) -> Result<(), String> {
        let own = &self.own;
        let fetch = Fetch {
            addresses: self.content.addresses(),
            sha256: self.sha256.as_deref(),
            proxy: self.content.proxy.as_deref(),
            netrc: self.content.netrc.as_deref(),
            max_size: self.content.max_size,
            own,
            deadline: self.deadline,
        };
        let (part, sum) = fetch.run()?;
        let written = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
        if self.sha256.is_none() {
            let fetched = json!({ "addresses": self.content.addresses(), "sha256": sum }).to_string();
            durable::write_file(own, FETCHED, 0o600, fetched.as_bytes(), Sync::Now)
                .map_err(|error| written(&own.join(FETCHED), error))?;
        }
        place::make_folders(path)?;
        let (folder, name) = earlier::parts(path)?;
        let fill = |file: &mut File| {
            io::copy(&mut File::open(&part)?, file)?;
            self.give_owner(file)
        };
        durable::write_file_with(folder, name, self.mode, Sync::Now, fill).map_err(|error| written(path, error))?;
        fs::remove_file(&part).map_err(|error| written(&part, error))
    }

    fn give_owner(&self, file: &File) -> io::Result<()> {
        let ids = || Ok::<_, String>((self.owner.clone()?, self.group.clone()?));
        accounts::give(file, ids().map_err(io::Error::other)?)
    }
}

impl Spec for Downloaded {
    fn target(&self) -> String {
        self.content.to.clone()
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let path = self.path()?;
        let Some(meta) = inspect(&path)? else { return Ok(None) };
        if !meta.is_file() {
            return Ok(Some(json!({ "is": if meta.is_symlink() { "a link" } else { "no regular file" } })));
        }
        let mut found = json!({
            "sha256": fetch::sum_of(&path)?,
            "mode": format!("{:04o}", meta.mode() & 0o7777),
        });
        for (key, name, id) in [("owner", &self.content.owner, meta.uid()), ("group", &self.content.group, meta.gid())]
        {
            if name.is_some() {
                found[key] = json!(id);
            }
        }
        // The transition was killed after its last step but one.
        if self.own.join(PART).exists() {
            found["download"] = json!("a part is left over");
        }
        Ok(Some(found))
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        let mut found = self.look(None)?;
        if let (Some(found), None) = (&mut found, &self.sha256)
            && found["sha256"].is_string()
        {
            found["sha256"] = self.wanted()["sha256"].clone();
        }
        Ok(found)
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let (own, path) = (&self.own, self.path()?);
        // The file is ours already.
        if own.join(NOTE).exists() {
            return Ok(None);
        }
        earlier::note(&path, own, EARLIER).map(Some)
    }

    fn wanted(&self) -> Value {
        let sum = self.sha256.clone().or_else(|| self.fetched());
        let mut wanted = json!({
            "sha256": sum.unwrap_or_else(|| "not downloaded yet".to_owned()),
            "mode": format!("{:04o}", self.mode),
        });
        for (key, name, id) in
            [("owner", &self.content.owner, &self.owner), ("group", &self.content.group, &self.group)]
        {
            if let Some(name) = name {
                wanted[key] = id.as_ref().map_or_else(|_| json!(name), |id| json!(id));
            }
        }
        wanted
    }

    fn of_use(&self) -> Result<(), String> {
        self.owner.clone().and(self.group.clone()).map(|_| ())
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let path = self.path()?;
        match self.look(None)? {
            Some(found) if found["sha256"] == self.wanted()["sha256"] => {
                let changed = File::open(&path).and_then(|file| {
                    self.give_owner(&file)?;
                    file.set_permissions(fs::Permissions::from_mode(self.mode))?;
                    file.sync_all()
                });
                changed.map_err(|error| format!("{}: {error}", path.display()))?;
                place::remove_all(&self.own.join(PART))
            }
            Some(_) if inspect(&path)?.is_some_and(|meta| meta.is_dir()) => {
                Err(format!("{}: a folder is at the place of the file: move it away", path.display()))
            }
            Some(_) | None => self.fetch(&path),
        }
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let (own, nothing) = (&self.own, Value::Null);
        earlier::restore(&self.host, &self.content.to, own, EARLIER, before.unwrap_or(&nothing))?;
        [PART, FETCHED].iter().try_for_each(|file| place::remove_all(&own.join(file)))
    }
}

#[cfg(test)]
#[path = "download_test.rs"]
mod tests;
