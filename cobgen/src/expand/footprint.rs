//! The files of a host that a change object writes, for all kinds.

use cob_types::CobId;
use serde_json::Value as Json;

use super::objects::Object;
use super::owners::{root, table_of, unit};

/// A file that a change object writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Footprint {
    pub(super) path: String,
    pub(super) access: Access,
}

/// The way in which it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// As a whole, by this change object alone.
    Alone,
    /// With all files below it.
    Whole,
    /// A part of it, while others of the same kind write other parts.
    Shared,
    /// A part of it: other writers' parts stay.
    Merged,
}

impl Access {
    /// Whether both accesses leave each other's data intact.
    pub(super) fn goes_with(self, other: Self) -> bool {
        let is_part = |access: Self| matches!(access, Self::Shared | Self::Merged);
        is_part(self) && is_part(other)
    }
}

/// The folder for administrators' systemd units.
pub(super) const UNITS: &str = "/etc/systemd/system";
/// The account databases.
const ACCOUNTS: [&str; 4] = ["/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow"];

/// All files that a change object writes.
pub(super) fn footprint(id: &CobId, object: &Object) -> Vec<Footprint> {
    let Some(known) = &object.kind else { return Vec::new() };
    if known.kind.backend == "file-tree" {
        return tree(&object.content);
    }
    let root = root(object);
    let below = |(path, access): (String, Access)| Footprint { path: format!("{root}{path}"), access };
    files(id, &known.kind.backend, &object.content).into_iter().map(below).collect()
}

/// Paths of file trees are complete, including their root.
fn tree(content: &Json) -> Vec<Footprint> {
    let is_kept = |entry: &Json| {
        let merges = entry["manage"].as_str().or(content["manage"].as_str()) == Some("merge");
        merges && content["on_drift"].as_str().is_some_and(|on_drift| on_drift != "heal")
    };
    let files = content["files"].as_object().into_iter().flatten();
    let written = files.filter_map(|(path, entry)| {
        let access = match (&entry["whole"], &entry["folder"]) {
            (Json::Bool(true), _) => Access::Whole,
            // Owner and mode of a folder do not concern its files.
            (_, Json::Bool(true)) => return None,
            _ if is_kept(entry) => Access::Merged,
            _ => Access::Alone,
        };
        Some(Footprint { path: path.clone(), access })
    });
    written.collect()
}

fn files(id: &CobId, backend: &str, content: &Json) -> Vec<(String, Access)> {
    let word = |key: &str| content[key].as_str();
    let persists = content["persist"] != Json::Bool(false);
    let alone = |path: String| (path, Access::Alone);
    match backend {
        "service" => {
            let Some(unit) = word("unit").map(unit) else { return Vec::new() };
            let is_written = !content["unit_file"].is_null() || content["mask"] == Json::Bool(true);
            let file = is_written.then(|| format!("{UNITS}/{unit}"));
            let drop_ins = content["drop_ins"].as_object().into_iter().flatten();
            let drop_ins = drop_ins.map(|(name, _)| format!("{UNITS}/{unit}.d/{name}"));
            file.into_iter().chain(drop_ins).map(alone).collect()
        }
        "cron" => {
            let name = word("name").map_or_else(|| table_of(id), str::to_owned);
            vec![alone(format!("/etc/cron.d/{name}"))]
        }
        "sysctl" if persists => {
            let key = word("key").map(|key| key.replace('/', "-"));
            key.map(|key| alone(format!("/etc/sysctl.d/60-cob-{key}.conf"))).into_iter().collect()
        }
        "kernel-module" if persists => {
            let Some(name) = word("name").map(|name| name.replace('-', "_")) else { return Vec::new() };
            let folders = ["modules-load.d", "modprobe.d"];
            folders.map(|folder| alone(format!("/etc/{folder}/cob-{name}.conf"))).to_vec()
        }
        "host-entry" => vec![("/etc/hosts".to_owned(), Access::Shared)],
        "mount" => {
            // A unit file of this name would take precedence over the line.
            let unit = word("path").map(|path| alone(format!("{UNITS}/{}.mount", escaped(path))));
            std::iter::once(("/etc/fstab".to_owned(), Access::Shared)).chain(unit).collect()
        }
        "user" | "group" => ACCOUNTS.map(|path| (path.to_owned(), Access::Shared)).to_vec(),
        _ => Vec::new(),
    }
}

/// The name of a systemd unit for a path: systemd.unit(5), "String Escaping for Inclusion in Unit Names".
fn escaped(path: &str) -> String {
    let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut name = String::new();
    for (at, byte) in path.join("/").bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if at == 0 => name.push_str("\\x2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => name.push(char::from(byte)),
            byte => name.push_str(&format!("\\x{byte:02x}")),
        }
    }
    if name.is_empty() { "-".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_says_what_it_writes() {
        let id = CobId::new("n1/a/b").expect("an id");
        let paths = |backend: &str, content: Json| -> Vec<String> {
            files(&id, backend, &content).into_iter().map(|(path, _)| path).collect()
        };
        let unit = json!({"unit": "web", "unit_file": "x", "drop_ins": {"a.conf": "x"}});
        assert_eq!(
            paths("service", unit),
            ["/etc/systemd/system/web.service", "/etc/systemd/system/web.service.d/a.conf"]
        );
        assert_eq!(paths("service", json!({"unit": "a.socket", "mask": true})), ["/etc/systemd/system/a.socket"]);
        assert_eq!(paths("service", json!({"unit": "web"})), [""; 0]);
        assert_eq!(paths("service", json!({"start": "web"})), [""; 0]);
        assert_eq!(paths("cron", json!({})), ["/etc/cron.d/cob-n1-a-b"]);
        assert_eq!(paths("sysctl", json!({"key": "a.b/c"})), ["/etc/sysctl.d/60-cob-a.b-c.conf"]);
        assert_eq!(paths("sysctl", json!({"key": "a.b", "persist": false})), [""; 0]);
        assert_eq!(paths("kernel-module", json!({"name": "a-b"})).len(), 2);
        assert_eq!(paths("mount", json!({"path": "/x"})), ["/etc/fstab", "/etc/systemd/system/x.mount"]);
        assert_eq!(["/srv/a-b/", "/", "/.x/ä"].map(escaped), ["srv-a\\x2db", "-", "\\x2ex-\\xc3\\xa4"]);
        assert_eq!(paths("user", json!({"name": "x"})).len(), 4);
        assert_eq!(paths("package", json!({"name": "x"})), [""; 0]);
        let tree = tree(&json!({"on_drift": "adopt", "manage": "merge", "files": {
            "/a": {"whole": true, "folder": true}, "/b": {"folder": true}, "/c": {}, "/d": {"manage": "copy"}}}));
        let found: Vec<_> = tree.iter().map(|footprint| (footprint.path.as_str(), footprint.access)).collect();
        assert_eq!(found, [("/a", Access::Whole), ("/c", Access::Merged), ("/d", Access::Alone)]);
    }
}
