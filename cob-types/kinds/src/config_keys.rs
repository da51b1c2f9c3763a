//! The kind `config-keys`: keys of a configuration file that others own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use super::footprint::Subject;
use super::{Builtin, Content, Faults, Footprint, Place};

/// The most keys of a change object.
const MAX_KEYS: usize = 1000;
/// The longest key.
const MAX_KEY: usize = 1000;

/// The content of `config-keys`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigKeys {
    /// The file: an absolute path.
    pub path: String,
    /// The format of the file.
    pub format: ConfigFormat,
    /// The values, by key: `{Service.Restart: always}`.
    #[serde(default)]
    pub set: BTreeMap<String, Json>,
    /// The keys that must not exist.
    #[serde(default)]
    pub absent: Vec<String>,
    /// A file that is missing is made.
    #[serde(default)]
    pub create: bool,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

/// The format of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConfigFormat {
    /// Sections, and lines `key = value`; also units of systemd.
    Ini,
    /// Java properties.
    Properties,
    /// Lines `KEY=value` for a shell or for systemd.
    Env,
    /// TOML.
    Toml,
    /// JSON, also with comments and trailing commas.
    Json,
    /// YAML: a single document of block mappings.
    Yaml,
}

impl Content for ConfigKeys {
    const KIND: Builtin = Builtin::setting("config-keys");

    fn check(&self, faults: &mut Faults) {
        super::edits::check_path(&self.path, self.root.as_ref(), faults);
        if self.set.is_empty() && self.absent.is_empty() {
            faults.add("set", "no key is given", "write `set: {KEY: VALUE}` or `absent: [KEY]`");
        }
        if self.set.len() + self.absent.len() > MAX_KEYS {
            faults.add("set", format!("there are more than {MAX_KEYS} keys"), "use several change objects");
        }
        let set = self.set.keys().map(|key| (Place::Part("set", key.clone()), key));
        let absent = self.absent.iter().map(|key| (Place::Part("absent", key.clone()), key));
        let mut seen: BTreeMap<Vec<String>, &String> = BTreeMap::new();
        for (place, key) in set.chain(absent) {
            let parts = match self.format.parts(key) {
                Ok(parts) => parts,
                Err((what, help)) => {
                    faults.add(place, what, help);
                    continue;
                }
            };
            let above = (1..parts.len()).find_map(|length| seen.get(&parts[..length]));
            let below = seen.range(parts.clone()..).next().filter(|(other, _)| other.starts_with(&parts));
            match (above, below) {
                (Some(other), _) | (None, Some((_, other))) => {
                    let what = format!("the keys {other:?} and {key:?} contradict each other");
                    faults.add(place, what, "name each key once, and no key inside of another");
                }
                (None, None) => drop(seen.insert(parts, key)),
            }
        }
        for (key, value) in &self.set {
            if let Err((what, help)) = self.format.check_value(key, value) {
                faults.add(Place::Value("set", key.clone()), what, help);
            }
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let mut footprint = Footprint::default().with_shared(&[&self.path]);
        let keys = self.set.keys().chain(&self.absent).filter_map(|key| self.format.parts(key).ok());
        let names: BTreeSet<String> = keys.map(|parts| format!("{}: {}", self.path, in_dots(&parts))).collect();
        footprint.parts.extend(names.into_iter().map(|name| Subject { sort: Subject::KEY, name }));
        footprint
    }
}

impl ConfigFormat {
    /// The parts of a key: the names of tables or of a section, and the name in it.
    ///
    /// # Errors
    /// The fault of the key and its remedy.
    pub fn parts(self, key: &str) -> Result<Vec<String>, (String, String)> {
        let fault = |what: &str, help: &str| Err((format!("{key:?} is not a key: {what}"), help.to_owned()));
        if key.is_empty() || key.len() > MAX_KEY || key.contains(char::is_control) {
            return fault("it is empty, too long, or has control characters", "write the name as in the file");
        }
        let parts = match self {
            Self::Properties | Self::Env => vec![key.to_owned()],
            Self::Ini | Self::Toml | Self::Json | Self::Yaml => match split(key) {
                Some(parts) => parts,
                None => return fault("a part is empty, or a quote is open", "for example `table.\"name.with.dots\"`"),
            },
        };
        match self {
            Self::Env if !is_variable(key) => fault("a variable has letters, digits and `_`", "for example `LANG`"),
            Self::Ini if parts.len() > 2 => {
                fault("it has more than a section and a name", "put a name with dots into quotes: `section.\"a.b\"`")
            }
            Self::Ini if !is_ini(&parts) => {
                fault("no line can have this name", "a name has no `=`, `[` or `]`, and begins with no `#` or `;`")
            }
            Self::Ini | Self::Properties | Self::Env | Self::Toml | Self::Json | Self::Yaml => Ok(parts),
        }
    }

