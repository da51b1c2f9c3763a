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
mod lock;
mod own;
#[cfg(test)]
#[path = "package_test.rs"]
mod tests;
mod version;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cob_types::message::Values;
use serde_json::json;

use self::content::{Content, Version};
use super::backend::Hop;
use super::native::{Call, Found, Host, Native, Turn};
use crate::durable::{self, Sync};

/// The states that it knows.
const STATES: [&str; 4] = ["absent", "present", "outdated", "held"];
/// Stands in the own folder while a move is under way.
const UNDER_WAY: &str = "under-way";

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

    /// Installs this version, with what it needs, up or down.
    fn install(&self, version: &str) -> Result<(), String>;

    /// Takes it away; its configuration as well if `purge` is given.
    fn remove(&self, purge: bool) -> Result<(), String>;

    /// Takes away what came along with it and nobody needs any more.
    fn remove_companions(&self, purge: bool) -> Result<(), String>;

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
    fn name(&self) -> &'static str {
        "package"
    }

    fn states(&self) -> &'static [&'static str] {
        &STATES
    }

    fn accept(&self, content: &str) -> Result<(), String> {
        content::read(content).map(|_| ())
    }

    fn check(&self, call: &Call) -> Result<Found, String> {
        let content = content::read(&call.content)?;
        let manager = manager(&content, &call.own)?;
        // Whoever was killed half-way has something to finish, whatever the package itself looks like. Nothing is asked
        // then: a manager that comes upon what it has left itself puts that in order.
        match Mark::of(call).read().as_deref() {
            None => {}
            Some("") => return Ok(Found::differing("outdated", "a move of it was killed half-way")),
            Some(why) => return Ok(Found::differing("outdated", format!("a move of it has failed half-way: {why}"))),
        }
        let installed = manager.installed()?;
        // Without a repository's list nothing is known of what it has, and nothing is looked up: that would change it.
        let available = manager.available().unwrap_or_default();
        Ok(judge(&content, &installed, &available))
    }

    fn make(&self, call: &Call, hop: &Hop) -> Result<Values, String> {
        let content = content::read(&call.content)?;
        let manager = manager(&content, &call.own)?;
        let _turn = Turn::wait(&call.own, "packages", content.lock_timeout(call.timeout()))?;
        let mark = Mark::of(call);
        repair(manager.as_ref(), &mark)?;
        mark.set("")?;
        let moved = match hop.to.as_str() {
            "present" => present(manager.as_ref(), &content),
            "absent" => absent(manager.as_ref(), &content),
            other => Err(format!("nothing moves a package to {other}")),
        };
        let installed = manager.installed()?;
        if matches!(installed, Installed::No | Installed::Configuration) {
            manager.forget()?;
        }
        match &moved {
            // What it has left is repaired by the next one, which may be told nothing of the cause any more.
            Err(why) if manager.broken()?.is_some() => mark.set(why)?,
            // A failure that has left all in order is no half-done move.
            Ok(()) | Err(_) => mark.clear()?,
        }
        moved?;
        let found = judge(&content, &installed, &manager.available().unwrap_or_default());
        Ok(found.into_exports())
    }
}

/// The state, and what is wanted, found and available.
fn judge(content: &Content, installed: &Installed, available: &[String]) -> Found {
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
                (true, true) => Found::differing("outdated", told(&format!("{version}, on hold"))),
                (true, false) => Found::differing("outdated", told(&format!("{version}, not on hold"))),
                (false, true) if !content.hold && !content.override_hold => {
                    Found::differing("held", told(&format!("{version}, on hold")))
                }
                (false, _) => Found::differing("outdated", told(version)),
            }
        }
    }
}

