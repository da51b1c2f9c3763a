//! Other change objects of the same file: what one of them made goes with the last one.
//!
//! The first change object makes the file, or the header of a section. The notes of the others count it as made, too, so the
//! last one that leaves removes it if it is empty. All of them hold the lock of edits.

use std::collections::BTreeMap;
use std::path::Path;

use cob_kinds::ConfigKeys;

use super::super::sharing;
use super::sheet::{Format, Saved};
use crate::kinds::native::Host;

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

impl Siblings {
    /// Reads the notes of the other change objects of the file.
    pub(super) fn of(own: &Path, host: &Host, path: &str, format: Format) -> Self {
        let mut found = Self::default();
        for (other, before) in sharing::others::<ConfigKeys>(own, host, path) {
            if other.content.path == path && Format(other.content.format) == format {
                found.add(&super::noted(before.as_ref()));
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
