//! The kind back end `config-keys`: keys of a configuration file that others own.
//!
//! An edit changes only the text of its keys. The note has for each key its earlier text, and the values that the change
//! object has set: a value that a user has changed since stays.

mod json;
mod lines;
mod pieces;
mod sheet;
mod siblings;
mod toml;
mod yaml;
mod yaml_words;

use std::collections::BTreeMap;
use std::path::PathBuf;

use cob_kinds::{ConfigKeys, key_in_dots};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::sheet::{Format, Saved, is_same};
use self::siblings::Siblings;
use super::edits;
use super::{Entry, Setting, Spec};
use crate::kinds::native::Host;

/// The mode of a new file.
const MODE: u32 = 0o644;

/// The back end `config-keys`.
#[derive(Debug)]
pub(super) struct ConfigKeysSetting;

/// The desired keys.
#[derive(Debug)]
struct Keys {
    host: Host,
    path: String,
    format: Format,
    create: bool,
    /// The own folder, beside which other change objects of the file have their notes.
    own: PathBuf,
    /// The keys in a single spelling. `None`: the key must not exist.
    keys: BTreeMap<String, Key>,
}

#[derive(Debug)]
struct Key {
    parts: Vec<String>,
    wanted: Option<Value>,
}

/// The note.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Noted {
    /// Whether the file existed.
    file: bool,
    keys: BTreeMap<String, NotedKey>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct NotedKey {
    parts: Vec<String>,
    earlier: Saved,
    /// The earlier value. Empty: the key did not exist.
    was: Vec<Value>,
    /// The values that the change object has set. Empty: it has removed the key.
    ours: Vec<Vec<Value>>,
    /// The content names it no more.
    #[serde(default)]
    dropped: bool,
}

impl Setting for ConfigKeysSetting {
    type Content = ConfigKeys;

    fn is_short(&self) -> bool {
        true
    }

    fn spec(&self, Entry { content, host, own, .. }: Entry<ConfigKeys>) -> Result<Box<dyn Spec>, String> {
        let set = content.set.into_iter().map(|(key, value)| (key, Some(value)));
        let mut keys = BTreeMap::new();
        for (key, wanted) in set.chain(content.absent.into_iter().map(|key| (key, None))) {
            let parts = content.format.parts(&key).map_err(|(what, help)| format!("content: {what}; {help}"))?;
            keys.insert(key_in_dots(&parts), Key { parts, wanted });
        }
        let (path, format, create) = (content.path, Format(content.format), content.create);
        Ok(Box::new(Keys { host, path, format, create, own, keys }))
    }
}

impl Keys {
    fn text(&self) -> Result<Option<String>, String> {
        self.host.read_if_there(&self.path)
    }

    fn failed(&self, why: &str) -> String {
        let format = format!("{:?}", self.format.0).to_lowercase();
        format!("{} stays as it is, because its {format} can't be edited: {why}", self.path)
    }

    fn value(&self, text: &str, parts: &[String]) -> Result<Option<Value>, String> {
        self.format.value(text, parts)
    }

    /// Whether a key has a value of the change object that is not its earlier value.
    fn is_left(&self, text: &str, key: &NotedKey) -> Result<bool, String> {
        let value: Vec<Value> = self.value(text, &key.parts)?.into_iter().collect();
        let is = |one: &Vec<Value>| is_same(&json!(one), &json!(value));
        Ok(!is(&key.was) && key.ours.iter().any(is))
    }

    /// What other change objects have made in the file.
    fn siblings(&self) -> Siblings {
        Siblings::of(&self.own, &self.host, &self.path, self.format)
    }

    /// The keys in a text, for the note.
    fn noted(&self, text: &str, siblings: &Siblings) -> Result<BTreeMap<String, NotedKey>, String> {
        let noted = |(name, key): (&String, &Key)| {
            let ours = key.wanted.iter().map(|wanted| self.format.wanted(wanted)).collect();
            let key = NotedKey {
                parts: key.parts.clone(),
                earlier: siblings.shared(&key.parts, self.format.saved(text, &key.parts)?),
                was: self.value(text, &key.parts)?.into_iter().collect(),
                ours: vec![ours],
                dropped: false,
            };
            Ok((name.clone(), key))
        };
        self.keys.iter().map(noted).collect()
    }

    /// Changes the file by an edit that may fail.
    fn edit(&self, change: &dyn Fn(&str) -> Result<String, String>) -> Result<(), String> {
        self.host.try_edit(&self.path, MODE, &|text| change(text).map_err(|why| self.failed(&why)))
    }

    /// The text with all keys as desired.
    fn edited(&self, text: &str, noted: &Noted) -> Result<String, String> {
        let dropped = noted.keys.iter().filter(|(name, _)| !self.keys.contains_key(*name)).collect();
        let mut text = self.put_back(text, &dropped)?;
        // A new key finds its place beside a key that goes.
        let (set, absent): (Vec<_>, Vec<_>) = self.keys.values().partition(|key| key.wanted.is_some());
        for key in set.into_iter().chain(absent) {
            let value = self.value(&text, &key.parts)?;
            match (&key.wanted, value) {
                (Some(wanted), Some(value)) if is_same(&value, &self.format.wanted(wanted)) => {}
                (Some(wanted), _) => text = self.format.set(&text, &key.parts, wanted)?,
                (None, Some(_)) => text = self.format.remove(&text, &key.parts)?,
                (None, None) => {}
            }
        }
        Ok(text)
    }

