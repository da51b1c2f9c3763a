//! Identifiers: names of hosts, change objects, states and kinds; numbers of generations; hashes of contents.
//!
//! Every name is checked when it is made, so a value of these types is always well formed: segments of
//! `[A-Za-z0-9_.-]+`, never `.` or `..`, at most 255 bytes in all. They are cheap to clone: up to 23 bytes are stored
//! inline, more in a shared string. So nearly all comparisons need no pointer, and threads that copy the same name do
//! not share a reference count.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;

/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;

/// The error for a text that is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Empty, or with an empty segment.
    #[error("{what} {text:?} has an empty part")]
    Empty {
        /// The type of name.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// More than [`MAX_NAME`] bytes.
    #[error("{what} is {len} bytes long; at most {MAX_NAME} are allowed")]
    TooLong {
        /// The type of name.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
    },
    /// A character outside `[A-Za-z0-9_.-]`.
    #[error("{what} {text:?} contains {bad:?} (U+{:04X}); allowed are ASCII letters, digits, `_`, `.` and `-`", u32::from(*.bad))]
    Character {
        /// The type of name.
        what: &'static str,
        /// The text.
        text: String,
        /// The first character that is not allowed.
        bad: char,
    },
    /// A segment is `.` or `..`.
    #[error("{what} {text:?} has the part `.` or `..`, which is not allowed")]
    Dots {
        /// The type of name.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// A change object's id without a host in front.
    #[error("change object {text:?} names no host: write HOST/NAME")]
    NoHost {
        /// The text.
        text: String,
    },
}

/// The bytes that a segment may have.
const ALLOWED: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        allowed[byte] = (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'_' | b'.' | b'-');
        byte += 1;
    }
    allowed
};

fn segment(what: &'static str, whole: &str, part: &str) -> Result<(), IdError> {
    if part.is_empty() {
        return Err(IdError::Empty { what, text: whole.to_owned() });
    }
    if !part.bytes().all(|b| ALLOWED[usize::from(b)]) {
        let bad = part.chars().find(|c| !u8::try_from(*c).is_ok_and(|b| ALLOWED[usize::from(b)]));
        return Err(IdError::Character { what, text: whole.to_owned(), bad: bad.unwrap_or_default() });
    }
    if part == "." || part == ".." {
        return Err(IdError::Dots { what, text: whole.to_owned() });
    }
    Ok(())
}

fn length(what: &'static str, text: &str) -> Result<(), IdError> {
    if text.len() > MAX_NAME {
        return Err(IdError::TooLong { what, len: text.len() });
    }
    Ok(())
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $pattern:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(SmolStr);

        impl $name {
            /// Checks the text and makes a name of it.
            ///
            /// # Errors
            /// [`IdError`] tells the fault.
            pub fn new(text: &str) -> Result<Self, IdError> {
                length($what, text)?;
                let check: fn(&str) -> Result<(), IdError> = $check;
                check(text)?;
                Ok(Self(SmolStr::new(text)))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(&text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.into()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                /// Borrows the text: decoding a large generation makes millions of names.
                struct Text;

                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a string")
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::new(text).map_err(E::custom)
                    }
                }

                from.deserialize_str(Text)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "maxLength": MAX_NAME, "pattern": $pattern})
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self.0.as_str(), f)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0.as_str() == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0.as_str() == *other
            }
        }
    };
}

name_type!(
    /// A host: a machine with a `cobd`.
    HostName, "host", "^[A-Za-z0-9_.-]+$", |t| segment("host", t, t)
);
name_type!(
    /// A state of a kind.
    StateName, "state", "^[A-Za-z0-9_.-]+$", |t| segment("state", t, t)
);
name_type!(
    /// A kind: the type of a change object.
    KindName, "kind", "^[A-Za-z0-9_.-]+$", |t| segment("kind", t, t)
);
name_type!(
    /// A change object's id, `HOST/NAME`; `NAME` may contain `/`.
    CobId, "change object", "^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+$", |t| {
        let Some((host, rest)) = t.split_once('/') else {
            return Err(IdError::NoHost { text: t.to_owned() });
        };
        segment("change object", t, host)?;
        rest.split('/').try_for_each(|part| segment("change object", t, part))
    }
);

impl CobId {
    /// The id of `name` on `host`.
    ///
    /// # Errors
    /// [`IdError`] when `name` is not well formed or the whole is too long.
    pub fn on(host: &HostName, name: &str) -> Result<Self, IdError> {
        Self::new(&format!("{host}/{name}"))
    }

