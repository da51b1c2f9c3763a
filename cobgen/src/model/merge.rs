//! Merges several files into a model: sections of the same name are merged.
//!
//! A duplicate name is an error that names both places: the order of file names must not decide between the two.

use std::collections::HashMap;

use super::Sources;
use super::node::{Key, Map, Mark, Node, Value};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// The prefix of top-level keys that only hold values for anchors, as in Compose files: `x-defaults: &defaults {…}`.
const EXTENSION: &str = "x-";

/// Merges all documents into a single mapping.
pub(super) fn merge(documents: Vec<Node>, sources: &Sources, out: &mut Diagnostics) -> Node {
    let mark = documents.first().map_or(Mark { file: 0, line: 1, column: 1 }, |d| d.mark);
    let mut all = Merged { sources, out, root: Map::default() };
    for document in documents {
        if let Value::Map(map) = document.value {
            all.add(map);
        } else {
            let what = document.value.describe();
            let fault = Diagnostic::error("no-model", format!("a model is a mapping of sections, but this is {what}"))
                .help("begin with `security: loopback-only` and `hosts:`; `cobgen init` makes an example");
            all.out.push(fault.at(sources.place(document.mark)));
        }
    }
    Node { mark, value: Value::Map(all.root) }
}

struct Merged<'a> {
    sources: &'a Sources,
    out: &'a mut Diagnostics,
    root: Map,
}

impl Merged<'_> {
    fn add(&mut self, mut map: Map) {
        // The aliases were resolved while the file was read, so the values themselves are no longer needed.
        map.entries.retain(|(key, _)| !key.text.starts_with(EXTENSION));
        let mut root = std::mem::take(&mut self.root);
        self.level(&mut root, map, &mut Vec::new());
        self.root = root;
    }

    fn level(&mut self, into: &mut Map, from: Map, way: &mut Vec<String>) {
        let index: HashMap<String, usize> = if from.entries.len() > 8 {
            into.entries.iter().enumerate().map(|(i, (k, _))| (k.text.clone(), i)).collect()
        } else {
            HashMap::new()
        };
        for (key, node) in from.entries {
            let at = if index.is_empty() {
                into.entries.iter().position(|(k, _)| k.text == key.text)
            } else {
                index.get(&key.text).copied()
            };
            match at.and_then(|i| into.entries.get_mut(i)) {
                None => into.entries.push((key, node)),
                Some((first, there)) => match (&mut there.value, node.value) {
                    // An empty value must not replace a value.
                    (Value::Null, value) if merges(way, &key.text) => {
                        self.empty(way, first, &key);
                        (*first, *there) = (key, Node { mark: node.mark, value });
                    }
                    (_, Value::Null) if merges(way, &key.text) => self.empty(way, &key, first),
                    (Value::Map(there), Value::Map(more)) if merges(way, &key.text) => {
                        way.push(key.text);
                        self.level(there, more, way);
                        way.pop();
                    }
                    _ => self.twice(way, first, &key),
                },
            }
        }
    }

    fn empty(&mut self, way: &[String], empty: &Key, other: &Key) {
        let section = if way.is_empty() { String::new() } else { format!(" of `{}`", way.join(".")) };
        let fault = Diagnostic::error("wrong-type", format!("`{}`{section} is empty here", empty.text))
            .at(self.sources.place(empty.mark))
            .note(Some(self.sources.place(other.mark)), "it is also here")
            .help("write a value after the `:`, or remove the key");
        self.out.push(fault);
    }

    fn twice(&mut self, way: &[String], first: &Key, second: &Key) {
        let section = if way.is_empty() { String::new() } else { format!(" of `{}`", way.join(".")) };
        let fault = Diagnostic::error("duplicate-name", format!("`{}`{section} is defined twice", second.text))
            .at(self.sources.place(second.mark))
            .note(Some(self.sources.place(first.mark)), "first defined here")
            .help("rename or remove either entry");
        self.out.push(fault);
    }
}

/// Whether mappings of this name below `way` are merged: sections are, and the groups of `variables`; mappings with a
/// user's name are not.
fn merges(way: &[String], name: &str) -> bool {
    match way {
        [] => true,
        [section] => section == "variables",
        [section, group] => section == "variables" && group != "all" && !name.is_empty(),
        _ => false,
    }
}
