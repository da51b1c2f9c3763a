//! The differences between two generations, for people and for scripts.
//!
//! Compares the model's requirements: hosts, kinds, change objects, content, preferred states, dependencies. Ranks and
//! expected fingerprints follow from these and are not compared, so an unaffected change object is not listed because a
//! rank below it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;

use cob_types::trust::Operator;
use cob_types::words::list;
use cob_types::{
    Bundle, Cob, CobId, Generation, GenerationNumber, HostName, Kind, KindName, Manifest, PublicKey, StateName,
};
use rayon::prelude::*;
use serde::Serialize;
use serde_json::Value;
use serde_with::skip_serializing_none;

/// The most characters of a value in the text form.
const SHOWN_VALUE: usize = 200;

/// All differences. The JSON form is the output of `cobgen diff --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The older generation.
    pub from: GenerationNumber,
    /// The newer generation.
    pub to: GenerationNumber,
    /// Hosts that only the newer generation has.
    pub hosts_added: Vec<HostName>,
    /// Hosts that only the older generation has.
    pub hosts_removed: Vec<HostName>,
    /// Hosts whose address differs.
    pub hosts_moved: BTreeMap<HostName, Swap<Option<String>>>,
    /// What all hosts share besides: `security`, `revoked`, `operators`, keys of hosts, `switch`, `labels` and `clusters`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trust: Vec<ContentChange>,
    /// Kinds whose definition differs.
    pub kinds_changed: Vec<KindChange>,
    /// Change objects that only the newer generation has, with their kinds.
    pub added: BTreeMap<CobId, KindName>,
    /// Change objects that only the older generation has, with their kinds.
    pub removed: BTreeMap<CobId, KindName>,
    /// Change objects that both have and that differ.
    pub changed: BTreeMap<CobId, CobChange>,
}

/// A value before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Swap<T> {
    /// In the older generation.
    pub from: T,
    /// In the newer generation.
    pub to: T,
}

/// A kind whose definition differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KindChange {
    /// Its name.
    pub name: KindName,
    /// The changed parts.
    pub changes: Vec<ContentChange>,
}

/// The differences of a change object.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CobChange {
    /// Its fingerprint differs: it will be checked, and leave `outdated` if the old content is found.
    pub outdated: bool,
    /// Its kind differs.
    pub kind: Option<Swap<KindName>>,
    /// Its kind's definition differs.
    pub kind_changed: bool,
    /// The changed parts of its content.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ContentChange>,
    /// Names of its files that were added, removed or differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The names in its `restarts_on`, or the content of these change objects, differ.
    pub rests_on_changed: bool,
    /// Its preferred state differs.
    pub preferred: Option<Swap<StateName>>,
    /// Whether it departs without a change.
    pub keep: Option<Swap<bool>>,
    /// Whether it is only observed.
    pub observe: Option<Swap<bool>>,
    /// Added dependencies, in the paper's notation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies_added: Vec<String>,
    /// Removed dependencies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies_removed: Vec<String>,
}

/// A changed place in a JSON value.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContentChange {
    /// The path: `files./etc/db.conf.mode`, `[2]`; empty for the whole value.
    pub path: String,
    /// Before; absent: it was added.
    pub from: Option<Value>,
    /// After; absent: it was removed.
    pub to: Option<Value>,
    /// For texts of several lines: the changed lines, as a patch.
    pub lines: Option<String>,
}

/// A generation, or its bundles that may differ from another generation.
#[derive(Debug, Clone)]
pub struct Compared<'g> {
    /// The part that all hosts share.
    pub manifest: &'g Manifest,
    /// The bundles to compare.
    pub bundles: BTreeMap<&'g HostName, &'g Bundle>,
}

impl<'g> From<&'g Generation> for Compared<'g> {
    fn from(generation: &'g Generation) -> Self {
        Self { manifest: &generation.manifest, bundles: generation.bundles.iter().collect() }
    }
}

impl<'g> Compared<'g> {
    /// The bundle of a host. The id of a change object contains its host, so it is in the same bundle in both.
    fn bundle(&self, host: &HostName) -> Option<&'g Bundle> {
        self.bundles.get(host).copied()
    }

    fn kinds(&self) -> BTreeMap<&'g KindName, &'g Kind> {
        let mut kinds = BTreeMap::new();
        for (name, kind) in self.bundles.values().flat_map(|bundle| &bundle.kinds) {
            kinds.insert(name, kind);
        }
        kinds
    }
}

