//! The content of `package`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::kinds::content;

/// The part of a transition's time that is left for the work itself.
const FOR_THE_WORK: Duration = Duration::from_secs(30);

/// The desired package.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Content {
    pub(super) name: String,
    #[serde(default, deserialize_with = "version")]
    pub(super) version: Version,
    #[serde(default)]
    pub(super) hold: bool,
    #[serde(default)]
    pub(super) override_hold: bool,
    #[serde(default)]
    pub(super) purge: bool,
    /// Other packages that its transactions may remove.
    #[serde(default)]
    pub(super) may_remove: BTreeSet<String>,
    /// Other packages that its transactions may change to an older version.
    #[serde(default)]
    pub(super) may_downgrade: BTreeSet<String>,
    #[serde(default)]
    pub(super) repository: Option<String>,
    #[serde(default)]
    pub(super) trusted: bool,
    #[serde(default)]
    pub(super) signed_by: Option<PathBuf>,
    #[serde(default)]
    pub(super) root: Option<PathBuf>,
    #[serde(default, deserialize_with = "some_duration")]
    pub(super) lock_timeout: Option<Duration>,
}

/// The desired version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Version {
    /// The installed version; without an installed package, the version that the manager prefers.
    #[default]
    Any,
    /// The newest offered version.
    Latest,
    /// This version, or, with `*` at its end, any version with this prefix.
    Like(String),
}

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Version, D::Error> {
    Ok(match String::deserialize(deserializer)?.as_str() {
        "any" => Version::Any,
        "latest" => Version::Latest,
        other => Version::Like(other.to_owned()),
    })
}

fn some_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    content::duration(deserializer).map(Some)
}

/// Reads a content, and validates the parts that become command line arguments.
pub(super) fn read(text: &str) -> Result<Content, String> {
    let content: Content = content::read(text)?;
    let in_a_name = |c: char| c.is_ascii_alphanumeric() || "+-.:_".contains(c);
    let is_name = |name: &str| name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(in_a_name);
    let names = [&content.name].into_iter().chain(&content.may_remove).chain(&content.may_downgrade);
    if let Some(bad) = names.into_iter().find(|name| !is_name(name)) {
        return Err(format!("content: {bad:?} is no name of a package"));
    }
    if let Version::Like(like) = &content.version {
        let part = like.strip_suffix('*').unwrap_or(like);
        let good = |c: char| c.is_ascii_alphanumeric() || ".+-~:_^".contains(c);
        if part.is_empty() || !part.starts_with(|c: char| c.is_ascii_alphanumeric()) || !part.chars().all(good) {
            return Err(format!("content: {like:?} is no version; write it in full, or its beginning and `*`"));
        }
    }
    let repository = content.repository.as_deref().unwrap_or_default();
    if content.repository.is_some() {
        let words = repository.split_whitespace().collect::<Vec<_>>();
        let known =
            ["/", "file://", "http://", "https://"].iter().any(|s| words.first().is_some_and(|w| w.starts_with(s)));
        // A comment begins at `#` in a list of sources.
        if !known || repository.contains(['[', ']', '#']) || repository.chars().any(char::is_control) {
            return Err(format!(
                "content: {repository:?} is no repository; write a folder, file:///…, http://… or https://…, and \
                 suite and components unless the repository is flat"
            ));
        }
    }
    if content.repository.is_none() && (content.trusted || content.signed_by.is_some()) {
        return Err(
            "content: `trusted` and `signed_by` are about a `repository`, and no repository is named".to_owned()
        );
    }
    for path in [&content.signed_by, &content.root].into_iter().flatten() {
        let bad = path.to_string_lossy().contains([' ', ']', '"', '\n', ';']);
        if !path.is_absolute() || bad {
            return Err(format!("content: {} must be an absolute path without spaces and quotes", path.display()));
        }
    }
    Ok(content)
}

/// Whether a version matches the desired version.
pub(super) fn fits(like: &str, version: &str) -> bool {
    like.strip_suffix('*').map_or(like == version, |beginning| version.starts_with(beginning))
}

impl Content {
    /// The subject name of a package of the same host.
    pub(super) fn subject(&self, name: &str) -> String {
        self.root.as_ref().map_or_else(|| name.to_owned(), |root| format!("{} {name}", root.display()))
    }

    /// The desired version as text.
    pub(super) fn wanted(&self) -> String {
        let version = match &self.version {
            Version::Any => "any version",
            Version::Latest => "the latest",
            Version::Like(like) => like,
        };
        format!("{version}{}", if self.hold { " on hold" } else { "" })
    }

    /// The source of the package as text.
    pub(super) fn place(&self) -> String {
        self.repository.clone().unwrap_or_else(|| "the known repositories of the host".to_owned())
    }

    /// Whether it has its own repository, whose package list only this change object fetches.
    pub(super) fn is_own_repository(&self) -> bool {
        self.repository.is_some()
    }

    /// The repository as a line of a list of sources.
    pub(super) fn source(&self) -> Option<String> {
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
    pub(super) fn base_url(&self) -> Option<String> {
        let place = self.repository.as_deref()?.split_whitespace().next()?;
        Some(if Path::new(place).is_absolute() { format!("file://{place}") } else { place.to_owned() })
    }

    /// How long to wait for other change objects that work on packages.
    pub(super) fn lock_timeout(&self, time: Duration) -> Duration {
        let longest = time.saturating_sub(FOR_THE_WORK).max(time / 2);
        self.patience(longest)
    }

    /// How long to wait for others, at most `longest`.
    pub(super) fn patience(&self, longest: Duration) -> Duration {
        self.lock_timeout.map_or(longest, |asked| asked.min(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_part_of_a_command_line_is_looked_at() {
        for (text, word) in [
            (r#"{}"#, "missing field `name`"),
            (r#"{"name":"-x"}"#, "no name of a package"),
            (r#"{"name":"a b"}"#, "no name of a package"),
            (r#"{"name":"a","version":"1 2"}"#, "no version"),
            (r#"{"name":"a","version":"*"}"#, "no version"),
            (r#"{"name":"a","version":"-1"}"#, "no version"),
            (r#"{"name":"a","repository":"srv/x"}"#, "no repository"),
            (r#"{"name":"a","repository":"/srv/x [trusted=yes]"}"#, "no repository"),
            (r#"{"name":"a","trusted":true}"#, "no repository is named"),
            (r#"{"name":"a","may_remove":["-x"]}"#, "no name of a package"),
            (r#"{"name":"a","repository":"http://h/x#y"}"#, "no repository"),
            (r#"{"name":"a","root":"x"}"#, "must be an absolute path"),
            (r#"{"name":"a","repository":"/x","signed_by":"/k ]"}"#, "must be an absolute path"),
        ] {
            let error = read(text).expect_err(text);
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
            let content = read(&format!(r#"{{"name":"a",{keys}}}"#)).expect(keys);
            assert_eq!(content.source().expect("one"), line);
        }
    }

    #[test]
    fn versions_fit_in_full_or_by_their_beginning() {
        assert!(fits("1.2-3", "1.2-3") && fits("1.2*", "1.2-3") && fits("1.2*", "1.20"));
        assert!(!fits("1.2", "1.2-3") && !fits("1.3*", "1.2-3"));
    }
}
