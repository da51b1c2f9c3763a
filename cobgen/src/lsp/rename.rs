//! Renames: a name of a model gets another name, at its definition and wherever the model refers to it.
//!
//! ```text
//! texts --> tokens, each with the keys above --> references: the entity of each part of an id --> edits
//!                                     the model before and after the edits <-- a check -------/
//! ```
//!
//! A reference that no rule here finds (behind an anchor, in a `{…}` of several lines) is never lost: the check of the
//! renamed model finds an unknown name, or another number of change objects or dependencies, and the rename is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cob_types::words::count;
use lsp_types::{Range, TextEdit};

use super::cursor::{self, Cursor, Token};
use super::outline::Entry;
use super::range;
use super::variables::{self, Mention, Scope};
use crate::diagnostic::Severity;
use crate::make::{After, Made, make_of};
use crate::model::{Model, Texts};

/// The words of a change object whose values name others.
const NEEDS: [&str; 8] = ["requires", "after", "wants", "restarts_on", "reloads_on", "excludes", "cob", "needs"];
/// The sections whose names a key of the same name in other entries refers to, and the keys.
const KEYS: [(&str, &[&str]); 7] = [
    ("kinds", &["kind"]),
    ("budgets", &["budget"]),
    ("templates", &["template", "parent", "includes"]),
    ("providers", &["provider"]),
    ("hardwaretypes", &["hardwaretype", "hardwaretypes"]),
    ("imagetypes", &["imagetype", "imagetypes"]),
    ("hosts", &["host", "place", "nodes"]),
];

/// The keys with free values: no reference is below them.
const FREE: [&str; 4] = ["content", "config", "settings", "vars"];

/// The type of a named entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sort {
    /// An entry of a section.
    Section(&'static str),
    /// A change object of a service.
    OfService(String),
    /// A change object that is written by hand, of a host.
    OfHost(String),
    /// A variable.
    Variable(Scope),
}

/// A name that can be renamed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    sort: Sort,
    name: String,
    /// The place of the name under the cursor.
    pub(super) range: Range,
}

impl Target {
    fn is_variable(&self) -> bool {
        matches!(self.sort, Sort::Variable(_))
    }
}

/// The texts of a model, with their names.
pub(super) struct Texted<'a> {
    pub(super) files: &'a [(PathBuf, String)],
    pub(super) names: &'a [(PathBuf, Entry)],
}

