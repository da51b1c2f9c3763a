//! The transitions of a package: simulated first, then executed if the model allows the effects on other packages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use cob_kinds::{Package, Version};
use cob_types::CobId;
use cob_types::message::Values;

use super::itself::Itself;
use super::note::{Before, Note};
use super::own::Own;
use super::{Installed, Manager, TURN, judge, lifts, manager};
use crate::durable::{self, Sync};
use crate::kinds::backend::{TransitionAttempt, of_folder_name};
use crate::kinds::native::{Call, Peers, Turn};

/// The name of the mark in the own folder during a transition.
pub(super) const UNDER_WAY: &str = "under-way";

/// A transition of a change object on its package.
struct Mover<'a> {
    manager: &'a dyn Manager,
    content: &'a Package,
    call: &'a Call,
    /// The package shall be as it was before the change object came.
    leaving: bool,
    own: Own,
    note: Option<Note>,
    peers: Peers,
    /// Its name in plans, and its other names.
    names: Vec<String>,
    /// It is the package of this daemon.
    itself: Option<Itself>,
}

/// Carries out a transition; `touched` receives the changed subjects of other change objects, even after a failure.
pub(super) fn moved(
    call: &Call,
    attempt: &TransitionAttempt,
    touched: &mut BTreeSet<String>,
) -> Result<Values, String> {
    let content: Package = cob_kinds::read(&call.content)?;
    let manager = manager(&content, &call.own)?;
    let _turn = Turn::wait(&call.own, TURN, content.lock_timeout(call.timeout()))?;
    let before = manager.snapshot();
    let made = make(call, attempt, manager.as_ref(), &content);
    if let (Ok(before), Ok(after), Ok(names)) = (before, manager.snapshot(), manager.names()) {
        // The model may name the architecture of the host.
        let suffix = names.get(1).and_then(|name| name.split_once(':')).map(|(_, architecture)| architecture);
        for name in changed(&before, &after) {
            touched.insert(content.subject(name));
            touched.extend(suffix.map(|suffix| content.subject(&format!("{name}:{suffix}"))));
        }
    }
    made
}

/// The packages that differ between two snapshots.
fn changed<'a>(
    before: &'a BTreeMap<String, String>,
    after: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = &'a String> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != after.get(*name))
}

fn make(call: &Call, attempt: &TransitionAttempt, manager: &dyn Manager, content: &Package) -> Result<Values, String> {
    let mark = Mark::of(call);
    // An attempt that was killed before its note has changed nothing, and the repair may install the package.
    if mark.read().is_some()
        && attempt.to == "present"
        && let Ok(installed @ (Installed::No | Installed::Configuration)) = manager.installed()
    {
        Mover::new(call, manager, content, call.leaving)?.note(&installed)?;
    }
    repair(manager, &mark)?;
    mark.set("")?;
    let mut mover = Mover::new(call, manager, content, call.leaving)?;
    if let Some(earlier) = mover.of_another() {
        let manager = super::manager(&earlier, &call.own)?;
        Mover::new(call, manager.as_ref(), &earlier, true)?.absent()?;
        manager.forget()?;
        mover.note = None;
    }
    let moved = match attempt.to.as_str() {
        "present" => mover.present(),
        "absent" => mover.absent(),
        other => Err(format!("a package has no transition to {other}")),
    };
    let installed = manager.installed()?;
    let is_over = attempt.to == "absent" && moved.is_ok();
    if is_over || matches!(installed, Installed::No | Installed::Configuration) {
        manager.forget()?;
    }
    match &moved {
        // The next transition repairs the leftovers, and may not see the cause any more.
        Err(why) if manager.broken()?.is_some() => mark.set(why)?,
        // A failure that left the database in order is not half-done.
        Ok(()) | Err(_) => mark.clear()?,
    }
    moved?;
    let available = || manager.available().unwrap_or_default();
    Ok(judge(content, &installed, available, mover.note.as_ref()).into_exports())
}

impl<'a> Mover<'a> {
    fn new(call: &'a Call, manager: &'a dyn Manager, content: &'a Package, leaving: bool) -> Result<Self, String> {
        let names = manager.names()?;
        Ok(Self {
            manager,
            content,
            call,
            leaving,
            own: Own::new(&call.own),
            note: Note::read(&call.own)?,
            peers: Peers::beside(&call.own, "package"),
            itself: Itself::of(content, &names),
            names,
        })
    }

