//! Configurations: files and `KEY=VALUE`.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::Path;
use std::str::FromStr;

use cobctl::failure::Failure;
use serde_json::{Map, Value};

/// The longest file, in bytes: the hub takes no longer request.
const LONGEST: u64 = 4 << 20;

/// A value of a configuration, and its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair {
    keys: Vec<String>,
    value: Value,
}

impl FromStr for Pair {
    type Err = String;

    /// Reads `a.b=VALUE`. The value is JSON, or a text.
    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, as in web.port=8080")?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        Ok(Self { keys: keys(key)?, value })
    }
}

fn keys(text: &str) -> Result<Vec<String>, String> {
    let keys: Vec<String> = text.split('.').map(str::to_owned).collect();
    if keys.iter().any(String::is_empty) { Err(format!("{text:?} has an empty key")) } else { Ok(keys) }
}

/// Sets values. A value that is not a map becomes a map if a key leads into it.
pub(crate) fn set(config: &mut Map<String, Value>, pairs: &[Pair]) {
    for Pair { keys, value } in pairs {
        let Some((last, path)) = keys.split_last() else { continue };
        let mut map = &mut *config;
        for key in path {
            let next = map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
            if !next.is_object() {
                *next = Value::Object(Map::new());
            }
            let Value::Object(inner) = next else { return };
            map = inner;
        }
        map.insert(last.clone(), value.clone());
    }
}

/// Removes values, and maps that are empty then.
pub(crate) fn unset(config: &mut Map<String, Value>, unset: &[String]) -> Result<(), Failure> {
    for text in unset {
        let keys = keys(text).map_err(Failure::usage)?;
        if !remove(config, &keys) {
            return Err(Failure::usage(format!("the cluster has no value {text} of its own")));
        }
    }
    Ok(())
}

fn remove(map: &mut Map<String, Value>, keys: &[String]) -> bool {
    let Some((first, rest)) = keys.split_first() else { return false };
    if rest.is_empty() {
        return map.remove(first).is_some();
    }
    let Some(Value::Object(inner)) = map.get_mut(first) else { return false };
    let removed = remove(inner, rest);
    if inner.is_empty() {
        map.remove(first);
    }
    removed
}

/// The services of an argument: each once.
pub(crate) fn names(services: &[String]) -> BTreeSet<String> {
    services.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

/// The bytes of a file; `-` is the standard input.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match path.to_str() {
        Some("-") => io::stdin().lock().take(LONGEST + 1).read_to_end(&mut bytes),
        Some(_) | None => std::fs::File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes)),
    };
    read.map_err(|e| Failure::usage(format!("can't read {}: {e}", path.display())))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= LONGEST) {
        Ok(bytes)
    } else {
        Err(Failure::usage(format!("{} is longer than {} MiB", path.display(), LONGEST >> 20)))
    }
}

/// The value in a file, as YAML or JSON.
pub(crate) fn value(path: &Path) -> Result<Value, Failure> {
    let bytes = bytes(path)?;
    let text = String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{} is not UTF-8", path.display())))?;
    // JSON first: its errors are the better ones for JSON.
    let read = if text.trim_start().starts_with(['{', '[']) && path.extension().is_some_and(|e| e == "json") {
        serde_json::from_str(&text).map_err(|e| e.to_string())
    } else {
        serde_saphyr::from_str(&text).map_err(|e| e.to_string())
    };
    read.map_err(|e| Failure::usage(format!("{} is neither YAML nor JSON: {e}", path.display())))
}

/// The map in a file.
pub(crate) fn map(path: &Path) -> Result<Map<String, Value>, Failure> {
    match value(path)? {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Failure::usage(format!("{} is not a map of keys to values", path.display())))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pair(text: &str) -> Pair {
        text.parse().expect(text)
    }

    #[test]
    fn values_are_json_or_text_and_keys_lead_into_maps() {
        let mut config = Map::new();
        set(&mut config, &["db.price=12", "db.name=shop", "on=true", "text=\"12\"", "a=b=c", "empty="].map(pair));
        let wanted = json!({"db": {"price": 12, "name": "shop"}, "on": true, "text": "12", "a": "b=c", "empty": ""});
        assert_eq!(Value::from(config.clone()), wanted);
        set(&mut config, &[pair("on.deep=1")]);
        assert_eq!(config["on"], json!({"deep": 1}));
        for bad in ["x", "=1", "a..b=1", ".=1"] {
            assert!(bad.parse::<Pair>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_value_that_is_taken_away_leaves_no_empty_map() {
        let mut config = Map::new();
        set(&mut config, &["db.price=12", "db.name=shop", "a.b.c=1"].map(pair));
        unset(&mut config, &["db.price".to_owned(), "a.b.c".to_owned()]).expect("there");
        assert_eq!(Value::from(config.clone()), json!({"db": {"name": "shop"}}));
        assert!(unset(&mut config, &["db.price".to_owned()]).is_err());
        assert!(unset(&mut config, &["db.name.x".to_owned()]).is_err());
    }

    #[test]
    fn files_are_yaml_or_json() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        assert_eq!(value(&file("a.yaml", "a: {b: 1}\n")).expect("read"), json!({"a": {"b": 1}}));
        assert_eq!(value(&file("a.json", "{\"a\": [1]}")).expect("read"), json!({"a": [1]}));
        assert_eq!(map(&file("none.yaml", "")).expect("read"), Map::new());
        assert!(map(&file("list.yaml", "[1]")).is_err());
        let told = value(&file("bad.json", "{\"a\": }")).expect_err("bad").in_a_line();
        assert!(told.contains("bad.json") && told.contains("line 1 column 7"), "{told}");
        let told = value(&folder.path().join("missing")).expect_err("missing").in_a_line();
        assert!(told.contains("missing"), "{told}");
    }
}
