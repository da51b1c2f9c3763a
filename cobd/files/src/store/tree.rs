//! Listings as git trees: contents as blobs, the rest in an entry `=meta` in each folder.

use std::collections::BTreeMap;

use git2::{ObjectType, Oid, Repository};
use serde::{Deserialize, Serialize};

use super::{Blob, Frozen, Kept, KeptNode, Listing};
use crate::attributes::Managed;
use crate::path::TreePath;

/// The entry that says what git does not keep. No other begins with `=`, because that is written `=3D` in names.
const META: &str = "=meta";
/// The largest one that is read back.
const FILE_MODE: i32 = 0o100_644;
const LINK_MODE: i32 = 0o120_000;
pub(super) const FOLDER_MODE: i32 = 0o040_000;

/// What stands in `=meta` of one name.
#[derive(Debug, Serialize, Deserialize)]
struct Meta {
    t: Sort,
    #[serde(flatten)]
    managed: Managed,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    implied: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// Writes a listing; none when there is nothing in it.
pub(super) fn write_listing(objects: &mut dyn Objects, listing: &Frozen) -> Result<Option<Oid>, git2::Error> {
    let all: Vec<(Vec<&[u8]>, &Kept)> = listing.iter().map(|(path, kept)| (path.parts().collect(), kept)).collect();
    // In the order of their parts, what is in one folder stands together; in that of whole paths it does not (`a-b`, `a/b`).
    let mut all = all;
    all.sort_by(|a, b| a.0.cmp(&b.0));
    if all.is_empty() { Ok(None) } else { write_folder(objects, &all, 0).map(Some) }
}

fn write_folder(objects: &mut dyn Objects, all: &[(Vec<&[u8]>, &Kept)], depth: usize) -> Result<Oid, git2::Error> {
    let mut entries = BTreeMap::new();
    let mut metas: BTreeMap<String, Meta> = BTreeMap::new();
    let mut rest = all;
    while let Some((first, _)) = rest.first() {
        let name = first[depth];
        let count = rest.iter().take_while(|(parts, _)| parts[depth] == name).count();
        let (here, after) = rest.split_at(count);
        rest = after;
        let written = written(name);
        let (own, below) = match here.first() {
            Some((parts, kept)) if parts.len() == depth + 1 => (Some(*kept), &here[1..]),
            _ => (None, here),
        };
        if !below.is_empty() {
            entries.insert(written.clone().into_bytes(), (write_folder(objects, below, depth + 1)?, FOLDER_MODE));
        }
        let Some(kept) = own else { continue };
        let sort = match &kept.node {
            KeptNode::Absent => Sort::Absent,
            KeptNode::Secret => Sort::Secret,
            KeptNode::Folder => Sort::Folder,
            KeptNode::File(blob) | KeptNode::Sealed(blob) => {
                let id = match blob {
                    Blob::Known(id) => *id,
                    Blob::New(bytes) => objects.blob(bytes)?,
                };
                entries.insert(written.clone().into_bytes(), (id, FILE_MODE));
                if matches!(kept.node, KeptNode::File(_)) { Sort::File } else { Sort::Sealed }
            }
            KeptNode::Link(target) => {
                entries.insert(written.clone().into_bytes(), (objects.blob(target)?, LINK_MODE));
                Sort::Link
            }
        };
        metas.insert(
            written,
            Meta { t: sort, managed: kept.managed.clone(), implied: kept.implied, shared: kept.shared },
        );
    }
    if !metas.is_empty() {
        let text = serde_json::to_vec(&metas).map_err(|e| git2::Error::from_str(&e.to_string()))?;
        entries.insert(META.into(), (objects.blob(&text)?, FILE_MODE));
    }
    objects.tree(&entries)
}

/// Reads a listing.
pub(crate) fn read_listing(repo: &Repository, tree: Oid) -> Result<Listing, git2::Error> {
    let mut listing = Listing::new();
    read_folder(repo, tree, &mut Vec::new(), &mut listing)?;
    Ok(listing)
}

fn read_folder(repo: &Repository, id: Oid, parts: &mut Vec<Vec<u8>>, listing: &mut Listing) -> Result<(), git2::Error> {
    let damaged = |what: String| git2::Error::from_str(&format!("{META} of the tree {id}: {what}"));
    let tree = repo.find_tree(id)?;
    let mut contents = BTreeMap::new();
    let mut metas: BTreeMap<String, Meta> = BTreeMap::new();
    for entry in &tree {
        let name = entry.name_bytes();
        if name == META.as_bytes() {
            let blob = repo.find_blob(entry.id())?;
            metas = serde_json::from_slice(blob.content()).map_err(|e| damaged(e.to_string()))?;
        } else if entry.kind() == Some(ObjectType::Tree) {
            parts.push(read_back(name).ok_or_else(|| damaged("a name that is none".to_owned()))?);
            read_folder(repo, entry.id(), parts, listing)?;
            parts.pop();
        } else {
            contents.insert(name.to_vec(), entry.id());
        }
    }
    for (written, meta) in metas {
        let content = contents.get(written.as_bytes()).copied();
        let there = || content.ok_or_else(|| damaged(format!("{written} has no content")));
        let node = match meta.t {
            Sort::Absent => KeptNode::Absent,
            Sort::Secret => KeptNode::Secret,
            Sort::Folder => KeptNode::Folder,
            Sort::File => KeptNode::File(Blob::Known(there()?)),
            Sort::Sealed => KeptNode::Sealed(Blob::Known(there()?)),
            Sort::Link => KeptNode::Link(repo.find_blob(there()?)?.content().to_vec()),
        };
        parts.push(read_back(written.as_bytes()).ok_or_else(|| damaged("a name that is none".to_owned()))?);
        let Meta { managed, implied, shared, .. } = meta;
        listing.insert(TreePath::of_parts(parts), Kept { node, managed, implied, shared });
        parts.pop();
    }
    Ok(())
}

/// A name as git takes it, and as JSON does: `=` and what is not UTF-8 as `=XX`, and the first letter of what git keeps for
/// itself.
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
