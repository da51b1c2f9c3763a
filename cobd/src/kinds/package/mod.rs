//! The kind back end `package`: a package of the host's package manager, in a wanted version.
//!
//! What a manager can do is the trait [`Manager`]; [`apt`] and [`dnf`] are those that there are. A move looks first and does only
//! what is missing, so that it may be made twice; one that was killed or failed half-way is known by a mark in the change
//! object's own folder, and the manager's database is repaired before anything else.

mod apt;
mod content;
mod dnf;
#[cfg(test)]
mod dnf_test;
mod hiding;
mod lock;
mod mover;
mod note;
mod own;
mod plan;
#[cfg(test)]
mod random_test;
#[cfg(test)]
#[path = "package_test.rs"]
mod tests;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::json;

use self::content::{Content, Version};
use self::mover::Mark;
use self::note::Note;
use self::own::CAME_ALONG;
use self::plan::Plan;
use super::backend::Hop;
use super::native::{Call, Found, Host, Made, NOTE, Native};

/// The states that it knows.
const STATES: [&str; 4] = ["absent", "present", "outdated", "held"];

/// The back end `package`.
#[derive(Debug)]
pub(super) struct Package;

/// A package manager, asked about one package.
trait Manager {
    /// What is there of it.
    fn installed(&self) -> Result<Installed, String>;

    /// The versions that could be installed, the one that the manager would take first.
    fn available(&self) -> Result<Vec<String>, String>;

    /// Packages that another program has left half-done, or whatever else keeps the manager from working.
    fn broken(&self) -> Result<Option<String>, String>;

    /// Finishes what was interrupted.
    fn repair(&self) -> Result<(), String>;

    /// Whether that has helped; `last` is what came of the last step to it.
    fn repaired(&self, last: Result<(), String>) -> Result<(), String> {
        let Some(what) = self.broken()? else { return Ok(()) };
        let why = last.err().map(|why| format!("; {why}")).unwrap_or_default();
        Err(format!("what an earlier attempt has left can't be repaired: {what}{why}"))
    }

    /// Whether nothing but this package and what came along with it is half-done, and can be removed or exchanged as it
    /// is.
    fn is_own_alone(&self) -> Result<bool, String> {
        Ok(false)
    }

    /// Learns what its repositories have.
    fn refresh(&self) -> Result<(), String>;

    /// All packages that dpkg or rpm knows, each with its state and version.
    fn snapshot(&self) -> Result<BTreeMap<String, String>, String>;

    /// The package's name in a snapshot or plan, and other names of it.
    fn names(&self) -> Result<Vec<String>, String>;

    /// The packages that are on hold.
    fn held(&self) -> Result<BTreeSet<String>, String> {
        Ok(BTreeSet::new())
    }

    /// Whether it is there only because another package needs it.
    fn is_automatic(&self) -> Result<bool, String>;

    /// Marks an installed package so, or as wanted for itself.
    fn mark(&self, name: &str, automatic: bool) -> Result<(), String>;

    /// What the installation of this version would do.
    fn plan(&self, version: &str) -> Result<Plan, String>;

    /// What its removal would do.
    fn plan_removal(&self) -> Result<Plan, String>;

    /// Installs this version, with what it needs, up or down, as it was planned; `over_hold`: though it is on hold.
    fn install(&self, version: &str, plan: &Plan, over_hold: bool) -> Result<(), String>;

    /// Takes it away; its configuration as well if `purge` is given.
    fn remove(&self, purge: bool) -> Result<(), String>;

    /// The packages that no other package needs any more; with `purge` also those that have left their configuration.
    fn needless(&self, purge: bool) -> Result<BTreeSet<String>, String>;

    /// Takes such packages away.
    fn remove_needless(&self, names: &BTreeSet<String>, purge: bool) -> Result<(), String>;

    /// Keeps others from changing its version, or lets them.
    fn hold(&self, hold: bool) -> Result<(), String>;

    /// What a person does about a broken database.
    fn how_to_repair(&self) -> &'static str;

    /// What a person does about a hold.
    fn how_to_unhold(&self) -> String;

    /// Nothing of ours is left beside the package.
    fn forget(&self) -> Result<(), String>;
}

