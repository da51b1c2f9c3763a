//! The kind back end `archive`: a folder with the content of an archive. [`Tree`] exchanges the folder.

use std::path::{Path, PathBuf};
use std::time::Instant;

use cob_kinds::{Archive, ArchiveFormat};
use serde_json::{Value, json};

use super::fetch::{self, Fetch, PART};
use super::tree::{NEW_RECORD, RECORD, Rules, Tree};
use super::unpack::{self, Unpack};
use super::{Entry, Setting, Spec, accounts, place};
use crate::kinds::native::{Host, NOTE, needs_program};

/// The back end `archive`.
#[derive(Debug)]
pub(super) struct ArchiveSetting;

/// The desired folder.
#[derive(Debug)]
struct Unpacked {
    host: Host,
    content: Archive,
    format: ArchiveFormat,
    owner: Result<Option<u32>, String>,
    group: Result<Option<u32>, String>,
    own: PathBuf,
    /// The end of the transition.
    deadline: Instant,
}

impl Setting for ArchiveSetting {
    type Content = Archive;

    fn spec(&self, Entry { content, host, own, longest, .. }: Entry<Archive>) -> Result<Box<dyn Spec>, String> {
        let format = content.format().ok_or("content: `format` is missing")?;
        let owner = content.owner.as_ref().map(|name| accounts::uid(&host, name)).transpose();
        let group = content.group.as_ref().map(|name| accounts::gid(&host, name)).transpose();
        let deadline = Instant::now() + longest * 3 / 2;
        Ok(Box::new(Unpacked { host, content, format, owner, group, own, deadline }))
    }

    fn notes(&self) -> &'static [&'static str] {
        &[NOTE, RECORD, NEW_RECORD, PART]
    }
}

impl Unpacked {
    fn tree(&self) -> Result<Tree, String> {
        let place = place::real(&self.host, &self.content.to)?;
        let owner = self.content.owner.is_some() || self.content.group.is_some();
        Ok(Tree { place, own: self.own.clone(), rules: Rules { owner, git: false, packages: None } })
    }

    /// The archive on the host.
    fn local(&self) -> Result<Option<PathBuf>, String> {
        self.content.path.as_ref().map(|path| place::real(&self.host, path)).transpose()
    }

    /// The origin of the folder: all that decides about its content.
    fn source(&self) -> Result<String, String> {
        let sum = match (&self.content.sha256, self.local()?) {
            (Some(sum), _) => sum.to_ascii_lowercase(),
            (None, Some(path)) => fetch::sum_of(&path)
                .map_err(|why| format!("{why}; let it come `after` the object that makes the archive"))?,
            (None, None) => return Err("content: `sha256` is missing".to_owned()),
        };
        let id = |id: &Result<Option<u32>, String>| id.clone().map(|id| id.map_or(String::new(), |id| id.to_string()));
        let owner = format!("{}:{}", id(&self.owner)?, id(&self.group)?);
        Ok(format!("{sum} strip {} owner {owner}", self.content.strip).trim_end_matches(" owner :").to_owned())
    }

    /// Fills a new folder. Returns its origin.
    fn fill(&self, folder: &Path) -> Result<String, String> {
        let sha256 = self.content.sha256.as_ref().map(|sum| sum.to_ascii_lowercase());
        let archive = match self.local()? {
            Some(path) => {
                if let Some(wanted) = &sha256 {
                    let sum = fetch::sum_of(&path)?;
                    if sum != *wanted {
                        return Err(format!("{} has the checksum {sum}, and not {wanted}", path.display()));
                    }
                }
                path
            }
            None => {
                let fetch = Fetch {
                    addresses: self.content.addresses(),
                    sha256: sha256.as_deref(),
                    proxy: self.content.proxy.as_deref(),
                    netrc: self.content.netrc.as_deref(),
                    max_size: self.content.max_size,
                    own: &self.own,
                    deadline: self.deadline,
                };
                fetch.run()?.0
            }
        };
        let unpack = Unpack {
            archive: &archive,
            format: self.format,
            strip: self.content.strip,
            owner: self.owner.clone()?,
            group: self.group.clone()?,
            max_size: self.content.max_size,
            max_entries: self.content.max_entries,
        };
        unpack.run(folder)?;
        self.source()
    }
}

impl Spec for Unpacked {
    fn target(&self) -> String {
        self.content.to.clone()
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = self.tree()?.look("archive", before)?;
        // The transition was killed after its last step but one.
        if let Some(found) = found.as_mut().filter(|_| self.own.join(PART).exists()) {
            found["unfinished"] = json!(true);
        }
        Ok(found)
    }

    fn before(&self) -> Result<Option<Value>, String> {
        self.tree()?.before()
    }

    fn wanted(&self) -> Value {
        json!({ "archive": self.source().unwrap_or_else(|why| why), "changes": [] })
    }

    fn of_use(&self) -> Result<(), String> {
        self.owner.clone().and(self.group.clone())?;
        unpack::program(self.format).map_or(Ok(()), |(program, package)| needs_program(program, package))
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        self.tree()?.make(before, Some(&self.source()?), &|folder| self.fill(folder))?;
        place::remove_all(&self.own.join(PART))
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        self.tree()?.restore(before)?;
        place::remove_all(&self.own.join(PART))
    }
}

#[cfg(test)]
#[path = "archive_test.rs"]
mod tests;
