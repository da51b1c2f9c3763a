//! The attributes of a file or folder: owner, group, mode, extended attributes.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with::skip_serializing_none;

/// All attributes, as on a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits with set-user-ID, set-group-ID and sticky: 12 bits.
    pub mode: u32,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// Extended attributes by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub xattrs: BTreeMap<String, Bytes>,
}

/// Permission bits with which a program runs as another user.
const AS_ANOTHER: u32 = 0o6000;
/// Extended attributes that allow more than owner, group and mode.
pub(crate) const ACCESS: [&str; 3] = ["system.posix_acl_access", "system.posix_acl_default", "security.capability"];

/// The managed attributes. All others stay as they are.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Managed {
    /// Permission bits.
    pub mode: Option<u32>,
    /// The owner's number.
    pub uid: Option<u32>,
    /// The group's number.
    pub gid: Option<u32>,
    /// Extended attributes by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub xattrs: BTreeMap<String, Bytes>,
}

/// Bytes that are hex digits in JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        hex::decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// An owner or a group: a name or a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// A name, looked up on the host when needed.
    Name(String),
    /// A number.
    Number(u32),
}

impl Who {
    pub(crate) fn owner(&self) -> Result<u32, String> {
        self.number("/etc/passwd", "user")
    }

    pub(crate) fn group(&self) -> Result<u32, String> {
        self.number("/etc/group", "group")
    }

    fn number(&self, file: &str, what: &str) -> Result<u32, String> {
        let name = match self {
            Self::Number(number) => return Ok(*number),
            Self::Name(name) => name,
        };
        let text =
            fs::read_to_string(file).map_err(|e| format!("{file}, in which the {what} {name} is looked up: {e}"))?;
        let found = text.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then(|| fields.nth(1))?
        });
        found.and_then(|number| number.parse().ok()).ok_or_else(|| {
            format!("there is no {what} {name:?} in {file}; create it first (`requires:`), or write its number")
        })
    }
}

impl<'de> Deserialize<'de> for Who {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u32),
            Name(String),
        }
        Ok(match Form::deserialize(deserializer)? {
            Form::Number(number) => Self::Number(number),
            Form::Name(name) => name.parse().map_or(Self::Name(name), Self::Number),
        })
    }
}

/// The inputs of a merge of attributes.
pub(crate) struct Sides<'a> {
    /// The last applied attributes, if any.
    pub(crate) base: Option<&'a Managed>,
    /// The attributes on the disk, if the path exists.
    pub(crate) live: Option<&'a Attributes>,
    /// The wanted attributes.
    pub(crate) theirs: &'a Managed,
    /// Extended attributes to remove.
    pub(crate) gone: &'a [String],
    /// Users' changes are kept.
    pub(crate) keep_changes: bool,
    /// The path is a folder.
    pub(crate) folder: bool,
    /// The values for fields that neither the disk nor the model sets.
    pub(crate) default: Attributes,
}

impl Sides<'_> {
    /// The merged attributes, and the fields that both sides changed differently.
    pub(crate) fn merge(&self) -> (Attributes, Vec<String>) {
        let mut conflicts = Vec::new();
        let live = self.live.unwrap_or(&self.default);
        let there = self.live.is_some();
        let mut field = |name: &str, base: Option<u32>, live: u32, theirs: Option<u32>, show: fn(u32) -> String| {
            let Some(wanted) = theirs else { return live };
            if !there || !self.keep_changes || live == wanted || base.is_none_or(|b| b == live) {
                return wanted;
            }
            if base != theirs {
                conflicts.push(format!("{name}: {} here, {} wanted", show(live), show(wanted)));
            }
            live
        };
        let none = Managed::default();
        let managed = self.base.unwrap_or(&none);
        let mode = field("mode", managed.mode, live.mode, self.theirs.mode, |m| format!("{m:04o}"));
        let uid = field("owner", managed.uid, live.uid, self.theirs.uid, |n| n.to_string());
        let gid = field("group", managed.gid, live.gid, self.theirs.gid, |n| n.to_string());
        let mut xattrs = live.xattrs.clone();
        for (name, wanted) in &self.theirs.xattrs {
            let (base, here) = (managed.xattrs.get(name), live.xattrs.get(name));
            let changed = there && self.keep_changes && here != Some(wanted) && base.is_some_and(|b| here != Some(b));
            if !changed {
                xattrs.insert(name.clone(), wanted.clone());
            } else if base != Some(wanted) {
                conflicts.push(format!("the attribute {name} was changed both here and in the model"));
            }
        }
        xattrs.retain(|name, _| !self.gone.contains(name));
        let mut merged = Attributes { mode, uid, gid, xattrs };
        // Users' changes of applied attributes are kept while owner and group stay the same.
        let kept = |live: &Attributes| live.uid == uid && live.gid == gid && self.keep_changes && self.base.is_some();
        if self.theirs.states_access() && !self.live.is_some_and(kept) {
            self.theirs.restrict(&mut merged, self.folder);
        }
        (merged, conflicts)
    }
}

