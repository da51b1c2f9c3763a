//! The kind `package`: a package of the host's package manager.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint, Place, Subject, Time};

/// The architectures of today's hosts. A package name with any of these means the same as the bare name.
const OWN: [&str; 10] =
    ["all", "any", "native", "amd64", "arm64", "ppc64el", "riscv64", "s390x", "loong64", "mips64el"];

/// The part of a transition's time that is left for the work itself.
const FOR_THE_WORK: Duration = Duration::from_secs(30);

/// The content of `package`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// The package.
    pub name: String,
    /// The version: in full, its beginning and `*`, `latest`, or `any`, which is the default.
    #[serde(default)]
    #[schemars(with = "String")]
    pub version: Version,
    /// Others are kept from changing its version.
    #[serde(default)]
    pub hold: bool,
    /// A hold that another program has set does not count.
    #[serde(default)]
    pub override_hold: bool,
    /// Its configuration goes with it when it leaves.
    #[serde(default)]
    pub purge: bool,
    /// Other packages that may be removed for it: those that conflict with it, or need it when it leaves.
    #[serde(default)]
    pub may_remove: BTreeSet<String>,
    /// Other packages that may be changed to an older version for it.
    #[serde(default)]
    pub may_downgrade: BTreeSet<String>,
    /// Where it comes from, and nothing else: a folder, `file://`, `http://` or `https://`; behind it, for one that is
    /// not flat, suite and components.
    pub repository: Option<String>,
    /// The repository need not be signed.
    #[serde(default)]
    pub trusted: bool,
    /// The key that the repository is signed by: a file on the host.
    pub signed_by: Option<PathBuf>,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
    /// How long others that work on packages are waited for.
    pub lock_timeout: Option<Time>,
}

/// The desired version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum Version {
    /// The installed version; without an installed package, the version that the manager prefers.
    #[default]
    Any,
    /// The newest offered version.
    Latest,
    /// This version, or, with `*` at its end, any version with this prefix.
    Like(String),
}

impl From<String> for Version {
    fn from(text: String) -> Self {
        match text.as_str() {
            "any" => Self::Any,
            "latest" => Self::Latest,
            _ => Self::Like(text),
        }
    }
}

impl Content for Package {
    const KIND: Builtin = Builtin {
        states: &["absent", "present", "outdated", "held"],
        transitions: &[
            ("absent", "present"),
            ("outdated", "present"),
            ("held", "present"),
            ("present", "absent"),
            ("outdated", "absent"),
            ("held", "absent"),
        ],
        interval_ms: Some(600_000),
        timeout_ms: 1_800_000,
        restores: false,
        ..Builtin::setting("package")
    };

    /// Parts become arguments of a command line.
    fn check(&self, faults: &mut Faults) {
        for (key, path) in [("signed_by", &self.signed_by), ("root", &self.root)] {
            faults.check_absolute(key, path.as_ref());
            if path.as_ref().is_some_and(|path| path.to_string_lossy().contains([' ', ']', '"', '\n', ';'])) {
                let what = format!("`{key}` has spaces, quotes or other special characters");
                faults.add(key, what, "write an absolute path without these");
            }
        }
        let mut check_name = |place: Place, name: &str| {
            if let Err((what, help)) = Self::check_name(name) {
                faults.add(place, what, help);
            }
        };
        check_name("name".into(), &self.name);
        for (key, names) in [("may_remove", &self.may_remove), ("may_downgrade", &self.may_downgrade)] {
            names.iter().for_each(|name| check_name((key, name).into(), name));
        }
        if let Version::Like(like) = &self.version {
            let part = like.strip_suffix('*').unwrap_or(like);
            let fits = |c: char| c.is_ascii_alphanumeric() || ".+-~:_^".contains(c);
            if !part.starts_with(|c: char| c.is_ascii_alphanumeric()) || !part.chars().all(fits) {
                let help = "write it in full, or its beginning and `*`, or `latest`";
                faults.add("version", format!("{like:?} is not a version"), help);
            }
        }
        let Some(repository) = &self.repository else {
            let keys = [("trusted", self.trusted), ("signed_by", self.signed_by.is_some())];
            if let Some((key, _)) = keys.into_iter().find(|(_, is_set)| *is_set) {
                let what = format!("`{key}` needs a `repository`");
                faults.add(key, what, "name a repository, or remove the key");
            }
            return;
        };
        let first = repository.split_whitespace().next().unwrap_or_default();
        let is_known = ["/", "file://", "http://", "https://"].iter().any(|start| first.starts_with(start));
        // A comment begins at `#` in a list of sources.
        if !is_known || repository.contains(['[', ']', '#']) || repository.chars().any(char::is_control) {
            let help = "write a folder, file:///…, http://… or https://…";
            faults.add("repository", format!("{repository:?} is not a repository"), help);
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of(Subject::PACKAGE, Self::bare_name(&self.name))
    }
}

impl Version {
    /// Whether a version matches a version or a prefix with `*`.
    #[must_use]
    pub fn fits(like: &str, version: &str) -> bool {
        like.strip_suffix('*').map_or(like == version, |beginning| version.starts_with(beginning))
    }
}

impl Package {
    /// Checks the name of a package.
    ///
    /// # Errors
    /// The fault and its remedy.
    pub(super) fn check_name(name: &str) -> Result<(), (String, String)> {
        let in_a_name = |c: char| c.is_ascii_alphanumeric() || "+-.:_".contains(c);
        if name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(in_a_name) {
            return Ok(());
        }
        let what = format!("{name:?} is not the name of a package");
        Err((what, "use a change object for each package".to_owned()))
    }

