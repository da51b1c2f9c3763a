//! The names in a model: its keys, with their places.
//!
//! A text that is no valid YAML, as most texts are while somebody types, has an outline by its indentation.

use lsp_types::Range;

use super::{cursor, range};

/// The sections whose entries other parts of a model name.
const NAMED: [&str; 13] = [
    "hosts",
    "services",
    "cobs",
    "kinds",
    "templates",
    "clusters",
    "budgets",
    "secrets",
    "operators",
    "providers",
    "hardwaretypes",
    "imagetypes",
    "maintenance",
];

/// A key of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The keys from the top to this one.
    pub(super) keys: Vec<String>,
    line: u32,
    from: u32,
    to: u32,
}

impl Entry {
    pub(super) fn range(&self) -> Range {
        range(self.line, self.from, self.to)
    }

    /// Whether `word` names this entry; in a service, a bare name is a change object of that service first.
    pub(super) fn is_named(&self, word: &str, service: Option<&str>) -> bool {
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        match keys.as_slice() {
            [section, name] => NAMED.contains(section) && *name == word,
            ["services", of, "cobs", name] => match word.split_once('/') {
                Some((service, cob)) => service == *of && cob == *name,
                None => service == Some(*of) && *name == word,
            },
            _ => false,
        }
    }
}

/// The keys of a text, by their indentation. Keys inside of `{…}` are left out, except directly below a section.
pub(super) fn of_text(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut above: Vec<(usize, String)> = Vec::new();
    for (number, line) in (0..).zip(text.lines()) {
        let Some(key) = cursor::block_key(line) else { continue };
        above.retain(|(column, _)| *column < key.column);
        let keys: Vec<String> = above.iter().map(|(_, key)| key.clone()).chain([key.name.clone()]).collect();
        let (from, to) = (cursor::units(line, key.column), cursor::units(line, key.column + key.name.chars().count()));
        entries.push(Entry { keys: keys.clone(), line: number, from, to });
        if keys.len() == 1 {
            entries.extend(cursor::flow_keys(line, key.value_column).into_iter().map(|(name, column)| {
                let (from, to) = (cursor::units(line, column), cursor::units(line, column + name.chars().count()));
                Entry { keys: vec![key.name.clone(), name], line: number, from, to }
            }));
        }
        above.push((key.column, key.name));
    }
    entries
}

/// The names that the value of this key may have.
pub(super) fn targets(key: &str, entries: &[&Entry]) -> Vec<String> {
    let of_section = |wanted: &str| {
        let of = move |entry: &&&Entry| entry.keys.len() == 2 && entry.keys[0] == wanted;
        entries.iter().filter(of).map(|entry| entry.keys[1].clone()).collect::<Vec<_>>()
    };
    let mut names = match key {
        "requires" | "after" | "excludes" | "restarts_on" | "cob" | "cobs" => {
            let inner = entries.iter().filter_map(|entry| match entry.keys.as_slice() {
                [services, service, cobs, name] if services == "services" && cobs == "cobs" => {
                    Some(format!("{service}/{name}"))
                }
                _ => None,
            });
            [of_section("cobs"), of_section("services"), inner.collect()].concat()
        }
        "host" | "hosts" | "on" => of_section("hosts"),
        "services" => of_section("services"),
        "kind" => of_section("kinds"),
        "template" => of_section("templates"),
        "budget" => of_section("budgets"),
        "provider" => of_section("providers"),
        "hardwaretype" => of_section("hardwaretypes"),
        "imagetype" => of_section("imagetypes"),
        _ => Vec::new(),
    };
    names.sort();
    names.dedup();
    names
}
