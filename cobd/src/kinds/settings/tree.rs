//! A folder that a change object makes as a whole: made beside its place, exchanged, and exchanged back.
//!
//! | path | content |
//! | --- | --- |
//! | `.NAME.cob-new` | the folder before the exchange; for a moment the replaced one |
//! | `.NAME.cob-old` | a folder that is being removed |
//! | `.NAME.cob-before` | what was at the place first |
//! | `.NAME.cob-aside` | the replaced one, on file systems that can't exchange two paths at once |
//! | `.NAME.cob-changed` | the last replaced folder that users had changed |
//!
//! A record in the own folder has all paths with mode and checksum. It is durable before the exchange, so that a killed
//! transition finds out which folder is which. What was there first is known by its inode, which the note has.
//!
//! Of a folder with packages the record has names and versions, too: a check compares only these.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{fetch, ignored, place, record};
use crate::durable;
use crate::kinds::native::{NOTE, inspect};

/// The record of the folder at the place.
pub(super) const RECORD: &str = "tree.json";
/// The record of the folder that is about to be there.
pub(super) const NEW_RECORD: &str = "tree-new.json";
/// The most paths of a folder.
pub(super) const MAX_PATHS: usize = 500_000;
/// The most differences that are shown.
const MAX_SHOWN: usize = 10;

/// A folder that a change object makes.
#[derive(Debug)]
pub(super) struct Tree {
    /// Its real path.
    pub(super) place: PathBuf,
    /// The own folder of the change object.
    pub(super) own: PathBuf,
    pub(super) rules: Rules,
}

/// What counts as a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Owner and group count.
    pub(super) owner: bool,
    /// The folder is a checkout of git, whose own data changes all the time.
    pub(super) git: bool,
    /// The folder has packages.
    pub(super) packages: Option<Packages>,
}

/// A folder with packages. Only names and versions count, so that a check of many files is quick.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packages {
    /// Reads names and versions.
    pub(super) read: fn(&Path) -> Result<Nodes, String>,
    /// Packages that users added are changes.
    pub(super) exact: bool,
    /// The name of folders that programs fill while they use the packages.
    pub(super) cache: &'static str,
}

/// The paths of a folder, each with its sort, mode and checksum; or its packages with their versions.
pub(super) type Nodes = BTreeMap<String, String>;

/// The record of a folder.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    /// The origin of the folder.
    source: String,
    /// The nodes that count.
    nodes: Nodes,
    /// All paths, if other nodes count.
    paths: Option<Nodes>,
}

/// The present folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The origin of the folder. `None`: it does not exist, or others made it.
    pub(super) source: Option<String>,
    /// Changes by users.
    pub(super) changes: Vec<String>,
    /// A killed transition left a folder beside it.
    pub(super) unfinished: bool,
}

impl Tree {
    fn beside(&self, end: &str) -> PathBuf {
        let name = self.place.file_name().unwrap_or_default().to_string_lossy();
        self.place.with_file_name(format!(".{name}.cob-{end}"))
    }

    /// The present folder for a look: its origin with the name `key`, and changes by users.
    pub(super) fn look(&self, key: &str, before: Option<&Value>) -> Result<Option<Value>, String> {
        let state = self.state(before)?;
        let Some(source) = state.source else { return Ok(None) };
        let mut found = json!({ key: source, "changes": state.changes });
        // A kill interrupted the last step.
        if state.unfinished {
            found["unfinished"] = json!(true);
        }
        Ok(Some(found))
    }

    /// The number of the earlier folder, and the made folders above it, for the note. `None`: there is a note.
    pub(super) fn before(&self) -> Result<Option<Value>, String> {
        if self.own.join(NOTE).exists() {
            return Ok(None);
        }
        if self.own.canonicalize().is_ok_and(|own| own.starts_with(&self.place)) {
            return Err(format!("{} contains the daemon's own data", self.place.display()));
        }
        let before = self.beside("before");
        if inspect(&before)?.is_some() {
            return Err(format!("{} exists: move it away, its name is needed", before.display()));
        }
        let made = place::missing_folder(&self.place).map(place::text).transpose()?;
        let earlier = inspect(&self.place)?.map(|meta| id(&meta));
        Ok(Some(json!({ "made": made, "earlier": earlier })))
    }

