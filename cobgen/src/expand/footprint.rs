//! The files of a host that a change object writes, and the object that it sets, for all kinds.

use cob_kinds::{Access, Footprint, OwnedFile};
use cob_types::CobId;
use serde_json::Value as Json;

use super::objects::Object;
use super::owners::root;

/// The files, with their complete paths, and the object of the host.
pub(super) fn footprint(id: &CobId, object: &Object) -> Footprint {
    let Some(known) = &object.kind else { return Footprint::default() };
    match known.kind.backend.as_str() {
        // Paths of file trees are complete, including their root.
        "file-tree" => Footprint { files: tree(&object.content), ..Footprint::default() },
        backend => {
            let mut footprint =
                cob_kinds::find(backend).map(|entry| entry.footprint(&object.content, id)).unwrap_or_default();
            let root = root(object);
            footprint.files.iter_mut().for_each(|file| file.path.insert_str(0, root));
            footprint
        }
    }
}

fn tree(content: &Json) -> Vec<OwnedFile> {
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
        Some(OwnedFile { path: path.clone(), access })
    });
    written.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_footprint_of_a_kind_lists_the_files_it_writes() {
        let id = CobId::new("n1/a/b").expect("an id");
        let paths = |backend: &str, content: Json| {
            let footprint = cob_kinds::find(backend).expect("a kind").footprint(&content, &id);
            footprint.files.into_iter().map(|file| file.path).collect::<Vec<_>>()
        };
        let unit = json!({"unit": "web", "unit_file": "x", "drop_ins": {"a.conf": "x"}});
        assert_eq!(
            paths("service", unit),
            ["/etc/systemd/system/web.service", "/etc/systemd/system/web.service.d/a.conf"]
        );
        assert_eq!(paths("service", json!({"unit": "a.socket", "mask": true})), ["/etc/systemd/system/a.socket"]);
        assert_eq!(paths("service", json!({"unit": "web"})), [""; 0]);
        assert_eq!(paths("service", json!({"start": "web"})), [""; 0]);
        assert_eq!(paths("cron", json!({"schedule": "@daily", "command": "x"})), ["/etc/cron.d/cob-n1-a-b"]);
        assert_eq!(paths("sysctl", json!({"key": "a.b/c", "value": 1})), ["/etc/sysctl.d/60-cob-a.b-c.conf"]);
        assert_eq!(paths("sysctl", json!({"key": "a.b", "value": 1, "persist": false})), [""; 0]);
        assert_eq!(paths("kernel-module", json!({"name": "a-b"})).len(), 2);
        let mount = json!({"path": "/x", "source": "y", "type": "auto"});
        assert_eq!(paths("mount", mount), ["/etc/fstab", "/etc/systemd/system/x.mount"]);
        assert_eq!(paths("user", json!({"name": "x"})).len(), 4);
        assert_eq!(paths("package", json!({"name": "x"})), [""; 0]);
        let tree = tree(&json!({"on_drift": "adopt", "manage": "merge", "files": {
            "/a": {"whole": true, "folder": true}, "/b": {"folder": true}, "/c": {}, "/d": {"manage": "copy"}}}));
        let found: Vec<_> = tree.iter().map(|footprint| (footprint.path.as_str(), footprint.access)).collect();
        assert_eq!(found, [("/a", Access::Whole), ("/c", Access::Merged), ("/d", Access::Alone)]);
    }
}
