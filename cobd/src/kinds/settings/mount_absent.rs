//! The absent form of `mount`: nothing is mounted at a path, and `/etc/fstab` has no line about it.
//!
//! The lines and the mounts are noted before any change, and return at the departure: first the lines, so that a mount can
//! take its options from there. A mount that could not be made again is refused: a `tmpfs` with files, and a part of a file
//! system that is visible nowhere else.

use std::fs;

use cob_kinds::unit_name;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Spec;
use super::boot_table::FSTAB;
use super::cut::{Cut, Rest, bare};
use super::mount::Place;
use super::mounted::{self, FLAGS, Layer};
use super::remount::{self, Root};

/// File systems that lose their files when they are unmounted.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// A path at which nothing must be mounted.
#[derive(Debug)]
pub(super) struct NoMount {
    pub(super) place: Place,
}

/// The lines and mounts before any change.
#[derive(Debug, Serialize, Deserialize)]
struct Before {
    fstab: Cut,
    mounted: Vec<Layer>,
    /// Owner and mode of the topmost mount's root folder.
    root: Option<Root>,
}

impl NoMount {
    fn layers(&self) -> Result<Vec<Layer>, String> {
        if self.place.is_live() { mounted::layers(&self.place.host, &self.place.path) } else { Ok(Vec::new()) }
    }

    fn rest(&self, line: &str) -> Rest {
        if self.place.is_about(line) { Rest::Nothing } else { Rest::Whole }
    }

    /// Whether the topmost mount can be unmounted and mounted again.
    fn may_go(&self, layer: &Layer) -> Result<(), String> {
        let path = &self.place.path;
        if layer.other.is_some() || layer.kind == "autofs" {
            return Ok(());
        }
        if layer.is_part {
            return Err(format!(
                "{path} shows a part of {}, which is mounted nowhere else and could not be mounted again: unmount it \
                 yourself",
                layer.source
            ));
        }
        let has_files = || fs::read_dir(self.place.host.path(path)).is_ok_and(|mut entries| entries.next().is_some());
        if IN_MEMORY.contains(&layer.kind.as_str()) && has_files() {
            return Err(format!("the {} on {path} has files, which would be lost: remove them first", layer.kind));
        }
        Ok(())
    }

    /// The unit with which systemd mounts the path at the first access.
    fn automount(&self) -> String {
        format!("{}.automount", unit_name(&self.place.path))
    }

    fn unmount(&self, layer: &Layer) -> Result<(), String> {
        if layer.kind == "autofs" && self.place.has_systemd() {
            return self.place.run("systemctl", &["stop", &self.automount()]);
        }
        self.place.unmount()
    }

    /// Mounts it again. `in_table`: the table has a line about the path.
    fn mount(&self, layer: &Layer, at: usize, in_table: bool) -> Result<(), String> {
        let (path, place) = (self.place.path.as_str(), &self.place);
        if layer.kind == "autofs" && place.has_systemd() {
            return place.run("systemctl", &["start", &self.automount()]);
        }
        let is_it = |found: &Layer| (&found.source, &found.kind) == (&layer.source, &layer.kind);
        // The table has options that the kernel does not list, such as credentials.
        let has_hidden = in_table && at == 0 && layer.other.is_none() && !IN_MEMORY.contains(&layer.kind.as_str());
        if has_hidden && place.run("mount", &["--", path]).is_ok() {
            match self.layers()?.as_slice() {
                [found] if is_it(found) => return self.set_flags(layer),
                [_] => place.unmount()?,
                _ => {}
            }
        }
        let options = layer.options.join(",");
        match (&layer.other, &layer.file) {
            (Some(other), _) => {
                place.run("mount", &["--bind", "--", other, path])?;
                self.set_flags(layer)
            }
            (None, Some(file)) => {
                place.run("mount", &["-t", &layer.kind, "-o", &format!("loop,{options}"), "--", file, path])
            }
            (None, None) => place.run("mount", &["-t", &layer.kind, "-o", &options, "--", &layer.source, path]),
        }
    }

    /// Restores the flags of this mount.
    fn set_flags(&self, layer: &Layer) -> Result<(), String> {
        let has = |flag: &str| layer.options.iter().any(|option| option == flag);
        let is = self.layers()?.pop().map(|is| is.options).unwrap_or_default();
        if FLAGS.iter().all(|(flag, _)| is.iter().any(|option| option == flag) == has(flag)) {
            return Ok(());
        }
        let flags = FLAGS.iter().map(|(flag, opposite)| if has(flag) { *flag } else { *opposite });
        let options = ["remount", "bind"].into_iter().chain(flags).collect::<Vec<_>>().join(",");
        self.place.run("mount", &["-o", &options, "--", &self.place.path])
    }
}

impl Spec for NoMount {
    fn target(&self) -> String {
        format!("no mount on {}", self.place.path)
    }

    fn shared(&self) -> Option<&str> {
        Some(FSTAB.path)
    }

    fn edit_turn(&self) -> Option<&'static str> {
        Some(FSTAB.turn)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = json!({ "fstab": self.place.lines()? });
        if self.place.is_live() {
            let layers = self.layers()?;
            let named = layers.iter().map(|layer| format!("{} ({})", layer.source, layer.kind));
            found["mounted"] = json!(named.collect::<Vec<_>>());
        }
        if FSTAB.is_unread(&self.place.own) {
            found["systemd"] = json!(format!("has not read {} again", FSTAB.path));
        }
        Ok(Some(found))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let fstab = Cut::of(&self.place.host.read(FSTAB.path)?, &|line| self.rest(line));
        let mounted = self.layers()?;
        let has_root = mounted.last().is_some_and(|layer| layer.kind == "tmpfs");
        let root = has_root.then(|| remount::root(&self.place.host.path(&self.place.path))).transpose()?;
        Ok(Some(json!(Before { fstab, mounted, root })))
    }

    fn wanted(&self) -> Value {
        if self.place.is_live() { json!({ "fstab": [], "mounted": [] }) } else { json!({ "fstab": [] }) }
    }

    fn hindered(&self) -> Result<(), String> {
        self.layers()?.last().map_or(Ok(()), |layer| self.may_go(layer))
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        while let Some(layer) = self.layers()?.pop() {
            self.may_go(&layer)?;
            self.unmount(&layer)?;
        }
        self.place.edit_table(true, &|text| Cut::out_of(text, &|line| self.rest(line)))
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before.and_then(|before| serde_json::from_value::<Before>(before.clone()).ok()) else {
            return Ok(());
        };
        let is_there = |line: &str, gone: &str| bare(line) == bare(gone);
        self.place.edit_table(true, &|text| before.fstab.put_back(text, &is_there, &|_, _| None))?;
        let path = &self.place.path;
        // What others mounted there meanwhile stays.
        for (at, layer) in before.mounted.iter().enumerate().skip(self.layers()?.len()) {
            let done = self.mount(layer, at, !before.fstab.gone.is_empty());
            done.map_err(|why| format!("{} can't be mounted on {path} again: {why}", layer.source))?;
        }
        let top = self.layers()?.pop().filter(|layer| layer.kind == "tmpfs");
        match (top, &before.root) {
            (Some(top), Some(root)) if before.mounted.last().is_some_and(|was| was.source == top.source) => {
                remount::set_root(&self.place.host.path(path), root)
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}
