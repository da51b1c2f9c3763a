//! The kind back end `attributes`: mode, owner and group of a file or folder that others make.
//!
//! The note has for each attribute its earlier value, and the values that the change object has set: a value that a user
//! has changed since stays.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};

use cob_kinds::Attributes;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Entry, Setting, Spec, accounts, place};
use crate::kinds::native::{Host, own_link};

/// The back end `attributes`.
#[derive(Debug)]
pub(super) struct AttributesSetting;

/// The desired attributes.
#[derive(Debug)]
struct Wanted {
    host: Host,
    path: String,
    mode: Option<u32>,
    owner: Option<Result<u32, String>>,
    group: Option<Result<u32, String>>,
}

/// The note, by attribute.
type Noted = BTreeMap<String, NotedValue>;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct NotedValue {
    earlier: u32,
    ours: Vec<u32>,
    /// The content names it no more.
    #[serde(default)]
    dropped: bool,
}

impl Setting for AttributesSetting {
    type Content = Attributes;

    fn is_short(&self) -> bool {
        true
    }

    fn spec(&self, Entry { content, host, .. }: Entry<Attributes>) -> Result<Box<dyn Spec>, String> {
        let mode = content.mode();
        if content.mode.is_some() && mode.is_none() {
            return Err("content: `mode` is not a file mode".to_owned());
        }
        let owner = content.owner.as_ref().map(|name| accounts::uid(&host, name));
        let group = content.group.as_ref().map(|name| accounts::gid(&host, name));
        Ok(Box::new(Wanted { host, path: content.path, mode, owner, group }))
    }
}

impl Wanted {
    /// Opens the file or folder itself, without reading it.
    fn open(&self) -> Result<Option<(File, fs::Metadata)>, String> {
        let path = place::real(&self.host, &self.path)?;
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let flags = i32::try_from((OFlags::PATH | OFlags::NOFOLLOW).bits()).expect("flags are few bits");
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            file => file.map_err(failed)?,
        };
        let meta = file.metadata().map_err(failed)?;
        if meta.is_symlink() {
            return Err(format!("{} is a link: name the path that it leads to", path.display()));
        }
        Ok(Some((file, meta)))
    }

    /// The desired values by attribute.
    fn values(&self) -> Result<BTreeMap<&'static str, u32>, String> {
        let mut values: BTreeMap<_, _> = self.mode.map(|mode| ("mode", mode)).into_iter().collect();
        for (name, id) in [("owner", &self.owner), ("group", &self.group)] {
            if let Some(id) = id {
                values.insert(name, id.clone()?);
            }
        }
        Ok(values)
    }

    fn is_managed(&self, name: &str) -> bool {
        match name {
            "mode" => self.mode.is_some(),
            "owner" => self.owner.is_some(),
            _ => self.group.is_some(),
        }
    }

    /// Sets the attributes in `values`. A new owner takes the special bits of the mode away, so they are set again.
    fn set(&self, file: &File, meta: &fs::Metadata, values: &BTreeMap<String, u32>) -> Result<(), String> {
        let path = own_link(file);
        let mode = values.get("mode").copied().unwrap_or_else(|| value("mode", meta));
        let differs = |name: &str| values.get(name).copied().filter(|wanted| *wanted != value(name, meta));
        let (owner, group) = (differs("owner"), differs("group"));
        let set = || -> io::Result<()> {
            if owner.is_some() || group.is_some() {
                chown(&path, owner, group)?;
            }
            if fs::metadata(&path)?.mode() & 0o7777 != mode {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            }
            Ok(())
        };
        set().map_err(|error| format!("{}: {error}", self.path))
    }
}

/// The present value of an attribute.
fn value(name: &str, meta: &fs::Metadata) -> u32 {
    match name {
        "mode" => meta.mode() & 0o7777,
        "owner" => meta.uid(),
        _ => meta.gid(),
    }
}

/// The value of an attribute for people.
fn shown(name: &str, value: u32) -> Value {
    if name == "mode" { json!(format!("{value:04o}")) } else { json!(value) }
}

fn noted(before: Option<&Value>) -> Noted {
    before.and_then(|before| Noted::deserialize(before).ok()).unwrap_or_default()
}

