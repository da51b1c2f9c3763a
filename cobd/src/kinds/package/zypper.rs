//! zypper and rpm.
//!
//! The program never asks: `--non-interactive`, and a configuration file that a user has changed stays, as usual with
//! rpm. A change object with its own repository has its own definition and cache of it; the repositories of the host are
//! neither used nor changed. Queries and simulations do not take the lock of zypper, so they block no other program.
//!
//! As with dnf, only our mark shows a half-done package after a kill, and the package is installed once more. libzypp
//! lists automatically installed packages in a file, which no command of zypper edits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use cob_kinds::Package;

use super::own::Own;
use super::plan::{Plan, attribute};
use super::rpm::{self, Rpm};
use super::{Installed, Manager, not_fetched};
use crate::durable::{self, Sync};
use crate::kinds::native::{Host, Ran, run_bounded};

/// The change object's own files: the definition of its repository, and the cache of the repository.
const OWN: &str = "zypper";
const REPOSITORIES: &str = "repos.d";
const DEFINITION: &str = "cob.repo";
const CACHE: &str = "cache";
/// The folder in the cache with downloaded packages. zypper removes a package after its installation.
const DOWNLOADS: &str = "packages";
/// The folder of the host's settings, and of dnf's settings.
const SETTINGS: &str = "/etc/zypp";
const SETTINGS_OF_DNF: &str = "/etc/dnf";
/// The locks that administrators set with `zypper addlock`.
const LOCKS: &str = "/etc/zypp/locks";
/// The list of automatically installed packages.
const AUTOMATIC: &str = "/var/lib/zypp/AutoInstalled";
/// How long to wait for another program that has the lock.
const LOCK: Duration = Duration::from_secs(120);
/// Exit statuses of success: a reboot is advised, zypper itself was changed, or a script of a package failed, as
/// zypper has told.
const SUCCESS: [i32; 4] = [0, 102, 103, 107];
/// Exit status: no package has the name.
const NOT_FOUND: i32 = 104;

/// The package manager zypper, for a package.
#[derive(Debug)]
pub(super) struct Zypper<'a> {
    content: &'a Package,
    host: Host,
    own: Own,
    rpm: Rpm,
}

impl<'a> Zypper<'a> {
    /// Returns `None` if the host has another package manager.
    ///
    /// # Errors
    /// The content has a key that zypper lacks.
    pub(super) fn of(content: &'a Package, host: &Host, own: &Path) -> Result<Option<Self>, String> {
        let Some(folder) = rpm::folder(host).filter(|_| is_zypper(host)) else { return Ok(None) };
        if content.override_hold {
            return Err(format!(
                "content: `override_hold` is known for apt alone; remove a lock with `zypper removelock {}`",
                content.name
            ));
        }
        let rpm = Rpm::new(host, Some(folder));
        Ok(Some(Self { content, host: host.clone(), own: Own::new(own), rpm }))
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.own.join(OWN).join(name)
    }

    /// Writes the definition of the change object's own repository.
    fn prepare(&self) -> Result<(), String> {
        let Some(url) = self.content.base_url() else { return Ok(()) };
        let folder = self.folder(REPOSITORIES);
        let check = u8::from(!self.content.trusted);
        let key = self.content.signed_by.as_ref().map(|key| format!("gpgkey=file://{}\n", key.display()));
        let text = format!(
            "[cob]\nname=cob\nenabled=1\nautorefresh=0\nbaseurl={url}\ngpgcheck={check}\n{}",
            key.unwrap_or_default()
        );
        // A check writes no file.
        if fs::read_to_string(folder.join(DEFINITION)).is_ok_and(|found| found == text) {
            return Ok(());
        }
        fs::create_dir_all(&folder)
            .and_then(|()| durable::write_file(&folder, DEFINITION, 0o644, text.as_bytes(), Sync::Later))
            .map_err(|error| self.own.failed(&error))
    }

    /// Runs zypper with all paths and options; `reads`: without its lock.
    fn zypper(&self, reads: bool, options: &[&str], arguments: &[&str]) -> Result<Ran, String> {
        self.prepare()?;
        let mut command = Command::new("zypper");
        command.env("LC_ALL", "C.UTF-8").args(["--non-interactive", "--no-abbrev"]).args(options);
        match reads {
            true => command.env("ZYPP_READONLY_HACK", "1"),
            false => command.env("ZYPP_LOCK_TIMEOUT", self.content.patience(LOCK).as_secs().to_string()),
        };
        if let Some(root) = self.host.root() {
            command.arg("--root").arg(root);
        }
        let own = self.folder(CACHE);
        if self.content.is_own_repository() {
            command.arg("--reposd-dir").arg(self.folder(REPOSITORIES)).arg("--cache-dir").arg(&own);
        }
        // libzypp puts the cache of installed packages below the root folder, under the same path.
        let stray = self.host.root().map(|root| root.join(own.strip_prefix("/").unwrap_or(&own)));
        let missing = stray.as_ref().and_then(|stray| {
            let above = stray.ancestors().take_while(|above| !above.exists()).last();
            above.map(Path::to_owned)
        });
        let ran = run_bounded(command.args(arguments), b"");
        if let Some(stray) = missing.or(stray).filter(|stray| stray.exists()) {
            fs::remove_dir_all(&stray).map_err(|error| format!("{}: {error}", stray.display()))?;
        }
        ran
    }