    /// The earlier content of this change object, if it was about another package, which is removed first.
    fn of_another(&self) -> Option<Package> {
        let is_another = |note: &&Note| !self.names.contains(&note.name);
        self.note.as_ref().filter(is_another).map(|note| Package {
            name: note.name.clone(),
            version: Version::Any,
            hold: note.holds,
            ..self.content.clone()
        })
    }

    fn name(&self) -> &str {
        self.names.first().map_or(self.content.name.as_str(), String::as_str)
    }

    /// Notes the original state, before the first transaction of this change object.
    fn note(&mut self, installed: &Installed) -> Result<(), String> {
        // An earlier version of the program installed the package without a note, so it belongs to this change object.
        if self.note.is_none() && !self.own.has_installed() {
            let automatic = matches!(installed, Installed::Yes { .. }) && self.manager.is_automatic()?;
            let note = Note::new(self.name(), installed, automatic);
            note.write(&self.own)?;
            self.note = Some(note);
        }
        Ok(())
    }

    fn set_hold(&mut self, hold: bool) -> Result<(), String> {
        if self.note.is_some() || hold {
            let mut note = self.note.take().unwrap_or_else(|| Note::brought(self.name()));
            note.holds = hold;
            note.write(&self.own)?;
            self.note = Some(note);
        }
        self.manager.hold(hold)
    }

    fn present(&mut self) -> Result<(), String> {
        let (manager, content) = (self.manager, self.content);
        let before = manager.installed()?;
        let held = matches!(before, Installed::Yes { held: true, .. });
        let lifts = content.hold || lifts(content, self.note.as_ref());
        let mut available = manager.available().unwrap_or_default();
        // Known lists may be old: refresh them for the newest version, or if no version fits.
        let is_old = content.is_own_repository() || content.version == Version::Latest;
        if is_old || choose(content, &before, &available).is_none() {
            manager.refresh()?;
            available = manager.available()?;
        }
        let Some(version) = choose(content, &before, &available) else {
            let offered = if available.is_empty() {
                "it has no version at all".to_owned()
            } else {
                format!("it has {}", available.join(" "))
            };
            let (name, wanted, place) = (&content.name, content.wanted(), content.place());
            return Err(format!("{name}: {place} has no version that fits {wanted}; {offered}"));
        };
        let there = matches!(&before, Installed::Yes { version: found, .. } if *found == version);
        if !there {
            if held && !lifts {
                return Err(on_hold(manager, content));
            }
            let plan = manager.plan(&version)?;
            let faults = plan.faults(self.name(), content, &manager.held()?);
            if !faults.is_empty() {
                return Err(self.refusal(&version, &faults));
            }
            self.note(&before)?;
            manager.install(&version, &plan, held)?;
            if let Some(itself) = &self.itself
                && let Err(why) = itself.comes_up(self.call.timeout())
            {
                return Err(self.bring_back(itself, &before, &version, &why));
            }
        }
        // An installation deletes the hold.
        match (content.hold, held && there) {
            (true, false) => {
                self.note(&before)?;
                self.set_hold(true)
            }
            (false, true) if lifts => self.set_hold(false),
            (true, true) | (false, _) => Ok(()),
        }
    }

    /// Installs the former daemon again, because the daemon of this version does not come up; returns the error.
    fn bring_back(&self, itself: &Itself, before: &Installed, version: &str, why: &str) -> String {
        let (manager, name) = (self.manager, self.name());
        let failed = format!("{name} {version} was installed, and its daemon did not come up: {why}");
        let Installed::Yes { version: former, held } = before else { return failed };
        let bring = || {
            let plan = manager.plan(former)?;
            let faults = plan.faults(name, self.content, &manager.held()?);
            if !faults.is_empty() {
                return Err(self.refusal(former, &faults));
            }
            manager.install(former, &plan, *held)?;
            // An installation deletes the hold.
            if *held {
                manager.hold(true)?;
            }
            itself.restart()?;
            itself.comes_up(self.call.timeout())
        };
        match bring() {
            Ok(()) => format!("{failed}. {name} {former} is installed again, and its daemon runs"),
            Err(error) => format!(
                "{failed}. {name} {former}, which was there before, does not run again either: {error}. Install it by \
                 hand, or by `cobctl upgrade`"
            ),
        }
    }