    /// Gives keys their earlier values back, unless a user has changed them since.
    fn put_back(&self, text: &str, keys: &BTreeMap<&String, &NotedKey>) -> Result<String, String> {
        let mut keys: Vec<_> = keys.values().collect();
        // An entry finds its place below the entry that was above it.
        keys.sort_by_key(|key| key.earlier.at());
        let mut text = text.to_owned();
        for key in keys {
            if self.is_left(&text, key)? {
                text = self.format.restore(&text, &key.parts, &key.earlier)?;
            }
        }
        Ok(text)
    }
}

fn noted(before: Option<&Value>) -> Noted {
    before.and_then(|before| Noted::deserialize(before).ok()).unwrap_or_default()
}

impl Spec for Keys {
    fn target(&self) -> String {
        format!("{} ({:?})", self.path, self.format.0).to_lowercase()
    }

    fn turn(&self) -> Option<&'static str> {
        Some(edits::turn(&self.host, &self.path))
    }

    fn shared(&self) -> Option<&str> {
        Some(&self.path)
    }

    fn common(&self) -> Option<&str> {
        Some(&self.path)
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let text = self.text()?.unwrap_or_default();
        let mut found = Map::new();
        for (name, key) in &self.keys {
            let value = self.value(&text, &key.parts).map_err(|why| self.failed(&why))?;
            // Another notation of an equal value is as desired.
            let wanted = key.wanted.as_ref().map(|wanted| self.format.wanted(wanted));
            let same = wanted.filter(|wanted| value.as_ref().is_some_and(|value| is_same(value, wanted)));
            found.extend(same.or(value).map(|value| (name.clone(), value)));
        }
        for (name, key) in noted(before).keys.iter().filter(|(name, _)| !self.keys.contains_key(*name)) {
            if self.is_left(&text, key).map_err(|why| self.failed(&why))? {
                found.insert(name.clone(), json!("not managed any more, and not as it was before"));
            }
        }
        Ok(Some(Value::Object(found)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let text = self.text()?;
        let siblings = self.siblings();
        let keys = self.noted(text.as_deref().unwrap_or_default(), &siblings).map_err(|why| self.failed(&why))?;
        let file = text.is_some() && !siblings.made_file;
        Ok(Some(json!(Noted { file, keys })))
    }

    fn merged(&self, earlier: Option<Value>, _found: Option<Value>) -> Result<Option<Value>, String> {
        let Noted { file, keys: earlier } = noted(earlier.as_ref());
        let text = self.text()?.unwrap_or_default();
        let merged = || {
            let mut keys = BTreeMap::new();
            let dropped = earlier.iter().filter(|(name, _)| !self.keys.contains_key(*name)).collect();
            // A new key may be inside of a dropped key.
            let mut found = self.noted(&self.put_back(&text, &dropped)?, &self.siblings())?;
            for (name, mut key) in earlier.clone() {
                let is_left = self.is_left(&text, &key)?;
                match found.remove(&name) {
                    // It was given back, and is taken again.
                    Some(new) if key.dropped && !is_left => drop(keys.insert(name, new)),
                    Some(new) => {
                        let new: Vec<_> = new.ours.into_iter().filter(|one| !key.ours.contains(one)).collect();
                        key.ours.extend(new);
                        keys.insert(name, NotedKey { dropped: false, ..key });
                    }
                    None if is_left => drop(keys.insert(name, NotedKey { dropped: true, ..key })),
                    None => {}
                }
            }
            keys.extend(found);
            Ok(keys)
        };
        let keys = merged().map_err(|why: String| self.failed(&why))?;
        Ok(Some(json!(Noted { file, keys })))
    }

    fn wanted(&self) -> Value {
        let wanted = |(name, key): (&String, &Key)| Some((name.clone(), self.format.wanted(key.wanted.as_ref()?)));
        Value::Object(self.keys.iter().filter_map(wanted).collect())
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        if self.text()?.is_none() {
            if self.keys.values().all(|key| key.wanted.is_none()) {
                return Ok(());
            }
            if !self.create {
                let path = &self.path;
                return Err(format!(
                    "{path} does not exist; `create: true` makes it, or let it come `after` its maker"
                ));
            }
        }
        let noted = noted(before);
        self.edit(&|text| self.edited(text, &noted))
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        if self.text()?.is_none() {
            return Ok(());
        }
        let noted = noted(before);
        self.edit(&|text| self.put_back(text, &noted.keys.iter().collect()))?;
        if !noted.file && self.text()?.is_some_and(|text| self.format.is_empty(&text)) {
            return self.host.remove(&self.path);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "config_keys_test.rs"]
mod tests;