    /// The state of the folder. `before`: the note.
    pub(super) fn state(&self, before: Option<&Value>) -> Result<State, String> {
        let mut state = State { source: None, changes: Vec::new(), unfinished: self.is_unfinished()? };
        if inspect(&self.place)?.is_none_or(|meta| is_earlier(&meta, before)) {
            return Ok(state);
        }
        let nodes = self.nodes(&self.place)?;
        let records = [self.record(NEW_RECORD)?, self.record(RECORD)?];
        // A killed transition may have made the exchange, but not the record.
        for record in records.iter().flatten() {
            state.source = Some(record.source.clone());
            state.changes = self.changes(&self.place, &record.nodes, &nodes)?;
            if state.changes.is_empty() {
                break;
            }
        }
        Ok(state)
    }

    fn is_unfinished(&self) -> Result<bool, String> {
        let folders = ["new", "old", "aside"].map(|end| self.beside(end));
        for path in folders.iter().chain([&self.own.join(NEW_RECORD)]) {
            if inspect(path)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the folder by `fill`, and puts it at the place.
    pub(super) fn make(
        &self,
        before: Option<&Value>,
        source: Option<&str>,
        fill: &dyn Fn(&Path) -> Result<String, String>,
    ) -> Result<(), String> {
        self.recover(before)?;
        let state = self.state(before)?;
        if source.is_none() || state.source.as_deref() != source || !state.changes.is_empty() {
            place::make_folders(&self.place)?;
            let new = self.beside("new");
            fs::DirBuilder::new().mode(0o755).create(&new).map_err(|error| failed(&new, &error))?;
            let source = fill(&new)?;
            sync(&new)?;
            let paths = self.rules.packages.map(|_| self.walk(&new)).transpose()?;
            let record = Record { source, nodes: self.nodes(&new)?, paths };
            record::write(&self.own, NEW_RECORD, &record)?;
            match inspect(&self.place)? {
                None => self.rename(&new, &self.place)?,
                Some(_) => exchange(&new, &self.place)?,
            }
        }
        self.recover(before)
    }

    /// Continues after a kill: removes a half-made folder, or puts a replaced folder away.
    fn recover(&self, before: Option<&Value>) -> Result<(), String> {
        remove(&self.beside("old"))?;
        let (new, aside) = (self.beside("new"), self.beside("aside"));
        if let Some(meta) = inspect(&aside)? {
            match inspect(&self.place)? {
                None => self.rename(&aside, &self.place)?,
                Some(_) if is_earlier(&meta, before) => self.rename(&aside, &self.beside("before"))?,
                Some(_) => self.dispose(&aside)?,
            }
        }
        if let Some(meta) = inspect(&new)? {
            if is_earlier(&meta, before) {
                self.rename(&new, &self.beside("before"))?;
            } else if self.is_new(before)? {
                self.carry_over(&new)?;
                self.dispose(&new)?;
            } else {
                remove(&new)?;
            }
        }
        if self.is_new(before)? {
            let renamed = fs::rename(self.own.join(NEW_RECORD), self.own.join(RECORD));
            renamed.and_then(|()| durable::sync_folder(&self.own)).map_err(|error| failed(&self.own, &error))?;
        } else if self.is_as_in(RECORD, before)? {
            // No exchange was made.
            place::remove_all(&self.own.join(NEW_RECORD))?;
        }
        Ok(())
    }

    /// Whether the exchange for the new record was made.
    fn is_new(&self, before: Option<&Value>) -> Result<bool, String> {
        self.is_as_in(NEW_RECORD, before)
    }

    /// Whether the folder at the place is as in a record.
    fn is_as_in(&self, record: &str, before: Option<&Value>) -> Result<bool, String> {
        let Some(record) = self.record(record)? else { return Ok(false) };
        if inspect(&self.place)?.is_none_or(|meta| is_earlier(&meta, before)) {
            return Ok(false);
        }
        let nodes = self.nodes(&self.place)?;
        Ok(self.changes(&self.place, &record.nodes, &nodes)?.is_empty())
    }

    /// Moves files that git ignores from the replaced folder to the new one.
    fn carry_over(&self, old: &Path) -> Result<(), String> {
        let Some(record) = self.record(RECORD)?.filter(|_| self.rules.git) else { return Ok(()) };
        let nodes = self.walk(old)?;
        for path in ignored::paths(old, &self.own, &record.nodes, &nodes)?.ignored {
            let (from, to) = (old.join(&path), self.place.join(&path));
            if to.parent().is_some_and(Path::is_dir) && inspect(&to)?.is_none() {
                self.rename(&from, &to)?;
            }
        }
        Ok(())
    }

    /// The changes of a folder by users.
    fn changes(&self, root: &Path, record: &Nodes, nodes: &Nodes) -> Result<Vec<String>, String> {
        if self.rules.packages.is_some_and(|packages| !packages.exact) {
            let known = nodes.iter().filter(|(name, _)| record.contains_key(*name));
            return Ok(differences(record, &known.map(|(name, node)| (name.clone(), node.clone())).collect()));
        }
        if !self.rules.git || nodes.keys().all(|path| record.contains_key(path)) {
            return Ok(differences(record, nodes));
        }
        // Files that git ignores are no changes.
        let others = ignored::paths(root, &self.own, record, nodes)?.others;
        let known = nodes.iter().filter(|(path, _)| record.contains_key(*path) || others.contains(*path));
        Ok(differences(record, &known.map(|(path, node)| (path.clone(), node.clone())).collect()))
    }

    /// Removes a replaced folder of this change object. A folder with changes of users is kept.
    fn dispose(&self, path: &Path) -> Result<(), String> {
        let paths = self.walk(path)?;
        let is_as_made = |record: &Record| *record.paths.as_ref().unwrap_or(&record.nodes) == paths;
        if self.record(RECORD)?.as_ref().is_some_and(is_as_made) || paths.len() <= 1 {
            let old = self.beside("old");
            self.rename(path, &old)?;
            return remove(&old);
        }
        let changed = self.beside("changed");
        remove(&changed)?;
        eprintln!("the changed folder is kept as {}", changed.display());
        self.rename(path, &changed)
    }

    /// Brings the earlier folder back.
    pub(super) fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        self.recover(before)?;
        let earlier = self.beside("before");
        let here = inspect(&self.place)?;
        if here.as_ref().is_some_and(|meta| is_earlier(meta, before)) {
            // The exchange back was made, or no exchange ever.
            if inspect(&earlier)?.is_some() {
                self.dispose(&earlier)?;
            }
        } else if inspect(&earlier)?.is_some_and(|meta| is_earlier(&meta, before)) {
            match here {
                None => {
                    place::make_folders(&self.place)?;
                    self.rename(&earlier, &self.place)?;
                }
                Some(_) => {
                    exchange(&earlier, &self.place)?;
                    self.dispose(&earlier)?;
                }
            }
        } else if here.is_some() {
            if before.is_some_and(|before| !before["earlier"].is_null()) {
                eprintln!(
                    "{} does not exist any more, so the earlier files do not return to {}",
                    earlier.display(),
                    self.place.display()
                );
            }
            self.dispose(&self.place)?;
        }
        if let Some(first) = before.and_then(|before| before["made"].as_str()) {
            place::remove_folders(&self.place, first);
        }
        [NEW_RECORD, RECORD].iter().try_for_each(|name| place::remove_all(&self.own.join(name)))
    }

    fn record(&self, name: &str) -> Result<Option<Record>, String> {
        record::read(&self.own, name)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), String> {
        let renamed = renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE).map_err(io::Error::from);
        let renamed = renamed.and_then(|()| self.place.parent().map_or(Ok(()), durable::sync_folder));
        renamed.map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
    }