    /// Why a transaction was rejected.
    fn refusal(&self, version: &str, faults: &[String]) -> String {
        let owner = |fault: &String| {
            let name = fault.strip_prefix("remove ")?;
            let cob = self.peers.wanting(&self.content.subject(name))?;
            Some(format!(" (which {cob} wants)"))
        };
        let faults = faults.iter().map(|fault| format!("{fault}{}", owner(fault).unwrap_or_default()));
        format!(
            "to install {} {version}, the package manager would {}; no package was changed. Allow it in the content \
             (`may_remove: [NAME]`, `may_downgrade: [NAME]`), ask for another version, or take a package out \
             of the model",
            self.content.name,
            faults.collect::<Vec<_>>().join(", ")
        )
    }

    fn absent(&mut self) -> Result<(), String> {
        let (manager, content) = (self.manager, self.content);
        let installed = manager.installed()?;
        let purge = content.purge && !self.found(|before| before == Before::Configuration);
        match installed {
            Installed::No => {}
            Installed::Configuration if !purge => {}
            Installed::Yes { held, .. } if self.leaving && self.was_there() => return self.give_back(held),
            Installed::Yes { .. } if self.itself.is_some() && self.leaving => {
                tell(&format!("{} is the package of the daemon that runs, and stays installed", content.name));
                return Ok(());
            }
            Installed::Yes { .. } if self.itself.is_some() => {
                return Err(format!(
                    "{} is the package of the daemon that runs here, which can't remove itself; no package was changed. \
                     Take the change object out of the model, and remove the package by hand",
                    content.name
                ));
            }
            Installed::Yes { held: true, .. } if !content.hold && !lifts(content, self.note.as_ref()) => {
                return Err(on_hold(manager, content));
            }
            Installed::Yes { held, .. } => match self.in_the_way()? {
                others if others.is_empty() => manager.remove(purge)?,
                others if self.leaving => return self.stay(&others, held),
                others => {
                    let (name, others) = (&content.name, others.join(", "));
                    return Err(format!(
                        "to remove {name}, the package manager would {others}; no package was changed. Allow it in the \
                         content (`may_remove: [NAME]`), or remove the other package first"
                    ));
                }
            },
            Installed::Half(_) | Installed::Configuration => manager.remove(purge)?,
        }
        // Needed even if an earlier attempt was killed after the removal.
        self.remove_companions(purge)
    }

    fn found(&self, is: impl Fn(Before) -> bool) -> bool {
        self.note.as_ref().is_some_and(|note| is(note.before))
    }

    /// Whether the package was installed before the change object came.
    fn was_there(&self) -> bool {
        match &self.note {
            Some(note) => matches!(note.before, Before::Package { .. }),
            None => !self.own.has_installed(),
        }
    }

    /// Keeps a package that was installed before the change object came, with its original hold and mark.
    fn give_back(&mut self, held: bool) -> Result<(), String> {
        tell(&format!("{} was there before this change object and stays installed", self.content.name));
        let Some(Before::Package { held: was_held, automatic }) = self.note.as_ref().map(|note| note.before) else {
            return Ok(());
        };
        if automatic {
            self.manager.mark(self.name(), true)?;
        }
        let is_ours = self.content.hold || lifts(self.content, self.note.as_ref());
        if held != was_held && (was_held || is_ours) { self.manager.hold(was_held) } else { Ok(()) }
    }

    /// The effects of the removal on other packages that are not allowed, as text.
    fn in_the_way(&self) -> Result<Vec<String>, String> {
        let (plan, came_along) = (self.manager.plan_removal()?, self.own.came_along());
        let is_ours = |name: &String| {
            self.names.contains(name) || came_along.contains(name) || self.content.may_remove.contains(name)
        };
        let going = plan.going().into_iter().filter(|name| !is_ours(name)).map(|name| format!("remove {name}"));
        // Another package that provides the same feature for its dependents.
        Ok(going.chain(plan.coming().into_iter().map(|name| format!("install {name}"))).collect())
    }

    /// Keeps a package that other packages need: it goes with the last of them.
    fn stay(&mut self, others: &[String], held: bool) -> Result<(), String> {
        let (name, others_in_words) = (&self.content.name, others.join(", "));
        tell(&format!(
            "{name} stays, marked as installed automatically: without it the package manager would {others_in_words}"
        ));
        if held {
            self.manager.hold(false)?;
        }
        self.manager.mark(self.name(), true)?;
        let mut left = self.own.came_along();
        left.insert(self.name().to_owned());
        for other in others.iter().filter_map(|other| other.strip_prefix("remove ")) {
            if let Some(folder) = self.bringer_of(other) {
                Own::new(&folder).note_coming(left.clone(), &BTreeSet::new())?;
            }
        }
        Ok(())
    }

