//! The files of a catalogue: trees of the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use cob_hub_api::Name;
use git2::{ErrorCode, FileMode, ObjectType, Oid, Repository, Tree};

use super::{CatalogueError, Part};

/// The largest catalogue, in bytes.
pub(super) const LARGEST: usize = 64 << 20;
/// The folder of the shared files.
pub(super) const SHARED: &str = "shared/";
/// The deepest nesting of folders.
const DEEPEST: usize = 16;

/// The files of a part, with the shared files.
#[derive(Debug, Default)]
pub(super) struct Files(BTreeMap<String, File>);

/// A file.
#[derive(Debug)]
pub(super) struct File {
    /// The path in the repository.
    pub(super) place: String,
    pub(super) content: Vec<u8>,
    is_executable: bool,
}

impl Files {
    pub(super) fn read(repository: &Repository, commit: Oid, part: &Part) -> Result<Self, CatalogueError> {
        Self::of_tree(repository, &repository.find_commit(commit)?.tree()?, part)
    }

    pub(super) fn of_tree(repository: &Repository, tree: &Tree<'_>, part: &Part) -> Result<Self, CatalogueError> {
        let mut files = Self::default();
        let mut size = 0;
        for folder in folders(part) {
            match tree.get_path(Path::new(&folder)) {
                Ok(entry) if entry.kind() == Some(ObjectType::Tree) => {
                    let tree = repository.find_tree(entry.id())?;
                    files.add(repository, &tree, &folder, "", DEEPEST, &mut size)?;
                }
                Ok(_) => {}
                Err(error) if error.code() == ErrorCode::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(files)
    }

    fn add(
        &mut self,
        repository: &Repository,
        tree: &Tree<'_>,
        place: &str,
        inside: &str,
        depth: usize,
        size: &mut usize,
    ) -> Result<(), CatalogueError> {
        for entry in tree {
            // A name that is not UTF-8 is no name of a model or script.
            let Ok(name) = entry.name() else { continue };
            let (place, inside) = (format!("{place}/{name}"), format!("{inside}{name}"));
            match entry.kind() {
                Some(ObjectType::Tree) if depth > 0 => {
                    let tree = repository.find_tree(entry.id())?;
                    self.add(repository, &tree, &place, &format!("{inside}/"), depth - 1, size)?;
                }
                // Links could lead out of the catalogue.
                Some(ObjectType::Blob) if entry.filemode() != i32::from(FileMode::Link) => {
                    let blob = repository.find_blob(entry.id())?;
                    *size += blob.size();
                    if *size > LARGEST {
                        return Err(CatalogueError::TooLarge);
                    }
                    let is_executable = entry.filemode() == i32::from(FileMode::BlobExecutable);
                    self.0.insert(inside, File { place, content: blob.content().to_owned(), is_executable });
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &File)> {
        self.0.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// Whether a file is part of a model.
    pub(super) fn has_model(&self) -> bool {
        self.0.keys().any(|path| is_model(path))
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), CatalogueError> {
        for (path, file) in &self.0 {
            let path = folder.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&path, &file.content)?;
            let mode = if file.is_executable { 0o755 } else { 0o644 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        }
        Ok(())
    }
}

/// Whether `cobgen` reads the file as a part of the model.
pub(super) fn is_model(path: &str) -> bool {
    let ends = [".yaml", ".yml", ".json"].iter().any(|end| path.ends_with(end));
    ends && !path.contains('/') && !path.starts_with('.')
}

/// The folders of a part. Files of the later folder replace files of the former.
fn folders(part: &Part) -> Vec<String> {
    match part {
        Part::Shared => vec!["shared".to_owned()],
        Part::Tenant(name) => vec!["shared".to_owned(), format!("tenants/{name}")],
    }
}

/// The folders of a part with their trees: what makes its content.
pub(super) type Trees = Vec<(String, Option<Oid>)>;

/// The trees of a part.
pub(super) fn trees(tree: &Tree<'_>, part: &Part) -> Result<Trees, CatalogueError> {
    let one = |folder: String| match tree.get_path(Path::new(&folder)) {
        Ok(entry) => Ok((folder, Some(entry.id()))),
        Err(error) if error.code() == ErrorCode::NotFound => Ok((folder, None)),
        Err(error) => Err(error.into()),
    };
    folders(part).into_iter().map(one).collect()
}

/// The path of a file in the repository.
pub(super) fn path(part: &Part, file: &str) -> String {
    match part {
        Part::Shared => format!("{SHARED}{file}"),
        Part::Tenant(name) => format!("tenants/{name}/{file}"),
    }
}

/// The tenants with files of their own.
pub(super) fn tenants(repository: &Repository, tree: &Tree<'_>) -> BTreeSet<Name> {
    let entry = tree.get_name("tenants").map(|entry| entry.id());
    let Some(tree) = entry.and_then(|id| repository.find_tree(id).ok()) else { return BTreeSet::new() };
    tree.iter().filter_map(|entry| Name::new(entry.name().ok()?).ok()).collect()
}

/// The change of a file of a part.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) path: String,
    /// `None`: the file is deleted.
    pub(super) content: Option<Vec<u8>>,
}

/// The tree with files of a part replaced, added or deleted.
pub(super) fn with(
    repository: &Repository,
    tree: &Tree<'_>,
    part: &Part,
    edits: &[Edit],
) -> Result<Oid, CatalogueError> {
    let mut update = git2::build::TreeUpdateBuilder::new();
    for edit in edits {
        let path = path(part, &edit.path);
        match &edit.content {
            Some(content) => {
                let mode = if content.starts_with(b"#!") { FileMode::BlobExecutable } else { FileMode::Blob };
                update.upsert(path, repository.blob(content)?, mode);
            }
            None if tree.get_path(Path::new(&path)).is_err() => {}
            None => {
                update.remove(path);
            }
        }
    }
    Ok(update.create_updated(repository, tree)?)
}