/// Whoever was killed or has failed half-way is repaired; what others have left is for a person to look at.
fn repair(manager: &dyn Manager, mark: &Mark) -> Result<(), String> {
    if let Some(earlier) = mark.read() {
        let repaired = manager.repair();
        // A script that fails again is no reason to keep its package, nor this version of it.
        if repaired.is_err() && manager.is_own_alone()? {
            return Ok(());
        }
        let first =
            if earlier.is_empty() { earlier } else { format!("; the move that left it so failed with {earlier}") };
        return repaired.map_err(|why| why + &first);
    }
    match manager.broken()? {
        Some(what) => Err(format!(
            "the package database is not in order, and nothing was changed: {what}; repair it ({}) and try again",
            manager.how_to_repair()
        )),
        None => Ok(()),
    }
}

fn present(manager: &dyn Manager, content: &Content) -> Result<(), String> {
    let before = manager.installed()?;
    let held = matches!(before, Installed::Yes { held: true, .. });
    let mut available = manager.available().unwrap_or_default();
    // Known lists may be old: what is not found in them, or wanted anew, is looked for again.
    let is_old = content.is_own_repository() || content.version == Version::Latest;
    if is_old || choose(content, &before, &available).is_none() {
        manager.refresh()?;
        available = manager.available()?;
    }
    let Some(version) = choose(content, &before, &available) else {
        let offered = if available.is_empty() {
            "it has none at all".to_owned()
        } else {
            format!("it has {}", available.join(" "))
        };
        let (name, wanted, place) = (&content.name, content.wanted(), content.place());
        return Err(format!("{name}: {place} has no version that fits {wanted}; {offered}"));
    };
    let there = matches!(&before, Installed::Yes { version: found, .. } if *found == version);
    if !there {
        if held && !content.hold && !content.override_hold {
            return Err(on_hold(manager, content));
        }
        manager.install(&version)?;
    }
    // An installation forgets the hold.
    if content.hold != (held && there) { manager.hold(content.hold) } else { Ok(()) }
}

/// The version to have: the one there if it fits, else the best that does.
fn choose(content: &Content, installed: &Installed, available: &[String]) -> Option<String> {
    let there = match installed {
        Installed::Yes { version, .. } => Some(version),
        Installed::No | Installed::Configuration | Installed::Half(_) => None,
    };
    match &content.version {
        Version::Latest => available.first().or(there).cloned(),
        Version::Any => there.or(available.first()).cloned(),
        Version::Like(like) => there
            .filter(|v| content::fits(like, v))
            .or_else(|| available.iter().find(|v| content::fits(like, v)))
            .cloned(),
    }
}

fn on_hold(manager: &dyn Manager, content: &Content) -> String {
    format!(
        "{} is on hold, which somebody has asked for; lift it with {}, or write `override_hold: true`",
        content.name,
        manager.how_to_unhold()
    )
}

fn absent(manager: &dyn Manager, content: &Content) -> Result<(), String> {
    match manager.installed()? {
        Installed::No => {}
        Installed::Configuration if !content.purge => {}
        Installed::Yes { held: true, .. } if !content.hold && !content.override_hold => {
            return Err(on_hold(manager, content));
        }
        Installed::Yes { .. } | Installed::Half(_) | Installed::Configuration => manager.remove(content.purge)?,
    }
    // Also when an earlier attempt was killed between the two.
    manager.remove_companions(content.purge)
}

/// Says, in the own folder, that a move is under way: whoever finds it afterwards was killed, or has failed with what
/// stands in it.
struct Mark(PathBuf);

impl Mark {
    fn of(call: &Call) -> Self {
        Self(call.own.clone())
    }

    /// None: it is not set.
    fn read(&self) -> Option<String> {
        match fs::read(self.0.join(UNDER_WAY)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            text => Some(String::from_utf8_lossy(&text.unwrap_or_default()).into_owned()),
        }
    }

    fn set(&self, why: &str) -> Result<(), String> {
        let written = durable::write_file(&self.0, UNDER_WAY, 0o600, why.as_bytes(), Sync::Now);
        written.map_err(|error| format!("{}: {error}", self.0.display()))
    }

    fn clear(&self) -> Result<(), String> {
        fs::remove_file(self.0.join(UNDER_WAY)).map_err(|error| format!("{}: {error}", self.0.display()))
    }
}
