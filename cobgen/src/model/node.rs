//! A model's values with their positions, before anyone asks what they mean.
//!
//! Made by [`yaml`](super::yaml), checked by [`structure`](super::structure), read into the typed
//! sections by [`read`](super::read). Its depth is bounded, so that whatever walks it may recurse.

use serde_json::json;

/// A position, small enough to stand beside every value; [`Sources`](super::Sources) knows the file.
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
    /// Where it begins.
    pub mark: Mark,
    /// What it is.
    pub value: Value,
}

/// What YAML can say.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// Nothing is written.
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
    /// Something that was reported as wrong; whoever reads on takes it for absent.
    Invalid,
}

/// How a number was written, where it is not as it is printed: `0640`, `1.10`, `0x10`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Written(Option<Box<Spelling>>);

/// Boxed once more, so that a value is no larger for it: few numbers are written otherwise.
#[derive(Debug, Clone, PartialEq)]
struct Spelling(Box<str>);

impl Written {
    /// The number that is printed so was written like this.
    #[must_use]
    pub fn of(printed: &str, written: &str) -> Self {
        Self((printed != written).then(|| Box::new(Spelling(written.into()))))
    }

    pub(super) fn text(&self) -> Option<&str> {
        self.0.as_ref().map(|spelling| &*spelling.0)
    }
}

/// A mapping in the order written; every key once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Map {
    /// Keys and values.
    pub entries: Vec<(Key, Node)>,
}

/// A mapping's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Where it begins.
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
    /// How a number was written that is printed otherwise.
    pub(super) fn written(&self) -> Option<&str> {
        match self {
            Self::Int(_, written) | Self::Float(_, written) => written.text(),
            Self::Null | Self::Bool(_) | Self::Text(_) | Self::List(_) | Self::Map(_) | Self::Invalid => None,
        }
    }

    /// What it is, in words that follow "is".
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
    /// The text, where it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// The items, where it is a list.
    #[must_use]
    pub fn list(&self) -> Option<&[Node]> {
        if let Value::List(items) = &self.value { Some(items) } else { None }
    }

    /// The mapping, where it is one.
    #[must_use]
    pub fn map(&self) -> Option<&Map> {
        if let Value::Map(map) = &self.value { Some(map) } else { None }
    }

    /// Whether this mapping has a value for a key, be it a wrong one: that was reported, and is not missing.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.map().and_then(|map| map.get(key)).is_some_and(|node| node.value != Value::Null)
    }

    /// A text, a number or a truth value as text; a number as it was written.
    #[must_use]
    pub fn scalar(&self) -> Option<String> {
        self.value.written().map(str::to_owned).or_else(|| self.plain())
    }

    /// The same with numbers as they are printed.
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
