//! The kind back end `package`: a package of the host's package manager, in a desired version.
//!
//! The trait [`Manager`] describes a package manager; [`apt`], [`dnf`] and [`zypper`] implement it. A transition first
//! checks and then does only the missing steps, so it is idempotent. Packages that it installs as dependencies are
//! companions. A mark in the change object's own folder shows a transition that was killed or failed half-way; then the
//! manager's database is repaired first.

mod apt;
mod dnf;
#[cfg(test)]
mod dnf_test;
mod hiding;
mod itself;
mod lock;
mod mover;
mod note;
mod own;
mod plan;
#[cfg(test)]
mod random_test;
mod rpm;
#[cfg(test)]
mod rpm_world;
#[cfg(test)]
#[path = "package_test.rs"]
mod tests;
mod version;
mod zypper;
#[cfg(test)]
mod zypper_test;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cob_kinds::{Content as _, Package, Version};
use serde_json::json;

/// The name of the file lock that the transitions of packages have, and those of other users of dpkg and debconf.
pub(super) const TURN: &str = "packages";

pub(super) use self::apt::{DATABASE as DPKG, command as apt_command, settings as apt_settings};
pub(super) use self::lock::{wait_for_lists, wait_until_free};
use self::mover::Mark;
use self::note::Note;
use self::own::CAME_ALONG;
use self::plan::Plan;
use super::backend::TransitionAttempt;
use super::native::{Call, Found, Host, Made, NOTE, Native};

/// The back end `package`.
#[derive(Debug)]
pub(super) struct PackageKind;

/// A package manager, for one package.
trait Manager {
    /// The installed state of the package.
    fn installed(&self) -> Result<Installed, String>;

    /// The versions that could be installed, the manager's preferred version first.
    fn available(&self) -> Result<Vec<String>, String>;

    /// The fault that keeps the manager from working, for example half-done packages of another program.
    fn broken(&self) -> Result<Option<String>, String>;

    /// Completes interrupted work.
    fn repair(&self) -> Result<(), String>;

    /// Whether the repair succeeded; `last` is the result of its last step.
    fn repaired(&self, last: Result<(), String>) -> Result<(), String> {
        let Some(what) = self.broken()? else { return Ok(()) };
        let why = last.err().map(|why| format!("; {why}")).unwrap_or_default();
        Err(format!("the leftovers of an earlier attempt can't be repaired: {what}{why}"))
    }

    /// Whether only this package and its companions are half-done, and can be removed or replaced in this state.
    fn is_own_alone(&self) -> Result<bool, String> {
        Ok(false)
    }

    /// Fetches the package lists of its repositories.
    fn refresh(&self) -> Result<(), String>;

    /// All packages that dpkg or rpm knows, each with its state and version.
    fn snapshot(&self) -> Result<BTreeMap<String, String>, String>;

    /// The package's name in a snapshot or plan, and its other names.
    fn names(&self) -> Result<Vec<String>, String>;

    /// The packages that are on hold.
    fn held(&self) -> Result<BTreeSet<String>, String> {
        Ok(BTreeSet::new())
    }

    /// Whether the package is installed only because another package needs it.
    fn is_automatic(&self) -> Result<bool, String>;

    /// Marks an installed package as automatic or as manually installed.
    fn mark(&self, name: &str, automatic: bool) -> Result<(), String>;

    /// Simulates the installation of this version.
    fn plan(&self, version: &str) -> Result<Plan, String>;

    /// Simulates the removal.
    fn plan_removal(&self) -> Result<Plan, String>;

    /// Installs, upgrades or downgrades to this version with its dependencies, as planned; `over_hold`: in spite of a
    /// hold.
    fn install(&self, version: &str, plan: &Plan, over_hold: bool) -> Result<(), String>;

    /// Removes the package; with `purge` also its configuration.
    fn remove(&self, purge: bool) -> Result<(), String>;

    /// The packages that no other package needs; with `purge` also leftover configurations of removed packages.
    fn needless(&self, purge: bool) -> Result<BTreeSet<String>, String>;

    /// Removes packages that are no longer needed.
    fn remove_needless(&self, names: &BTreeSet<String>, purge: bool) -> Result<(), String>;

    /// Sets or lifts the hold of the package.
    fn hold(&self, hold: bool) -> Result<(), String>;

    /// The commands with which an operator repairs a broken database.
    fn how_to_repair(&self) -> &'static str;

    /// The command with which an operator lifts a hold.
    fn how_to_unhold(&self) -> String;

    /// Removes our own files beside the package.
    fn forget(&self) -> Result<(), String>;
}

/// The error if the repository's data was not fetched; `list` names the file that it must contain.
fn not_fetched(content: &Package, list: &str, why: &str) -> String {
    format!("{}: {why}; is it there, with {list}, and signed or `trusted: true`?", content.place())
}

/// The message about a content with a hold.
const NO_HOLDS: &str = "content: `hold` is known for apt alone; remove the key, and name a version instead";

