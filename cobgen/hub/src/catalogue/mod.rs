//! The catalogue: providers, types, services and templates, as a model in a git repository.
//!
//! The repository is bare, with one branch, `main`. Shared files are in `shared/`, files of a tenant in `tenants/NAME/`;
//! a tenant's catalogue is both together. The API writes an entity to the file `SECTION.NAME.json`. People may push
//! files in any form that `cobgen` reads. Each change of the API is checked by `cobgen` before its commit, and the
//! branch moves only from the commit that was checked: a concurrent change is never lost.
//!
//! ```text
//! mod (read, change) ─┬─ files (trees of the repository) ── sections (entities of files)
//!                     └─ convert (`cobgen`: the check of a model, Coopr's entities)
//! ```

mod convert;
mod files;
mod sections;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use cob_hub_api::{Definitions, Entity, EntityKind, EntityWritten, Fault, Name};
use git2::{ErrorCode, Oid, Repository, RepositoryInitOptions, Signature};
use serde_json::{Value, json};

use crate::job::CLUSTER_FILE;
use files::{Edit, Files, Trees};
use sections::Entities;

/// The branch.
const BRANCH: &str = "refs/heads/main";
/// How often a change is made anew after a concurrent change.
const ATTEMPTS: u32 = 16;
/// How many versions of an entity are listed.
const MOST_VERSIONS: usize = 100;

/// Whose part of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Shared by all tenants.
    Shared,
    /// Of a tenant.
    Tenant(Name),
}

/// An entity of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The definition, as in a model.
    pub definition: Value,
    /// The path of its file in the repository.
    pub(crate) file: String,
    /// Whether all tenants share it.
    pub is_shared: bool,
}

/// Why a catalogue could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The repository failed.
    #[error("the catalogue's repository: {}", .0.message())]
    Git(#[from] git2::Error),
    /// A file could not be read or written.
    #[error("the catalogue: {0}")]
    Io(#[from] std::io::Error),
    /// The version does not exist.
    #[error("the catalogue has no version {0:?}")]
    NoVersion(String),
    /// The entity does not exist.
    #[error("no {word} {name:?}", word = kind.section().trim_end_matches('s'))]
    NoEntity {
        /// The kind.
        kind: EntityKind,
        /// The name.
        name: String,
    },
    /// The name of an entity or file is not valid.
    #[error(
        "{0:?} can't be the name of an entity: use letters, digits, `-`, `_` and `.`, at most 100, and no `.` in front"
    )]
    BadName(String),
    /// The path of a file is not valid.
    #[error("{0:?} can't be the path of a file in the catalogue")]
    BadPath(String),
    /// The entity stands in a file that the API does not write.
    #[error("{name:?} stands in the file {file}, with other entities; change that file")]
    InOtherFile {
        /// The entity.
        name: String,
        /// The file.
        file: String,
    },
    /// The change makes the model wrong.
    #[error("the model would be wrong: {}", .0.first().map_or("", |fault| fault.message.as_str()))]
    Refused(Vec<Fault>),
    /// Other changes came first, again and again.
    #[error("the catalogue changed {ATTEMPTS} times meanwhile")]
    Busy,
    /// The parts together are too large.
    #[error("the catalogue is larger than {} MiB", files::LARGEST >> 20)]
    TooLarge,
    /// A document with entities has the wrong form.
    #[error("these are no entities by section and name: {0}")]
    BadDocument(String),
    /// A document in another system's form can't be read.
    #[error("the document can't be read: {}", .0.first().map_or("", |fault| fault.message.as_str()))]
    Unreadable(Vec<Fault>),
    /// `cobgen` could not check or convert the model.
    #[error("can't check the model: {0}")]
    Unchecked(String),
}

/// The catalogue.
#[derive(Debug, Clone)]
pub struct Catalogue {
    path: PathBuf,
    cobgen: PathBuf,
    read: Arc<Mutex<Read>>,
}

/// Entities that were read: those of the same trees never differ.
#[derive(Debug, Default)]
struct Read {
    /// With the number of the last use.
    entities: BTreeMap<Trees, (u64, Arc<Entities>)>,
    uses: u64,
}

