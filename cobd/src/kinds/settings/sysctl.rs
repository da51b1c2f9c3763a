//! The kind back end `sysctl`: a kernel parameter, now and after a reboot.
//!
//! In a root folder that becomes a host only the file counts: the folder has no running kernel, and a `/proc` in it
//! belongs to the machine on which it is made.

use std::fs;
use std::io::{self, Write as _};

use cob_kinds::{Sysctl, in_dots, with_dots_and_slashes_swapped};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::{Entry, Setting, Spec, conf, parameter};
use crate::kinds::native::Host;

/// The back end `sysctl`.
#[derive(Debug)]
pub(super) struct SysctlSetting;

#[derive(Debug)]
struct Parameter {
    host: Host,
    /// The file that sets it at boot.
    file: String,
    key: String,
    value: String,
    persist: bool,
    /// There is a running kernel.
    live: bool,
}

impl Setting for SysctlSetting {
    type Content = Sysctl;

    fn spec(&self, Entry { content, host, .. }: Entry<Sysctl>) -> Result<Box<dyn Spec>, String> {
        let value = content.value.text("value", None).map_err(|(what, _)| format!("content: {what}"))?;
        let file = content.file();
        let Sysctl { key, persist, .. } = content;
        Ok(Box::new(Parameter { live: host.root().is_none(), host, file, key, value: plain(&value), persist }))
    }
}