/// The package manager of the host in a content.
fn manager<'a>(content: &'a Package, own: &Path) -> Result<Box<dyn Manager + 'a>, String> {
    let host = Host::below(content.root.as_deref())?;
    if let Some(apt) = apt::Apt::of(content, &host, own) {
        return Ok(Box::new(apt));
    }
    let by_rpm: Box<dyn Manager + 'a> = if let Some(zypper) = zypper::Zypper::of(content, &host, own)? {
        Box::new(zypper)
    } else if let Some(dnf) = dnf::Dnf::of(content, &host, own) {
        Box::new(dnf)
    } else {
        return Err(format!(
            "{}: not there, and no database of rpm either; only apt with dpkg, dnf with rpm and zypper with rpm are known",
            host.path(apt::DATABASE).display()
        ));
    };
    if content.repository.as_deref().is_some_and(|repository| repository.split_whitespace().count() > 1) {
        return Err("content: a repository of rpm has no suite and no components; name its place alone".to_owned());
    }
    if content.hold {
        return Err(NO_HOLDS.to_owned());
    }
    Ok(by_rpm)
}

/// The installed state of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Installed {
    /// Not installed.
    No,
    /// Only configuration files are left.
    Configuration,
    /// Half-installed, with the manager's status.
    Half(String),
    /// Installed.
    Yes {
        /// The version.
        version: String,
        /// The package is on hold.
        held: bool,
    },
}

impl Native for PackageKind {
    fn notes(&self) -> &'static [&'static str] {
        &[NOTE, CAME_ALONG]
    }

    fn name(&self) -> &'static str {
        Package::KIND.name
    }

    fn states(&self) -> &'static [&'static str] {
        Package::KIND.states
    }

    fn accept(&self, content: &str) -> Result<(), String> {
        cob_kinds::read::<Package>(content).map(|_| ())
    }

    fn subject(&self, content: &str) -> Option<String> {
        let content: Package = cob_kinds::read(content).ok()?;
        Some(content.subject(&content.name))
    }

    fn check(&self, call: &Call) -> Result<Found, String> {
        let content: Package = cob_kinds::read(&call.content)?;
        let (manager, note) = (manager(&content, &call.own)?, Note::read(&call.own)?);
        let names = manager.names()?;
        // A killed or failed transition has work to finish, no matter what the package looks like. The manager is not
        // asked then, because it would repair its own leftovers.
        match Mark::of(call).read().as_deref() {
            None => {}
            Some("") => return Ok(Found::differing("outdated", "its transition was killed half-way")),
            Some(why) => return Ok(Found::differing("outdated", format!("its transition has failed half-way: {why}"))),
        }
        if let Some(note) = note.as_ref().filter(|note| !names.contains(&note.name)) {
            let what = format!("wanted {}, and {} is installed for this change object", content.name, note.name);
            return Ok(Found::differing("outdated", what));
        }
        let installed = manager.installed()?;
        // Without a fetched list no version is known; a check does not fetch it, because that changes files. The manager
        // reads its whole list for the answer, so it is asked only where the answer matters.
        let available = || manager.available().unwrap_or_default();
        Ok(judge(&content, &installed, available, note.as_ref()))
    }

    fn make(&self, call: &Call, attempt: &TransitionAttempt) -> Made {
        let mut touched = BTreeSet::new();
        let result = mover::moved(call, attempt, &mut touched);
        Made { result, touched }
    }
}

/// Judges the state, with the desired, found and available versions as difference.
fn judge(
    content: &Package,
    installed: &Installed,
    available: impl FnOnce() -> Vec<String>,
    note: Option<&Note>,
) -> Found {
    let available = LazyCell::new(available);
    let told = |found: &str| {
        let offered = if available.is_empty() { "no known version".to_owned() } else { available.join(" ") };
        format!("wanted {}, found {found}, available {offered}", content.wanted())
    };
    match installed {
        Installed::No => Found::state("absent"),
        Installed::Configuration if content.purge => {
            Found::differing("outdated", told("its configuration files alone"))
        }
        Installed::Configuration => Found::state("absent"),
        Installed::Half(what) => Found::differing("outdated", told(&format!("half of it ({what})"))),
        Installed::Yes { version, held } => {
            let found = |state| Found::state(state).exporting("version", &json!(version));
            let fits = match &content.version {
                Version::Any => true,
                Version::Like(like) => Version::fits(like, version),
                Version::Latest => available.first().is_none_or(|newest| newest == version),
            };
            match (fits, *held) {
                (true, held) if held == content.hold => found("present"),
                // A hold set by a user is respected as long as the version fits.
                (true, true) if !lifts(content, note) => found("present"),
                (true, true) => Found::differing("outdated", told(&format!("{version}, on hold"))),
                (true, false) => Found::differing("outdated", told(&format!("{version}, not on hold"))),
                (false, true) if !content.hold && !lifts(content, note) => {
                    Found::differing("held", told(&format!("{version}, on hold")))
                }
                (false, _) => Found::differing("outdated", told(version)),
            }
        }
    }
}

/// Whether the change object may lift a hold: it set the hold itself, or may override it.
fn lifts(content: &Package, note: Option<&Note>) -> bool {
    content.override_hold || note.is_some_and(|note| note.holds)
}
