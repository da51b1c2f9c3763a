//! Listings as git trees: contents are blobs, all other data is in an entry `=meta` of each folder.

use std::borrow::Borrow as _;
use std::collections::BTreeMap;

use git2::{ObjectType, Oid, Repository};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{Blob, Frozen, Listing, RecordedEntry, RecordedNode};
use crate::attributes::Managed;
use crate::path::TreePath;

/// The entry for data that git does not keep. No other entry starts with `=`, which is written as `=3D` in names.
const META: &str = "=meta";
/// The modes that git knows for files, links and folders.
const FILE_MODE: i32 = 0o100_644;
const LINK_MODE: i32 = 0o120_000;
pub(super) const FOLDER_MODE: i32 = 0o040_000;

/// The data of a name in `=meta`.
#[skip_serializing_none]
#[derive(Debug, Serialize, Deserialize)]
struct Meta {
    t: Sort,
    #[serde(flatten)]
    managed: Managed,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    implied: bool,
    shared: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sort {
    Absent,
    File,
    Sealed,
    Secret,
    Folder,
    Link,
}

/// Writes objects, each once.
pub(super) trait Objects {
    fn blob(&mut self, bytes: &[u8]) -> Result<Oid, git2::Error>;
    fn tree(&mut self, entries: &BTreeMap<Vec<u8>, (Oid, i32)>) -> Result<Oid, git2::Error>;
}

/// Writes a listing; `None` if it is empty. Users' folders may be thousands of levels deep, so this does not recurse.
pub(super) fn write_listing(objects: &mut dyn Objects, listing: &Frozen) -> Result<Option<Oid>, git2::Error> {
    let mut all: Vec<(&TreePath, &RecordedEntry)> = listing.iter().map(|(path, kept)| (path, kept)).collect();
    if all.is_empty() {
        return Ok(None);
    }
    all.sort_by(|a, b| a.0.cmp_by_parts(b.0));
    // The open folders of the last entry, the outermost first, which has no name.
    let mut open = vec![Folder::default()];
    let mut last: &[u8] = b"";
    for (path, kept) in all {
        let bytes: &[u8] = path.borrow();
        let folder = &bytes[..bytes.len() - path.name().len()];
        let common = common_folders(last, folder);
        while open.len() > common + 1 {
            close(objects, &mut open)?;
        }
        for name in folder.split(|b| *b == b'/').filter(|name| !name.is_empty()).skip(common) {
            open.push(Folder { name: written(name), ..Folder::default() });
        }
        if let Some(innermost) = open.last_mut() {
            innermost.add(objects, written(path.name()), kept)?;
        }
        last = folder;
    }
    while open.len() > 1 {
        close(objects, &mut open)?;
    }
    open.pop().map(|root| root.write(objects)).transpose()
}

/// The number of common parent folders of two paths; each ends with a slash.
fn common_folders(one: &[u8], other: &[u8]) -> usize {
    let differ = one.iter().zip(other).position(|(a, b)| a != b);
    let same = &one[..differ.unwrap_or_else(|| one.len().min(other.len()))];
    same.iter().filter(|b| **b == b'/').count()
}

/// Writes the innermost folder into its parent.
fn close(objects: &mut dyn Objects, open: &mut Vec<Folder>) -> Result<(), git2::Error> {
    let Some(innermost) = open.pop() else { return Ok(()) };
    let name = innermost.name.clone().into_bytes();
    let id = innermost.write(objects)?;
    if let Some(around) = open.last_mut() {
        around.entries.entry(name).or_insert((id, FOLDER_MODE));
    }
    Ok(())
}

/// A folder that is being written.
#[derive(Default)]
struct Folder {
    name: String,
    entries: BTreeMap<Vec<u8>, (Oid, i32)>,
    metas: BTreeMap<String, Meta>,
}

impl Folder {
    fn add(&mut self, objects: &mut dyn Objects, written: String, kept: &RecordedEntry) -> Result<(), git2::Error> {
        let sort = match &kept.node {
            RecordedNode::Absent => Sort::Absent,
            RecordedNode::Secret => Sort::Secret,
            RecordedNode::Folder => Sort::Folder,
            RecordedNode::File(blob) | RecordedNode::Sealed(blob) => {
                let id = match blob {
                    Blob::Known(id) => *id,
                    Blob::New(bytes) => objects.blob(bytes)?,
                };
                self.entries.insert(written.clone().into_bytes(), (id, FILE_MODE));
                if matches!(kept.node, RecordedNode::File(_)) { Sort::File } else { Sort::Sealed }
            }
            RecordedNode::Link(target) => {
                self.entries.insert(written.clone().into_bytes(), (objects.blob(target)?, LINK_MODE));
                Sort::Link
            }
        };
        let meta = Meta { t: sort, managed: kept.managed.clone(), implied: kept.implied, shared: kept.shared };
        self.metas.insert(written, meta);
        Ok(())
    }