impl Texted<'_> {
    /// The name at a place.
    ///
    /// # Errors
    /// The reason against a rename here, in words.
    pub(super) fn target(&self, path: &Path, row: u32, units: u32) -> Result<Target, String> {
        let nothing = "no name is here: place the cursor on the name of a host, service, cluster or change object";
        let (_, text) = self.files.iter().find(|(file, _)| file == path).ok_or(nothing)?;
        let line = text.lines().nth(row as usize).unwrap_or_default();
        let at = cursor::column_at(line, units);
        if let Some(variable) = self.variable(path, row, line, at) {
            return Ok(variable);
        }
        let token =
            cursor::tokens(line).into_iter().find(|token| (token.column..=token.end()).contains(&at)).ok_or(nothing)?;
        let parts = parts(&token);
        let index = parts.iter().rposition(|(column, _)| *column <= at).unwrap_or(0);
        let (column, name) = parts[index].clone();
        let sort = self.sort(text, row, line, &token, index).ok_or_else(|| {
            format!("`{name}` is not a name that can be renamed: `cobgen lsp` renames hosts, services, clusters, change objects, variables, kinds, templates, budgets, secrets, operators, providers and types")
        })?;
        if !self.is_defined(&sort, &name) {
            return Err(format!(
                "{} `{name}` has no definition in this model, or one in a `{{…}}` of several keys: nothing is renamed",
                words(&sort)
            ));
        }
        Ok(Target { range: place(line, row, column, &name), sort, name })
    }

    /// The edits that give the target another name, by file.
    ///
    /// # Errors
    /// The reason against the name, in words.
    pub(super) fn edits(&self, target: &Target, new: &str) -> Result<BTreeMap<PathBuf, Vec<TextEdit>>, String> {
        let Target { sort, name, .. } = target;
        let is_sign = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if new.is_empty() || !new.chars().all(is_sign) || !new.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(format!(
                "{new:?} is not a name: write letters, digits, `_`, `.` and `-`, first a letter or a digit"
            ));
        }
        if matches!(sort, Sort::Variable(_)) && !variables::is_name(new) {
            return Err(format!(
                "a template can't read a variable {new:?}: write letters, digits and `_`, first a letter, and no word of \
                 templates"
            ));
        }
        if serde_saphyr::from_str::<serde_json::Value>(new).is_ok_and(|value| !value.is_string()) {
            return Err(format!("`{new}` is not a text in YAML: choose a name with another letter"));
        }
        if new == name {
            return Ok(BTreeMap::new());
        }
        if self.is_defined(sort, new) {
            return Err(format!("{} `{new}` exists already: choose another name", words(sort)));
        }
        let mut edits: BTreeMap<PathBuf, Vec<TextEdit>> = BTreeMap::new();
        for (path, range) in self.places(target) {
            edits.entry(path).or_default().push(TextEdit::new(range, new.to_owned()));
        }
        Ok(edits)
    }

    /// The places where the target is named, its definitions among them.
    pub(super) fn places(&self, target: &Target) -> Vec<(PathBuf, Range)> {
        let Target { sort, name, .. } = target;
        let mut places = Vec::new();
        for (path, text) in self.files {
            let here: Vec<(u32, usize)> = match sort {
                Sort::Variable(_) => mentions(text, target).iter().map(|m| (m.row, m.column)).collect(),
                Sort::Section(_) | Sort::OfService(_) | Sort::OfHost(_) => {
                    let lines = (0..).zip(text.lines()).filter(|(_, line)| line.contains(name.as_str()));
                    let of_line = |(row, line)| {
                        self.columns(text, row, line, target).into_iter().map(move |column| (row, column))
                    };
                    lines.flat_map(of_line).collect()
                }
            };
            let lines: Vec<&str> = text.lines().collect();
            let range = |(row, column): (u32, usize)| {
                let line = lines.get(row as usize).copied().unwrap_or_default();
                (path.clone(), place(line, row, column, name))
            };
            places.extend(here.into_iter().map(range));
        }
        places
    }

    /// The places where the target is defined.
    pub(super) fn definitions(&self, target: &Target) -> Vec<(PathBuf, Range)> {
        if !target.is_variable() {
            let of = |(path, entry): &(PathBuf, Entry)| {
                defines(entry, &target.sort, &target.name).then(|| (path.clone(), entry.range()))
            };
            return self.names.iter().filter_map(of).collect();
        }
        let mut places = Vec::new();
        for (path, text) in self.files {
            let lines: Vec<&str> = text.lines().collect();
            for mention in mentions(text, target).into_iter().filter(|mention| mention.declares) {
                let line = lines.get(mention.row as usize).copied().unwrap_or_default();
                places.push((path.clone(), place(line, mention.row, mention.column, &target.name)));
            }
        }
        places
    }

    /// The definitions of the variable at a place, if one is there.
    pub(super) fn variable_definitions(&self, path: &Path, row: u32, units: u32) -> Option<Vec<(PathBuf, Range)>> {
        let (_, text) = self.files.iter().find(|(file, _)| file == path)?;
        let line = text.lines().nth(row as usize)?;
        let target = self.variable(path, row, line, cursor::column_at(line, units))?;
        Some(self.definitions(&target))
    }

    /// The variable at a place.
    fn variable(&self, path: &Path, row: u32, line: &str, at: usize) -> Option<Target> {
        let (column, name) = variables::name_at(line, at)?;
        let (_, text) = self.files.iter().find(|(file, _)| file == path)?;
        if !variables::may_be(text, row, column, &name) {
            return None;
        }
        let mentions = variables::of_text(text, &name);
        let mention = mentions.into_iter().find(|mention| (mention.row, mention.column) == (row, column))?;
        let is_known = mention.declares || mention.of_host || self.declares(&mention.scope, &name);
        let range = place(line, row, column, &name);
        is_known.then_some(Target { sort: Sort::Variable(mention.scope), name, range })
    }

    /// Whether a text of the model declares a variable of this name in this scope.
    fn declares(&self, scope: &Scope, name: &str) -> bool {
        let declares = |mention: &Mention| mention.declares && mention.scope == *scope;
        self.files.iter().any(|(_, text)| variables::of_text(text, name).iter().any(declares))
    }

    /// The columns of a line where the target is named.
    fn columns(&self, text: &str, row: u32, line: &str, target: &Target) -> Vec<usize> {
        let mut columns = called(line, &target.sort, &target.name);
        for token in cursor::tokens(line) {
            for (index, (column, part)) in parts(&token).into_iter().enumerate() {
                let is_named = part == target.name && !columns.contains(&column);
                if is_named && self.sort(text, row, line, &token, index).as_ref() == Some(&target.sort) {
                    columns.push(column);
                }
            }
        }
        columns.sort_unstable();
        columns
    }

    /// The entity that a part of a token names.
    fn sort(&self, text: &str, row: u32, line: &str, token: &Token, index: usize) -> Option<Sort> {
        let cursor = Cursor::at(text, row, cursor::units(line, token.column));
        let path: Vec<&str> = cursor.keys.iter().map(String::as_str).filter(|key| *key != "[]").collect();
        let parts: Vec<String> = parts(token).into_iter().map(|(_, part)| part).collect();
        let whole = (parts.len() == 1).then_some(());
        if cursor.value_of.is_none() {
            return match path.as_slice() {
                ["cobs"] => self.part_of_id(&parts, index),
                path => whole.and_then(|()| key(path)),
            };
        }
        let before: String = line.chars().take(token.column).collect();
        match path.as_slice() {
            ["services", of, "ready"] => whole.map(|()| Sort::OfService((*of).to_owned())),
            ["services", of, "cobs", _, rest @ ..] => {
                self.value(rest, &Sort::OfService((*of).to_owned()), &parts, index, &before)
            }
            ["cobs", id, rest @ ..] => {
                let host = id.split('/').next().unwrap_or_default();
                self.value(rest, &Sort::OfHost(host.to_owned()), &parts, index, &before)
            }
            ["clusters", _, "services", _] => whole.map(|()| Sort::Section("hosts")),
            path => whole.and_then(|()| reference(path)),
        }
    }

    /// The entity that a value in a change object names; `own` has the bare names.
    fn value(&self, rest: &[&str], own: &Sort, parts: &[String], index: usize, before: &str) -> Option<Sort> {
        let is_need = |word: &str, above: &[&str]| NEEDS.contains(&word) && !above.contains(&"content");
        match rest {
            ["requires" | "after" | "wants" | "restarts_on" | "reloads_on" | "excludes", "on"] => {
                before.trim_end().ends_with("host").then_some(Sort::Section("hosts"))
            }
            [above @ .., word] if above.len() < 2 && is_need(word, above) => match parts {
                [name] if self.is_defined(own, name) => Some(own.clone()),
                [_] => Some(Sort::Section("services")),
                _ => self.part_of_id(parts, index),
            },
            [key] => (parts.len() == 1).then(|| reference(&[key])).flatten(),
            _ => None,
        }
    }

    /// The entity of a part of `HOST/NAME`, `SERVICE/COB` or `HOST/SERVICE/COB`.
    fn part_of_id(&self, parts: &[String], index: usize) -> Option<Sort> {
        match (parts, index) {
            ([_, budget, _], 2) if budget == "budget" => Some(Sort::Section("budgets")),
            ([_, _, _], 0) => Some(Sort::Section("hosts")),
            ([_, _, _], 1) => Some(Sort::Section("services")),
            ([_, service, _], 2) => Some(Sort::OfService(service.clone())),
            ([first, _], _) => {
                let is_service = self.is_defined(&Sort::Section("services"), first);
                Some(match (index, is_service) {
                    (0, true) => Sort::Section("services"),
                    (0, false) => Sort::Section("hosts"),
                    (_, true) => Sort::OfService(first.clone()),
                    (_, false) => Sort::OfHost(first.clone()),
                })
            }
            _ => None,
        }
    }

    fn is_defined(&self, sort: &Sort, name: &str) -> bool {
        match sort {
            // A variable of a loop would hide another one of the same name.
            Sort::Variable(_) => {
                self.files.iter().any(|(_, text)| variables::of_text(text, name).iter().any(|mention| mention.declares))
            }
            Sort::Section(_) | Sort::OfService(_) | Sort::OfHost(_) => {
                self.names.iter().any(|(_, entry)| defines(entry, sort, name))
            }
        }
    }
}

