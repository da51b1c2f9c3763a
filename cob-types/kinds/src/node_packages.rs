//! The kind `node-packages`: a folder with packages of Node.js from npm.

use std::collections::BTreeMap;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::source;
use super::{Builtin, Content, Faults, Footprint};

/// The longest name of a package, as in npm.
const MAX_NAME: usize = 214;

/// The content of `node-packages`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodePackages {
    /// The folder above `node_modules`: an absolute path. It has only the packages.
    pub path: String,
    /// Packages, each with a version as in `"4.17.21"`, a range as in `"^4.17"`, a tag as in `latest`, or `file:/PATH`.
    #[serde(default)]
    pub packages: BTreeMap<String, String>,
    /// A file `package-lock.json` of the host with `package.json` beside it, instead of `packages`.
    pub lock: Option<String>,
    /// Packages for development are installed, too.
    #[serde(default)]
    pub dev: bool,
    /// The address of the registry, instead of the registry of npm's configuration.
    pub registry: Option<String>,
    /// Programs that packages bring for their installation do not run.
    #[serde(default)]
    pub ignore_scripts: bool,
    /// Packages that users add are drift.
    #[serde(default)]
    pub exact: bool,
}

impl Content for NodePackages {
    const KIND: Builtin =
        Builtin { interval_ms: Some(600_000), timeout_ms: 1_800_000, ..Builtin::setting("node-packages") };

    /// Parts become values in a file of JSON and arguments of a command line.
    fn check(&self, faults: &mut Faults) {
        source::check_whole_folder("path", &self.path, faults);
        match (&self.lock, self.packages.is_empty()) {
            (None, true) => {
                let help = "write `packages: {NAME: VERSION}` or `lock: /PATH/package-lock.json`";
                faults.add("packages", "no packages are given", help);
            }
            (Some(_), false) => {
                faults.add("lock", "`lock` and `packages` exclude each other", "remove either of the two");
            }
            (Some(path), true) => {
                source::check_place("lock", path, faults);
                if !path.ends_with("/package-lock.json") {
                    let help = "write the path of a file package-lock.json that `npm install` made";
                    faults.add("lock", format!("{path:?} is not a lock file of npm"), help);
                }
            }
            (None, false) => {}
        }
        for (name, version) in &self.packages {
            if !is_name(name) {
                let what = format!("{name:?} is not the name of a package");
                faults.add(("packages", name), what, "write `name` or `@scope/name`, with the version as its value");
            }
            match version.strip_prefix("file:") {
                Some(path) if path.starts_with('/') => source::check_place("packages", path, faults),
                _ if is_version(version) => {}
                _ => {
                    let what = format!("{version:?} is not a version of {name}");
                    let help = "write \"4.17.21\", a range as in \"^4.17\", `latest`, or `file:/PATH`";
                    faults.add(("packages", name), what, help);
                }
            }
        }
        if self.dev && self.lock.is_none() {
            let help = "remove `dev`, or give `lock`";
            faults.add("dev", "`dev` needs a `lock`, which lists packages for development", help);
        }
        if let Some(url) = &self.registry
            && let Err(why) = source::address(url, &["https", "http"])
        {
            let what = format!("{:?} is not a registry: {why}", source::without_user(url));
            let help = "write https://HOST/PATH; npm reads tokens from the file ~/.npmrc of the daemon";
            faults.add_as("bad-url", "registry", what, help);
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("folder", &self.path).with_whole([self.path.clone()])
    }
}

fn is_name(text: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._~".contains(c))
    };
    let is_whole = match text.strip_prefix('@') {
        Some(rest) => rest.split_once('/').is_some_and(|(scope, name)| is_part(scope) && is_part(name)),
        None => is_part(text),
    };
    is_whole && text.len() <= MAX_NAME && text != "node_modules"
}

/// Whether it is a version, a range, or a tag.
fn is_version(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".+-~^<>=|* ".contains(c);
    !text.trim().is_empty() && !text.starts_with('-') && text.chars().all(fits)
}