impl Attributes {
    /// The attributes for a new content: set-user-ID, set-group-ID and capabilities only if the model states them, so
    /// that no foreign program runs as the owner. A write clears them, too.
    pub(crate) fn of_new_content(mut self, said: &Managed) -> Self {
        if said.mode.is_none() {
            self.mode &= !AS_ANOTHER;
        }
        self.xattrs.retain(|name, _| name != "security.capability" || said.xattrs.contains_key(name));
        self
    }
}

impl Managed {
    /// Manages all attributes, with these values.
    #[must_use]
    pub fn all(attributes: &Attributes) -> Self {
        Self {
            mode: Some(attributes.mode),
            uid: Some(attributes.uid),
            gid: Some(attributes.gid),
            xattrs: attributes.xattrs.clone(),
        }
    }

    /// Whether they state who may access the file.
    pub(crate) fn states_access(&self) -> bool {
        self.mode.is_some() || self.uid.is_some() || self.gid.is_some()
    }

    /// Removes rights beyond these attributes: a planted file must not gain rights through its new owner.
    fn restrict(&self, attributes: &mut Attributes, folder: bool) {
        attributes.xattrs.retain(|name, _| !ACCESS.contains(&name.as_str()) || self.xattrs.contains_key(name));
        // For a folder, these bits set the group of new files in it, and give no rights.
        if self.mode.is_none() && !folder {
            attributes.mode &= !AS_ANOTHER;
        }
    }

    /// The earlier values of the fields that `of` manages, to roll back its changes.
    pub(crate) fn taken_back(of: &Self, before: &Attributes) -> Self {
        // Extra rights were removed on apply, and capabilities are lost with a new content.
        let is_taken = |name: &str| of.states_access() && ACCESS.contains(&name) || name == "security.capability";
        let taken = before.xattrs.keys().filter(|name| is_taken(name));
        let names = of.xattrs.keys().chain(taken);
        Self {
            mode: of.mode.and(Some(before.mode)),
            uid: of.uid.and(Some(before.uid)),
            gid: of.gid.and(Some(before.gid)),
            xattrs: names.filter_map(|n| Some((n.clone(), before.xattrs.get(n)?.clone()))).collect(),
        }
    }

    /// For fields that only `ours` sets: adds the earlier value if the disk still has that of `ours`. Returns the
    /// extended attributes to remove, which did not exist before.
    pub(crate) fn set_back_dropped(
        &mut self,
        ours: &Self,
        live: &Attributes,
        before: Option<&Attributes>,
    ) -> Vec<String> {
        let back = |to: Option<u32>, ours: Option<u32>, live: u32, before: Option<u32>| {
            to.or_else(|| before.filter(|_| ours == Some(live)))
        };
        self.mode = back(self.mode, ours.mode, live.mode, before.map(|b| b.mode));
        self.uid = back(self.uid, ours.uid, live.uid, before.map(|b| b.uid));
        self.gid = back(self.gid, ours.gid, live.gid, before.map(|b| b.gid));
        let mut gone = Vec::new();
        for (name, value) in &ours.xattrs {
            if self.xattrs.contains_key(name) || live.xattrs.get(name) != Some(value) {
                continue;
            }
            match before.and_then(|before| before.xattrs.get(name)) {
                Some(before) => drop(self.xattrs.insert(name.clone(), before.clone())),
                None => gone.push(name.clone()),
            }
        }
        gone
    }

    /// The differences from live attributes, in words; empty if there are none.
    pub(crate) fn differences(&self, live: &Attributes, folder: bool) -> Vec<String> {
        let mut all = Vec::new();
        if self.states_access() {
            let mut restricted = live.clone();
            self.restrict(&mut restricted, folder);
            let gone = live.xattrs.keys().filter(|name| !restricted.xattrs.contains_key(*name));
            all.extend(gone.map(|name| {
                format!(
                    "attribute {name}, which gives access that the model does not \
                grant"
                )
            }));
            if restricted.mode != live.mode {
                all.push(format!("mode {:04o}, wanted {:04o}", live.mode, restricted.mode));
            }
        }
        if let Some(mode) = self.mode.filter(|m| *m != live.mode) {
            all.push(format!("mode {:04o}, wanted {mode:04o}", live.mode));
        }
        if let Some(uid) = self.uid.filter(|n| *n != live.uid) {
            all.push(format!("owner {}, wanted {uid}", live.uid));
        }
        if let Some(gid) = self.gid.filter(|n| *n != live.gid) {
            all.push(format!("group {}, wanted {gid}", live.gid));
        }
        let other = self.xattrs.iter().filter(|(name, value)| live.xattrs.get(*name) != Some(value));
        all.extend(other.map(|(name, _)| format!("attribute {name}")));
        all
    }
}