/// Why nothing is known of what a repository has; `list` is what it has to hold.
fn not_fetched(content: &Content, list: &str, why: &str) -> String {
    format!("{}: {why}; is it there, with {list}, and signed or `trusted: true`?", content.place())
}

/// The package manager of the host that a content is about.
fn manager<'a>(content: &'a Content, own: &Path) -> Result<Box<dyn Manager + 'a>, String> {
    let host = Host::below(content.root.as_deref())?;
    if let Some(apt) = apt::Apt::of(content, &host, own) {
        return Ok(Box::new(apt));
    }
    let dnf = dnf::Dnf::of(content, &host, own).ok_or_else(|| {
        format!(
            "{}: not there, and no database of rpm either; only apt with dpkg and dnf with rpm are known",
            host.path(apt::DATABASE).display()
        )
    })?;
    if content.repository.as_deref().is_some_and(|repository| repository.split_whitespace().count() > 1) {
        return Err("content: a repository of dnf has no suite and no components; name its place alone".to_owned());
    }
    if content.hold {
        return Err("content: `hold` is known for apt alone: dnf has no holds of its own".to_owned());
    }
    Ok(Box::new(dnf))
}

/// What is there of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Installed {
    /// Nothing.
    No,
    /// Its configuration files alone.
    Configuration,
    /// Half of it: what its manager says.
    Half(String),
    /// All of it.
    Yes {
        /// Which.
        version: String,
        /// Its version is not to be changed.
        held: bool,
    },
}

impl Native for Package {
    fn notes(&self) -> &'static [&'static str] {
        &[NOTE, CAME_ALONG]
    }

    fn name(&self) -> &'static str {
        "package"
    }

    fn states(&self) -> &'static [&'static str] {
        &STATES
    }

    fn accept(&self, content: &str) -> Result<(), String> {
        content::read(content).map(|_| ())
    }

    fn subject(&self, content: &str) -> Option<String> {
        let content = content::read(content).ok()?;
        Some(content.subject(&content.name))
    }

    fn check(&self, call: &Call) -> Result<Found, String> {
        let content = content::read(&call.content)?;
        let (manager, note) = (manager(&content, &call.own)?, Note::read(&call.own)?);
        let names = manager.names()?;
        // Whoever was killed half-way has something to finish, whatever the package itself looks like. Nothing is asked
        // then: a manager that comes upon what it has left itself puts that in order.
        match Mark::of(call).read().as_deref() {
            None => {}
            Some("") => return Ok(Found::differing("outdated", "a move of it was killed half-way")),
            Some(why) => return Ok(Found::differing("outdated", format!("a move of it has failed half-way: {why}"))),
        }
        if let Some(note) = note.as_ref().filter(|note| !names.contains(&note.name)) {
            let what = format!("wanted {}, and {} is installed for this change object", content.name, note.name);
            return Ok(Found::differing("outdated", what));
        }
        let installed = manager.installed()?;
        // Without a repository's list nothing is known of what it has, and nothing is looked up: that would change it.
        let available = manager.available().unwrap_or_default();
        Ok(judge(&content, &installed, &available, note.as_ref()))
    }

    fn make(&self, call: &Call, hop: &Hop) -> Made {
        let mut touched = BTreeSet::new();
        let result = mover::moved(call, hop, &mut touched);
        Made { result, touched }
    }
}

/// The state, and what is wanted, found and available.
fn judge(content: &Content, installed: &Installed, available: &[String], note: Option<&Note>) -> Found {
    let offered = if available.is_empty() { "nothing that is known".to_owned() } else { available.join(" ") };
    let told = |found: &str| format!("wanted {}, found {found}, available {offered}", content.wanted());
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
                Version::Like(like) => content::fits(like, version),
                Version::Latest => available.first().is_none_or(|newest| newest == version),
            };
            match (fits, *held) {
                (true, held) if held == content.hold => found("present"),
                // A hold of somebody else is no affair of this change object, as long as the version fits.
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

/// Whether a hold that is found counts for nothing: this change object has set it, or may override it.
fn lifts(content: &Content, note: Option<&Note>) -> bool {
    content.override_hold || note.is_some_and(|note| note.holds)
}
