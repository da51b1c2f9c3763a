//! Names of clusters, tenants, users and providers.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A name: 1 to 40 lowercase letters, digits and `-`, without `-` at an end.
///
/// A cluster's name with the number of a node is the node's host name, a label of DNS (RFC 1123, section 2.1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// The text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a name: a name has 1 to {} lowercase letters, digits and `-`, and no `-` at an end",
    Name::LONGEST
)]
pub struct BadName {
    text: String,
}

impl Name {
    /// The longest name, in bytes.
    pub const LONGEST: usize = 40;

    /// Checks a text.
    ///
    /// # Errors
    ///
    /// The text is not a name.
    pub fn new(text: &str) -> Result<Self, BadName> {
        let fits = (1..=Self::LONGEST).contains(&text.len());
        let allowed = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if fits && allowed && !text.starts_with('-') && !text.ends_with('-') {
            return Ok(Self(text.to_owned()));
        }
        Err(BadName { text: text.chars().take(80).collect() })
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        Self::new(&text)
    }
}

impl std::str::FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        Self::new(text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl JsonSchema for Name {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_of_dns() {
        for good in ["a", "shop", "shop-2", "0", &"x".repeat(40)] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "..", "ä", "a b", &"x".repeat(41)] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
    }
}
