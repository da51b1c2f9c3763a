//! The kinds `user` and `group`: accounts of a host.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::footprint::Subject;
use super::{Builtin, Content, Faults, Footprint, Place};

/// The account databases.
const FILES: &[&str] = &["/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow"];

/// The content of `group`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its number; default: the next free number.
    pub gid: Option<u32>,
    /// Of the system's own range, when it is made.
    #[serde(default)]
    pub system: bool,
    /// The group must not exist. Its earlier lines return when the change object leaves.
    #[serde(default)]
    pub absent: bool,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

/// The content of `user`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its number; default: the next free number.
    pub uid: Option<u32>,
    /// Its first group; default: a group of its own.
    pub group: Option<String>,
    /// All its further groups.
    pub groups: Option<BTreeSet<String>>,
    /// Its home, absolute.
    pub home: Option<String>,
    /// Its shell, absolute.
    pub shell: Option<String>,
    /// Its full name.
    pub comment: Option<String>,
    /// Of the system's own range, when it is made.
    #[serde(default)]
    pub system: bool,
    /// Its home is made with it.
    #[serde(default)]
    pub create_home: bool,
    /// Its home goes with it.
    #[serde(default)]
    pub remove_home: bool,
    /// The account must not exist. Its earlier lines return when the change object leaves; its home stays.
    #[serde(default)]
    pub absent: bool,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl Content for Group {
    const KIND: Builtin = Builtin::setting("group");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        check_name("group", "name", &self.name, faults);
        if self.absent {
            check_absent(&self.name, &[("gid", self.gid.is_some()), ("system", self.system)], faults);
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let mut footprint = Footprint::of("group", &self.name).with_shared(FILES);
        footprint.parts.extend((!self.absent).then(|| own_group(&self.name)));
        footprint
    }
}

impl Content for User {
    const KIND: Builtin = Builtin::setting("user");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        faults.check_absolute("home", self.home.as_ref());
        faults.check_absolute("shell", self.shell.as_ref());
        for (key, text) in [("home", &self.home), ("shell", &self.shell), ("comment", &self.comment)] {
            if let Some(text) = text.as_ref().filter(|text| text.contains([':', '\n'])) {
                let what = format!("{text:?} has a colon or several lines");
                faults.add(key, what, "the line of an account is divided by colons");
            }
        }
        check_name("user", "name", &self.name, faults);
        if let Some(group) = &self.group {
            check_name("group", "group", group, faults);
        }
        for group in self.groups.iter().flatten() {
            check_name("group", ("groups", group), group, faults);
        }
        if self.absent {
            let keys = [
                ("uid", self.uid.is_some()),
                ("group", self.group.is_some()),
                ("groups", self.groups.is_some()),
                ("home", self.home.is_some()),
                ("shell", self.shell.is_some()),
                ("comment", self.comment.is_some()),
                ("system", self.system),
                ("create_home", self.create_home),
                ("remove_home", self.remove_home),
            ];
            check_absent(&self.name, &keys, faults);
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let mut footprint = Footprint::of("user", &self.name).with_shared(FILES);
        footprint.parts.extend(self.absent.then(|| own_group(&self.name)));
        footprint
    }
}

/// The group that goes with an absent user: another change object must not make it.
fn own_group(name: &str) -> Subject {
    Subject { sort: "group of the user", name: name.to_owned() }
}

/// Checks the content of an account that must not exist.
fn check_absent(name: &str, keys: &[(&'static str, bool)], faults: &mut Faults) {
    if name == "root" {
        faults.add("name", "without \"root\" the host does not work", "name another account");
    }
    for (key, _) in keys.iter().filter(|(_, is_given)| *is_given) {
        faults.add(*key, format!("with `absent` nothing is made, so `{key}` has no effect"), "remove the key");
    }
}

/// Checks a name by the default rules of `useradd`.
fn check_name(what: &str, place: impl Into<Place>, name: &str, faults: &mut Faults) {
    let first = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    if !first || name.len() > 32 || !name.trim_end_matches('$').chars().all(rest) {
        let what = format!("{name:?} is not the name of a {what}");
        faults.add(place, what, "small letters, digits, - and _, at most 32");
    }
}
