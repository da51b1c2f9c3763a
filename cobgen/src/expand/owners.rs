//! Objects of a host that only a single change object may set: two owners would undo each other's transitions.
//!
//! `file_tree` reports common paths of two file trees. A name in `/etc/hosts` may have several addresses, so entries
//! are shared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cob_kinds::{Access, OwnedFile, Package, Subject, UNITS};
use cob_types::CobId;

use super::footprint::footprint;
use super::objects::Object;
use super::{ByCob, Report};
use crate::diagnostic::Diagnostic;
use crate::draft::Arrow;

/// Advice about two owners.
const HELP: &str = "each would undo changes of the other: remove either object, or observe it (`mode: observe`)";

/// The change object that sets an object of a host, or of a folder that is to become a host.
type Owners<'a> = BTreeMap<(&'a str, &'a str, Subject), (&'a CobId, &'a Object)>;

/// Reports objects that two change objects of a host would set. Observed change objects do not count.
pub(super) fn report_two(objects: &ByCob<Box<Object>>, report: &mut Report<'_>) {
    let mut owners: Owners<'_> = BTreeMap::new();
    for (id, object) in objects.iter().filter(|(_, object)| !object.observe) {
        let footprint = footprint(id, object);
        let whole = footprint.subject.clone();
        for subject in footprint.subject.into_iter().chain(footprint.parts) {
            let (what, is_part) = (format!("the {} {}", subject.sort, subject.name), Some(&subject) != whole.as_ref());
            let Some((first, other)) = owners.insert((id.host_str(), root(object), subject), (id, object)) else {
                continue;
            };
            // A part of an object that is already reported.
            if is_part && whole.is_some() && whole == self::subject(first, other) {
                continue;
            }
            let of = |object: &Object| architecture(object).map(str::to_owned);
            if of(object).zip(of(other)).is_some_and(|(one, other)| one != other) {
                continue;
            }
            let is_package = of(object) != of(other);
            let help = if is_package {
                "write the architecture in both if they differ; else remove either object"
            } else {
                HELP
            };
            report.push(object.mark, two_owners(&what, (first, other), id, report).help(help));
        }
    }
    report_inside(&owners, report);
    report_removed(objects, &owners, report);
    report_paths(objects, report);
}

/// Reports objects inside of other objects: keys inside of keys, a table among all tables, a partition of a disk.
fn report_inside(owners: &Owners<'_>, report: &mut Report<'_>) {
    for ((host, root, subject), (id, object)) in owners {
        for above in subject.outer() {
            if let Some(first) = owners.get(&(*host, *root, above)).filter(|(other, _)| other != id) {
                let what = format!("the {} {}", subject.sort, subject.name);
                report.push(object.mark, two_owners(&what, *first, id, report).help(HELP));
            }
        }
    }
}

fn two_owners(what: &str, (first, other): (&CobId, &Object), id: &CobId, report: &Report<'_>) -> Diagnostic {
    let fault = Diagnostic::error("two-owners", format!("two change objects, {first} and {id}, manage {what}"));
    fault.note(Some(report.place(other.mark)), "the first")
}

/// Reports packages that a change object may remove for its own package and another change object installs.
fn report_removed(objects: &ByCob<Box<Object>>, owners: &Owners<'_>, report: &mut Report<'_>) {
    for (id, object) in objects.iter().filter(|(_, object)| !object.observe) {
        for name in object.content["may_remove"].as_array().into_iter().flatten().filter_map(|name| name.as_str()) {
            let subject = Subject { sort: Subject::PACKAGE, name: Package::bare_name(name).to_owned() };
            let Some((other, owner)) = owners.get(&(id.host_str(), root(object), subject)) else { continue };
            if owner.preferred.as_ref().is_some_and(|preferred| *preferred == "present") && *other != id {
                let what = format!("{id} may remove the package {name}, which {other} installs");
                let fault =
                    Diagnostic::error("two-owners", what).note(Some(report.place(owner.mark)), "installed here");
                report.push(object.mark, fault.help("remove either object, or `may_remove`"));
            }
        }
    }
}