    fn read(&self, arguments: &[&str]) -> Result<Ran, String> {
        self.zypper(true, &["--no-refresh", "--xmlout"], arguments)
    }

    fn act(&self, arguments: &[&str]) -> Result<(), String> {
        done(self.zypper(false, &["--no-refresh"], arguments)?).map(|_| ())
    }

    /// The arguments that install this version.
    fn exactly(&self, version: &str) -> Vec<String> {
        // A package of another vendor may replace the installed package, as with other package managers.
        let options = ["--no-recommends", "--oldpackage", "--allow-vendor-change", "--auto-agree-with-licenses"];
        let options = ["install", "--force-resolution", "--name"].into_iter().chain(options).map(str::to_owned);
        options.chain([format!("{}={version}", self.content.name)]).collect()
    }

    fn simulated(&self, arguments: &[&str]) -> Result<Plan, String> {
        let [verb, rest @ ..] = arguments else { return Ok(Plan::default()) };
        let told = done(self.read(&[&[*verb, "--dry-run"], rest].concat())?)?;
        Ok(Plan::of_zypper(&told))
    }

    fn automatic(&self) -> Result<BTreeSet<String>, String> {
        let list = self.host.read(AUTOMATIC)?;
        Ok(list
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect())
    }

    /// The names of packages in locks, perhaps with `*` and `?`.
    fn locks(&self) -> Result<Vec<String>, String> {
        let list = self.host.read(LOCKS)?;
        let name = |lock: &str| {
            let value = |key: &str| lock.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
            // A lock of a single repository does not concern the installed package.
            let is_whole = value("match_type:").is_none_or(|kind| kind == "glob") && value("repo:").is_none();
            value("solvable_name:").filter(|_| is_whole).map(str::to_owned)
        };
        Ok(list.split("\n\n").filter_map(name).collect())
    }
}

/// Whether zypper manages the packages of a host. A host may have the settings of both programs.
fn is_zypper(host: &Host) -> bool {
    let has = |folder: &str| host.path(folder).is_dir();
    let is_suse = || host.read("/etc/os-release").is_ok_and(|text| text.to_lowercase().contains("suse"));
    has(SETTINGS) && (!has(SETTINGS_OF_DNF) || is_suse())
}

/// Whether a name fits a pattern with `*` and `?`.
fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.chars().next(), name.chars().next()) {
        (None, None) => true,
        (Some('*'), first) => fits(&pattern[1..], name) || first.is_some_and(|c| fits(pattern, &name[c.len_utf8()..])),
        (Some(one), Some(other)) if one == '?' || one == other => {
            fits(&pattern[one.len_utf8()..], &name[other.len_utf8()..])
        }
        (_, _) => false,
    }
}

/// The output after success, or an error with the lines about the cause.
fn done(ran: Ran) -> Result<String, String> {
    if ran.code.is_some_and(|code| SUCCESS.contains(&code)) {
        return Ok(ran.out);
    }
    let said = format!("{}\n{}", ran.out, ran.err);
    let telling =
        |line: &&str| line.starts_with("Problem:") || line.contains("is locked by") || line.contains("not found");
    let lines = said.lines().map(|line| line.trim().trim_start_matches("<description>"));
    Err(ran.complaint() + &rpm::causes(lines.filter(telling)))
}

