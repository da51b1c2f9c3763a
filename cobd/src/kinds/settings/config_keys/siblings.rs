//! Other change objects of the same file: what one of them made goes with the last one.
//!
//! The first change object makes the file, or the header of a section. The notes of the others count it as made, too, so the
//! last one that leaves removes it if it is empty. All of them hold the lock of edits.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use cob_kinds::ConfigKeys;
use serde::Deserialize;
use serde_json::Value;

use super::sheet::{Format, Saved};
use crate::kinds::native::{Host, note};

/// What other change objects have made in a file.
#[derive(Debug, Default)]
pub(super) struct Siblings {
    /// The file itself.
    pub(super) made_file: bool,
    /// The headers of sections, each with the number of its lines.
    headers: BTreeMap<Vec<String>, usize>,
    /// Keys for which mappings may have been made, with the earlier state.
    made: Vec<(Vec<String>, Saved)>,
}

/// The note of a setting.
#[derive(Deserialize)]
struct Note {
    content: String,
    before: Option<Value>,
}

impl Siblings {
    /// Reads the notes of all change objects beside this one. An unreadable note is one of another kind.
    pub(super) fn of(own: &Path, host: &Host, path: &str, format: Format) -> Self {
        let mut found = Self::default();
        let entries = own.parent().and_then(|all| fs::read_dir(all).ok()).into_iter().flatten().flatten();
        for folder in entries.map(|entry| entry.path()).filter(|folder| folder != own) {
            let Ok(Some(note)) = note::read::<Note>(&folder) else { continue };
            let Ok(content) = cob_kinds::parse::<ConfigKeys>(&note.content) else { continue };
            let is_same_file = content.path == path && Format(content.format) == format;
            if is_same_file && Host::below(content.root.as_deref()).as_ref() == Ok(host) {
                found.add(&super::noted(note.before.as_ref()));
            }
        }
        found
    }

    fn add(&mut self, noted: &super::Noted) {
        self.made_file |= !noted.file;
        for key in noted.keys.values() {
            let Some((_, above)) = key.parts.split_last() else { continue };
            match &key.earlier {
                Saved::Lines { header, .. } if *header > 0 => drop(self.headers.insert(above.to_vec(), *header)),
                Saved::Json(_) | Saved::Yaml(_) => self.made.push((above.to_vec(), key.earlier.clone())),
                Saved::Lines { .. } | Saved::Inline(_) => {}
            }
        }
    }

    /// What is needed to put a key back, with the header or the mappings that another change object has made for its keys.
    pub(super) fn shared(&self, parts: &[String], saved: Saved) -> Saved {
        let Some((_, above)) = parts.split_last() else { return saved };
        if let (Saved::Lines { entries, header: 0 }, Some(header)) = (&saved, self.headers.get(above)) {
            return Saved::Lines { entries: entries.clone(), header: *header };
        }
        let common = |other: &[String]| above.iter().zip(other).take_while(|(one, other)| one == other).count();
        self.made.iter().fold(saved, |saved, (other, theirs)| match (saved, theirs) {
            (Saved::Json(own), Saved::Json(theirs)) => Saved::Json(own.made_with(theirs, common(other))),
            (Saved::Yaml(own), Saved::Yaml(theirs)) => Saved::Yaml(own.made_with(theirs, common(other))),
            (saved, _) => saved,
        })
    }
}
