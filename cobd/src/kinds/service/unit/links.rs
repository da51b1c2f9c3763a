//! The links that enable, alias, link and mask units.
//!
//! systemd changes links on request, also links of other units (`Also=`, or an alias taken from another unit). The
//! state of the unit file (`enabled`, `masked`) does not name these links. Therefore each changed link is noted with
//! its original target, and restored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::bus::{Changes, UnitState};
use super::files::{Found, find, put_back, read_unit_file};
use crate::kinds::systemd::Systemd;

/// The suffixes of folders that contain the dependencies of units.
const DEPENDENCIES: [&str; 3] = [".wants", ".requires", ".upholds"];

/// The targets of all links, by place.
pub(super) type AllLinks = BTreeMap<String, PathBuf>;

/// The original links that were changed.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Links {
    /// The original content of every place that systemd changed on request.
    found: BTreeMap<String, Found>,
    /// The section `[Install]` with which the unit was enabled from here.
    pub(super) enabled_with: Option<String>,
    /// All links before a call of systemd whose changes are not noted yet.
    pub(super) pending: Option<AllLinks>,
}

impl Links {
    /// Notes the changes that systemd reported. Places in `files` are noted elsewhere.
    pub(super) fn note(&mut self, all: &AllLinks, changed: &BTreeSet<String>, files: &BTreeSet<String>) {
        for place in changed.difference(files) {
            let was = all.get(place).map_or(Found::Absent, |target| Found::Link(target.clone()));
            self.found.entry(place.clone()).or_insert(was);
        }
        self.pending = None;
    }

    /// Notes the changes of a call that was interrupted before its answer was noted. Other programs may have changed
    /// links since, so only links of the unit itself count.
    pub(super) fn settle(
        &mut self,
        systemd: &Systemd,
        names: &[&str],
        files: &BTreeSet<String>,
    ) -> Result<bool, String> {
        let Some(all) = self.pending.take() else { return Ok(false) };
        let now = all_links(systemd);
        let is_named = |path: &Path| path.file_name().is_some_and(|name| names.iter().any(|n| name == *n));
        let places = all.keys().chain(now.keys()).filter(|place| all.get(*place) != now.get(*place));
        let changed = places.filter(|place| {
            let targets = [all.get(*place), now.get(*place)];
            is_named(Path::new(place)) || targets.into_iter().flatten().any(|target| is_named(target))
        });
        let changed: BTreeSet<String> = changed.cloned().collect();
        keep_linked(systemd, &all, &changed)?;
        self.note(&all, &changed, files);
        Ok(true)
    }

    /// Restores the links, and returns whether a link changed. `there`: systemd knows the unit, so that links to it are
    /// valid even with a missing target.
    pub(super) fn put_back(&self, there: bool) -> Result<bool, String> {
        let mut changed = false;
        for (place, was) in &self.found {
            let path = Path::new(place);
            let is = find(path).map_err(|e| format!("{place}: {e}"))?;
            let lost = match (was, &is) {
                // A file there was put by a user later.
                (_, Found::File { .. }) => true,
                (Found::Link(target), _) => !there && !leads_somewhere(path, target),
                (Found::Absent | Found::File { .. }, _) => false,
            };
            if !lost && is != *was {
                put_back(path, was).map_err(|e| format!("{place}: {e}"))?;
                changed = true;
            }
            remove_empty_folder(path);
        }
        Ok(changed)
    }

    /// Removes the links that were created.
    pub(super) fn remove_made(&self) -> Result<(), String> {
        for (place, _) in self.found.iter().filter(|(_, was)| **was == Found::Absent) {
            let path = Path::new(place);
            if matches!(find(path), Ok(Found::Link(_))) {
                put_back(path, &Found::Absent).map_err(|e| format!("{place}: {e}"))?;
                remove_empty_folder(path);
            }
        }
        Ok(())
    }
}

/// All links in the folders of changeable unit files. systemd creates no link whose target is not UTF-8.
pub(super) fn all_links(systemd: &Systemd) -> AllLinks {
    let mut all = AllLinks::new();
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut add = |path: PathBuf| {
        let target = fs::read_link(&path).ok().filter(|target| target.to_str().is_some());
        all.extend(path.to_str().map(str::to_owned).zip(target));
    };
    for path in [&systemd.units, &systemd.runtime].into_iter().flat_map(|folder| entries(folder)) {
        let is_folder = is_of_dependencies(&path) && !path.is_symlink();
        if is_folder { entries(&path).for_each(&mut add) } else { add(path) }
    }
    all
}

/// The places that systemd reports as changed.
pub(super) fn places(changes: &Changes) -> BTreeSet<String> {
    let of_links = changes.iter().filter(|(kind, ..)| ["symlink", "unlink"].contains(&kind.as_str()));
    of_links.map(|(_, place, _)| place.clone()).collect()
}

/// systemd's disable also removes a link that is the unit's file; this link is created again.
pub(super) fn keep_linked(systemd: &Systemd, all: &AllLinks, changed: &BTreeSet<String>) -> Result<(), String> {
    for (place, target) in changed.iter().filter_map(|place| all.get_key_value(place)) {
        let path = Path::new(place);
        let among_units = [&systemd.units, &systemd.runtime].into_iter().any(|folder| path.parent() == Some(folder));
        if among_units && path.file_name() == target.file_name() && leads_somewhere(path, target) {
            put_back(path, &Found::Link(target.clone())).map_err(|e| format!("{place}: {e}"))?;
        }
    }
    Ok(())
}

