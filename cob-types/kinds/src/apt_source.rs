//! The kind `apt-source`: a repository of apt, with its key.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint, TIMEOUT_MS};

/// The content of `apt-source`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AptSource {
    /// The name of its files: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The addresses of the repository: `https://deb.example.org/debian`.
    pub uris: Vec<String>,
    /// The suites: `bookworm`, or a path that ends with `/`.
    pub suites: Vec<String>,
    /// The components: `main`; none for suites that are paths.
    #[serde(default)]
    pub components: Vec<String>,
    /// The architectures; default: all that the host has.
    pub architectures: Option<Vec<String>>,
    /// The public key that signs it, ASCII-armoured: a text, or `{file: ./key.asc}`; default: the keys that the host
    /// trusts.
    pub key: Option<String>,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl AptSource {
    /// The folder of sources.
    pub const SOURCES: &'static str = "/etc/apt/sources.list.d";
    /// The folder of keys.
    pub const KEYS: &'static str = "/etc/apt/keyrings";

    /// The file of the source.
    #[must_use]
    pub fn source_file(&self) -> String {
        format!("{}/{}.sources", Self::SOURCES, self.name)
    }

    /// The file of the key.
    #[must_use]
    pub fn key_file(&self) -> String {
        format!("{}/{}.asc", Self::KEYS, self.name)
    }

    /// The text of the source, whose key is in this file.
    #[must_use]
    pub fn text(&self, key_file: &str) -> String {
        let mut text = "# Written by cobd.\nTypes: deb\n".to_owned();
        let mut add = |field: &str, words: &[String]| {
            if !words.is_empty() {
                text.push_str(&format!("{field}: {}\n", words.join(" ")));
            }
        };
        add("URIs", &self.uris);
        add("Suites", &self.suites);
        add("Components", &self.components);
        add("Architectures", self.architectures.as_deref().unwrap_or_default());
        if self.key.is_some() {
            add("Signed-By", &[key_file.to_owned()]);
        }
        text
    }

    /// The text of the key file.
    #[must_use]
    pub fn key_text(&self) -> Option<String> {
        self.key.as_ref().map(|key| format!("{}\n", key.trim()))
    }
}

impl Content for AptSource {
    /// A fetch takes longer than other transitions of settings.
    const KIND: Builtin = Builtin { timeout_ms: TIMEOUT_MS, ..Builtin::setting("apt-source") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || self.name.starts_with('.') || !self.name.chars().all(fits) {
            let what = format!("apt ignores a file with the name {:?}", self.name);
            faults.add("name", what, "letters, digits, -, _ and .");
        }
        for (key, words) in [("uris", &self.uris), ("suites", &self.suites)] {
            if words.is_empty() {
                faults.add(key, format!("`{key}` is empty"), "write at least one word");
            }
        }
        let lists = [("uris", &self.uris), ("suites", &self.suites), ("components", &self.components)];
        let architectures = self.architectures.iter().map(|words| ("architectures", words));
        for (key, words) in lists.into_iter().chain(architectures) {
            let is_odd = |c: char| c.is_whitespace() || c.is_control();
            for word in words.iter().filter(|word| word.is_empty() || word.contains(is_odd)) {
                faults.add((key, word), format!("{word:?} is not a single word"), "write an item for each word");
            }
        }
        for uri in self.uris.iter().filter(|uri| !uri.contains(":/")) {
            let what = format!("{uri:?} is not an address of a repository");
            faults.add(("uris", uri), what, "write it as in https://deb.example.org/debian");
        }
        let (paths, names): (Vec<&String>, Vec<&String>) = self.suites.iter().partition(|suite| suite.ends_with('/'));
        match (paths.first(), names.first(), self.components.is_empty()) {
            (None, Some(_), true) => faults.add("suites", "suites need components", "for example `components: [main]`"),
            (Some(path), _, false) => {
                faults.add(
                    ("suites", *path),
                    format!("the suite {path} is a path, and has no components"),
                    "remove either",
                );
            }
            (Some(path), Some(_), true) => {
                faults.add(
                    ("suites", *path),
                    format!("the suite {path} is a path, and others are not"),
                    "make two objects",
                );
            }
            (Some(_), None, true) | (None, _, _) => {}
        }
        self.check_key(faults);
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let key = self.key.as_ref().map(|_| self.key_file());
        Footprint::of("apt source", &self.name).with_own([self.source_file()].into_iter().chain(key))
    }
}

impl AptSource {
    /// Checks the key. A fault shows no part of it: the text may be a private key.
    fn check_key(&self, faults: &mut Faults) {
        let Some(key) = self.key.as_deref().map(str::trim) else { return };
        if key.contains("PRIVATE KEY") {
            let help = "write the public key: `gpg --export --armor ID`; replace this private key, because the model has \
                        disclosed it";
            return faults.add("key", "`key` is a private key", help);
        }
        let is_armoured = key.starts_with("-----BEGIN PGP PUBLIC KEY BLOCK-----")
            && key.ends_with("-----END PGP PUBLIC KEY BLOCK-----");
        if !is_armoured || !key.is_ascii() {
            let help = "write the output of `gpg --export --armor ID`, or `{file: ./key.asc}`";
            faults.add("key", "`key` is not an ASCII-armoured public key", help);
        }
    }
}
