//! Differences for people: secrets are shown by name, with whether they changed, in place of their marks.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::secret::{self, SecretId};
use serde_json::Value;

use crate::diff::{ContentChange, Difference};
use cob_types::secret::name_of;

type Names = BTreeMap<SecretId, String>;

impl Difference {
    /// Whether [`Self::name_secrets`] would find a mark.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        let changes = self.changed.values().flat_map(|cob| &cob.content);
        let mut changes = changes.chain(self.kinds_changed.iter().flat_map(|kind| &kind.changes));
        changes.any(|change| {
            let values = [&change.from, &change.to].into_iter().flatten().map(Value::to_string);
            let texts = values.chain(change.lines.clone());
            texts.into_iter().any(|text| secret::marks(&text).next().is_some())
        })
    }

    /// Replaces the marks of secrets by their names, and tells whether their values changed.
    pub fn name_secrets(&mut self, old: &Names, new: &Names) {
        let changes = self.changed.values_mut().flat_map(|cob| &mut cob.content);
        for change in changes.chain(self.kinds_changed.iter_mut().flat_map(|kind| &mut kind.changes)) {
            name(change, old, new);
        }
    }
}

fn name(change: &mut ContentChange, old: &Names, new: &Names) {
    let ids = |value: &Option<Value>| {
        let text = value.as_ref().map(Value::to_string).unwrap_or_default();
        secret::marks(&text).collect::<BTreeSet<SecretId>>()
    };
    let (before, after) = (ids(&change.from), ids(&change.to));
    let named =
        |ids: &BTreeSet<SecretId>, names: &Names| ids.iter().map(|id| name_of(*id, names)).collect::<BTreeSet<_>>();
    let (names_before, names_after) = (named(&before, old), named(&after, new));
    let mut shown = |id: SecretId| {
        let name = name_of(id, if after.contains(&id) { new } else { old });
        let how = if before.contains(&id) && after.contains(&id) {
            " (same)"
        } else if names_before.contains(&name) && names_after.contains(&name) {
            " (changed)"
        } else {
            ""
        };
        Some(format!("[secret {name}{how}]"))
    };
    for value in [&mut change.from, &mut change.to].into_iter().flatten() {
        // The closure has an answer for every id.
        let _ = secret::replace(value, &mut shown);
    }
    if let Some(lines) = &mut change.lines {
        *lines = secret::replace_text(lines, &mut shown).unwrap_or_default();
    }
}