/// The value as the kernel shows it: words separated by single spaces.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Parameter {
    /// Names of interfaces may contain dots, which are written as slashes in the format with dots.
    fn live_file(&self) -> String {
        format!("/proc/sys/{}", with_dots_and_slashes_swapped(&in_dots(&self.key)))
    }

    fn line(&self) -> String {
        format!("# Written by cobd.\n{} = {}\n", self.key, self.value)
    }

    /// The kernel's present value. `None`: the kernel does not know the parameter.
    fn read_live(&self) -> Result<Option<String>, String> {
        Ok(self.host.read_if_there(&self.live_file())?.map(|live| plain(&live)))
    }

    /// The file that sets it at boot, and the value. The last setting counts.
    fn set_at_start(&self) -> Result<Option<(String, String)>, String> {
        let ours = in_dots(&self.key);
        let value = |line: &String| {
            let (key, value) = line.split_once('=')?;
            (in_dots(key.trim().trim_start_matches('-')) == ours).then(|| plain(value))
        };
        let said = |(file, lines): (String, Vec<String>)| Some((file, lines.iter().filter_map(value).next_back()?));
        Ok(conf::files(&self.host, "sysctl.d")?.into_iter().filter_map(said).next_back())
    }

    /// A file that is read after ours and sets another value.
    fn overridden(&self) -> Result<Option<(String, String)>, String> {
        let name = |file: &str| file.rsplit('/').next().unwrap_or_default().to_owned();
        let ours = name(&self.file);
        let last = self.set_at_start()?;
        Ok(last.filter(|(file, value)| name(file) > ours && !parameter::is_same(&self.value, value)))
    }

    fn unknown(&self) -> String {
        format!("the kernel has no parameter {}; does a module have to be loaded first?", self.key)
    }

    /// Opens the parameter for writing, without creating a file.
    fn open_live(&self) -> io::Result<fs::File> {
        fs::OpenOptions::new().write(true).truncate(true).open(self.host.path(&self.live_file()))
    }

    /// Restores the kernel's original value. A value that the kernel accepts from no program, such as 0 of
    /// `vm.dirty_bytes`, must not block the departure.
    fn restore_live(&self, value: &str) -> Result<(), String> {
        let file = match self.open_live() {
            Ok(file) => file,
            // The parameter is gone, for example with its interface.
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(self.failed(&error)),
        };
        match give(file, value) {
            Ok(()) => Ok(()),
            Err(error) if is_refusal(&error) => {
                let (key, found) = (&self.key, self.read_live()?.unwrap_or_default());
                let told =
                    format!("{key} can't be set back to {value}: {error}; it stays {found} until the next start\n");
                // For users; the output may be closed.
                let _ = io::stderr().write_all(told.as_bytes());
                Ok(())
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Sets the desired value in the kernel.
    fn set(&self, parameter: impl io::Write) -> Result<(), String> {
        give(parameter, &self.value).map_err(|error| {
            if is_refusal(&error) {
                format!("the kernel refuses {:?} as the value of {}: {error}", self.value, self.key)
            } else {
                self.failed(&error)
            }
        })
    }

    fn failed(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.host.path(&self.live_file()).display())
    }
}

fn give(mut parameter: impl io::Write, value: &str) -> io::Result<()> {
    parameter.write_all(format!("{value}\n").as_bytes())
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Whether the kernel rejects the value itself. `ENOENT` means that the value is an unknown name, for example of a
/// congestion control.
fn is_refusal(error: &io::Error) -> bool {
    [Errno::INVAL, Errno::RANGE, Errno::PERM, Errno::NOENT]
        .iter()
        .any(|refusal| error.raw_os_error() == Some(refusal.raw_os_error()))
}

impl Spec for Parameter {
    fn target(&self) -> String {
        if self.persist { format!("{} with its file", self.key) } else { self.key.clone() }
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = json!({});
        if self.live {
            let value = self.read_live()?;
            // A parameter that has gone since differs, so that the change object can depart; otherwise the state is
            // unknown.
            if value.is_none() && before.is_none() {
                return Err(self.unknown());
            }
            // The desired text, if both texts are the same value.
            let is_same = value.as_ref().is_some_and(|value| parameter::is_same(&self.value, value));
            found["value"] = if is_same { json!(self.value) } else { json!(value) };
        }
        if self.persist {
            found["file"] = json!(self.host.read_if_there(&self.file)?);
        }
        Ok(Some(found))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let mut found = self.look(None)?;
        if let Some(found) = found.as_mut().filter(|_| self.live) {
            found["value"] = json!(self.read_live()?);
        }
        Ok(found)
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        let mut found = self.look(None)?;
        if let Some(found) = found.as_mut().filter(|_| self.persist)
            && self.set_at_start()?.is_some_and(|(_, value)| parameter::is_same(&self.value, &value))
        {
            found["file"] = json!(self.line());
        }
        Ok(found)
    }

    fn wanted(&self) -> Value {
        let mut wanted = json!({});
        if self.live {
            wanted["value"] = json!(self.value);
        }
        if self.persist {
            wanted["file"] = json!(self.line());
        }
        wanted
    }

    fn of_use(&self) -> Result<(), String> {
        let Some((file, value)) = self.overridden()?.filter(|_| self.persist) else { return Ok(()) };
        Err(format!(
            "{file} is read after {} at the next start, and sets {} to {value:?}: remove that line, or write \
             `persist: false`",
            self.file, self.key
        ))
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        if self.persist {
            self.host.write(&self.file, &self.line(), 0o644)?;
        }
        if !self.live {
            return Ok(());
        }
        let opened = self.open_live();
        let file = opened.map_err(|error| if is_gone(&error) { self.unknown() } else { self.failed(&error) })?;
        self.set(file)
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        match (self.persist, before["file"].as_str()) {
            (false, _) => {}
            (true, Some(text)) => self.host.write(&self.file, text, 0o644)?,
            (true, None) => self.host.remove(&self.file)?,
        }
        // An earlier version set it also below a `root`; the value is restored if it can be reached.
        match before["value"].as_str() {
            Some(value) if self.read_live()?.is_some_and(|found| found != value) => self.restore_live(value),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::spec_in;
    use super::*;

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join("proc/sys").join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        folder
    }

    /// A parameter of a host with a running kernel, whose files are below a folder.
    fn parameter(host: &tempfile::TempDir, key: &str, value: &str, persist: bool) -> Parameter {
        let host = Host::below(Some(host.path())).expect("absolute");
        let content = format!(r#"{{"key":"{key}","value":"{value}","persist":{persist}}}"#);
        let content: Sysctl = cob_kinds::parse(&content).expect("good");
        Parameter { host, file: content.file(), key: content.key, value: value.to_owned(), persist, live: true }
    }

    #[test]
    fn both_ways_to_write_a_key_lead_to_the_same_parameter() {
        let host = host(&[("net/ipv4/conf/eth0.7/forwarding", "1\n"), ("net/ipv4/tcp_rmem", "4096\t87380\t6291456\n")]);
        for (key, value) in [
            ("net/ipv4/conf/eth0.7/forwarding", "1"),
            ("net.ipv4.conf.eth0/7.forwarding", "1"),
            ("net/ipv4/tcp_rmem", "4096 87380 6291456"),
        ] {
            assert_eq!(parameter(&host, key, value, true).read_live().expect("read").as_deref(), Some(value), "{key}");
        }
    }

    #[test]
    fn a_parameter_is_set_in_kernel_and_file_and_both_are_restored() {
        let host = host(&[("net/core/somaxconn", "128\n"), ("kernel/pid_max", "9\n")]);
        let read = |name: &str| fs::read_to_string(host.path().join(name)).expect("read");
        let (live, file) = ("proc/sys/net/core/somaxconn", "etc/sysctl.d/60-cob-net.core.somaxconn.conf");
        let both = parameter(&host, "net.core.somaxconn", "1024", true);
        let before = both.before().expect("seen");
        assert_eq!(before, Some(json!({"value": "128", "file": null})));
        for _ in 0..2 {
            both.apply(before.as_ref()).expect("applied");
            assert_eq!(both.look(before.as_ref()).expect("seen"), Some(both.wanted()));
        }
        assert_eq!(
            (read(live).as_str(), read(file).as_str()),
            ("1024\n", "# Written by cobd.\nnet.core.somaxconn = 1024\n")
        );
        fs::write(host.path().join(live), "512\n").expect("written");
        assert_eq!(both.look(before.as_ref()).expect("seen").expect("there")["value"], "512");
        for _ in 0..2 {
            both.restore(before.as_ref()).expect("restored");
        }
        assert_eq!((read(live).as_str(), host.path().join(file).exists()), ("128\n", false));

        let now = parameter(&host, "kernel.pid_max", "10", false);
        let before = now.before().expect("seen");
        now.apply(before.as_ref()).expect("applied");
        assert_eq!(read("proc/sys/kernel/pid_max"), "10\n");
        now.restore(before.as_ref()).expect("restored");
        assert_eq!(read("proc/sys/kernel/pid_max"), "9\n");
        let why = parameter(&host, "net.x.y", "1", true).before().expect_err("missing");
        assert!(why.contains("no parameter net.x.y; does a module have to be loaded"), "{why}");
    }

    #[test]
    fn a_refused_value_is_distinguished_from_an_unknown_parameter() {
        /// Like net.ipv4.tcp_congestion_control for an unknown name.
        struct Refuses;
        impl io::Write for Refuses {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(Errno::NOENT.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let host = host(&[]);
        let control = parameter(&host, "net.ipv4.tcp_congestion_control", "nosuchcc", false);
        let why = control.set(Refuses).expect_err("refused");
        assert!(
            why.contains("refuses \"nosuchcc\" as the value of net.ipv4.tcp_congestion_control: No such file"),
            "{why}"
        );
        let why = control.apply(None).expect_err("an unknown parameter");
        assert!(why.contains("the kernel has no parameter"), "{why}");
    }

    #[test]
    fn an_equal_value_in_the_notation_of_the_kernel_is_as_wanted() {
        let host = host(&[("net/ipv4/ip_local_reserved_ports", "8080-8082\n")]);
        let ports = parameter(&host, "net.ipv4.ip_local_reserved_ports", "8080,8081,8082", false);
        assert_eq!(ports.look(None).expect("seen"), Some(ports.wanted()));
        assert_eq!(ports.before().expect("seen"), Some(json!({"value": "8080-8082"})), "as it was");
        let other = parameter(&host, "net.ipv4.ip_local_reserved_ports", "8080", false);
        let found = other.look(None).expect("seen");
        assert_eq!(
            crate::kinds::settings::setting::difference(&other.wanted(), found.as_ref()),
            r#"wanted {"value":"8080"}, found {"value":"8080-8082"}"#
        );
    }

    #[test]
    fn a_later_file_with_another_value_is_named() {
        let host = host(&[("net/ipv4/ip_forward", "0\n")]);
        let set = |file: &str, text: &str| {
            let path = host.path().join("etc/sysctl.d").join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        let forward = parameter(&host, "net.ipv4.ip_forward", "1", true);
        set("10-early.conf", "net.ipv4.ip_forward = 0\n");
        forward.apply(None).expect("applied");
        assert_eq!(forward.of_use(), Ok(()));
        set("99-late.conf", "net/ipv4/ip_forward=0\n");
        let why = forward.of_use().expect_err("overridden");
        assert!(why.contains("/etc/sysctl.d/99-late.conf is read after"), "{why}");
        assert!(why.contains("sets net.ipv4.ip_forward to \"0\""), "{why}");
        assert_eq!(parameter(&host, "net.ipv4.ip_forward", "1", false).of_use(), Ok(()), "now is all that is asked");
        set("99-late.conf", "-net.ipv4.ip_forward = 0x1\n");
        assert_eq!(forward.of_use(), Ok(()));
    }

    #[test]
    fn a_parameter_that_cannot_be_restored_is_left() {
        let host = host(&[("net/ipv4/conf/tt0/forwarding", "0\n")]);
        let gone = parameter(&host, "net.ipv4.conf.tt0.forwarding", "1", true);
        let before = gone.before().expect("seen");
        gone.apply(before.as_ref()).expect("applied");
        fs::remove_dir_all(host.path().join("proc/sys/net")).expect("removed");
        // It differs from the desired value, so that the change object can depart.
        assert_eq!(gone.look(before.as_ref()).expect("seen").expect("there")["value"], Value::Null);
        let why = gone.apply(before.as_ref()).expect_err("gone");
        assert!(why.contains("the kernel has no parameter net.ipv4.conf.tt0.forwarding"), "{why}");
        gone.restore(before.as_ref()).expect("left");
        assert!(!host.path().join("proc/sys/net").exists(), "no file is made in its place");
        assert_eq!(fs::read_dir(host.path().join("etc/sysctl.d")).expect("there").count(), 0);
        for (error, refusal) in [(Errno::INVAL, true), (Errno::PERM, true), (Errno::IO, false), (Errno::ROFS, false)] {
            assert_eq!(is_refusal(&error.into()), refusal, "{error}");
        }
    }

    #[test]
    fn a_root_folder_that_will_become_a_host_has_no_kernel() {
        let host = host(&[("kernel/pid_max", "9\n")]);
        let proc = || fs::read_to_string(host.path().join("proc/sys/kernel/pid_max")).expect("read");
        let content = |more: &str| format!(r#"{{"root":{:?},"key":"kernel.pid_max","value":10{more}}}"#, host.path());
        let read = |text: &str| spec_in(&SysctlSetting, text, "").expect("good");
        let spec = read(&content(""));
        let before = spec.before().expect("seen");
        spec.apply(before.as_ref()).expect("applied");
        assert_eq!((spec.look(before.as_ref()).expect("seen"), proc().as_str()), (Some(spec.wanted()), "9\n"));
        spec.restore(before.as_ref()).expect("restored");
        assert!(!host.path().join("etc/sysctl.d/60-cob-kernel.pid_max.conf").exists());
        // A value that an earlier version set there is restored.
        spec.restore(Some(&json!({"value": "8", "file": null}))).expect("restored");
        assert_eq!(proc(), "8\n");
        // No work is needed and no work is done.
        let nothing = read(&content(r#","persist":false"#));
        assert_eq!(nothing.look(None).expect("seen"), Some(nothing.wanted()));
    }
}