    fn write(mut self, objects: &mut dyn Objects) -> Result<Oid, git2::Error> {
        if !self.metas.is_empty() {
            let text = serde_json::to_vec(&self.metas).map_err(|e| git2::Error::from_str(&e.to_string()))?;
            self.entries.insert(META.into(), (objects.blob(&text)?, FILE_MODE));
        }
        objects.tree(&self.entries)
    }
}

/// Reads a listing.
pub(crate) fn read_listing(repo: &Repository, tree: Oid) -> Result<Listing, git2::Error> {
    let mut listing = Listing::new();
    // Trees still to read, with their paths.
    let mut left: Vec<(Oid, Option<TreePath>)> = vec![(tree, None)];
    while let Some((id, path)) = left.pop() {
        read_folder(repo, id, path.as_ref(), &mut left, &mut listing)?;
    }
    Ok(listing)
}

fn read_folder(
    repo: &Repository,
    id: Oid,
    path: Option<&TreePath>,
    left: &mut Vec<(Oid, Option<TreePath>)>,
    listing: &mut Listing,
) -> Result<(), git2::Error> {
    let damaged = |what: String| git2::Error::from_str(&format!("{META} of the tree {id}: {what}"));
    let below = |written: &[u8]| {
        let name = read_back(written).ok_or_else(|| damaged("an invalid name".to_owned()))?;
        Ok::<_, git2::Error>(path.map_or_else(|| TreePath::of_bytes(&name), |path| path.below(&name)))
    };
    let tree = repo.find_tree(id)?;
    let mut contents = BTreeMap::new();
    let mut metas: BTreeMap<String, Meta> = BTreeMap::new();
    for entry in &tree {
        let name = entry.name_bytes();
        if name == META.as_bytes() {
            let blob = repo.find_blob(entry.id())?;
            metas = serde_json::from_slice(blob.content()).map_err(|e| damaged(e.to_string()))?;
        } else if entry.kind() == Some(ObjectType::Tree) {
            left.push((entry.id(), Some(below(name)?)));
        } else {
            contents.insert(name.to_vec(), entry.id());
        }
    }
    for (written, meta) in metas {
        let content = contents.get(written.as_bytes()).copied();
        let there = || content.ok_or_else(|| damaged(format!("{written} has no content")));
        let node = match meta.t {
            Sort::Absent => RecordedNode::Absent,
            Sort::Secret => RecordedNode::Secret,
            Sort::Folder => RecordedNode::Folder,
            Sort::File => RecordedNode::File(Blob::Known(there()?)),
            Sort::Sealed => RecordedNode::Sealed(Blob::Known(there()?)),
            Sort::Link => RecordedNode::Link(repo.find_blob(there()?)?.content().to_vec()),
        };
        let Meta { managed, implied, shared, .. } = meta;
        listing.insert(below(written.as_bytes())?, RecordedEntry { node, managed, implied, shared });
    }
    Ok(())
}

/// Encodes a name for git and JSON: `=`, control characters and bytes that are not UTF-8 become `=XX`, and so does the
/// first letter of names that git reserves.
fn written(name: &[u8]) -> String {
    let lower = name.to_ascii_lowercase();
    let reserved =
        lower.starts_with(b".git") || lower.starts_with(b"git~") || !name.is_ascii() && lower.starts_with(b".");
    let mut text = String::new();
    let mut first = reserved;
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter == '=' || letter.is_control() || letter == '\\' || std::mem::take(&mut first) {
                let mut bytes = [0; 4];
                letter.encode_utf8(&mut bytes).bytes().for_each(|b| text.push_str(&format!("={b:02X}")));
            } else {
                text.push(letter);
            }
        }
        chunk.invalid().iter().for_each(|b| text.push_str(&format!("={b:02X}")));
    }
    text
}

fn read_back(written: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    let mut rest = written;
    while let Some((first, after)) = rest.split_first() {
        if *first == b'=' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            name.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            name.push(*first);
            rest = after;
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_can_be_written_and_read_back() {
        let names: [&[u8]; 10] = [
            b"motd",
            b".git",
            b".GIT",
            b"git~1",
            b"a=b",
            b"\xff\xfe",
            "ü".as_bytes(),
            b".gitignore",
            b"=meta",
            b"a\\b\n",
        ];
        for name in names {
            let text = written(name);
            assert_eq!(read_back(text.as_bytes()).as_deref(), Some(name), "{text}");
            assert!(!text.to_ascii_lowercase().starts_with(".git") && text != META, "{text}");
        }
        assert_eq!(written(b"db.conf"), "db.conf");
    }
}