    /// The own folder of another change object that has installed a package.
    fn bringer_of(&self, package: &str) -> Option<PathBuf> {
        let folders = fs::read_dir(self.call.own.parent()?).into_iter().flatten().flatten().map(|entry| entry.path());
        let brought = |folder: &PathBuf| {
            let is_other = *folder != self.call.own;
            let note = Note::read(folder).ok().flatten();
            is_other && note.is_some_and(|note| note.name == package && note.before == Before::Nothing)
        };
        let is_a_cob = |folder: &PathBuf| folder.file_name()?.to_str().and_then(of_folder_name);
        folders.filter(|folder| is_a_cob(folder).is_some()).find(brought)
    }

    /// Removes companions that no other package needs any more, except for packages that another change object wants.
    fn remove_companions(&self, purge: bool) -> Result<(), String> {
        let came_along = self.own.came_along();
        if came_along.is_empty() {
            return Ok(());
        }
        let mut needless: BTreeSet<String> = self.manager.needless(purge)?.intersection(&came_along).cloned().collect();
        let wanted = |name: &String| Some((name.clone(), self.peers.wanting(&self.content.subject(name))?.clone()));
        let wanted: Vec<(String, CobId)> = needless.iter().filter_map(wanted).collect();
        for (name, cob) in wanted {
            needless.remove(&name);
            self.hand_over(&name, &cob)?;
        }
        if needless.is_empty() { Ok(()) } else { self.manager.remove_needless(&needless, purge) }
    }

    /// Hands a companion over to another change object, which removes it on its departure.
    fn hand_over(&self, name: &str, to: &CobId) -> Result<(), String> {
        let folder = Peers::folder(&self.call.own, to)?;
        if Note::read(&folder)?.is_none() {
            Note::brought(name).write(&Own::new(&folder))?;
        }
        self.manager.mark(name, false)
    }
}

/// Prints a line for users who look at the action's output. The output may be closed.
fn tell(what: &str) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// Repairs the leftovers of a killed or failed transition of our own. An operator must repair the leftovers of others.
fn repair(manager: &dyn Manager, mark: &Mark) -> Result<(), String> {
    if let Some(earlier) = mark.read() {
        let repaired = manager.repair();
        // A script that fails again must not block the removal or replacement of its package.
        if repaired.is_err() && manager.is_own_alone()? {
            return Ok(());
        }
        let first = if earlier.is_empty() {
            earlier
        } else {
            format!("; the transition that left this state failed with {earlier}")
        };
        return repaired.map_err(|why| why + &first);
    }
    match manager.broken()? {
        Some(what) => Err(format!(
            "the package database is not in order, and no package was changed: {what}; repair it ({}) and try again",
            manager.how_to_repair()
        )),
        None => Ok(()),
    }
}

/// Chooses a version: the installed version if it fits, otherwise the best available version that fits.
fn choose(content: &Package, installed: &Installed, available: &[String]) -> Option<String> {
    let there = match installed {
        Installed::Yes { version, .. } => Some(version),
        Installed::No | Installed::Configuration | Installed::Half(_) => None,
    };
    match &content.version {
        Version::Latest => available.first().or(there).cloned(),
        Version::Any => there.or(available.first()).cloned(),
        Version::Like(like) => there
            .filter(|v| Version::fits(like, v))
            .or_else(|| available.iter().find(|v| Version::fits(like, v)))
            .cloned(),
    }
}

fn on_hold(manager: &dyn Manager, content: &Package) -> String {
    format!(
        "{} is on hold by an administrator of this host; lift the hold with {}, or write `override_hold: true`",
        content.name,
        manager.how_to_unhold()
    )
}

/// The mark of a transition under way, in the own folder. A mark found later means that the transition was killed, or
/// failed with the error in the mark.
pub(super) struct Mark(PathBuf);

impl Mark {
    pub(super) fn of(call: &Call) -> Self {
        Self(call.own.clone())
    }

    /// Returns `None` without a mark.
    pub(super) fn read(&self) -> Option<String> {
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