/// How many readings are kept.
const MOST_READ: usize = 64;

impl Catalogue {
    /// Opens the catalogue in a folder; makes an empty one if there is none.
    ///
    /// # Errors
    ///
    /// The folder is no repository, or can't be written.
    pub fn open(path: &Path, programs: &Path) -> Result<Self, CatalogueError> {
        let catalogue = Self { path: path.to_owned(), cobgen: programs.join("cobgen"), read: Arc::default() };
        if !path.exists() {
            let repository = Repository::init_opts(path, RepositoryInitOptions::new().bare(true).initial_head("main"))?;
            let tree = repository.find_tree(repository.treebuilder(None)?.write()?)?;
            let author = signature("cobhub")?;
            let text = "Begin the catalogue";
            repository.commit(Some(BRANCH), &author, &author, text, &tree, &[])?;
        }
        catalogue.head()?;
        Ok(catalogue)
    }

    fn repository(&self) -> Result<Repository, CatalogueError> {
        Ok(Repository::open_bare(&self.path)?)
    }

    /// The newest version.
    ///
    /// # Errors
    ///
    /// The repository can't be read.
    pub fn head(&self) -> Result<String, CatalogueError> {
        Ok(self.repository()?.refname_to_id(BRANCH)?.to_string())
    }

    /// Writes the catalogue of a part, in a version, into a new folder.
    ///
    /// # Errors
    ///
    /// The version does not exist, or the folder can't be written.
    pub fn export(&self, part: &Part, version: &str, folder: &Path) -> Result<(), CatalogueError> {
        let repository = self.repository()?;
        Files::read(&repository, commit(&repository, version)?, part)?.write(folder)
    }

    /// All entities of a part, and the shared ones.
    ///
    /// # Errors
    ///
    /// The repository can't be read.
    pub fn entities(&self, part: &Part, kind: EntityKind) -> Result<Arc<BTreeMap<String, Listed>>, CatalogueError> {
        let repository = self.repository()?;
        let all = self.all(&repository, repository.refname_to_id(BRANCH)?, part)?;
        Ok(all.get(&kind).cloned().unwrap_or_default())
    }

    /// The entities of a commit, read at most once.
    fn all(&self, repository: &Repository, commit: Oid, part: &Part) -> Result<Arc<Entities>, CatalogueError> {
        let trees = files::trees(&repository.find_commit(commit)?.tree()?, part)?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.uses += 1;
        let uses = read.uses;
        if let Some((used, entities)) = read.entities.get_mut(&trees) {
            *used = uses;
            return Ok(entities.clone());
        }
        drop(read);
        let entities = Arc::new(sections::of(&Files::read(repository, commit, part)?));
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.entities.len() >= MOST_READ
            && let Some(oldest) =
                read.entities.iter().min_by_key(|(_, (used, _))| *used).map(|(trees, _)| trees.clone())
        {
            read.entities.remove(&oldest);
        }
        read.entities.insert(trees, (uses, entities.clone()));
        Ok(entities)
    }

    /// An entity, in the newest or another version.
    ///
    /// # Errors
    ///
    /// The entity or version does not exist.
    pub fn entity(
        &self,
        part: &Part,
        kind: EntityKind,
        name: &str,
        version: Option<&str>,
    ) -> Result<Entity, CatalogueError> {
        let repository = self.repository()?;
        let id = match version {
            Some(version) => commit(&repository, version)?,
            None => repository.refname_to_id(BRANCH)?,
        };
        let all = self.all(&repository, id, part)?;
        let found = all.get(&kind).and_then(|all| all.get(name));
        let found = found.ok_or_else(|| CatalogueError::NoEntity { kind, name: name.to_owned() })?;
        let written = last_change(&repository, id, &found.file)?;
        let commit = repository.find_commit(written)?;
        Ok(Entity {
            kind,
            name: name.to_owned(),
            version: written.to_string(),
            author: commit.author().name().unwrap_or_default().to_owned(),
            written_ms: u64::try_from(commit.time().seconds()).unwrap_or_default() * 1000,
            definition: found.definition.clone(),
        })
    }