    /// The name without the architecture of most hosts, which is optional.
    #[must_use]
    pub fn bare_name(name: &str) -> &str {
        let bare = name.split_once(':').filter(|(_, architecture)| OWN.contains(architecture));
        bare.map_or(name, |(bare, _)| bare)
    }

    /// The subject name of a package of the same host.
    #[must_use]
    pub fn subject(&self, name: &str) -> String {
        self.root.as_ref().map_or_else(|| name.to_owned(), |root| format!("{} {name}", root.display()))
    }

    /// The desired version as text.
    #[must_use]
    pub fn wanted(&self) -> String {
        let version = match &self.version {
            Version::Any => "any version",
            Version::Latest => "the latest",
            Version::Like(like) => like,
        };
        format!("{version}{}", if self.hold { " on hold" } else { "" })
    }

    /// The source of the package as text.
    #[must_use]
    pub fn place(&self) -> String {
        self.repository.clone().unwrap_or_else(|| "the known repositories of the host".to_owned())
    }

    /// Whether it has its own repository, whose package list only this change object fetches.
    #[must_use]
    pub fn is_own_repository(&self) -> bool {
        self.repository.is_some()
    }

    /// The repository as a line of a list of sources.
    #[must_use]
    pub fn source(&self) -> Option<String> {
        let mut words = self.repository.as_deref()?.split_whitespace();
        let first = words.next()?;
        let url = if Path::new(first).is_absolute() { format!("file:{first}") } else { first.to_owned() };
        let rest = words.collect::<Vec<_>>().join(" ");
        let mut options = Vec::new();
        options.extend(self.trusted.then(|| "trusted=yes".to_owned()));
        options.extend(self.signed_by.as_ref().map(|path| format!("signed-by={}", path.display())));
        let options = if options.is_empty() { String::new() } else { format!("[{}] ", options.join(" ")) };
        Some(format!("deb {options}{url} {}\n", if rest.is_empty() { "./" } else { &rest }))
    }

    /// The repository as a URL for dnf.
    #[must_use]
    pub fn base_url(&self) -> Option<String> {
        let place = self.repository.as_deref()?.split_whitespace().next()?;
        Some(if Path::new(place).is_absolute() { format!("file://{place}") } else { place.to_owned() })
    }

    /// How long to wait for other change objects that work on packages.
    #[must_use]
    pub fn lock_timeout(&self, time: Duration) -> Duration {
        let longest = time.saturating_sub(FOR_THE_WORK).max(time / 2);
        self.patience(longest)
    }

    /// How long to wait for others, at most `longest`.
    #[must_use]
    pub fn patience(&self, longest: Duration) -> Duration {
        self.lock_timeout.map_or(longest, |asked| asked.0.min(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_arguments_of_a_package_are_refused() {
        for (text, word) in [
            (r#"{}"#, "missing field `name`"),
            (r#"{"name":"-x"}"#, "is not the name of a package"),
            (r#"{"name":"a b"}"#, "is not the name of a package"),
            (r#"{"name":"a","version":"1 2"}"#, "is not a version"),
            (r#"{"name":"a","version":"*"}"#, "is not a version"),
            (r#"{"name":"a","version":"-1"}"#, "is not a version"),
            (r#"{"name":"a","repository":"srv/x"}"#, "is not a repository"),
            (r#"{"name":"a","repository":"/srv/x [trusted=yes]"}"#, "is not a repository"),
            (r#"{"name":"a","trusted":true}"#, "needs a `repository`"),
            (r#"{"name":"a","may_remove":["-x"]}"#, "is not the name of a package"),
            (r#"{"name":"a","repository":"http://h/x#y"}"#, "is not a repository"),
            (r#"{"name":"a","root":"x"}"#, "must be an absolute path"),
            (r#"{"name":"a","repository":"/x","signed_by":"/k ]"}"#, "spaces, quotes"),
        ] {
            let error = crate::read::<Package>(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn a_repository_becomes_a_line_of_sources() {
        for (keys, line) in [
            (r#""repository":"/srv/x","trusted":true"#, "deb [trusted=yes] file:/srv/x ./\n"),
            (r#""repository":"file:///srv/x""#, "deb file:///srv/x ./\n"),
            (
                r#""repository":"http://h/debian bookworm main","signed_by":"/k.gpg""#,
                "deb [signed-by=/k.gpg] http://h/debian bookworm main\n",
            ),
        ] {
            let content = crate::read::<Package>(&format!(r#"{{"name":"a",{keys}}}"#)).expect(keys);
            assert_eq!(content.source().expect("one"), line);
        }
    }

    #[test]
    fn versions_fit_in_full_or_by_their_beginning() {
        assert!(Version::fits("1.2-3", "1.2-3") && Version::fits("1.2*", "1.2-3") && Version::fits("1.2*", "1.20"));
        assert!(!Version::fits("1.2", "1.2-3") && !Version::fits("1.3*", "1.2-3"));
    }
}