/// Compares two generations.
#[must_use]
pub fn diff<'g>(old: impl Into<Compared<'g>>, new: impl Into<Compared<'g>>) -> Difference {
    let (old, new) = (old.into(), new.into());
    let (old_kinds, new_kinds) = (old.kinds(), new.kinds());
    let differing = old_kinds.iter().filter_map(|(name, kind)| {
        let to = new_kinds.get(name).filter(|to| *to != kind)?;
        Some((*name, *kind, *to))
    });
    let differing: Vec<(&KindName, &Kind, &Kind)> = differing.collect();
    let kinds_changed = differing.iter().map(|(name, kind, to)| KindChange {
        name: (*name).clone(),
        changes: content_changes(&shape(kind), &shape(to)),
    });
    let kinds_changed = kinds_changed.collect();
    let kinds: BTreeSet<&KindName> = differing.iter().map(|(name, _, _)| *name).collect();
    let hosts: BTreeSet<&HostName> = old.bundles.keys().chain(new.bundles.keys()).copied().collect();
    let hosts: Vec<&HostName> = hosts.into_iter().collect();
    let found: Vec<HostChange> =
        hosts.into_par_iter().map(|host| host_change(old.bundle(host), new.bundle(host), &kinds)).collect();
    let mut all = HostChange::default();
    for HostChange { added, removed, changed } in found {
        all.added.extend(added);
        all.removed.extend(removed);
        all.changed.extend(changed);
    }
    let (old_hosts, new_hosts) = (&old.manifest.hosts, &new.manifest.hosts);
    Difference {
        from: old.manifest.generation,
        to: new.manifest.generation,
        hosts_added: new_hosts.keys().filter(|h| !old_hosts.contains_key(*h)).cloned().collect(),
        hosts_removed: old_hosts.keys().filter(|h| !new_hosts.contains_key(*h)).cloned().collect(),
        hosts_moved: old_hosts
            .iter()
            .filter_map(|(name, host)| {
                let to = new_hosts.get(name).filter(|to| to.address != host.address)?;
                Some((name.clone(), Swap { from: host.address.clone(), to: to.address.clone() }))
            })
            .collect(),
        trust: content_changes(&trust(old.manifest), &trust(new.manifest)),
        kinds_changed,
        added: all.added.into_iter().collect(),
        removed: all.removed.into_iter().collect(),
        changed: all.changed.into_iter().collect(),
    }
}

/// The differences on a host.
#[derive(Default)]
struct HostChange {
    added: Vec<(CobId, KindName)>,
    removed: Vec<(CobId, KindName)>,
    changed: Vec<(CobId, CobChange)>,
}

/// Compares a host's parts; `kinds` are the changed kinds.
fn host_change(old: Option<&Bundle>, new: Option<&Bundle>, kinds: &BTreeSet<&KindName>) -> HostChange {
    let mut change = HostChange::default();
    if let (Some(old), Some(new)) = (old, new)
        && std::ptr::eq(old, new)
    {
        return change;
    }
    let of = |bundle: Option<&Bundle>, id: &CobId| bundle.is_some_and(|bundle| bundle.cobs.contains_key(id));
    for (id, from) in old.into_iter().flat_map(|bundle| &bundle.cobs) {
        let Some(to) = new.and_then(|new| new.cobs.get(id)) else {
            change.removed.push((id.clone(), from.kind.clone()));
            continue;
        };
        let kind_changed = from.kind == to.kind && kinds.contains(&from.kind);
        if from != to || kind_changed {
            let differs = cob_change(from, to, kind_changed);
            change.changed.extend((differs != CobChange::default()).then(|| (id.clone(), differs)));
        }
    }
    let added = new.into_iter().flat_map(|bundle| &bundle.cobs).filter(|(id, _)| !of(old, id));
    change.added.extend(added.map(|(id, cob)| (id.clone(), cob.kind.clone())));
    change
}

impl Difference {
    /// Whether the two generations are equivalent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts_added.is_empty()
            && self.hosts_removed.is_empty()
            && self.hosts_moved.is_empty()
            && self.trust.is_empty()
            && self.kinds_changed.is_empty()
            && self.added.is_empty()
            && self.removed.is_empty()
            && self.changed.is_empty()
    }
}