/// Reports files that change objects of different kinds would write.
fn report_paths(objects: &ByCob<Box<Object>>, report: &mut Report<'_>) {
    let mut owners: BTreeMap<(&str, String), (&CobId, &Object, Access)> = BTreeMap::new();
    let set = || objects.iter().filter(|(_, object)| !object.observe);
    for (id, object) in set() {
        for OwnedFile { path, access } in footprint(id, object).files {
            let key = (id.host_str(), path);
            let Some((first, other, held)) = owners.get(&key) else {
                owners.insert(key, (id, object, access));
                continue;
            };
            // Two owners of the same object are already reported.
            let is_one = subject(id, object).is_some_and(|one| Some(one) == subject(first, other));
            let is_told = is_one || (is_tree(object) && is_tree(other));
            if *first != id && !access.goes_with(*held) && !is_told {
                two_paths(&key.1, (first, other), (id, object), report);
            }
        }
    }
    for (id, object) in set() {
        // A mount point in a whole folder is not an entry of the folder.
        let footprint = footprint(id, object);
        let mounted = footprint.subject.filter(|subject| subject.sort == Subject::MOUNT);
        let mounted = mounted.map(|subject| format!("{}{}", root(object), subject.name));
        for path in footprint.files.into_iter().map(|file| file.path).chain(mounted) {
            for above in Path::new(&path).ancestors().skip(1).filter_map(Path::to_str) {
                let owner = owners.get(&(id.host_str(), above.to_owned()));
                if let Some((other, first, Access::Whole)) = owner
                    && *other != id
                    && !(is_tree(first) && is_tree(object))
                {
                    two_paths(&path, (other, first), (id, object), report);
                }
            }
        }
    }
    report_links(set().map(|(id, object)| (id, &**object)), &owners, report);
}

/// Reports links in folders like `multi-user.target.wants` that a change object writes and another change object
/// creates or removes when it enables or disables the unit.
fn report_links<'o>(
    services: impl Iterator<Item = (&'o CobId, &'o Object)>,
    owners: &BTreeMap<(&str, String), (&CobId, &Object, Access)>,
    report: &mut Report<'_>,
) {
    for (id, object) in services.filter(|(_, object)| !object.content["enabled"].is_null()) {
        let Some(Subject { sort: Subject::UNIT, name }) = subject(id, object) else { continue };
        let begin = format!("{}{UNITS}/", root(object));
        let below = owners
            .range((id.host_str(), begin.clone())..)
            .take_while(|((host, path), _)| *host == id.host_str() && path.starts_with(&begin));
        for ((_, path), (other, first, access)) in below {
            let (folder, link) = path[begin.len()..].split_once('/').unwrap_or((&path[begin.len()..], ""));
            let Some((target, "wants" | "requires" | "upholds")) = folder.rsplit_once('.') else { continue };
            // The targets that want a packaged unit are unknown.
            let wanted_by = object.content["unit_file"].as_str().unwrap_or("multi-user.target");
            let is_whole = link.is_empty() && *access == Access::Whole && wanted_by.contains(target);
            if *other != id && (link == name || is_whole) {
                let link = format!("{begin}{folder}/{name}");
                two_paths(&link, (other, first), (id, object), report);
            }
        }
    }
}

fn two_paths(path: &str, one: (&CobId, &Object), other: (&CobId, &Object), report: &mut Report<'_>) {
    let kind = |object: &Object| object.kind.as_ref().map_or("", |known| known.kind.backend.as_str()).to_owned();
    let ((first, of_first), (id, object)) = (one, other);
    let what = format!("{path} is written by {first} ({}) and by {id} ({})", kind(of_first), kind(object));
    let fault = Diagnostic::error("two-owners", what).note(Some(report.place(of_first.mark)), "the first");
    report.push(object.mark, fault.help(HELP));
}

fn is_tree(object: &Object) -> bool {
    object.kind.as_ref().is_some_and(|known| known.kind.backend == "file-tree")
}

