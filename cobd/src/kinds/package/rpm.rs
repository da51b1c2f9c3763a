//! The database of rpm, which dnf and zypper share.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use super::Installed;
use super::own::Own;
use super::plan::Plan;
use super::version::by_rpm;
use crate::kinds::native::{Host, Ran, run_bounded};

/// The format of a version: `EPOCH:VERSION-RELEASE`, without an epoch of 0.
const EVR: &str = "%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}";
/// Possible folders of the database.
const DATABASES: [&str; 2] = ["/var/lib/rpm", "/usr/lib/sysimage/rpm"];

/// The database of rpm on a host.
#[derive(Debug)]
pub(super) struct Rpm {
    host: Host,
    /// The folder. `None`: rpm finds the folder by its own settings.
    folder: Option<&'static str>,
}

/// The folder of the database, if the host has a database.
pub(super) fn folder(host: &Host) -> Option<&'static str> {
    DATABASES.into_iter().find(|folder| host.path(folder).is_dir())
}

/// Different versions, the newest first.
pub(super) fn newest_first(versions: impl Iterator<Item = String>) -> Vec<String> {
    let mut versions: Vec<String> = versions.collect();
    versions.sort_by(|a, b| by_rpm(b, a));
    versions.dedup();
    versions
}

/// The end of an error: the first lines about its cause.
pub(super) fn causes<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines: Vec<&str> = lines.take(3).collect();
    if lines.is_empty() { String::new() } else { format!("; {}", lines.join("; ")) }
}

impl Rpm {
    pub(super) fn new(host: &Host, folder: Option<&'static str>) -> Self {
        Self { host: host.clone(), folder }
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new("rpm");
        command.env("LC_ALL", "C.UTF-8");
        if let Some(root) = self.host.root() {
            command.arg("--root").arg(root);
        }
        if let Some(folder) = self.folder {
            command.args(["--dbpath", folder]);
        }
        command
    }

    fn query(&self, format: &str, which: &[&str]) -> Result<Ran, String> {
        run_bounded(self.command().args(["-q", "--qf", format]).args(which), b"")
    }

    /// All installed packages.
    pub(super) fn all(&self) -> Result<BTreeSet<String>, String> {
        let told = self.query("%{NAME}\n", &["-a"])?.ok()?;
        Ok(told.lines().map(str::to_owned).collect())
    }

    /// All installed packages with their versions.
    pub(super) fn snapshot(&self) -> Result<BTreeMap<String, String>, String> {
        let told = self.query(&format!("%{{NAME}} {EVR}\n"), &["-a"])?.ok()?;
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        for (name, version) in told.lines().filter_map(|line| line.split_once(' ')) {
            // Kernels are installed side by side.
            let versions = all.entry(name.to_owned()).or_default();
            if !versions.is_empty() {
                versions.push(' ');
            }
            versions.push_str(version);
        }
        Ok(all)
    }

    /// The installed versions of a package, with their architectures.
    fn versions(&self, name: &str) -> Result<Vec<(String, String)>, String> {
        let ran = self.query(&format!("%{{ARCH}} {EVR}\n"), &[name])?;
        if ran.code == Some(1) && ran.out.contains("is not installed") {
            return Ok(Vec::new());
        }
        let told = ran.ok()?;
        let pair = |line: &str| line.split_once(' ').map(|(arch, version)| (arch.to_owned(), version.to_owned()));
        Ok(told.lines().filter_map(pair).collect())
    }

    /// The installed state of a package.
    pub(super) fn installed(&self, name: &str) -> Result<Installed, String> {
        let mut versions = self.versions(name)?;
        versions.sort();
        let twice = versions.windows(2).any(|pair| pair[0].0 == pair[1].0);
        let all: Vec<&str> = versions.iter().map(|(_, version)| version.as_str()).collect();
        Ok(match all.as_slice() {
            [] => Installed::No,
            // A killed upgrade has installed the new version and not removed the old version. Kernels are installed
            // side by side.
            _ if twice && !name.starts_with("kernel") => {
                Installed::Half(format!("two versions at once, {}", all.join(" and ")))
            }
            [first, rest @ ..] => {
                let newest =
                    rest.iter().fold(*first, |best, next| if by_rpm(best, next).is_lt() { next } else { best });
                Installed::Yes { version: newest.to_owned(), held: false }
            }
        })
    }

    /// Notes the companions that come with a package.
    pub(super) fn note_coming(&self, own: &Own, name: &str, plan: &Plan) -> Result<(), String> {
        let mut coming = plan.coming();
        coming.remove(name);
        own.note_coming(coming, &self.all()?)
    }

    /// The installed companions.
    pub(super) fn companions(&self, own: &Own) -> Result<BTreeSet<String>, String> {
        Ok(own.came_along().intersection(&self.all()?).cloned().collect())
    }

    /// The fault of the database, or of a package in it.
    pub(super) fn broken(&self, name: &str) -> Result<Option<String>, String> {
        let all = self.query("%{NAME}\n", &["-a"])?;
        if all.code != Some(0) {
            return Ok(Some(format!("rpm's database can't be read: {}", all.complaint())));
        }
        Ok(match self.installed(name)? {
            Installed::Half(what) => Some(format!("{name}: {what}")),
            Installed::No | Installed::Configuration | Installed::Yes { .. } => None,
        })
    }

    /// Builds the database anew if it can't be read.
    pub(super) fn rebuild(&self) -> Result<(), String> {
        if self.query("%{NAME}\n", &["-a"])?.code != Some(0) {
            run_bounded(self.command().arg("--rebuilddb"), b"")?.ok()?;
        }
        Ok(())
    }
}