/// A manifest's identities and switch settings, as a JSON value.
fn trust(manifest: &Manifest) -> Value {
    let keyed = manifest.hosts.iter().filter(|(_, host)| !host.keys.is_empty());
    let keys: BTreeMap<&HostName, &Vec<PublicKey>> = keyed.map(|(name, host)| (name, &host.keys)).collect();
    let operator = |operator: &Operator| {
        let token = operator.token.map(|hash| hash.to_string());
        serde_json::json!({"role": operator.role, "keys": operator.keys, "token_sha256": token})
    };
    let operators: BTreeMap<&String, Value> =
        manifest.operators.iter().map(|(name, who)| (name, operator(who))).collect();
    let mut trust = serde_json::json!({
        "security": manifest.security, "revoked": manifest.revoked, "operators": operators, "keys": keys,
    });
    if !manifest.policy.is_default() {
        trust["switch"] = serde_json::json!(manifest.policy);
    }
    let named = |hosts: BTreeSet<HostName>| list(hosts, usize::MAX);
    for label in manifest.groups.labels() {
        trust["labels"][label] = manifest.hosts_with(label).map_or(Value::Null, |hosts| named(hosts).into());
    }
    for cluster in manifest.groups.clusters() {
        for (service, hosts) in manifest.services_of(cluster).unwrap_or_default() {
            trust["clusters"][cluster][service] = named(hosts).into();
        }
    }
    if !manifest.timetable.windows.is_empty() {
        trust["maintenance"] = serde_json::json!(manifest.timetable.windows);
    }
    if !manifest.timetable.schedules.is_empty() {
        trust["schedules"] = serde_json::json!(manifest.timetable.schedules);
    }
    trust
}

/// A kind as a JSON value, hashes as text.
fn shape(kind: &Kind) -> Value {
    let mut plain = kind.clone();
    plain.files.clear();
    let mut value = serde_json::to_value(&plain).unwrap_or(Value::Null);
    if let Value::Object(fields) = &mut value {
        let files = kind.files.iter().map(|(name, file)| {
            (name.clone(), serde_json::json!({"mode": format!("{:04o}", file.mode), "sha256": file.blob.to_string()}))
        });
        fields.insert("files".to_owned(), Value::Object(files.collect()));
    }
    value
}

fn cob_change(from: &Cob, to: &Cob, kind_changed: bool) -> CobChange {
    let parsed = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    let files: BTreeSet<&String> = from.files.keys().chain(to.files.keys()).collect();
    let same = (&from.transitions, &from.locks, &from.budget) == (&to.transitions, &to.locks, &to.budget);
    let (before, after) = if same { Default::default() } else { (dependencies(from), dependencies(to)) };
    CobChange {
        outdated: from.fingerprint != to.fingerprint,
        kind: swap(&from.kind, &to.kind),
        kind_changed,
        content: if from.content == to.content {
            Vec::new()
        } else {
            content_changes(&parsed(&from.content), &parsed(&to.content))
        },
        files: files.into_iter().filter(|f| from.files.get(*f) != to.files.get(*f)).cloned().collect(),
        rests_on_changed: from.rests_on != to.rests_on,
        preferred: swap(&from.preferred, &to.preferred),
        keep: swap(&from.keep, &to.keep),
        observe: swap(&from.observe, &to.observe),
        dependencies_added: after.difference(&before).cloned().collect(),
        dependencies_removed: before.difference(&after).cloned().collect(),
    }
}

fn swap<T: Clone + PartialEq>(from: &T, to: &T) -> Option<Swap<T>> {
    (from != to).then(|| Swap { from: from.clone(), to: to.clone() })
}

/// `(A, from, to) <- B@z` and `(C, state) <- B@z`, an entry for each need.
fn dependencies(cob: &Cob) -> BTreeSet<String> {
    let moves = cob
        .transitions
        .iter()
        .flat_map(|t| t.needs.iter().map(move |need| format!("({}, {}, {}) <- {need}", cob.id, t.from, t.to)));
    let grants =
        cob.locks.iter().flat_map(|l| l.needs.iter().map(move |need| format!("({}, {}) <- {need}", cob.id, l.state)));
    let token = cob.budget.iter().map(|token| format!("({}, away) <- {token}", cob.id));
    moves.chain(grants).chain(token).collect()
}

fn content_changes(from: &Value, to: &Value) -> Vec<ContentChange> {
    let mut changes = Vec::new();
    compare(String::new(), Some(from), Some(to), &mut changes);
    changes
}

/// The parser that read the values bounds their depth.
fn compare(path: String, from: Option<&Value>, to: Option<&Value>, changes: &mut Vec<ContentChange>) {
    match (from, to) {
        (from, to) if from == to => {}
        (Some(Value::Object(from)), Some(Value::Object(to))) => {
            let keys: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
            for key in keys {
                let deeper = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                compare(deeper, from.get(key), to.get(key), changes);
            }
        }
        (Some(Value::Array(from)), Some(Value::Array(to))) => {
            for i in 0..from.len().max(to.len()) {
                compare(format!("{path}[{i}]"), from.get(i), to.get(i), changes);
            }
        }
        (from, to) => {
            let lines = match (from, to) {
                (Some(Value::String(from)), Some(Value::String(to))) if from.contains('\n') || to.contains('\n') => {
                    patch(from, to)
                }
                (_, _) => None,
            };
            changes.push(ContentChange { path, from: from.cloned(), to: to.cloned(), lines });
        }
    }
}

