//! The wanted tree, from the content of a change object.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use serde::Deserialize;

use crate::Choice;
use crate::attributes::{Bytes, Managed, Who};
use crate::error::{FilesError, MAX_ENTRIES};
use crate::path::TreePath;
use crate::store::Text;

/// The content of a change object in a bundle: all paths are explicit, folders beside the model are written out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    /// The wanted entries, by absolute path.
    pub files: BTreeMap<String, Item>,
    /// The default of `manage` for all files.
    #[serde(default)]
    pub manage: Manage,
    /// How changes by others are treated.
    #[serde(default)]
    pub on_drift: OnDrift,
    /// How conflicts are decided.
    #[serde(default)]
    pub on_conflict: OnConflict,
}

/// A path of a content.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Item {
    /// The text of a file.
    pub content: Option<String>,
    /// The name of the file that travels with the change object and has the content.
    pub from: Option<String>,
    /// The target of a symbolic link.
    pub link: Option<String>,
    /// The path is a folder.
    pub folder: bool,
    /// Permission bits, octal: `"0644"`.
    pub mode: Option<String>,
    /// The owner, a name or a number.
    pub owner: Option<Who>,
    /// The group, a name or a number.
    pub group: Option<Who>,
    /// Extended attributes to set.
    pub xattrs: BTreeMap<String, String>,
    /// Whether users' changes are kept.
    pub manage: Option<Manage>,
    /// A command that must accept a new text before the file is written; `%` is the file with the text.
    pub validate: Option<String>,
    /// For a folder: entries that the content does not name are removed.
    pub whole: bool,
    /// The content holds a secret: it is never kept or shown.
    #[serde(skip)]
    pub secret: bool,
}

/// How a file treats changes by others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manage {
    /// Copied: changes by others are overwritten, and kept in the history.
    #[default]
    Copy,
    /// Shared: changes by others are merged with changes of the model.
    Merge,
}

/// How changes by others in copied files are treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDrift {
    /// They are overwritten as soon as they are detected.
    #[default]
    Heal,
    /// They stay until the model changes the file, and are reported.
    Report,
    /// They stay and are merged with later changes of the model; the difference is a patch for the model.
    Adopt,
}

/// How a conflict in a shared file is decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnConflict {
    /// A person decides: no file is written until then.
    #[default]
    Ask,
    /// The text on the host stays.
    Ours,
    /// The wanted text is written; the text on the host is kept in the history.
    Theirs,
}

/// The wanted tree, ready to be compared with a disk.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub(crate) entries: BTreeMap<TreePath, Entry>,
    pub(crate) on_drift: OnDrift,
    pub(crate) on_conflict: OnConflict,
    /// The folder of the files that travel with the change object.
    folder: PathBuf,
    /// Changes with each part of the content.
    pub(crate) spec: String,
    /// The secrets that this host knows.
    known: Known,
    validator: Validation,
}

/// Finds the values of secrets that a host knows in any text: an administrator copies a file, an editor leaves a
/// backup.
pub trait Secrets: Send + Sync {
    /// Whether a text holds the value of a secret.
    fn stand_in(&self, text: &[u8]) -> bool;

    /// The length of the longest value.
    fn longest(&self) -> usize;
}

/// Asks the programs of the host about new texts.
pub trait Validator: Send + Sync {
    /// Runs the command about a text for this path. The command ends when `is_cancelled` returns true.
    ///
    /// # Errors
    /// The command refuses the text, or can't run: the reason, in words.
    fn validate(
        &self,
        command: &str,
        path: &TreePath,
        text: &[u8],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), String>;
}

#[derive(Clone, Default)]
struct Validation(Option<Arc<dyn Validator>>);

impl fmt::Debug for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Validation")
    }
}

#[derive(Clone, Default)]
struct Known(Option<Arc<dyn Secrets>>);

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known")
    }
}

/// The wanted entry of a path.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) node: Node,
    pub(crate) mode: Option<u32>,
    pub(crate) owner: Option<Who>,
    pub(crate) group: Option<Who>,
    pub(crate) xattrs: BTreeMap<String, Bytes>,
    pub(crate) manage: Manage,
    pub(crate) validate: Option<String>,
    pub(crate) secret: bool,
}

/// The type of an entry.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    File(Source),
    Link(Vec<u8>),
    Folder {
        whole: bool,
        /// Only a parent of a wanted path: its attributes are not managed.
        implied: bool,
    },
}

/// The place of a file's content.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Inline(Text),
    File(PathBuf),
}

impl Source {
    pub(crate) fn read(&self, path: &TreePath) -> Result<Text, FilesError> {
        match self {
            Self::Inline(text) => Ok(text.clone()),
            Self::File(from) => fs::read(from).map(Text::from).map_err(|e| {
                FilesError::Content(format!("the content of {path}, which travelled as {}: {e}", from.display()))
            }),
        }
    }
}