impl Manager for Zypper<'_> {
    fn installed(&self) -> Result<Installed, String> {
        Ok(match self.rpm.installed(&self.content.name)? {
            Installed::Yes { version, .. } => {
                let held = self.locks()?.iter().any(|lock| fits(lock, &self.content.name));
                Installed::Yes { version, held }
            }
            other @ (Installed::No | Installed::Configuration | Installed::Half(_)) => other,
        })
    }

    fn available(&self) -> Result<Vec<String>, String> {
        if self.content.is_own_repository() && !self.folder(CACHE).is_dir() {
            return Err("its repository has not been fetched yet".to_owned());
        }
        let ran = self.read(&["search", "--details", "--match-exact", "--type", "package", &self.content.name])?;
        let told = if ran.code == Some(NOT_FOUND) { String::new() } else { done(ran)? };
        let version = |line: &str| {
            let is_offered = attribute(line, "name")? == self.content.name
                && attribute(line, "kind")? == "package"
                && attribute(line, "repository")? != "(System Packages)";
            attribute(line, "edition").filter(|_| is_offered)
        };
        Ok(rpm::newest_first(told.lines().filter_map(version)))
    }

    fn broken(&self) -> Result<Option<String>, String> {
        self.rpm.broken(&self.content.name)
    }

    fn how_to_repair(&self) -> &'static str {
        "`rpm --rebuilddb`, `zypper verify`"
    }

    fn repair(&self) -> Result<(), String> {
        self.rpm.rebuild()?;
        if self.content.is_own_repository() {
            // A killed attempt leaves what it has downloaded.
            match fs::remove_dir_all(self.folder(CACHE).join(DOWNLOADS)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.own.failed(&error)),
                Ok(()) | Err(_) => {}
            }
            self.refresh()?;
        }
        let version = match self.rpm.installed(&self.content.name)? {
            Installed::Yes { version, .. } => Some(version),
            // A transaction keeps a single version.
            Installed::Half(_) | Installed::No | Installed::Configuration => self.available()?.first().cloned(),
        };
        let done_again = match version {
            Some(version) => {
                let arguments = self.exactly(&version);
                let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                self.rpm.note_coming(&self.own, &self.content.name, &self.simulated(&arguments)?)?;
                arguments.insert(1, "--force");
                self.act(&arguments)
            }
            None => Ok(()),
        };
        for name in self.rpm.companions(&self.own)? {
            self.mark(&name, true)?;
        }
        self.repaired(done_again)
    }

    fn refresh(&self) -> Result<(), String> {
        if let Some(key) = &self.content.signed_by {
            run_bounded(self.rpm.command().arg("--import").arg(key), b"")?.ok()?;
        }
        // Only an enforced refresh notices each change of a list.
        let arguments: &[&str] = if self.content.is_own_repository() { &["refresh", "--force"] } else { &["refresh"] };
        let fetched = self.zypper(false, &[], arguments).and_then(done);
        fetched.map(|_| ()).map_err(|why| match self.content.is_own_repository() {
            true => not_fetched(self.content, "a folder repodata", &why),
            false => why,
        })
    }

    fn snapshot(&self) -> Result<BTreeMap<String, String>, String> {
        self.rpm.snapshot()
    }

    fn names(&self) -> Result<Vec<String>, String> {
        Ok(vec![self.content.name.clone()])
    }

    fn held(&self) -> Result<BTreeSet<String>, String> {
        let locks = self.locks()?;
        let is_locked = |name: &String| locks.iter().any(|lock| fits(lock, name));
        Ok(self.rpm.all()?.into_iter().filter(is_locked).collect())
    }

    fn is_automatic(&self) -> Result<bool, String> {
        Ok(self.automatic()?.contains(&self.content.name))
    }

    fn mark(&self, name: &str, automatic: bool) -> Result<(), String> {
        if self.automatic()?.contains(name) == automatic {
            return Ok(());
        }
        let edited = |list: &str| {
            let others = list.lines().filter(|line| line.trim() != name);
            let own = automatic.then_some(name);
            Some(others.chain(own).map(|line| format!("{line}\n")).collect())
        };
        self.host.try_edit(AUTOMATIC, 0o644, &|list| Ok(edited(list).unwrap_or_default()))
    }

    fn plan(&self, version: &str) -> Result<Plan, String> {
        let arguments = self.exactly(version);
        self.simulated(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn plan_removal(&self) -> Result<Plan, String> {
        self.simulated(&["remove", "--name", &self.content.name])
    }

    fn install(&self, version: &str, plan: &Plan, _over_hold: bool) -> Result<(), String> {
        self.rpm.note_coming(&self.own, &self.content.name, plan)?;
        let arguments = self.exactly(version);
        self.act(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn remove(&self, _purge: bool) -> Result<(), String> {
        self.act(&["remove", "--name", &self.content.name])
    }

    fn needless(&self, _purge: bool) -> Result<BTreeSet<String>, String> {
        let told = done(self.read(&["packages", "--unneeded"])?)?;
        // A table: status, repository, name, version and architecture.
        let name = |line: &str| line.split('|').nth(2).map(|name| name.trim().to_owned());
        Ok(told.lines().filter_map(name).collect())
    }

    fn remove_needless(&self, names: &BTreeSet<String>, _purge: bool) -> Result<(), String> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.act(&[&["remove", "--name"][..], &names].concat())
    }

    fn hold(&self, hold: bool) -> Result<(), String> {
        let verb = if hold { "addlock" } else { "removelock" };
        self.act(&[verb, "--type", "package", &self.content.name])
    }

    fn how_to_unhold(&self) -> String {
        format!("`zypper removelock {}`", self.content.name)
    }

    fn forget(&self) -> Result<(), String> {
        self.own.clear(&[], OWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_may_be_a_pattern() {
        for (pattern, name, is) in [
            ("cob", "cob", true),
            ("cob*", "cobtest", true),
            ("*test", "cobtest", true),
            ("c?b", "cob", true),
            ("c*t*", "cobtest", true),
            ("cob", "cobtest", false),
            ("cob?", "cob", false),
        ] {
            assert_eq!(fits(pattern, name), is, "{pattern} {name}");
        }
    }
}