/// The attributes that have a value of the change object, with their earlier values.
fn left(noted: &Noted, meta: &fs::Metadata) -> BTreeMap<String, u32> {
    let is_left = |(name, one): &(&String, &NotedValue)| {
        let present = value(name, meta);
        present != one.earlier && one.ours.contains(&present)
    };
    noted.iter().filter(is_left).map(|(name, one)| (name.clone(), one.earlier)).collect()
}

impl Spec for Wanted {
    fn target(&self) -> String {
        self.path.clone()
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some((_, meta)) = self.open()? else { return Ok(None) };
        let mut found = Map::new();
        for name in ["mode", "owner", "group"].into_iter().filter(|name| self.is_managed(name)) {
            found.insert(name.to_owned(), shown(name, value(name, &meta)));
        }
        for (name, _) in left(&noted(before), &meta).into_iter().filter(|(name, _)| !self.is_managed(name)) {
            found.insert(name, json!("not managed any more, and not as it was before"));
        }
        Ok(Some(Value::Object(found)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let Some((_, meta)) = self.open()? else {
            return Err(format!("{} does not exist; let it come `after` the object that makes it", self.path));
        };
        let of = |(name, wanted): (&str, u32)| {
            let noted = NotedValue { earlier: value(name, &meta), ours: vec![wanted], dropped: false };
            (name.to_owned(), noted)
        };
        Ok(Some(json!(self.values()?.into_iter().map(of).collect::<Noted>())))
    }

    fn merged(&self, earlier: Option<Value>, found: Option<Value>) -> Result<Option<Value>, String> {
        let (earlier, mut found) = (noted(earlier.as_ref()), noted(found.as_ref()));
        let left = self.open()?.map(|(_, meta)| left(&earlier, &meta)).unwrap_or_default();
        let mut merged = Noted::new();
        for (name, mut one) in earlier {
            match found.remove(&name) {
                // It was given back, and is taken again.
                Some(new) if one.dropped && !left.contains_key(&name) => drop(merged.insert(name, new)),
                Some(new) => {
                    one.ours.extend(new.ours);
                    merged.insert(name, NotedValue { dropped: false, ..one });
                }
                None if left.contains_key(&name) => drop(merged.insert(name, NotedValue { dropped: true, ..one })),
                None => {}
            }
        }
        merged.extend(found);
        Ok(Some(json!(merged)))
    }

    fn wanted(&self) -> Value {
        let id = |id: &Option<Result<u32, String>>| {
            id.as_ref().map(|id| id.as_ref().map_or_else(|why| json!(why), |id| json!(id)))
        };
        let all = [
            ("mode", self.mode.map(|mode| shown("mode", mode))),
            ("owner", id(&self.owner)),
            ("group", id(&self.group)),
        ];
        Value::Object(all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    }

    fn of_use(&self) -> Result<(), String> {
        self.values().map(|_| ())
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let Some((file, meta)) = self.open()? else {
            return Err(format!("{} does not exist; let it come `after` the object that makes it", self.path));
        };
        let mut values = left(&noted(before), &meta);
        values.retain(|name, _| !self.is_managed(name));
        values.extend(self.values()?.into_iter().map(|(name, value)| (name.to_owned(), value)));
        self.set(&file, &meta, &values)
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        match self.open()? {
            Some((file, meta)) => self.set(&file, &meta, &left(&noted(before), &meta)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::{content, host, moved, setting};
    use super::*;
    use crate::kinds::contract::Case;
    use crate::kinds::contract::tests::holds;
    use crate::kinds::testing::{Bench, reason};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").mode() & 0o7777
    }

    fn give_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    }

    #[tokio::test]
    async fn attributes_keep_the_contract() {
        let host =
            host(&[("srv/x/file", "theirs"), ("etc/passwd", "app:x:0:0::/:/bin/sh\n"), ("etc/group", "app:x:0:\n")]);
        give_mode(&host.path().join("srv/x/file"), 0o604);
        let [own, other] = [r#""path":"/srv/x/file","mode":"0640","owner":"app""#, r#""path":"/srv/x","mode":"0700""#]
            .map(|keys| content(host.path(), keys));
        let case = Case::new(setting("attributes"), &own).other(&other).watching(host.path()).kills(4);
        holds(&case, &[]).await;
        assert_eq!(mode(&host.path().join("srv/x/file")), 0o604);
    }

    #[tokio::test]
    async fn earlier_attributes_return_unless_a_user_changed_them() {
        let host = host(&[("srv/x", "")]);
        let path = host.path().join("srv/x");
        give_mode(&path, 0o4755);
        let id = fs::metadata(&path).expect("there").uid();
        let mut bench = Bench::new();
        let keys = |bench: &Bench, keys: &str| {
            bench.context(&setting("attributes"), &content(host.path(), &format!(r#""path":"/srv/x",{keys}"#)))
        };
        let both = keys(&bench, &format!(r#""mode":"0600","owner":"{id}""#));
        moved(&mut bench, &both, "absent", "present").await;
        assert_eq!(mode(&path), 0o600);
        give_mode(&path, 0o640);
        let found = bench.check(&both).await;
        assert!(found.state.is_ok_and(|state| state == *"outdated"));
        assert_eq!(found.difference, r#"wanted {"mode":"0600"}, found {"mode":"0640"}"#);
        moved(&mut bench, &both, "outdated", "present").await;
        // The mode is not managed any more.
        let owner = keys(&bench, &format!(r#""owner":"{id}""#));
        let found = bench.check(&owner).await;
        assert!(found.difference.contains("not managed any more"), "{}", found.difference);
        moved(&mut bench, &owner, "outdated", "present").await;
        assert_eq!(mode(&path), 0o4755);
        give_mode(&path, 0o700);
        moved(&mut bench, &both, "outdated", "present").await;
        moved(&mut bench, &both, "present", "absent").await;
        assert_eq!(mode(&path), 0o700);
        moved(&mut bench, &both, "absent", "present").await;
        give_mode(&path, 0o711);
        moved(&mut bench, &both, "outdated", "absent").await;
        assert_eq!(mode(&path), 0o711, "a user's mode stays");
    }

    /// Only root can change the owner.
    #[tokio::test]
    async fn a_new_owner_keeps_the_special_bits() {
        let host = host(&[("srv/x", "")]);
        let path = host.path().join("srv/x");
        if chown(&path, Some(1), Some(1)).is_err() {
            return eprintln!("skipped: the test does not run as root");
        }
        give_mode(&path, 0o4755);
        let mut bench = Bench::new();
        let context =
            bench.context(&setting("attributes"), &content(host.path(), r#""path":"/srv/x","owner":"2","group":"3""#));
        let is = || fs::metadata(&path).map(|is| (is.uid(), is.gid(), is.mode() & 0o7777)).expect("there");
        moved(&mut bench, &context, "absent", "present").await;
        assert_eq!(is(), (2, 3, 0o4755));
        moved(&mut bench, &context, "present", "absent").await;
        assert_eq!(is(), (1, 1, 0o4755));
    }

    #[tokio::test]
    async fn paths_that_have_no_attributes_of_their_own_are_refused() {
        let host = host(&[("srv/x", "")]);
        std::os::unix::fs::symlink("x", host.path().join("srv/link")).expect("linked");
        std::os::unix::fs::symlink("/usr", host.path().join("out")).expect("linked");
        for (path, words) in [
            ("/srv/link", "is a link: name the path"),
            ("/srv/missing", "does not exist; let it come `after`"),
            ("/srv/x/below", "does not exist"),
            ("/out/bin", "out of"),
        ] {
            let mut bench = Bench::new();
            let keys = format!(r#""path":"{path}","mode":"0600""#);
            let context = bench.context(&setting("attributes"), &content(host.path(), &keys));
            let why = reason(bench.transition(&context, "absent", "present").await);
            assert!(why.contains(words), "{path}: {why}");
        }
        let mut bench = Bench::new();
        let keys = r#""path":"/srv/x","owner":"nobody-of-this-name""#;
        let context = bench.context(&setting("attributes"), &content(host.path(), keys));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains("there is no user nobody-of-this-name"), "{why}");
    }
}