impl Wanted {
    /// Builds the wanted tree. `folder` has the files that travel with the change object; `spec` is a text that changes
    /// with each part of the content.
    ///
    /// # Errors
    /// [`FilesError`] tells the mistake in the content.
    pub fn new(content: Content, folder: &Path, spec: &str) -> Result<Self, FilesError> {
        let mut entries = BTreeMap::new();
        for (path, item) in content.files {
            let entry = Entry::new(&path, item, content.manage, content.on_drift, folder)?;
            entries.insert(TreePath::new(&path)?, entry);
        }
        if entries.is_empty() {
            return Err(FilesError::Content("the content names no files".to_owned()));
        }
        let (folder, spec) = (folder.to_owned(), spec.to_owned());
        let mut wanted = Self {
            entries,
            on_drift: content.on_drift,
            on_conflict: content.on_conflict,
            folder,
            spec,
            known: Known::default(),
            validator: Validation::default(),
        };
        wanted.add_folders()?;
        if wanted.entries.len() > MAX_ENTRIES {
            return Err(FilesError::Content(format!("it has more than {MAX_ENTRIES} files and folders")));
        }
        Ok(wanted)
    }

    /// Sets the known secrets: a file that holds the value of a secret is sealed before it is kept, and not shown.
    #[must_use]
    pub fn with_secrets(self, secrets: Arc<dyn Secrets>) -> Self {
        Self { known: Known(Some(secrets)), ..self }
    }

    /// Sets the validator of new texts.
    #[must_use]
    pub fn with_validator(self, validator: Arc<dyn Validator>) -> Self {
        Self { validator: Validation(Some(validator)), ..self }
    }

    /// Refuses a new text that the path's command does not accept.
    pub(crate) fn validate(
        &self,
        path: &TreePath,
        text: &[u8],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), FilesError> {
        let Some(command) = self.entries.get(path).and_then(|entry| entry.validate.as_ref()) else { return Ok(()) };
        let missing = || Err("there is no validator".to_owned());
        let asked = |validator: &Arc<dyn Validator>| validator.validate(command, path, text, is_cancelled);
        self.validator.0.as_ref().map_or_else(missing, asked).map_err(|what| FilesError::Refused {
            path: path.clone(),
            command: command.clone(),
            what,
        })
    }

    /// Whether a text holds the value of a secret.
    pub(crate) fn holds_secret(&self, text: &[u8]) -> bool {
        self.known.0.as_ref().is_some_and(|secrets| secrets.stand_in(text))
    }

    /// The length of the longest secret; `None`: no secret is known.
    pub(crate) fn longest_secret(&self) -> Option<usize> {
        self.known.0.as_ref().map(|secrets| secrets.longest())
    }

    /// Adds the parent folders of all paths.
    fn add_folders(&mut self) -> Result<(), FilesError> {
        let above: BTreeSet<TreePath> = self.entries.keys().flat_map(TreePath::ancestors).collect();
        for path in above {
            match self.entries.get(&path).map(|e| &e.node) {
                Some(Node::Folder { .. }) => {}
                Some(_) => {
                    let what = format!("{path} is not a folder in the model, but the model has files below it");
                    return Err(FilesError::Content(what));
                }
                None => drop(self.entries.insert(path, Entry::implied())),
            }
        }
        Ok(())
    }

    /// Whether changes by others are reported and not healed at once.
    #[must_use]
    pub fn tells(&self) -> bool {
        self.on_drift != OnDrift::Heal
    }

    /// Whether changes by others become a patch for the model.
    #[must_use]
    pub fn adopts(&self) -> bool {
        self.on_drift == OnDrift::Adopt
    }

    /// Whether a change of the path by others is healed at once.
    #[must_use]
    pub fn heals(&self, path: &TreePath) -> bool {
        !self.tells() && self.entries.get(path).is_some_and(|e| e.manage == Manage::Copy)
    }

    /// Whether changes by others may stay in any of the files.
    #[must_use]
    pub fn tolerates(&self) -> bool {
        self.tells() || self.entries.values().any(|e| e.manage == Manage::Merge)
    }

