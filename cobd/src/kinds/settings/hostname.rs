//! The kind back end `hostname`: the name in `/etc/hostname`, and the name that the kernel has now.
//!
//! A root folder that becomes a host has only the file.

use std::fs;

use cob_kinds::Hostname;
use serde_json::{Value, json};

use super::{Entry, Setting, Spec};
use crate::kinds::native::Host;

const FILE: &str = Hostname::FILE;
/// The running name: a write has the effect of `sethostname(2)`.
const RUNNING: &str = "/proc/sys/kernel/hostname";

/// The back end `hostname`.
#[derive(Debug)]
pub(super) struct HostnameSetting;

#[derive(Debug)]
struct Name {
    host: Host,
    name: String,
    /// There is a running kernel.
    live: bool,
}

impl Setting for HostnameSetting {
    type Content = Hostname;

    fn spec(&self, Entry { content, host, .. }: Entry<Hostname>) -> Result<Box<dyn Spec>, String> {
        Ok(Box::new(Name { live: host.root().is_none(), host, name: content.name }))
    }
}

impl Name {
    fn running(&self) -> Result<String, String> {
        self.host.read(RUNNING).map(|name| name.trim_end_matches('\n').to_owned())
    }

    /// Sets the running name.
    fn set(&self, name: &str) -> Result<(), String> {
        if !self.live || self.running()? == name {
            return Ok(());
        }
        let set = fs::write(self.host.path(RUNNING), format!("{name}\n"));
        set.map_err(|error| format!("the running name can't be set to {name}: {error}"))
    }
}

/// The name in a text of the file: systemd skips comments and empty lines.
fn name_in(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))
}

impl Spec for Name {
    fn target(&self) -> String {
        FILE.to_owned()
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = json!({ "file": self.host.read_if_there(FILE)? });
        if self.live {
            found["running"] = json!(self.running()?);
        }
        Ok(Some(found))
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        let mut found = self.look(None)?;
        if let Some(found) = &mut found
            && found["file"].as_str().and_then(name_in) == Some(&self.name)
        {
            found["file"] = self.wanted()["file"].clone();
        }
        Ok(found)
    }