    /// The versions of an entity, the newest first.
    ///
    /// # Errors
    ///
    /// The entity does not exist.
    pub fn versions(&self, part: &Part, kind: EntityKind, name: &str) -> Result<Vec<Entity>, CatalogueError> {
        let mut versions: Vec<Entity> = Vec::new();
        let mut next = None;
        while versions.len() < MOST_VERSIONS {
            let entity = match self.entity(part, kind, name, next.as_deref()) {
                Err(CatalogueError::NoEntity { .. }) if !versions.is_empty() => break,
                entity => entity?,
            };
            let repository = self.repository()?;
            let parent = repository.find_commit(commit(&repository, &entity.version)?)?.parent_id(0).ok();
            versions.push(entity);
            let Some(parent) = parent else { break };
            next = Some(parent.to_string());
        }
        Ok(versions)
    }

    /// Makes, replaces or deletes an entity.
    ///
    /// # Errors
    ///
    /// The change makes a model wrong, or the entity stands in a file of a person.
    pub fn set(
        &self,
        part: &Part,
        kind: EntityKind,
        name: &str,
        definition: Option<&Value>,
        author: &str,
    ) -> Result<EntityWritten, CatalogueError> {
        let edit = match definition {
            Some(definition) => written(kind, name, definition)?,
            None => Edit { path: file_of(kind, name)?, content: None },
        };
        let verb = if edit.content.is_some() { "set" } else { "delete" };
        let is_deletion = edit.content.is_none();
        let message = format!("{verb} {} {name}", kind.section());
        self.change(part, &[edit], author, &message, |all| match may_write(all, part, kind, name)? {
            false if is_deletion => Err(CatalogueError::NoEntity { kind, name: name.to_owned() }),
            _ => Ok(()),
        })
    }

    /// Makes or replaces entities, in a single version.
    ///
    /// # Errors
    ///
    /// They make a model wrong, or an entity stands in a file of a person.
    pub fn set_all(
        &self,
        part: &Part,
        definitions: &Definitions,
        author: &str,
    ) -> Result<EntityWritten, CatalogueError> {
        let all =
            || definitions.iter().flat_map(|(kind, named)| named.iter().map(|(name, value)| (*kind, name, value)));
        let edits = all().map(|(kind, name, definition)| written(kind, name, definition));
        let edits = edits.collect::<Result<Vec<_>, _>>()?;
        let message = format!("import {} entities", edits.len());
        self.change(part, &edits, author, &message, |now| {
            all().try_for_each(|(kind, name, _)| may_write(now, part, kind, name).map(drop))
        })
    }

    /// Writes or deletes a file, such as a script of a service.
    ///
    /// # Errors
    ///
    /// The change makes a model wrong, or the path is not valid.
    pub fn set_file(
        &self,
        part: &Part,
        path: &str,
        content: Option<&[u8]>,
        author: &str,
    ) -> Result<EntityWritten, CatalogueError> {
        let bad = |segment: &str| segment.is_empty() || segment.starts_with('.') || segment.contains(['\0', '\\']);
        if path.len() > 200 || path.split('/').any(bad) || path == CLUSTER_FILE {
            return Err(CatalogueError::BadPath(path.to_owned()));
        }
        let verb = if content.is_some() { "set" } else { "delete" };
        let edit = Edit { path: path.to_owned(), content: content.map(<[u8]>::to_vec) };
        self.change(part, &[edit], author, &format!("{verb} file {path}"), |_| Ok(()))
    }

