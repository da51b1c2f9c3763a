//! Identities: public keys, signatures and the roles of operators, in their written form.
//!
//! Plain values without any cryptography; that is in `cob-trust`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with::skip_serializing_none;

/// The prefix of a key or signature in text.
const SCHEME: &str = "ed25519:";

/// An ed25519 public key (RFC 8032): the identity of a host, a publisher or an operator.
///
/// Written as `ed25519:` and 43 letters of base64 (RFC 4648, section 5, without padding).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl JsonSchema for PublicKey {
    fn schema_name() -> Cow<'static, str> {
        "PublicKey".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^ed25519:[A-Za-z0-9_-]{43}$"})
    }
}

/// An ed25519 signature (RFC 8032). Written like a key, with 86 letters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

/// The error for a text that is not a key or signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {what}: expected `ed25519:` and {letters} letters of base64url ({why})")]
pub struct KeyError {
    text: String,
    what: &'static str,
    letters: usize,
    why: &'static str,
}

/// The rights of an operator; each role includes the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// See status, history, output and explanations.
    Look,
    /// Pause, resume, retry, prepare, and switch to signed generations.
    Operate,
    /// Fence hosts, and all other orders.
    Administer,
}

/// A person who may give orders over the network.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// The rights of the operator.
    pub role: Role,
    /// The keys whose certificate proves the operator's identity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<PublicKey>,
    /// SHA-256 of a bearer token that also proves it.
    pub token: Option<crate::id::BlobHash>,
}

/// A publisher's signature over a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    /// The publisher's key.
    pub key: PublicKey,
    /// The signature.
    pub signature: Signature,
}

impl PublicKey {
    /// The first letters, enough to tell keys apart in a message.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string().chars().take(SCHEME.len() + 10).collect()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse(text).map(Self).map_err(|why| KeyError { text: shown(text), what: "public key", letters: 43, why })
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", encode(&self.0))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Signature {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse(text).map(Self).map_err(|why| KeyError { text: shown(text), what: "signature", letters: 86, why })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Look => "look",
            Self::Operate => "operate",
            Self::Administer => "administer",
        })
    }
}

macro_rules! as_text {
    ($($t:ty),*) => {$(
        impl Serialize for $t {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $t {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

as_text!(PublicKey, Signature);

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The bytes after `ed25519:`. The decoder is strict: each key has a single text.
fn parse<const N: usize>(text: &str) -> Result<[u8; N], &'static str> {
    let letters = text.strip_prefix(SCHEME).ok_or("it does not begin with `ed25519:`")?;
    if letters.len() != (N * 4).div_ceil(3) {
        return Err("it has another length");
    }
    let bytes = URL_SAFE_NO_PAD.decode(letters).map_err(|_| "its letters are not base64url")?;
    bytes.try_into().map_err(|_| "it has another length")
}

/// The start of a wrong text, for an error: the text may be a secret in the wrong place.
fn shown(text: &str) -> String {
    let mut start: String = text.chars().take(SCHEME.len() + 6).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_and_read() {
        let key = PublicKey(std::array::from_fn(|n| u8::try_from(n * 7).unwrap_or(1)));
        assert_eq!(key.to_string(), "ed25519:AAcOFRwjKjE4P0ZNVFtiaXB3foWMk5qhqK-2vcTL0tk");
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(serde_json::from_str::<PublicKey>(&serde_json::to_string(&key).expect("text")).expect("key"), key);
        let signature = Signature([0xA5; 64]);
        assert_eq!(signature.to_string().parse(), Ok(signature));
    }

    #[test]
    fn an_invalid_key_is_refused_without_its_full_text() {
        let wrong = |text: &str| text.parse::<PublicKey>().expect_err("is refused").to_string();
        assert!(wrong("").contains("does not begin"));
        assert!(wrong("ed25519:AAAA").contains("another length"));
        assert!(wrong(&format!("ed25519:{}", "+".repeat(43))).contains("not base64url"));
        assert!(wrong(&format!("ed25519:{}B", "A".repeat(42))).contains("not base64url"));
        assert!(!wrong("ed25519:verysecretverysecret").contains("secretverysecret"));
    }
}
