//! The kind back end `timezone`: the link `/etc/localtime`, and the name in `/etc/timezone` where that file exists.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use cob_kinds::Timezone;
use serde_json::{Value, json};

use super::{Entry, Spec};

const LINK: &str = Timezone::LINK;
const FILE: &str = Timezone::FILE;
/// The first bytes of a file of a zone.
const MAGIC: &[u8] = b"TZif";

impl Entry<Timezone> {
    /// The target of the link.
    fn zone_file(&self) -> String {
        format!("{}/{}", Timezone::ZONES, self.content.zone)
    }

    fn link(&self) -> Result<Option<Value>, String> {
        let Some(meta) = self.host.inspect(LINK)? else { return Ok(None) };
        let path = self.host.path(LINK);
        if meta.is_symlink() {
            let target = fs::read_link(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let target = target.into_os_string().into_string();
            let target = target.map_err(|_| format!("{}: the target of the link is not UTF-8", path.display()))?;
            return Ok(Some(json!({ "link": target })));
        }
        if !meta.is_file() {
            return Err(format!("{}: it is neither a link nor a file", path.display()));
        }
        // A copy of the file of a zone.
        Ok(self.host.read_if_there(LINK)?.map(|text| json!({ "file": text })))
    }
}

/// The zone to which a target leads, from the folder `/etc`.
fn zone_of(target: &str) -> Option<&str> {
    let below = target.strip_prefix("..").unwrap_or(target);
    below.strip_prefix(Timezone::ZONES)?.strip_prefix('/')
}

/// Whether a file is the file of a zone.
fn is_zone(path: &Path) -> bool {
    let mut begin = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut begin));
    read.is_ok() && begin == MAGIC
}

impl Spec for Entry<Timezone> {
    fn target(&self) -> String {
        LINK.to_owned()
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        Ok(Some(json!({ LINK: self.link()?, FILE: self.host.read_if_there(FILE)? })))
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        let (mut found, wanted) = (self.look(None)?, self.wanted());
        if let Some(found) = &mut found {
            if found[LINK]["link"].as_str().and_then(zone_of) == Some(&self.content.zone) {
                found[LINK] = wanted[LINK].clone();
            }
            if found[FILE].as_str().is_some_and(|text| text.trim() == self.content.zone) {
                found[FILE] = wanted[FILE].clone();
            }
        }
        Ok(found)
    }

    fn wanted(&self) -> Value {
        let has_file = self.host.inspect(FILE).is_ok_and(|meta| meta.is_some());
        json!({ LINK: { "link": self.zone_file() }, FILE: has_file.then(|| format!("{}\n", self.content.zone)) })
    }

