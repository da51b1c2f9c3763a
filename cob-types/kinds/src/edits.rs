//! The kinds `line` and `block`: edits in files that others own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use cob_types::CobId;
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint};

/// The largest compiled expression, in bytes.
const MAX_EXPRESSION: usize = 1 << 20;
/// The largest block, in bytes.
const MAX_BLOCK: usize = 1 << 20;

/// The content of `line`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The file: an absolute path.
    pub path: String,
    /// The line, without its end. With `absent` and `match` it can be left out.
    pub line: Option<String>,
    /// A regular expression: the first line that matches becomes the line. Others stay.
    #[serde(rename = "match")]
    pub matching: Option<String>,
    /// A regular expression: a new line goes below the last line that matches.
    pub after: Option<String>,
    /// A regular expression: a new line goes above the first line that matches.
    pub before: Option<String>,
    /// The lines that match, or equal the line, must not exist.
    #[serde(default)]
    pub absent: bool,
    /// A file that is missing is made.
    #[serde(default)]
    pub create: bool,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

/// The content of `block`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The file: an absolute path.
    pub path: String,
    /// The lines between the two marker lines.
    pub block: String,
    /// What begins a comment in the file; default: `#`.
    #[serde(default = "number_sign")]
    pub comment: String,
    /// A regular expression: a new block goes below the last line that matches.
    pub after: Option<String>,
    /// A regular expression: a new block goes above the first line that matches.
    pub before: Option<String>,
    /// A file that is missing is made.
    #[serde(default)]
    pub create: bool,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

fn number_sign() -> String {
    "#".to_owned()
}

/// The compiled expressions, by their text: compiling takes a third of the time of an edit, and each attempt compiles the
/// expressions of a content several times.
static COMPILED: Mutex<BTreeMap<String, Regex>> = Mutex::new(BTreeMap::new());
/// The most compiled expressions that are kept.
const MOST_COMPILED: usize = 64;

/// Compiles an expression for single lines.
///
/// # Errors
/// The fault of the expression, as text.
pub fn expression(text: &str) -> Result<Regex, String> {
    // A panic leaves a map of whole entries.
    let compiled = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = compiled().get(text) {
        return Ok(known.clone());
    }
    let new = RegexBuilder::new(text).size_limit(MAX_EXPRESSION).build().map_err(|error| {
        let text = error.to_string();
        text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    let mut all = compiled();
    if all.len() >= MOST_COMPILED {
        all.clear();
    }
    all.insert(text.to_owned(), new.clone());
    Ok(new)
}

impl Content for Line {
    const KIND: Builtin = Builtin::setting("line");

    fn check(&self, faults: &mut Faults) {
        check_path(&self.path, self.root.as_ref(), faults);
        check_expressions(&[("match", &self.matching), ("after", &self.after), ("before", &self.before)], faults);
        if self.line.as_ref().is_some_and(|line| line.contains(['\n', '\r', '\0'])) {
            faults.add("line", "`line` has several lines", "the kind `block` is for several lines");
        }
        match (&self.line, &self.matching) {
            (None, None) => faults.add_as("missing-key", "line", "the content of `line` lacks `line`", "add `line: …`"),
            (None, Some(_)) if !self.absent => {
                faults.add_as("missing-key", "match", "`match` alone is no line", "add `line: …`, or `absent: true`");
            }
            // The result would match no more, and the next run would insert another line.
            (Some(line), Some(text))
                if !self.absent && expression(text).is_ok_and(|expression| !expression.is_match(line)) =>
            {
                let what = format!("{text:?} does not match the line {line:?}");
                faults.add("match", what, "the line must match: after the edit it is found by the same expression");
            }
            (None | Some(_), None | Some(_)) => {}
        }
        if self.absent && (self.after.is_some() || self.before.is_some()) {
            let key = if self.after.is_some() { "after" } else { "before" };
            faults.add(key, "with `absent` no line is inserted", "remove the key");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let what = self.matching.as_ref().or(self.line.as_ref()).map_or("", String::as_str);
        Footprint::of("line of a file:", format!("{}: {what}", self.path)).with_shared(&[&self.path])
    }
}

impl Content for Block {
    const KIND: Builtin = Builtin::setting("block");

    fn check(&self, faults: &mut Faults) {
        check_path(&self.path, self.root.as_ref(), faults);
        check_expressions(&[("after", &self.after), ("before", &self.before)], faults);
        if self.block.contains('\0') || self.block.len() > MAX_BLOCK {
            faults.add("block", "`block` is no text of at most 1 MiB", "");
        }
        if self.comment.trim().is_empty() || self.comment.contains('\n') {
            let what = format!("{:?} begins no comment", self.comment);
            faults.add("comment", what, "for example `#`, `//`, `;` or `--`");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::default().with_shared(&[&self.path])
    }
}

pub(super) fn check_path(path: &str, root: Option<&PathBuf>, faults: &mut Faults) {
    faults.check_absolute("root", root);
    check_file("path", path, faults);
}

/// Checks the path of a file.
pub(super) fn check_file(key: &'static str, path: &str, faults: &mut Faults) {
    let is_plain = path.starts_with('/') && !path.ends_with('/') && !path.contains('\0');
    if !is_plain || path.split('/').any(|part| part == "..") {
        let what = format!("{path:?} is not the path of a file");
        faults.add(key, what, "write it from the root and without `..`, for example /etc/ssh/sshd_config");
    }
}

fn check_expressions(all: &[(&'static str, &Option<String>)], faults: &mut Faults) {
    for (key, text) in all {
        if let Some(Err(why)) = text.as_deref().map(expression) {
            let what = format!("{:?} is no regular expression: {why}", text.as_deref().unwrap_or_default());
            faults.add(*key, what, "the form is that of the Rust crate regex; a backslash takes special meaning away");
        }
    }
    let places: Vec<_> = all.iter().filter(|(key, text)| *key != "match" && text.is_some()).collect();
    if let [_, (second, _)] = places.as_slice() {
        faults.add(*second, "`after` and `before` exclude each other", "remove `after` or `before`");
    }
}