/// Whether a key defines this entity.
fn defines(entry: &Entry, sort: &Sort, name: &str) -> bool {
    match (sort, entry.keys.as_slice()) {
        (Sort::Section(wanted), [section, entry]) => section == wanted && entry == name,
        (Sort::OfService(wanted), [services, of, cobs, entry]) => {
            services == "services" && of == wanted && cobs == "cobs" && entry == name
        }
        (Sort::OfHost(wanted), [cobs, id]) => cobs == "cobs" && id.split_once('/') == Some((wanted.as_str(), name)),
        _ => false,
    }
}

/// The places of a variable in a text.
fn mentions(text: &str, target: &Target) -> Vec<Mention> {
    let mut mentions = variables::of_text(text, &target.name);
    mentions.retain(|mention| Sort::Variable(mention.scope.clone()) == target.sort);
    mentions
}

/// The section that a key of a mapping names an entry of.
fn key(path: &[&str]) -> Option<Sort> {
    let section = match path {
        ["hosts" | "facts"] | ["variables", "host"] => "hosts",
        ["services"] | ["variables", "service"] | ["clusters", _, "services"] => "services",
        ["templates", _, "constraints", "services"] => "services",
        ["clusters"] | ["variables", "cluster"] => "clusters",
        ["services", of, "cobs"] => return Some(Sort::OfService((*of).to_owned())),
        ["providers"] | ["hardwaretypes" | "imagetypes", _, "providers"] => "providers",
        ["kinds"] => "kinds",
        ["templates"] => "templates",
        ["budgets"] => "budgets",
        ["secrets"] => "secrets",
        ["operators"] => "operators",
        ["hardwaretypes"] => "hardwaretypes",
        ["imagetypes"] => "imagetypes",
        _ => return None,
    };
    Some(Sort::Section(section))
}