/// The folder that is to become a host; empty for the host itself.
pub(super) fn root(object: &Object) -> &str {
    object.content["root"].as_str().unwrap_or("/").trim_end_matches('/')
}

/// The architecture in a package name.
fn architecture(object: &Object) -> Option<&str> {
    object.content["name"].as_str()?.split_once(':').map(|(_, architecture)| architecture)
}

/// Warns of mounts below another mount that do not wait for it: the later mount hides the earlier.
pub(super) fn report_nested(objects: &ByCob<Box<Object>>, arrows: &ByCob<Vec<Arrow>>, report: &mut Report<'_>) {
    let mut mounts: BTreeMap<(&str, String), (&CobId, &Object)> = BTreeMap::new();
    for (id, object) in objects {
        let is_mounted = object.content["absent"] != true;
        let is_set = !object.observe && object.content["root"].is_null() && is_mounted;
        if let Some(Subject { sort: Subject::MOUNT, name }) = subject(id, object).filter(|_| is_set) {
            mounts.insert((id.host_str(), name), (id, object));
        }
    }
    for ((host, path), (id, object)) in &mounts {
        let above = Path::new(path).ancestors().skip(1).filter_map(Path::to_str);
        let outer = above.filter_map(|above| Some((above, mounts.get(&(*host, above.to_owned()))?)));
        for (above, (first, other)) in outer.filter(|(_, (first, _))| !leads(arrows, id, first)) {
            let what = format!("{id} mounts {path} in {above}, which {first} mounts, but does not wait for {first}");
            let fault = Diagnostic::warning("nested-mounts", what)
                .note(Some(report.place(other.mark)), "the mount around it")
                .help(format!("a later mount on {above} hides {path}: let {id} require {first}"));
            report.push(object.mark, fault);
        }
    }
}

/// Warns if a socket and its service shall both be up, each with its unit file: the socket can't start before its
/// service's file exists, nor while its service runs.
pub(super) fn report_sockets(objects: &ByCob<Box<Object>>, report: &mut Report<'_>) {
    let units: BTreeMap<(&str, String), (&CobId, &Object)> = objects
        .iter()
        .filter(|(_, object)| !object.observe && !is_down(object) && !object.content["unit_file"].is_null())
        .filter_map(|(id, object)| match subject(id, object)? {
            Subject { sort: Subject::UNIT, name } => Some(((id.host_str(), name), (id, &**object))),
            _ => None,
        })
        .collect();
    for ((host, name), (id, object)) in &units {
        let Some(stem) = name.strip_suffix(".socket") else { continue };
        let text = object.content["unit_file"].as_str().unwrap_or_default();
        let named = text.lines().find_map(|line| line.trim().strip_prefix("Service=")).map(str::trim);
        let service = named.map_or_else(|| format!("{stem}.service"), str::to_owned);
        let Some((other, of_other)) = units.get(&(*host, service.clone())) else { continue };
        let what =
            format!("{id} starts {name}, and {other} brings {service} and starts it: systemd wants the file before");
        let fault = Diagnostic::warning("socket-before-service", what)
            .note(Some(report.place(of_other.mark)), "the service of the socket")
            .help(format!(
                "write the unit file of {service} with a file-tree that both require, and let {other} require {id}; or let \
                 {other} rest (`preferred: down`): the socket starts it"
            ));
        report.push(object.mark, fault);
    }
}

fn is_down(object: &Object) -> bool {
    object.preferred.as_ref().is_some_and(|preferred| *preferred == "down")
}

/// Whether the first depends on the second, directly or indirectly.
fn leads(arrows: &ByCob<Vec<Arrow>>, from: &CobId, to: &CobId) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(at) = open.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            open.extend(arrows.get(at).into_iter().flatten().map(|arrow| &arrow.on));
        }
    }
    false
}

/// The object that a change object sets. `None`: several change objects may set the object, or it is unknown.
fn subject(id: &CobId, object: &Object) -> Option<Subject> {
    footprint(id, object).subject
}
