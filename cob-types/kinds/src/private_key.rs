//! The kind `private-key`: a private key in a file. It is made on the host and never leaves the host.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::source;
use super::{Builtin, Content, Faults, Footprint, TIMEOUT_MS};

/// The content of `private-key`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrivateKey {
    /// The file: an absolute path. Folders that are missing are made.
    pub file: String,
    /// The type of the key; default: ecdsa-p256.
    #[serde(default, rename = "type")]
    pub key_type: KeyType,
    /// The mode of the file, in quotes; default: "0600".
    #[schemars(extend("x-mode" = true, "x-what" = "a file mode in quotes"))]
    pub mode: Option<String>,
    /// The owner of the file, a name or a number; default: the daemon's user.
    pub owner: Option<String>,
    /// The group of the file, a name or a number; default: the daemon's group.
    pub group: Option<String>,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

/// The type of a private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KeyType {
    /// An elliptic curve, P-256.
    #[default]
    EcdsaP256,
    /// An elliptic curve, P-384.
    EcdsaP384,
    /// An Edwards curve.
    Ed25519,
    /// RSA with 2048 bits.
    Rsa2048,
    /// RSA with 3072 bits.
    Rsa3072,
    /// RSA with 4096 bits.
    Rsa4096,
}

impl KeyType {
    /// All types.
    pub const ALL: [Self; 6] =
        [Self::EcdsaP256, Self::EcdsaP384, Self::Ed25519, Self::Rsa2048, Self::Rsa3072, Self::Rsa4096];

    /// Its name in a model.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ecdsa-p256",
            Self::EcdsaP384 => "ecdsa-p384",
            Self::Ed25519 => "ed25519",
            Self::Rsa2048 => "rsa2048",
            Self::Rsa3072 => "rsa3072",
            Self::Rsa4096 => "rsa4096",
        }
    }
}

/// Checks the mode of a file with a private key.
pub(super) fn check_key_mode(text: Option<&String>, faults: &mut Faults) {
    source::check_mode(text, faults);
    if let Some(text) = text.filter(|text| source::mode(text).is_some_and(|mode| mode & 0o137 != 0)) {
        let what = format!("with mode {text} other users could read, change or execute the private key");
        faults.add("mode", what, "write \"0600\" or \"0400\"; with `group`, \"0640\" or \"0440\"");
    }
}

/// The mode of a file with a private key. `None`: it is not a mode.
pub(super) fn key_mode(text: Option<&str>) -> Option<u32> {
    text.map_or(Some(0o600), source::mode)
}

impl PrivateKey {
    /// The mode as a number. `None`: it is not a mode.
    #[must_use]
    pub fn mode(&self) -> Option<u32> {
        key_mode(self.mode.as_deref())
    }
}

impl Content for PrivateKey {
    // A check runs a program, and a long key takes a while.
    const KIND: Builtin =
        Builtin { interval_ms: Some(600_000), timeout_ms: TIMEOUT_MS, ..Builtin::setting("private-key") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        source::check_place("file", &self.file, faults);
        check_key_mode(self.mode.as_ref(), faults);
        source::check_owner(self.owner.as_ref(), self.group.as_ref(), faults);
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("file", &self.file).with_own([self.file.clone()])
    }
}
