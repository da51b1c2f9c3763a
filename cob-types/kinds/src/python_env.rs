//! The kind `python-env`: a virtual environment of Python with packages from pip.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::source;
use super::{Builtin, Content, Faults, Footprint, Place};

/// The content of `python-env`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PythonEnv {
    /// The folder of the environment: an absolute path. It has only the environment.
    pub path: String,
    /// Packages, each with a version as in `"2.31.0"`, a range as in `">=2,<3"`, or `""` for any version.
    #[serde(default)]
    pub packages: BTreeMap<String, String>,
    /// A file of the host with requirements, in the format of pip: an absolute path.
    pub requirements: Option<String>,
    /// The program that makes the environment: a name or an absolute path.
    #[serde(default = "python3")]
    pub interpreter: String,
    /// The address of the index of packages, instead of the index of pip's configuration.
    pub index: Option<String>,
    /// Addresses of further indexes.
    #[serde(default)]
    pub extra_indexes: Vec<String>,
    /// Folders of the host with packages as files: absolute paths.
    #[serde(default)]
    pub find_links: Vec<String>,
    /// Packages come only from the folders in `find_links`.
    #[serde(default)]
    pub no_index: bool,
    /// Only wheels are installed: no package is built on the host.
    #[serde(default)]
    pub only_binary: bool,
    /// Packages that users add are drift.
    #[serde(default)]
    pub exact: bool,
}

fn python3() -> String {
    "python3".to_owned()
}

impl Content for PythonEnv {
    const KIND: Builtin =
        Builtin { interval_ms: Some(600_000), timeout_ms: 1_800_000, ..Builtin::setting("python-env") };

    /// Parts become arguments of a command line.
    fn check(&self, faults: &mut Faults) {
        source::check_whole_folder("path", &self.path, faults);
        if self.path.contains(|c: char| c.is_whitespace() || c == ':') {
            let what = format!("{:?} can't be the folder of an environment: it has blanks or colons", self.path);
            faults.add("path", what, "write a path without blanks and colons, such as /opt/app");
        }
        let mut seen = BTreeSet::new();
        for (name, version) in &self.packages {
            if !is_requirement(name) {
                let what = format!("{name:?} is not the name of a package");
                faults.add(("packages", name), what, "write `NAME` or `NAME[EXTRA]`, with the version as its value");
            } else if !seen.insert(Self::normalized(name)) {
                let what = format!("{name:?} is the same package as another name in the list");
                faults.add(("packages", name), what, "remove either name: case, `-`, `_` and `.` do not count");
            }
            if !is_version(version) {
                let what = format!("{version:?} is not a version of {name}");
                faults.add(("packages", name), what, "write \"2.31.0\", a range as in \">=2,<3\", or \"\"");
            }
        }
        if let Some(path) = &self.requirements {
            source::check_place("requirements", path, faults);
        }
        for path in &self.find_links {
            source::check_place("find_links", path, faults);
        }
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        let is_path = self.interpreter.starts_with('/');
        if self.interpreter.is_empty()
            || self.interpreter.starts_with('-')
            || self.interpreter.contains(is_odd)
            || self.interpreter.contains('/') != is_path
        {
            let what = format!("{:?} is not a program", self.interpreter);
            faults.add("interpreter", what, "write a name such as python3.11, or an absolute path");
        }
        let single = self.index.iter().map(|url| (Place::Key("index"), url));
        let extra = self.extra_indexes.iter().map(|url| (Place::Part("extra_indexes", url.clone()), url));
        for (place, url) in single.chain(extra) {
            if let Err(why) = source::address(url, &["https", "http"]) {
                let what = format!("{:?} is not an index: {why}", source::without_user(url));
                let help = "write https://HOST/PATH; pip reads user and password from the file ~/.netrc of the daemon";
                faults.add_as("bad-url", place, what, help);
            }
        }
        if self.no_index && (self.index.is_some() || !self.extra_indexes.is_empty()) {
            faults.add("no_index", "`no_index` and an index exclude each other", "remove either of the two");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("folder", &self.path).with_whole([self.path.clone()])
    }
}

impl PythonEnv {
    /// The name of a package without extras, in the form in which equal names are equal (PEP 503).
    #[must_use]
    pub fn normalized(name: &str) -> String {
        let bare = name.split('[').next().unwrap_or(name).trim();
        let parts = bare.split(['-', '_', '.']).filter(|part| !part.is_empty());
        parts.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
    }

    /// The packages as pip reads them.
    #[must_use]
    pub fn specifiers(&self) -> Vec<String> {
        let one = |(name, version): (&String, &String)| match version.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            true => format!("{name}=={version}"),
            false => format!("{name}{version}"),
        };
        self.packages.iter().map(one).collect()
    }
}

/// Whether it is a name with optional extras.
fn is_requirement(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.ends_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    match text.split_once('[') {
        None => is_name(text),
        Some((name, extras)) => {
            is_name(name) && extras.strip_suffix(']').is_some_and(|extras| extras.split(',').all(is_name))
        }
    }
}

/// Whether it is empty, a version, or a list of bounds.
fn is_version(text: &str) -> bool {
    let is_plain = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || ".+!-_".contains(c))
    };
    let is_bound = |bound: &str| {
        let bound = bound.trim();
        let sign = ["===", "==", "!=", "<=", ">=", "~=", "<", ">"].into_iter().find(|sign| bound.starts_with(sign));
        sign.is_some_and(|sign| {
            let version = bound[sign.len()..].trim_start();
            let is_prefix = ["==", "!="].contains(&sign);
            is_plain(version.strip_suffix(".*").filter(|_| is_prefix).unwrap_or(version))
        })
    };
    text.is_empty() || is_plain(text) || text.split(',').all(is_bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_the_same_letters_are_the_same_package() {
        for name in ["Foo.Bar", "foo_bar", "foo--bar", "FOO-bar[x,y]"] {
            assert_eq!(PythonEnv::normalized(name), "foo-bar", "{name}");
        }
    }

    #[test]
    fn versions_become_specifiers() {
        let content = r#"{"path":"/opt/x","packages":{"a":"1.0","b[x]":">=2,<3","c":"","d":"==1.*"}}"#;
        let content = crate::read::<PythonEnv>(content).expect("right");
        assert_eq!(content.specifiers(), ["a==1.0", "b[x]>=2,<3", "c", "d==1.*"]);
    }
}