    /// The host's part, as text.
    #[must_use]
    pub fn host_str(&self) -> &str {
        self.0.split_once('/').map_or("", |(host, _)| host)
    }

    /// The host that the change object is on.
    #[must_use]
    pub fn host(&self) -> HostName {
        HostName(SmolStr::new(self.host_str()))
    }

    /// The part after the host.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }
}

impl StateName {
    /// The state with a meaning in the protocol: the content found differs from the wanted content.
    pub const OUTDATED: &'static str = "outdated";
}

/// The number of a generation: growing, never used again. Zero means "none yet".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct GenerationNumber(pub u64);

impl fmt::Display for GenerationNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// SHA-256 of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobHash(#[serde(with = "serde_bytes")] pub [u8; 32]);

/// As in JSON, where a hash is text ([`hex`]).
impl JsonSchema for BlobHash {
    fn schema_name() -> Cow<'static, str> {
        "Sha256".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[0-9a-f]{64}$"})
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&::hex::encode(self.0))
    }
}

impl BlobHash {
    /// A short form, enough to compare by eye.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }

    /// Parses the output of [`Display`](fmt::Display); `None`: not a hash.
    #[must_use]
    pub fn of_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let has_capitals = text.bytes().any(|b| b.is_ascii_uppercase());
        (!has_capitals && ::hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(Self(bytes))
    }
}

/// Serializes a hash as readable text, for JSON.
pub mod hex {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::BlobHash;

    /// The text of [`Display`](std::fmt::Display).
    ///
    /// # Errors
    /// The errors of the serializer.
    pub fn serialize<S: Serializer>(hash: &BlobHash, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(hash)
    }

    /// Parses the text.
    ///
    /// # Errors
    /// For a text that is not a hash.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BlobHash, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        BlobHash::of_hex(&text).ok_or_else(|| D::Error::custom("it is not 64 hexadecimal digits"))
    }
}

/// The same for an optional hash.
pub mod hex_if_any {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::BlobHash;

    /// As [`super::hex`].
    ///
    /// # Errors
    /// The errors of the serializer.
    pub fn serialize<S: Serializer>(hash: &Option<BlobHash>, serializer: S) -> Result<S::Ok, S::Error> {
        match hash {
            Some(hash) => serializer.collect_str(hash),
            None => serializer.serialize_none(),
        }
    }

    /// As [`super::hex`].
    ///
    /// # Errors
    /// For a text that is not a hash.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BlobHash>, D::Error> {
        #[derive(Deserialize)]
        struct Hash(#[serde(with = "super::hex")] BlobHash);
        Ok(Option::<Hash>::deserialize(deserializer)?.map(|hash| hash.0))
    }
}

/// A generation by its number and its content. A depot that was restored from an older copy may use a number a second
/// time; the hash of the manifest tells the two generations apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct GenerationId {
    /// The number.
    pub generation: GenerationNumber,
    /// Hash of the manifest's bytes.
    #[serde(with = "hex")]
    #[schemars(with = "BlobHash")]
    pub manifest: BlobHash,
}

impl fmt::Debug for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let id = GenerationId { generation: GenerationNumber(2), manifest: BlobHash([0xa7; 32]) };
        let json = serde_json::to_string(&id).expect("JSON");
        assert_eq!(json, format!("{{\"generation\":2,\"manifest\":\"{}\"}}", "a7".repeat(32)));
        assert_eq!(serde_json::from_str::<GenerationId>(&json).expect("read"), id);
        assert_eq!(id.manifest.short(), "a7a7a7a7a7a7");
        for bad in [String::new(), "a7".repeat(31), "A7".repeat(32), "g7".repeat(32), "ä7".repeat(32)] {
            assert_eq!(BlobHash::of_hex(&bad), None, "{bad}");
        }
    }

    #[test]
    fn ids_are_checked() {
        let id = CobId::new("n1/db/server").expect("well formed");
        assert_eq!((id.host_str(), id.name()), ("n1", "db/server"));
        for (text, word) in [
            ("n1", "no host"),
            ("n1/", "empty"),
            ("/x", "empty"),
            ("n1/a//b", "empty"),
            ("n1/../x", "`..`"),
            ("n1/a b", "contains ' '"),
            ("n1/ä", "contains"),
        ] {
            let error = CobId::new(text).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!(HostName::new("a/b").is_err());
        assert!(CobId::new(&format!("h/{}", "x".repeat(300))).is_err());
    }
}