    /// The nodes of a folder that count.
    fn nodes(&self, root: &Path) -> Result<Nodes, String> {
        self.rules.packages.map_or_else(|| self.walk(root), |packages| (packages.read)(root))
    }

    /// All paths below a folder.
    fn walk(&self, root: &Path) -> Result<Nodes, String> {
        let mut nodes = Nodes::new();
        let mut open = vec![root.to_owned()];
        while let Some(path) = open.pop() {
            let Some(meta) = inspect(&path)? else { continue };
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            if nodes.len() >= MAX_PATHS {
                return Err(format!("{}: it has more than {MAX_PATHS} paths", root.display()));
            }
            let is_data = self.rules.git && name.strip_prefix(".git/").is_some_and(|name| name != "HEAD");
            let is_cache = self.rules.packages.is_some_and(|packages| path.ends_with(packages.cache));
            if is_data || is_cache {
                continue;
            }
            if meta.is_dir() {
                let entries = fs::read_dir(&path).map_err(|error| failed(&path, &error))?;
                open.extend(entries.flatten().map(|entry| entry.path()));
            }
            nodes.insert(name, self.node(&path, &meta)?);
        }
        Ok(nodes)
    }

    fn node(&self, path: &Path, meta: &fs::Metadata) -> Result<String, String> {
        let owner = if self.rules.owner { format!(" {}:{}", meta.uid(), meta.gid()) } else { String::new() };
        let mode = meta.mode() & 0o7777;
        Ok(match meta.file_type() {
            kind if kind.is_symlink() => {
                let target = fs::read_link(path).map_err(|error| failed(path, &error))?;
                format!("link{owner} {}", target.to_string_lossy())
            }
            kind if kind.is_dir() => format!("folder {mode:04o}{owner}"),
            kind if kind.is_file() => format!("file {mode:04o}{owner} {}", fetch::sum_of(path)?),
            _ => "special file".to_owned(),
        })
    }
}

