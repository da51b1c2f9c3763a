//! A model's values with their positions, before they are interpreted.
//!
//! [`yaml`](super::yaml) makes these values, [`structure`](super::structure) checks the values, and
//! [`read`](super::read) reads the typed sections. The depth is bounded, so all walks over a value may recurse.

use serde_json::json;

/// A position, small enough to be stored with every value; [`Sources`](super::Sources) knows the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mark {
    /// The file's number.
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A value and its position.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Node {
    /// The position of its start.
    pub mark: Mark,
    /// The value.
    pub value: Value,
}

/// A YAML value.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// Within `i64::MIN..=u64::MAX`.
    Int(i128, Written),
    /// Finite.
    Float(f64, Written),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping.
    Map(Map),
    /// A value that is already reported as wrong; later readers treat it as absent.
    Invalid,
}

/// The spelling of a number that differs from its printed form: `0640`, `1.10`, `0x10`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Written(Option<Box<Spelling>>);

/// Boxed again, so that a value does not grow: few numbers have a special spelling.
#[derive(Debug, Clone, PartialEq)]
struct Spelling(Box<str>);

impl Written {
    /// The spelling of a number with this printed form.
    #[must_use]
    pub fn of(printed: &str, written: &str) -> Self {
        Self((printed != written).then(|| Box::new(Spelling(written.into()))))
    }

    pub(super) fn text(&self) -> Option<&str> {
        self.0.as_ref().map(|spelling| &*spelling.0)
    }
}

/// A mapping in written order, without duplicate keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Map {
    /// Keys and values.
    pub entries: Vec<(Key, Node)>,
}

/// A mapping's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The position of its start.
    pub mark: Mark,
    /// Its text.
    pub text: String,
}

impl Map {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries.iter().find(|(k, _)| k.text == key).map(|(_, v)| v)
    }
}

impl Value {
    /// The spelling of a number, if it differs from the printed form.
    pub(super) fn written(&self) -> Option<&str> {
        match self {
            Self::Int(_, written) | Self::Float(_, written) => written.text(),
            Self::Null | Self::Bool(_) | Self::Text(_) | Self::List(_) | Self::Map(_) | Self::Invalid => None,
        }
    }

    /// A description that follows the word "is".
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Null => "empty".to_owned(),
            Self::Bool(b) => format!("the truth value `{b}`"),
            Self::Int(i, written) => format!("the number {}", written.text().unwrap_or(&i.to_string())),
            Self::Float(f, written) => format!("the number {}", written.text().unwrap_or(&f.to_string())),
            Self::Text(t) if t.chars().count() > 40 || t.contains('\n') => "a text".to_owned(),
            Self::Text(t) => format!("the text {t:?}"),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a mapping".to_owned(),
            Self::Invalid => "wrong".to_owned(),
        }
    }
}

impl Node {
    /// The text, if it is a text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// The items, if it is a list.
    #[must_use]
    pub fn list(&self) -> Option<&[Node]> {
        if let Value::List(items) = &self.value { Some(items) } else { None }
    }

    /// The mapping, if it is a mapping.
    #[must_use]
    pub fn map(&self) -> Option<&Map> {
        if let Value::Map(map) = &self.value { Some(map) } else { None }
    }

    /// Whether this mapping has a value for a key. A wrong value counts: it is already reported, and not missing.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.map().and_then(|map| map.get(key)).is_some_and(|node| node.value != Value::Null)
    }

    /// A text, number or boolean as text; a number in its written spelling.
    #[must_use]
    pub fn scalar(&self) -> Option<String> {
        self.value.written().map(str::to_owned).or_else(|| self.plain())
    }

    /// The same with numbers in printed form.
    pub(crate) fn plain(&self) -> Option<String> {
        match &self.value {
            Value::Text(t) => Some(t.clone()),
            Value::Bool(b) => Some(b.to_string()),
            Value::Int(i, _) => Some(i.to_string()),
            Value::Float(f, _) => Some(f.to_string()),
            Value::Null | Value::List(_) | Value::Map(_) | Value::Invalid => None,
        }
    }

    /// The same without positions.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null | Value::Invalid => serde_json::Value::Null,
            Value::Bool(b) => json!(b),
            Value::Int(i, _) => {
                i64::try_from(*i).map_or_else(|_| json!(u64::try_from(*i).unwrap_or(u64::MAX)), |i| json!(i))
            }
            Value::Float(f, _) => json!(f),
            Value::Text(t) => json!(t),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(map) => map.entries.iter().map(|(k, v)| (k.text.clone(), v.to_json())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_number_is_written_makes_no_value_larger() {
        assert!(size_of::<Value>() <= 32 && size_of::<Written>() == size_of::<usize>());
        assert_eq!((Written::of("80", "80"), Written::of("640", "0640").text()), (Written(None), Some("0640")));
    }
}