/// The section that a value names an entry of.
fn reference(path: &[&str]) -> Option<Sort> {
    let services = match path {
        ["clusters", _, "services"] | ["templates", _, "compatibility" | "defaults", "services"] => true,
        ["templates", _, "constraints", "layout", "mustcoexist" | "cantcoexist"] => true,
        ["services", _, "requires" | "after" | "wants" | "conflicts"] => true,
        ["services", _, "dependencies", rest @ ..] => !rest.contains(&"provides"),
        _ => false,
    };
    if services {
        return Some(Sort::Section("services"));
    }
    let word = path.last()?;
    let is_own = !matches!(path, ["kinds" | "secrets" | "operators" | "hosts" | "variables" | "facts", _, ..])
        || matches!(path, ["hosts", _, "hardwaretype" | "imagetype"]);
    let found = KEYS
        .iter()
        .find(|(_, keys)| keys.contains(word))
        .filter(|_| is_own && !path.iter().any(|key| FREE.contains(key)));
    found.map(|(section, _)| Sort::Section(section))
}

/// The columns where an expression of a template names the target: `on('app')`, `secret('pw')`, `facts.n1`.
fn called(line: &str, sort: &Sort, name: &str) -> Vec<usize> {
    let calls: Vec<(String, &str)> = match sort {
        Sort::Section("services") => ["'", "\""].map(|q| (format!("on({q}{name}{q})"), "on('")).to_vec(),
        Sort::Section("secrets") => ["'", "\""].map(|q| (format!("secret({q}{name}{q})"), "secret('")).to_vec(),
        Sort::Section("hosts") => vec![(format!("facts.{name}."), "facts.")],
        Sort::Section(_) | Sort::OfService(_) | Sort::OfHost(_) | Sort::Variable(_) => Vec::new(),
    };
    let mut columns = Vec::new();
    for (call, head) in calls {
        for (at, _) in line.match_indices(&call) {
            if !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.') {
                columns.push(line[..at].chars().count() + head.len());
            }
        }
    }
    columns
}

/// The parts of an id, without a state behind `@`.
fn parts(token: &Token) -> Vec<(usize, String)> {
    let id = token.text.split('@').next().unwrap_or_default();
    let mut column = token.column;
    let part = |part: &str| {
        let at = column;
        column += part.chars().count() + 1;
        (at, part.to_owned())
    };
    id.split('/').map(part).collect()
}