/// The section `[Install]` of the unit's files.
pub(super) fn install_section(state: &UnitState) -> String {
    let mut said = String::new();
    for path in std::iter::once(&state.fragment).chain(&state.drop_ins) {
        let bytes = read_unit_file(path);
        let mut within = false;
        for line in String::from_utf8_lossy(&bytes).lines().map(str::trim) {
            if line.starts_with('[') {
                within = line == "[Install]";
            } else if within && !line.is_empty() && !line.starts_with(['#', ';']) {
                said += line;
                said.push('\n');
            }
        }
    }
    said
}

fn is_of_dependencies(path: &Path) -> bool {
    path.to_str().is_some_and(|path| DEPENDENCIES.iter().any(|ending| path.ends_with(ending)))
}

fn leads_somewhere(path: &Path, target: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.join(target).exists())
}

/// systemd does the same when it removes the last link.
fn remove_empty_folder(path: &Path) {
    if let Some(folder) = path.parent().filter(|folder| is_of_dependencies(folder)) {
        let removed: io::Result<()> = fs::remove_dir(folder);
        // A folder with other entries stays.
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Bench {
        folder: tempfile::TempDir,
        systemd: Systemd,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("folder");
            let [units, runtime] = ["etc", "run"].map(|name| folder.path().join(name));
            for folder in [&units, &runtime] {
                fs::create_dir_all(folder.join("multi-user.target.wants")).expect("made");
            }
            for unit in ["a.service", "b.service"] {
                fs::write(folder.path().join(unit), "[Install]\nWantedBy=multi-user.target\n").expect("written");
            }
            Self { systemd: Systemd { address: None, units, runtime }, folder }
        }

        fn target(&self, unit: &str) -> PathBuf {
            self.folder.path().join(unit)
        }

        fn place(&self, name: &str) -> String {
            self.folder.path().join(name).to_str().expect("text").to_owned()
        }

        fn link(&self, name: &str, unit: &str) -> String {
            symlink(self.target(unit), self.place(name)).expect("linked");
            self.place(name)
        }
    }

    #[test]
    fn only_the_changed_links_are_restored() {
        let bench = Bench::new();
        let gone = bench.link("run/multi-user.target.wants/a.service", "a.service");
        let taken = bench.link("etc/main.service", "b.service");
        let before = all_links(&bench.systemd);
        assert_eq!(before.len(), 2);
        // The alias of another unit is replaced, a link is removed, and a link is created.
        fs::remove_file(&gone).expect("removed");
        fs::remove_file(&taken).expect("removed");
        bench.link("etc/main.service", "a.service");
        let made = bench.link("etc/multi-user.target.wants/a.service", "a.service");
        let mut links = Links::default();
        links.note(&before, &BTreeSet::from([gone, taken, made]), &BTreeSet::new());
        // A link of a user.
        let own = bench.link("etc/own.service", "a.service");
        assert_eq!(links.put_back(false), Ok(true));
        let mut wanted = before;
        wanted.insert(own, bench.target("a.service"));
        assert_eq!(all_links(&bench.systemd), wanted);
        assert!(!bench.systemd.units.join("multi-user.target.wants").exists(), "it is empty");
        assert_eq!(links.put_back(false), Ok(false), "done twice");
    }

    #[test]
    fn an_interrupted_call_is_settled_by_the_links_of_its_own_unit() {
        let bench = Bench::new();
        let linked = bench.link("etc/a.service", "a.service");
        let before = all_links(&bench.systemd);
        let mut links = Links { pending: Some(before.clone()), ..Links::default() };
        fs::remove_file(&linked).expect("removed");
        bench.link("etc/alias.service", "a.service");
        let other = bench.link("etc/multi-user.target.wants/b.service", "b.service");
        assert_eq!(links.settle(&bench.systemd, &["a.service"], &BTreeSet::new()), Ok(true));
        assert_eq!(fs::read_link(&linked).ok(), Some(bench.target("a.service")), "its file stays");
        assert_eq!(links.put_back(false), Ok(true));
        let mut wanted = before;
        wanted.insert(other, bench.target("b.service"));
        assert_eq!(all_links(&bench.systemd), wanted);
    }

    #[test]
    fn a_link_to_a_removed_unit_is_not_restored() {
        let bench = Bench::new();
        let gone = bench.link("etc/multi-user.target.wants/a.service", "a.service");
        let before = all_links(&bench.systemd);
        let mut links = Links::default();
        links.note(&before, &BTreeSet::from([gone.clone()]), &BTreeSet::new());
        fs::remove_file(&gone).expect("removed");
        fs::remove_file(bench.target("a.service")).expect("removed");
        assert_eq!(links.put_back(false), Ok(false));
        assert_eq!(links.put_back(true), Ok(true), "systemd has it from elsewhere");
    }

    #[test]
    fn the_install_section_includes_the_drop_ins() {
        let bench = Bench::new();
        let path = |name: &str, text: &str| {
            fs::write(bench.target(name), text).expect("written");
            bench.target(name)
        };
        let state = UnitState {
            fragment: path("x.service", "[Service]\nExecStart=x\n[Install]\n# why\nWantedBy=a.target\n\n[Unit]\nA=b\n"),
            drop_ins: vec![path("y.conf", " [Install]\n Alias=z.service\n")],
            ..UnitState::default()
        };
        assert_eq!(install_section(&state), "WantedBy=a.target\nAlias=z.service\n");
    }
}