    fn wanted(&self) -> Value {
        let mut wanted = json!({ "file": format!("{}\n", self.name) });
        if self.live {
            wanted["running"] = json!(self.name);
        }
        wanted
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let text = format!("{}\n", self.name);
        if self.host.read_if_there(FILE)?.as_ref() != Some(&text) {
            self.host.write(FILE, &text, 0o644)?;
        }
        self.set(&self.name)
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        match before["file"].as_str() {
            Some(text) => self.host.write(FILE, text, 0o644)?,
            None => self.host.remove(FILE)?,
        }
        before["running"].as_str().map_or(Ok(()), |name| self.set(name))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::super::tests::{content, host, in_a_namespace, moved, own_fstab, read, run, setting};
    use super::*;
    use crate::kinds::contract::Case;
    use crate::kinds::contract::tests::holds;
    use crate::kinds::testing::Bench;

    /// The name of a host with a simulated kernel.
    fn live(root: &Path) -> Name {
        Name { host: Host::below(Some(root)).expect("absolute"), name: "web1".to_owned(), live: true }
    }

    #[test]
    fn file_and_running_name_are_set_and_come_back_byte_for_byte() {
        for theirs in [Some("old.example.org"), Some("# theirs\r\nold\r\n"), Some(""), None] {
            let host = host(&[("proc/sys/kernel/hostname", "old\n"), ("etc/others", "x")]);
            let file = host.path().join("etc/hostname");
            if let Some(text) = theirs {
                fs::write(&file, text).expect("written");
            }
            let name = live(host.path());
            let before = name.before().expect("seen");
            for _ in 0..2 {
                name.apply(before.as_ref()).expect("applied");
                assert_eq!(name.look(None).expect("seen"), Some(name.wanted()));
            }
            assert_eq!(read(host.path().join("proc/sys/kernel/hostname")), "web1\n");
            for _ in 0..2 {
                name.restore(before.as_ref()).expect("restored");
            }
            assert_eq!(fs::read_to_string(&file).ok().as_deref(), theirs);
            assert_eq!(read(host.path().join("proc/sys/kernel/hostname")), "old\n");
        }
    }

    #[test]
    fn odd_files_come_back_or_are_named() {
        let host = host(&[("proc/sys/kernel/hostname", "old\n"), ("etc/real", "x")]);
        let (file, name) = (host.path().join("etc/hostname"), live(host.path()));
        fs::write(&file, b"J\xFCrgen").expect("written");
        let before = name.before().expect("seen");
        name.apply(before.as_ref()).expect("applied");
        name.restore(before.as_ref()).expect("restored");
        assert_eq!(fs::read(&file).expect("read"), b"J\xFCrgen");
        // A link to a file of the host stays a link.
        fs::remove_file(&file).expect("removed");
        symlink("real", &file).expect("linked");
        let before = name.before().expect("seen");
        name.apply(before.as_ref()).expect("applied");
        assert_eq!(read(host.path().join("etc/real")), "web1\n");
        name.restore(before.as_ref()).expect("restored");
        assert_eq!((read(host.path().join("etc/real")).as_str(), file.is_symlink()), ("x", true));
        fs::remove_file(&file).expect("removed");
        fs::create_dir(&file).expect("made");
        assert!(name.apply(None).expect_err("a folder").contains("etc/hostname"));
        fs::remove_dir(&file).expect("removed");
        let large = fs::File::create(&file).expect("made");
        large.set_len((16 << 20) + 1).expect("longer");
        assert!(name.before().expect_err("too long").contains("longer than"));
    }

    #[tokio::test]
    async fn a_name_of_others_is_observed_by_its_effect() {
        let host = host(&[("etc/hostname", "# ours\nweb1")]);
        let mut bench = Bench::new();
        let mut context = bench.context(&setting("hostname"), &content(host.path(), r#""name":"web1""#));
        std::sync::Arc::make_mut(&mut context.cob).observe = true;
        assert_eq!(bench.state(&context).await, "present");
        fs::write(host.path().join("etc/hostname"), "web2\n").expect("written");
        assert_eq!(bench.state(&context).await, "absent");
    }

    #[tokio::test]
    async fn the_hostname_keeps_the_contract() {
        for files in [&[("etc/hostname", "theirs")][..], &[("etc/others", "x")]] {
            let host = host(files);
            let [own, other] = ["web1", "web2"].map(|name| content(host.path(), &format!(r#""name":"{name}""#)));
            holds(&Case::new(setting("hostname"), &own).other(&other).watching(host.path()).kills(4), &[]).await;
        }
    }

    #[tokio::test]
    async fn the_running_name_is_set_in_a_namespace_of_its_own() {
        let test = "kinds::settings::hostname::tests::the_running_name_is_set_in_a_namespace_of_its_own";
        if in_a_namespace(test).is_some() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        own_fstab(folder.path(), "");
        fs::write("/etc/hostname", "theirs").expect("written");
        fs::write(RUNNING, "before\n").expect("set");
        let mut bench = Bench::new();
        let context = bench.context(&setting("hostname"), r#"{"name":"web1"}"#);
        moved(&mut bench, &context, "absent", "present").await;
        assert_eq!((run("uname -n").as_str(), read("/etc/hostname".into()).as_str()), ("web1", "web1\n"));
        // A change by a user is found.
        fs::write(RUNNING, "another\n").expect("set");
        assert_eq!(bench.state(&context).await, "outdated");
        moved(&mut bench, &context, "outdated", "present").await;
        moved(&mut bench, &context, "present", "absent").await;
        assert_eq!((run("uname -n").as_str(), read("/etc/hostname".into()).as_str()), ("before", "theirs"));
    }
}