/// The hunks of a line-by-line patch. `None` if git can't make it; both values are shown then.
fn patch(from: &str, to: &str) -> Option<String> {
    let mut options = git2::DiffOptions::new();
    options.context_lines(1);
    let mut patch = git2::Patch::from_buffers(from.as_bytes(), None, to.as_bytes(), None, Some(&mut options)).ok()?;
    let bytes = patch.to_buf().ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.find("@@").map(|hunks| text[hunks..].to_owned())
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (added, changed, removed) = (self.added.len(), self.changed.len(), self.removed.len());
        writeln!(f, "generation {} -> {}: {added} added, {changed} changed, {removed} removed", self.from, self.to)?;
        for host in &self.hosts_added {
            writeln!(f, "+ host {host}")?;
        }
        for host in &self.hosts_removed {
            writeln!(f, "- host {host}")?;
        }
        for (host, address) in &self.hosts_moved {
            let shown = |address: &Option<String>| address.clone().unwrap_or_else(|| "no address".to_owned());
            writeln!(f, "~ host {host}: {} -> {}", shown(&address.from), shown(&address.to))?;
        }
        if !self.trust.is_empty() {
            writeln!(f, "~ keys and operators")?;
            self.trust.iter().try_for_each(|change| change.write(f))?;
        }
        for kind in &self.kinds_changed {
            writeln!(f, "~ kind {}", kind.name)?;
            kind.changes.iter().try_for_each(|change| change.write(f))?;
        }
        for (id, kind) in &self.added {
            writeln!(f, "+ {id} ({kind})")?;
        }
        for (id, kind) in &self.removed {
            writeln!(f, "- {id} ({kind})")?;
        }
        self.changed.iter().try_for_each(|(id, change)| change.write(f, id))
    }
}

impl CobChange {
    fn write(&self, f: &mut fmt::Formatter<'_>, id: &CobId) -> fmt::Result {
        writeln!(f, "~ {id}{}", if self.outdated { "" } else { " (adopted in place)" })?;
        if let Some(kind) = &self.kind {
            writeln!(f, "    kind: {} -> {}", kind.from, kind.to)?;
        }
        if self.kind_changed {
            writeln!(f, "    the definition of its kind changed")?;
        }
        if let Some(preferred) = &self.preferred {
            writeln!(f, "    prefers: {} -> {}", preferred.from, preferred.to)?;
        }
        if let Some(keep) = &self.keep {
            writeln!(f, "    on_remove: {} -> {}", on_remove(keep.from), on_remove(keep.to))?;
        }
        if let Some(observe) = &self.observe {
            writeln!(f, "    mode: {} -> {}", mode(observe.from), mode(observe.to))?;
        }
        self.content.iter().try_for_each(|change| change.write(f))?;
        for file in &self.files {
            writeln!(f, "    file {file}")?;
        }
        if self.rests_on_changed {
            writeln!(f, "    its dependencies changed")?;
        }
        for dependency in &self.dependencies_removed {
            writeln!(f, "    - {dependency}")?;
        }
        for dependency in &self.dependencies_added {
            writeln!(f, "    + {dependency}")?;
        }
        Ok(())
    }
}

fn on_remove(keep: bool) -> &'static str {
    if keep { "keep" } else { "undo" }
}

fn mode(observe: bool) -> &'static str {
    if observe { "observe" } else { "manage" }
}

impl ContentChange {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "content" } else { &self.path };
        if let Some(lines) = &self.lines {
            writeln!(f, "    {path}:")?;
            return lines.lines().try_for_each(|line| writeln!(f, "      {line}"));
        }
        match (&self.from, &self.to) {
            // Only the value of a secret changed; its name was printed.
            (Some(from), Some(to)) if from == to => writeln!(f, "    {path}: {}", shown(to)),
            (Some(from), Some(to)) => writeln!(f, "    {path}: {} -> {}", shown(from), shown(to)),
            (None, Some(to)) => writeln!(f, "    + {path}: {}", shown(to)),
            (Some(from), None) => writeln!(f, "    - {path}: {}", shown(from)),
            (None, None) => Ok(()),
        }
    }
}

fn shown(value: &Value) -> String {
    let whole = value.to_string();
    let mut text: String = whole.chars().take(SHOWN_VALUE).collect();
    if text.len() < whole.len() {
        // Writing to a String can't fail.
        let _ = write!(text, "… ({} bytes)", whole.len());
    }
    text
}