    /// The name of a travelling file in the folder beside the model.
    pub(crate) fn beside_the_model<'p>(&self, file: &'p Path) -> Option<&'p Path> {
        file.strip_prefix(&self.folder).ok()
    }

    /// Only these paths of the tree. `None`: a path is not named by the content, is only a parent folder, or is managed
    /// as a whole.
    #[must_use]
    pub fn only<'p>(&self, paths: impl IntoIterator<Item = &'p Path>) -> Option<Self> {
        let mut entries = BTreeMap::new();
        for path in paths {
            let below_root = path.as_os_str().as_bytes().strip_prefix(b"/")?;
            let (path, entry) = self.entries.get_key_value(below_root)?;
            if matches!(entry.node, Node::Folder { implied: true, .. } | Node::Folder { whole: true, .. }) {
                return None;
            }
            entries.insert(path.clone(), entry.clone());
        }
        Some(Self {
            entries,
            on_drift: self.on_drift,
            on_conflict: self.on_conflict,
            folder: self.folder.clone(),
            spec: self.spec.clone(),
            known: self.known.clone(),
            validator: self.validator.clone(),
        })
    }

    /// The model's decision of conflicts.
    pub(crate) fn decides(&self) -> Option<&'static Choice> {
        match self.on_conflict {
            OnConflict::Ask => None,
            OnConflict::Ours => Some(&Choice::Ours),
            OnConflict::Theirs => Some(&Choice::Theirs),
        }
    }

    /// The number of paths, parent folders included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.entries.len()
    }

    /// The text that changes with each part of the content.
    #[must_use]
    pub fn spec(&self) -> &str {
        &self.spec
    }

    /// Whether a file holds a secret.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        self.entries.values().any(|e| e.secret)
    }

    /// All paths that the content names.
    pub fn watched(&self) -> impl Iterator<Item = &TreePath> {
        let implied = |e: &Entry| matches!(e.node, Node::Folder { implied: true, .. });
        self.entries.iter().filter(move |(_, e)| !implied(e)).map(|(path, _)| path)
    }

    /// The folders that are managed as a whole.
    pub fn whole_folders(&self) -> impl Iterator<Item = &TreePath> {
        self.entries.iter().filter(|(_, e)| matches!(e.node, Node::Folder { whole: true, .. })).map(|(path, _)| path)
    }
}

impl Entry {
    fn new(path: &str, item: Item, manage: Manage, on_drift: OnDrift, folder: &Path) -> Result<Self, FilesError> {
        let wrong = |what: &str| Err(FilesError::Content(format!("{path}: {what}")));
        let node = match (item.content, item.from, item.link, item.folder) {
            (Some(text), None, None, false) => Node::File(Source::Inline(text.into_bytes().into())),
            (None, Some(name), None, false) => Node::File(Source::File(below(folder, &name)?)),
            (None, None, Some(target), false) if !target.is_empty() && !target.contains('\0') => {
                Node::Link(target.into_bytes())
            }
            (None, None, Some(_), false) => return wrong("`link` is empty: it needs the target of the link"),
            (None, None, None, true) => Node::Folder { whole: item.whole, implied: false },
            _ => return wrong("it needs either `content`, `from`, `link` or `folder`"),
        };
        if item.whole && !matches!(node, Node::Folder { .. }) {
            return wrong("only a folder is `whole`");
        }
        let (is_file, validate) = (matches!(node, Node::File(_)), item.validate);
        if validate.as_ref().is_some_and(|command| !is_file || !command.contains('%')) {
            return wrong("`validate` is a command for a text; `%` in it is the file with the text");
        }
        let mode = match item.mode.as_deref().map(|m| u32::from_str_radix(m.trim_start_matches("0o"), 8)) {
            None => None,
            Some(Ok(mode)) if mode <= 0o7777 => Some(mode),
            Some(_) => return wrong("`mode` is octal, \"0000\" to \"7777\""),
        };
        if [&item.owner, &item.group].into_iter().flatten().any(|w| *w == Who::Number(u32::MAX)) {
            return wrong("the number 4294967295 is reserved");
        }
        let manage = match on_drift {
            OnDrift::Adopt => Manage::Merge,
            OnDrift::Heal | OnDrift::Report => item.manage.unwrap_or(manage),
        };
        if item.secret && manage == Manage::Merge {
            return wrong(
                "a file with a secret can't be merged, because COB keeps no copy of it; write `manage: \
                copy`",
            );
        }
        let xattrs = item.xattrs.into_iter().map(|(name, text)| (name, Bytes(text.into_bytes()))).collect();
        Ok(Self { node, mode, owner: item.owner, group: item.group, xattrs, manage, validate, secret: item.secret })
    }

    fn implied() -> Self {
        let node = Node::Folder { whole: false, implied: true };
        Self {
            node,
            mode: None,
            owner: None,
            group: None,
            xattrs: BTreeMap::new(),
            manage: Manage::Copy,
            validate: None,
            secret: false,
        }
    }

    /// The wanted attributes, with names looked up on this host; names that the host does not know are left out and
    /// returned as errors.
    pub(crate) fn managed(&self, path: &TreePath) -> (Managed, Vec<FilesError>) {
        let mut unknown = Vec::new();
        let mut known = |number: Option<Result<u32, String>>| {
            let number = number?.map_err(|what| unknown.push(FilesError::Unknown { path: path.clone(), what }));
            number.ok()
        };
        let uid = known(self.owner.as_ref().map(Who::owner));
        let gid = known(self.group.as_ref().map(Who::group));
        (Managed { mode: self.mode, uid, gid, xattrs: self.xattrs.clone() }, unknown)
    }

    pub(crate) fn is_implied(&self) -> bool {
        matches!(self.node, Node::Folder { implied: true, .. })
    }
}

/// A file in the folder of travelling files.
fn below(folder: &Path, name: &str) -> Result<PathBuf, FilesError> {
    let name = name.strip_prefix("./").unwrap_or(name);
    if name.is_empty() || name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(FilesError::Content(format!("{name:?} is not a file that travels with the change object")));
    }
    Ok(folder.join(name))
}