fn place(line: &str, row: u32, column: usize, name: &str) -> Range {
    range(row, cursor::units(line, column), cursor::units(line, column + name.chars().count()))
}

fn words(sort: &Sort) -> String {
    match sort {
        Sort::Section(section) => {
            let one = section.trim_end_matches('s');
            format!("the {}", one.replace("type", " type").trim_start())
        }
        Sort::OfService(service) => format!("the change object of service `{service}`"),
        Sort::OfHost(host) => format!("the change object of host `{host}`"),
        Sort::Variable(_) => "the variable".to_owned(),
    }
}

/// Checks that the edited model means the same: no new errors, the same number of change objects and dependencies; and no
/// name of a variable is part of a generation.
///
/// # Errors
/// The first difference, in words.
pub(super) fn verify(
    target: &Target,
    model: &Path,
    texts: &Texts,
    edits: &BTreeMap<PathBuf, Vec<TextEdit>>,
    files: &[(PathBuf, String)],
) -> Result<(), String> {
    let mut edited = texts.clone();
    for (path, list) in edits {
        let text = files.iter().find(|(file, _)| file == path).map(|(_, text)| text.as_str()).unwrap_or_default();
        edited.insert(path.clone(), applied(text, list));
    }
    let make = |texts: &Texts| make_of(Model::load_with(model, texts), &After::default(), None);
    let (before, after) = (make(texts), make(&edited));
    let errors = |made: &Made| made.diagnostics.iter().filter(|one| one.severity == Severity::Error).count();
    if errors(&after) > errors(&before) {
        let known: Vec<&str> = before.diagnostics.iter().map(|one| one.message.as_str()).collect();
        let mut new = after.diagnostics.iter().filter(|one| one.severity == Severity::Error);
        let first = new.find(|one| !known.contains(&one.message.as_str()));
        let place = first
            .and_then(|one| one.place.as_ref())
            .map(|place| format!(" at {}:{}", place.file.display(), place.line));
        let what = first.map_or("it has more errors", |one| one.message.as_str());
        return Err(format!(
            "the renamed model would be wrong{}: {what}; nothing is renamed",
            place.unwrap_or_default()
        ));
    }
    if target.is_variable() {
        let bundles = |made: &Made| made.assembled.as_ref().map(|made| made.generation.bundles.clone());
        return match bundles(&before) == bundles(&after) {
            true => Ok(()),
            false => {
                Err("the renamed model would give hosts other contents: an expression reads this variable in another \
                          way; nothing is renamed"
                    .to_owned())
            }
        };
    }
    let size = |made: &Made| {
        let bundles = made.assembled.iter().flat_map(|made| made.generation.bundles.values());
        let cobs = bundles.flat_map(|bundle| bundle.cobs.values());
        cobs.fold((0_usize, 0_usize), |(cobs, needs), cob| (cobs + 1, needs + cob.expects.len()))
    };
    if size(&before) != size(&after) {
        let ((cobs, needs), (other_cobs, other_needs)) = (size(&before), size(&after));
        return Err(format!(
            "the renamed model would have {}, {}, instead of {cobs} and {needs}: a template or an anchor makes names there; \
             nothing is renamed",
            count(other_cobs, "change object"),
            count(other_needs, "dependency"),
        ));
    }
    Ok(())
}

/// A text with edits, each within a line.
fn applied(text: &str, edits: &[TextEdit]) -> String {
    let mut by_row: BTreeMap<u32, Vec<&TextEdit>> = BTreeMap::new();
    for edit in edits {
        by_row.entry(edit.range.start.line).or_default().push(edit);
    }
    let mut out = String::with_capacity(text.len());
    for (row, line) in (0..).zip(text.split_inclusive('\n')) {
        let mut rest = 0;
        for edit in by_row.get(&row).into_iter().flatten() {
            let byte = |units| line.char_indices().nth(cursor::column_at(line, units)).map_or(line.len(), |(at, _)| at);
            let (from, to) = (byte(edit.range.start.character), byte(edit.range.end.character));
            out.push_str(&line[rest..from.max(rest)]);
            out.push_str(&edit.new_text);
            rest = to;
        }
        out.push_str(&line[rest.min(line.len())..]);
    }
    out
}
