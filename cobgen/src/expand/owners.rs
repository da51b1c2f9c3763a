//! What on a host is one change object's alone: two that set the same would undo each other's moves, and each find that
//! all is as it wants it.
//!
//! Of paths of file trees `file_tree` says it. A name in `/etc/hosts` may have several addresses, so entries are shared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cob_types::CobId;

use super::objects::Object;
use super::service::UNIT_TYPES;
use super::{ByCob, Report};
use crate::diagnostic::Diagnostic;
use crate::draft::Arrow;

/// What mounts are called here.
const MOUNT: &str = "mount on";

/// Reports what two change objects of a host would set. Who is observed sets nothing.
pub(super) fn report_two(objects: &ByCob<Box<Object>>, report: &mut Report<'_>) {
    let mut owners: BTreeMap<(&str, &str, Thing), (&CobId, &Object)> = BTreeMap::new();
    for (id, object) in objects.iter().filter(|(_, object)| !object.observe) {
        let Some(thing) = thing(id, object) else { continue };
        let root = object.content["root"].as_str().unwrap_or("/").trim_end_matches('/');
        let what = format!("the {} {}", thing.sort, thing.name);
        let Some((first, other)) = owners.insert((id.host_str(), root, thing), (id, object)) else { continue };
        let fault = Diagnostic::error("two-owners", format!("{what} is managed by {first} and by {id}"))
            .note(Some(report.place(other.mark)), "the first")
            .help("each would undo what the other does: leave one of them away, or observe it (`mode: observe`)");
        report.push(object.mark, fault);
    }
}

/// Warns of mounts in a folder of another mount that do not wait for it: whichever comes later hides the other one.
pub(super) fn report_nested(objects: &ByCob<Box<Object>>, arrows: &ByCob<Vec<Arrow>>, report: &mut Report<'_>) {
    let mut mounts: BTreeMap<(&str, String), (&CobId, &Object)> = BTreeMap::new();
    for (id, object) in objects {
        let is_set = !object.observe && object.content["root"].is_null();
        if let Some(Thing { sort: MOUNT, name }) = thing(id, object).filter(|_| is_set) {
            mounts.insert((id.host_str(), name), (id, object));
        }
    }
    for ((host, path), (id, object)) in &mounts {
        let above = Path::new(path).ancestors().skip(1).filter_map(Path::to_str);
        let outer = above.filter_map(|above| Some((above, mounts.get(&(*host, above.to_owned()))?)));
        for (above, (first, other)) in outer.filter(|(_, (first, _))| !leads(arrows, id, first)) {
            let what = format!("{id} mounts {path} in {above}, which {first} mounts, and does not wait for that");
            let fault = Diagnostic::warning("nested-mounts", what)
                .note(Some(report.place(other.mark)), "the mount around it")
                .help(format!("what is mounted later on {above} hides {path}: let {id} require {first}"));
            report.push(object.mark, fault);
        }
    }
}

/// Whether one depends on the other, however many stand between.
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

/// What a change object sets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Thing {
    sort: &'static str,
    name: String,
}

/// None: what it sets may be set by several, or is not known.
fn thing(id: &CobId, object: &Object) -> Option<Thing> {
    let word = |key: &str| object.content[key].as_str();
    let (sort, name) = match object.kind.as_ref()?.kind.backend.as_str() {
        "service" => ("unit", unit(word("unit")?)),
        "sysctl" => ("parameter", parameter(word("key")?)),
        "mount" => (MOUNT, word("path")?.trim_end_matches('/').to_owned()),
        "kernel-module" => ("kernel module", word("name")?.replace('-', "_")),
        "cron" => ("file", format!("/etc/cron.d/{}", word("name").map_or_else(|| table_of(id), str::to_owned))),
        "package" => ("package", word("name")?.to_owned()),
        "user" => ("user", word("name")?.to_owned()),
        "group" => ("group", word("name")?.to_owned()),
        _ => return None,
    };
    Some(Thing { sort, name })
}

/// With its ending: without one it is a service.
fn unit(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((_, ending)) if UNIT_TYPES.contains(&ending) => name.to_owned(),
        Some(_) | None => format!("{name}.service"),
    }
}

/// The kernel's words for a parameter: whichever of dot and slash comes first parts it.
fn parameter(key: &str) -> String {
    let swapped = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    match key.find(['.', '/']).map(|at| &key[at..=at]) {
        Some("/") => key.chars().map(swapped).collect(),
        Some(_) | None => key.to_owned(),
    }
}

/// The file that a change object's command stands in where none is named.
fn table_of(id: &CobId) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
    format!("cob-{}", id.as_str().chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_in_several_ways_is_one_thing() {
        assert_eq!(unit("a"), unit("a.service"));
        assert_eq!(unit("php8.2-fpm"), "php8.2-fpm.service");
        assert_ne!(unit("a.socket"), unit("a"));
        assert_eq!(parameter("net/ipv4/conf/eth0.1/forwarding"), parameter("net.ipv4.conf.eth0/1.forwarding"));
        assert_ne!(parameter("net.ipv4.ip_forward"), parameter("net.ipv6.ip_forward"));
        let table = |id: &str| table_of(&CobId::new(id).expect("an id"));
        assert_eq!(table("n1/a/b"), table("n1/a-b"));
    }
}