    fn change(
        &self,
        part: &Part,
        edits: &[Edit],
        author: &str,
        message: &str,
        is_allowed: impl Fn(&Entities) -> Result<(), CatalogueError>,
    ) -> Result<EntityWritten, CatalogueError> {
        for _ in 0..ATTEMPTS {
            let repository = self.repository()?;
            let head = repository.refname_to_id(BRANCH)?;
            let before = repository.find_commit(head)?;
            is_allowed(&*self.all(&repository, head, part)?)?;
            let tree = files::with(&repository, &before.tree()?, part, edits)?;
            if tree == before.tree_id() {
                return Ok(EntityWritten { version: head.to_string(), changed: false });
            }
            let tree = repository.find_tree(tree)?;
            for part in parts_to_check(&repository, part, &tree) {
                convert::check(&self.cobgen, &Files::of_tree(&repository, &tree, &part)?)?;
            }
            let author = signature(author)?;
            let id = repository.commit(None, &author, &author, message, &tree, &[&before])?;
            match repository.reference_matching(BRANCH, id, true, head, message) {
                Ok(_) => return Ok(EntityWritten { version: id.to_string(), changed: true }),
                // Another change came first: this change is checked again on top of it.
                Err(error) if matches!(error.code(), ErrorCode::Modified | ErrorCode::Locked) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(CatalogueError::Busy)
    }
}

/// The file of an entity.
fn file_of(kind: EntityKind, name: &str) -> Result<String, CatalogueError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 100 || name.starts_with('.') || !name.bytes().all(allowed) {
        return Err(CatalogueError::BadName(name.to_owned()));
    }
    Ok(format!("{}.{name}.json", kind.section()))
}

/// An entity as the content of its file.
fn written(kind: EntityKind, name: &str, definition: &Value) -> Result<Edit, CatalogueError> {
    let path = file_of(kind, name)?;
    let section = kind.section();
    let mut text =
        serde_json::to_vec_pretty(&json!({ section: { name: definition } })).map_err(std::io::Error::from)?;
    text.push(b'\n');
    Ok(Edit { path, content: Some(text) })
}

/// Whether the entity exists.
///
/// # Errors
/// It stands in a file that the API does not write.
fn may_write(all: &Entities, part: &Part, kind: EntityKind, name: &str) -> Result<bool, CatalogueError> {
    let Some(entity) = all.get(&kind).and_then(|all| all.get(name)) else { return Ok(false) };
    if entity.file == files::path(part, &file_of(kind, name)?) {
        return Ok(true);
    }
    Err(CatalogueError::InOtherFile { name: name.to_owned(), file: entity.file.clone() })
}

/// The catalogues that a change of a part may make wrong: a shared file is part of the catalogues of all tenants.
fn parts_to_check(repository: &Repository, part: &Part, tree: &git2::Tree<'_>) -> Vec<Part> {
    match part {
        Part::Tenant(_) => vec![part.clone()],
        Part::Shared => {
            [Part::Shared].into_iter().chain(files::tenants(repository, tree).into_iter().map(Part::Tenant)).collect()
        }
    }
}

fn commit(repository: &Repository, version: &str) -> Result<Oid, CatalogueError> {
    let id = Oid::from_str(version).map_err(|_| CatalogueError::NoVersion(version.chars().take(80).collect()))?;
    // Only commits of the branch: the repository may hold commits that were never checked.
    let head = repository.refname_to_id(BRANCH)?;
    let ours = id == head || repository.graph_descendant_of(head, id).unwrap_or(false);
    if ours { Ok(id) } else { Err(CatalogueError::NoVersion(version.to_owned())) }
}

/// The newest commit, up to a version, that changed a file.
fn last_change(repository: &Repository, from: Oid, file: &str) -> Result<Oid, CatalogueError> {
    let blob = |id: Oid| -> Result<Option<Oid>, CatalogueError> {
        match repository.find_commit(id)?.tree()?.get_path(Path::new(file)) {
            Ok(entry) => Ok(Some(entry.id())),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    };
    let (mut id, content) = (from, blob(from)?);
    loop {
        let Ok(parent) = repository.find_commit(id)?.parent_id(0) else { return Ok(id) };
        if blob(parent)? != content {
            return Ok(id);
        }
        id = parent;
    }
}

fn signature(name: &str) -> Result<Signature<'static>, git2::Error> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Signature::new(name, &format!("{name}@cobhub"), &git2::Time::new(seconds, 0))
}