    fn of_use(&self) -> Result<(), String> {
        let target = self.zone_file();
        if is_zone(&self.host.path(&target)) {
            return Ok(());
        }
        Err(format!(
            "the host has no time zone {}: {target} is not the file of a zone; correct the name, or install the package \
             tzdata (for old names on Debian: tzdata-legacy)",
            self.content.zone
        ))
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        self.host.link(LINK, &self.zone_file())?;
        match self.host.inspect(FILE)? {
            Some(_) => self.host.write(FILE, &format!("{}\n", self.content.zone), 0o644),
            None => Ok(()),
        }
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        match (before[LINK]["link"].as_str(), before[LINK]["file"].as_str()) {
            (Some(target), _) => self.host.link(LINK, target)?,
            (None, Some(text)) => self.host.replace(LINK, text, 0o644)?,
            (None, None) => self.host.remove(LINK)?,
        }
        match (before[FILE].as_str(), self.host.inspect(FILE)?) {
            (Some(text), _) => self.host.write(FILE, text, 0o644),
            // A package has brought the file meanwhile.
            (None, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::tests::{content, host, moved, read, setting, spec_in};
    use super::*;
    use crate::kinds::contract::Case;
    use crate::kinds::contract::tests::holds;
    use crate::kinds::settings::Plain;
    use crate::kinds::testing::{Bench, reason};

    /// A host with three zones, and these files.
    fn with_zones(files: &[(&str, &str)]) -> tempfile::TempDir {
        let zones = ["Europe/Berlin", "Etc/UTC", "UTC"].map(|zone| format!("usr/share/zoneinfo/{zone}"));
        let mut all: Vec<(&str, &str)> = zones.iter().map(|zone| (zone.as_str(), "TZif2")).collect();
        all.extend([("usr/share/zoneinfo/zone.tab", "# a table\n"), ("etc/others", "x")]);
        all.extend(files);
        host(&all)
    }

    #[test]
    fn links_copies_and_names_come_back_byte_for_byte() {
        let link = |target: &'static str| move |path: &Path| symlink(target, path).expect("linked");
        let relative = link("../usr/share/zoneinfo/Etc/UTC");
        let dangling = link("/usr/share/zoneinfo/Gone");
        let copy = |path: &Path| fs::write(path, b"TZif\xFF\x00\xC3(").expect("written");
        let nothing = |_: &Path| {};
        let ways: [&dyn Fn(&Path); 4] = [&relative, &dangling, &copy, &nothing];
        for (way, name) in ways.into_iter().zip([Some("Etc/UTC"), Some("UTC\r\n"), None, Some("")]) {
            let host = with_zones(&[]);
            let [path, file] = ["etc/localtime", "etc/timezone"].map(|file| host.path().join(file));
            way(&path);
            if let Some(name) = name {
                fs::write(&file, name).expect("written");
            }
            let is = || (fs::read_link(&path).ok(), fs::read(&path).ok(), fs::read_to_string(&file).ok());
            let was = is();
            let spec = spec_in(&Plain::<Timezone>::KIND, &content(host.path(), r#""zone":"Europe/Berlin""#), "");
            let spec = spec.expect("good");
            let before = spec.before().expect("seen");
            for _ in 0..2 {
                spec.apply(before.as_ref()).expect("applied");
                assert_eq!(spec.look(None).expect("seen"), Some(spec.wanted()));
            }
            assert_eq!(fs::read_link(&path).expect("a link"), Path::new("/usr/share/zoneinfo/Europe/Berlin"));
            assert_eq!(fs::read_to_string(&file).ok(), name.map(|_| "Europe/Berlin\n".to_owned()));
            for _ in 0..2 {
                spec.restore(before.as_ref()).expect("restored");
            }
            assert_eq!(is(), was);
        }
    }

    #[tokio::test]
    async fn a_zone_that_the_host_lacks_is_refused() {
        let host = with_zones(&[("etc/timezone", "Etc/UTC\n")]);
        let mut bench = Bench::new();
        for zone in ["Europe/Berln", "Europe", "zone_tab"] {
            let keys = format!(r#""zone":"{zone}""#);
            let context = bench.context(&setting("timezone"), &content(host.path(), &keys));
            let why = reason(bench.transition(&context, "absent", "present").await);
            assert!(why.contains(&format!("no time zone {zone}")) && why.contains("package tzdata"), "{why}");
        }
        assert_eq!(read(host.path().join("etc/timezone")), "Etc/UTC\n");
        // The zone goes afterwards: the check says why the link has no effect.
        let context = bench.context(&setting("timezone"), &content(host.path(), r#""zone":"Europe/Berlin""#));
        moved(&mut bench, &context, "absent", "present").await;
        fs::remove_file(host.path().join("usr/share/zoneinfo/Europe/Berlin")).expect("removed");
        let found = bench.check(&context).await;
        assert!(found.difference.contains("no time zone Europe/Berlin"), "{}", found.difference);
        fs::remove_file(host.path().join("etc/localtime")).expect("removed");
        fs::create_dir(host.path().join("etc/localtime")).expect("made");
        let why = reason(bench.transition(&context, "outdated", "absent").await);
        assert!(why.contains("etc/localtime"), "{why}");
    }

    #[tokio::test]
    async fn a_zone_of_others_is_observed_by_its_effect() {
        let host = with_zones(&[("etc/timezone", "Europe/Berlin")]);
        let path = host.path().join("etc/localtime");
        symlink("../usr/share/zoneinfo/Europe/Berlin", &path).expect("linked");
        let mut bench = Bench::new();
        let mut context = bench.context(&setting("timezone"), &content(host.path(), r#""zone":"Europe/Berlin""#));
        std::sync::Arc::make_mut(&mut context.cob).observe = true;
        assert_eq!(bench.state(&context).await, "present");
        fs::write(host.path().join("etc/timezone"), "Etc/UTC\n").expect("written");
        assert_eq!(bench.state(&context).await, "absent");
    }

    #[tokio::test]
    async fn the_timezone_keeps_the_contract() {
        for files in [&[("etc/timezone", "Etc/UTC")][..], &[("etc/localtime", "TZif2")]] {
            let host = with_zones(files);
            let [own, other] =
                ["Europe/Berlin", "UTC"].map(|zone| content(host.path(), &format!(r#""zone":"{zone}""#)));
            holds(&Case::new(setting("timezone"), &own).other(&other).watching(host.path()).kills(6), &[]).await;
        }
    }
}