    /// The fault of a value and its remedy.
    fn check_value(self, key: &str, value: &Json) -> Result<(), (String, String)> {
        let fault = |what: &str, help: &str| Err((format!("the value of {key:?} {what}"), help.to_owned()));
        match (self, value) {
            (Self::Json | Self::Yaml, _) => Ok(()),
            (Self::Toml, value) if has_null(value) => fault("has a null, which TOML lacks", "use `absent: [KEY]`"),
            (Self::Toml, _) => Ok(()),
            (_, Json::Null) => fault("is missing", "use `absent: [KEY]`, or \"\" for an empty value"),
            (_, Json::Number(number)) if number.is_f64() => fault("is a number with a fraction", "put it into quotes"),
            (_, Json::Object(_)) => fault("is a mapping", "name the keys as `section.key`"),
            (Self::Ini, Json::Array(values)) if values.is_empty() => fault("is an empty list", "use `absent: [KEY]`"),
            (Self::Ini, Json::Array(values)) => values.iter().try_for_each(|value| match value {
                Json::Array(_) => fault("is a list in a list", "each item is a line of its own"),
                Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Object(_) => {
                    self.check_value(key, value)
                }
            }),
            (_, Json::Array(_)) => fault("is a list, which this format lacks", "write a text"),
            (Self::Ini, Json::String(text)) if text.trim() != text || text.ends_with('\\') => fault(
                "begins or ends with blanks, or ends with a backslash",
                "remove the blanks or the backslash: a line of this format cannot keep such an end",
            ),
            (Self::Ini | Self::Env, Json::String(text)) if text.contains(['\n', '\r', '\0']) => {
                fault("has several lines", "the kinds `block` and `file-tree` write several lines")
            }
            (_, Json::String(text)) if text.contains('\0') => fault("has a null character", "remove it"),
            (Self::Ini | Self::Properties | Self::Env, Json::Bool(_) | Json::Number(_) | Json::String(_)) => Ok(()),
        }
    }
}

/// The parts of a key in a single spelling.
#[must_use]
pub fn in_dots(parts: &[String]) -> String {
    let quoted = |part: &String| match part.contains('.') || part.starts_with('"') {
        true => format!("\"{}\"", part.replace('\\', "\\\\").replace('"', "\\\"")),
        false => part.clone(),
    };
    parts.iter().map(quoted).collect::<Vec<_>>().join(".")
}

/// Splits a key at its dots. A part that begins with a quote ends with a quote, and may contain dots.
fn split(key: &str) -> Option<Vec<String>> {
    let (mut parts, mut rest) = (Vec::new(), key);
    loop {
        let (part, after) = match rest.strip_prefix('"') {
            None => rest.split_once('.').map_or((rest.to_owned(), None), |(part, rest)| (part.to_owned(), Some(rest))),
            Some(quoted) => {
                let (mut part, mut chars) = (String::new(), quoted.char_indices());
                let end = loop {
                    match chars.next()? {
                        (at, '"') => break at,
                        (_, '\\') => part.push(chars.next()?.1),
                        (_, char) => part.push(char),
                    }
                };
                match &quoted[end + 1..] {
                    "" => (part, None),
                    after => (part, Some(after.strip_prefix('.')?)),
                }
            }
        };
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        match after {
            None => return Some(parts),
            Some(after) => rest = after,
        }
    }
}

fn is_variable(key: &str) -> bool {
    let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    key.chars().all(is_word) && !key.starts_with(|char: char| char.is_ascii_digit())
}

fn is_ini(parts: &[String]) -> bool {
    let is_plain = |part: &String| part.trim() == part && !part.contains(['[', ']']);
    let name_is_plain = |name: &String| !name.starts_with(['#', ';']) && !name.contains('=') && !name.contains(": ");
    parts.iter().all(is_plain) && parts.last().is_some_and(name_is_plain)
}

fn has_null(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Array(items) => items.iter().any(has_null),
        Json::Object(map) => map.values().any(has_null),
        Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_parts() {
        for (key, parts) in [
            ("a", Some(&["a"][..])),
            ("a.b.c", Some(&["a", "b", "c"])),
            (r#"a."b.c""#, Some(&["a", "b.c"])),
            (r#""a\"\\".b"#, Some(&["a\"\\", "b"])),
            (r#"remote "origin".url"#, Some(&["remote \"origin\"", "url"])),
            ("a..b", None),
            (r#""a"b"#, None),
            (r#"a."b"#, None),
        ] {
            let split = split(key);
            assert_eq!(split, parts.map(|parts| parts.iter().map(|part| (*part).to_owned()).collect()), "{key}");
            if let Some(parts) = split {
                assert_eq!(super::split(&in_dots(&parts)), Some(parts), "{key}");
            }
        }
    }
}