/// The differences of a folder from its record, for people.
fn differences(record: &Nodes, found: &Nodes) -> Vec<String> {
    let changed = record.iter().filter_map(|(path, node)| match found.get(path) {
        None => Some(format!("{path} is missing")),
        Some(other) if other != node => Some(format!("{path} is changed")),
        Some(_) => None,
    });
    let more = found.keys().filter(|path| !record.contains_key(*path)).map(|path| format!("{path} is new"));
    let mut all: Vec<_> = changed.chain(more).collect();
    if all.len() > MAX_SHOWN {
        let rest = all.len() - MAX_SHOWN;
        all.truncate(MAX_SHOWN);
        all.push(format!("{rest} more"));
    }
    all
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// The number of a file or folder, which a rename keeps.
fn id(meta: &fs::Metadata) -> Value {
    json!([meta.dev(), meta.ino()])
}

fn is_earlier(meta: &fs::Metadata, before: Option<&Value>) -> bool {
    before.is_some_and(|before| before["earlier"] == id(meta))
}

/// Exchanges two paths at once. On a file system without this operation, there is a moment without the second path.
fn exchange(one: &Path, other: &Path) -> Result<(), String> {
    let exchanged = match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            let aside = one.with_extension("cob-aside");
            fs::rename(other, &aside).and_then(|()| fs::rename(one, other)).and_then(|()| fs::rename(&aside, one))
        }
        exchanged => exchanged.map_err(io::Error::from),
    };
    let exchanged = exchanged.and_then(|()| other.parent().map_or(Ok(()), durable::sync_folder));
    exchanged.map_err(|error| format!("{} and {}: {error}", one.display(), other.display()))
}

/// Removes a folder, also one with folders that their owner may not write.
fn remove(path: &Path) -> Result<(), String> {
    let mut open = vec![path.to_owned()];
    while let Some(path) = open.pop() {
        let Some(meta) = inspect(&path)?.filter(fs::Metadata::is_dir) else { continue };
        if meta.mode() & 0o700 != 0o700 {
            let opened = fs::set_permissions(&path, fs::Permissions::from_mode(0o700));
            opened.map_err(|error| failed(&path, &error))?;
        }
        let entries = fs::read_dir(&path).map_err(|error| failed(&path, &error))?;
        open.extend(entries.flatten().map(|entry| entry.path()));
    }
    place::remove_all(path)
}

/// Makes a folder with its content durable.
fn sync(folder: &Path) -> Result<(), String> {
    let synced = fs::File::open(folder).and_then(|file| rustix::fs::syncfs(file).map_err(io::Error::from));
    synced.map_err(|error| failed(folder, &error))
}
