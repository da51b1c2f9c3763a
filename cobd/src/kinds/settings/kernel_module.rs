//! The kind back end `kernel-module`: a module of the kernel, loaded now and at every boot, or blocked.
//!
//! A built-in module counts as loaded. In a root folder that becomes a host only the files count, because it has no
//! running kernel.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use cob_kinds::KernelModule;
use serde_json::{Value, json};

use super::{Entry, Setting, Spec, conf};
use crate::kinds::native::{Host, run_bounded};

/// The back end `kernel-module`.
#[derive(Debug)]
pub(super) struct KernelModuleSetting;

/// The desired module.
#[derive(Debug)]
struct Module {
    host: Host,
    /// The content; the kernel treats `-` and `_` in its name as equal.
    content: KernelModule,
    /// The programs that load and unload; tests replace them.
    modprobe: PathBuf,
    rmmod: PathBuf,
    /// There is a running kernel.
    live: bool,
}

impl Setting for KernelModuleSetting {
    type Content = KernelModule;

    fn spec(&self, Entry { content, host, .. }: Entry<KernelModule>) -> Result<Box<dyn Spec>, String> {
        let live = host.root().is_none();
        Ok(Box::new(Module { host, content, modprobe: "modprobe".into(), rmmod: "rmmod".into(), live }))
    }
}

impl Module {
    /// The desired text of both files. `None`: no file.
    fn files(&self) -> [(String, Option<String>); 2] {
        let text = |line: String| Some(format!("# Written by cobd.\n{line}\n"));
        let load = if self.content.blacklist { None } else { text(self.content.name.clone()) };
        let options = match (self.content.blacklist, self.content.options().is_empty()) {
            (true, _) => text(format!("blacklist {}", self.content.name)),
            (false, false) => text(format!("options {} {}", self.content.name, self.content.options())),
            (false, true) => None,
        };
        [(self.content.load_file(), load), (self.content.options_file(), options)]
    }

    /// Its line in the kernel's list.
    fn loaded(&self) -> Result<Option<String>, String> {
        let (all, name) = (self.host.read("/proc/modules")?, self.content.kernel_name());
        Ok(all.lines().find(|line| line.split(' ').next() == Some(&name)).map(str::to_owned))
    }

    fn is_built_in(&self) -> Result<bool, String> {
        let release = self.host.read("/proc/sys/kernel/osrelease")?;
        let list = self.host.read(&format!("/lib/modules/{}/modules.builtin", release.trim()))?;
        let is_it = |path: &str| {
            let file = path.rsplit('/').next().unwrap_or_default();
            file.strip_suffix(".ko").is_some_and(|stem| stem.replace('-', "_") == self.content.kernel_name())
        };
        Ok(list.lines().any(is_it))
    }

    fn is_it(&self, name: &str) -> bool {
        name.replace('-', "_") == self.content.kernel_name()
    }

    /// Whether any file loads it at boot, or no file is needed.
    fn is_loaded_at_start(&self) -> Result<bool, String> {
        let mut named = conf::lines(&self.host, "modules-load.d")?;
        named.extend(conf::of(&self.host.read("/etc/modules")?));
        let is_named = named.iter().any(|line| line.split_whitespace().next().is_some_and(|name| self.is_it(name)));
        Ok(is_named || (self.live && self.is_built_in()?))
    }

    /// Whether other files tell modprobe the same as ours: the options, or the blacklist entry.
    fn has_its_words(&self) -> Result<bool, String> {
        let verb = if self.content.blacklist { "blacklist" } else { "options" };
        let mut said = BTreeSet::new();
        let mut is_named = false;
        for line in conf::lines(&self.host, "modprobe.d")? {
            let mut words = line.split_whitespace();
            if words.next() == Some(verb) && words.next().is_some_and(|name| self.is_it(name)) {
                is_named = true;
                said.extend(words.map(str::to_owned));
            }
        }
        Ok(is_named && self.content.options().split_whitespace().all(|option| said.contains(option)))
    }

    fn load(&self) -> Result<(), String> {
        let ran = run_bounded(Command::new(&self.modprobe).args(["--", &self.content.name]), b"")?;
        ran.ok().map(|_| ()).map_err(|why| format!("{} can't be loaded: {why}", self.content.name))
    }

    /// Unloads only this module: modules that were loaded with it may be in use.
    fn unload(&self) -> Result<(), String> {
        let Some(line) = self.loaded()? else {
            return match self.is_built_in()? {
                true => Err(format!("{} is built into the kernel, and can't be taken out of it", self.content.name)),
                false => Ok(()),
            };
        };
        let ran = run_bounded(Command::new(&self.rmmod).args(["--", &self.content.kernel_name()]), b"")?;
        ran.ok().map(|_| ()).map_err(|why| {
            // Format: `NAME SIZE USES USERS ...`
            let users = line.split(' ').nth(3).map(|users| users.trim_end_matches(',')).filter(|users| *users != "-");
            let users = users.map(|users| format!("; it is used by {users}")).unwrap_or_default();
            format!("{} can't be unloaded: {why}{users}", self.content.name)
        })
    }

    fn put(&self, file: &str, text: Option<&str>) -> Result<(), String> {
        match text {
            Some(text) => self.host.write(file, text, 0o644),
            None => self.host.remove(file),
        }
    }
}

impl Spec for Module {
    fn target(&self) -> String {
        format!("{}{}", self.content.kernel_name(), if self.content.persist { " with its files" } else { "" })
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = json!({});
        if self.live {
            found["loaded"] = json!(self.loaded()?.is_some() || self.is_built_in()?);
        }
        if self.content.persist {
            for (file, _) in self.files() {
                found[&file] = json!(self.host.read_if_there(&file)?);
            }
        }
        Ok(Some(found))
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        let mut found = self.look(None)?;
        let [(load_file, load), (options_file, options)] = self.files();
        if let Some(found) = found.as_mut().filter(|_| self.content.persist) {
            let is_loaded = self.is_loaded_at_start()?;
            if is_loaded != self.content.blacklist {
                found[&load_file] = json!(load);
            } else if is_loaded {
                found[&load_file] = json!("others load it");
            }
            if options.is_some() && self.has_its_words()? {
                found[&options_file] = json!(options);
            }
        }
        Ok(found)
    }

    fn wanted(&self) -> Value {
        let mut wanted = json!({});
        if self.live {
            wanted["loaded"] = json!(!self.content.blacklist);
        }
        if self.content.persist {
            for (file, text) in self.files() {
                wanted[&file] = json!(text);
            }
        }
        wanted
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        if self.content.persist {
            // Written before the load, because modprobe reads the options there.
            for (file, text) in self.files() {
                self.put(&file, text.as_deref())?;
            }
        }
        match (self.live, self.content.blacklist) {
            (false, _) => Ok(()),
            (true, true) => self.unload(),
            (true, false) if self.loaded()?.is_some() || self.is_built_in()? => Ok(()),
            (true, false) => self.load(),
        }
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        if self.content.persist {
            for (file, _) in self.files() {
                self.put(&file, before[&file].as_str())?;
            }
        }
        match (before["loaded"].as_bool().filter(|_| self.live), self.loaded()?.is_some()) {
            (Some(true), false) if !self.is_built_in()? => self.load(),
            (Some(false), true) => self.unload(),
            (Some(_) | None, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::super::tests::spec_in;
    use super::*;
    use crate::kinds::native::Native;

    /// A host with a simulated kernel, and programs that change its list of modules.
    fn host() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |file: &str, text: &str, mode: u32| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        };
        write("proc/modules", "bridge 1 1 br_netfilter, Live 0x0\nloop 1 0 - Live 0x0\n", 0o644);
        write("proc/sys/kernel/osrelease", "6.1.0-cob\n", 0o644);
        write("lib/modules/6.1.0-cob/modules.builtin", "kernel/fs/ext4/ext4.ko\nkernel/x/nf-tables.ko\n", 0o644);
        let list = folder.path().join("proc/modules").display().to_string();
        let modprobe = format!(
            "#!/bin/sh\n[ $2 != missing ] || {{ echo \"FATAL: Module $2 not found\" >&2; exit 1; }}\necho \"$(echo $2 | tr - _) 1 0 - Live 0x0\" >> {list}\n"
        );
        let rmmod = format!(
            "#!/bin/sh\n[ $2 != bridge ] || {{ echo \"rmmod: ERROR: Module $2 is in use\" >&2; exit 1; }}\nsed -i \"/^$2 /d\" {list}\n"
        );
        write("modprobe", &modprobe, 0o755);
        write("rmmod", &rmmod, 0o755);
        folder
    }

    fn module(root: &Path, name: &str, options: &str, blacklist: bool) -> Module {
        let content = format!(r#"{{"name":"{name}","options":{{{options}}},"blacklist":{blacklist}}}"#);
        let content = cob_kinds::parse(&content).expect("good");
        Module {
            host: Host::below(Some(root)).expect("absolute"),
            content,
            modprobe: root.join("modprobe"),
            rmmod: root.join("rmmod"),
            live: true,
        }
    }

    /// Applies and restores; the host must be as before.
    fn there_and_back(root: &Path, module: &Module) {
        let list = || fs::read_to_string(root.join("proc/modules")).expect("read");
        let (noted, listed) = (module.before().expect("seen"), list());
        for _ in 0..2 {
            module.apply(noted.as_ref()).expect("applied");
            assert_eq!(module.look(noted.as_ref()).expect("seen"), Some(module.wanted()));
        }
        for _ in 0..2 {
            module.restore(noted.as_ref()).expect("restored");
        }
        assert_eq!((module.before().expect("seen"), list()), (noted, listed));
    }

    #[test]
    fn a_module_is_loaded_with_its_options_and_taken_out_again() {
        let host = host();
        let dummy = module(host.path(), "dummy-net", r#""numdummies":2"#, false);
        let noted = dummy.before().expect("seen");
        dummy.apply(noted.as_ref()).expect("applied");
        let read = |file: &str| fs::read_to_string(host.path().join(file)).expect("read");
        assert_eq!(read("etc/modules-load.d/cob-dummy_net.conf"), "# Written by cobd.\ndummy-net\n");
        assert_eq!(read("etc/modprobe.d/cob-dummy_net.conf"), "# Written by cobd.\noptions dummy-net numdummies=2\n");
        assert!(read("proc/modules").contains("dummy_net 1 0"));
        dummy.restore(noted.as_ref()).expect("restored");
        assert!(!read("proc/modules").contains("dummy_net"));
        there_and_back(host.path(), &dummy);
    }

    #[test]
    fn a_built_in_or_already_loaded_module_stays() {
        let host = host();
        for name in ["ext4", "nf_tables", "loop"] {
            there_and_back(host.path(), &module(host.path(), name, "", false));
        }
    }

    #[test]
    fn a_module_is_kept_out_and_comes_back() {
        let host = host();
        there_and_back(host.path(), &module(host.path(), "loop", "", true));
        there_and_back(host.path(), &module(host.path(), "floppy", "", true));
    }

    #[test]
    fn a_failed_module_change_gives_its_reason() {
        let host = host();
        let failed = |name: &str, blacklist| module(host.path(), name, "", blacklist).apply(None).expect_err("refused");
        let why = failed("missing", false);
        assert!(why.contains("missing can't be loaded") && why.contains("not found"), "{why}");
        let why = failed("bridge", true);
        assert!(why.contains("bridge can't be unloaded") && why.contains("used by br_netfilter"), "{why}");
        assert!(failed("ext4", true).contains("built into the kernel"));
    }

    #[test]
    fn contents_that_make_no_sense_are_refused() {
        for (keys, word) in [
            (r#""name":"../x""#, "not the name of a kernel module"),
            (r#""name":"a","options":{"b":"1 c=2"}"#, "can't be set"),
            (r#""name":"a","options":{"b c":1}"#, "can't be set"),
            (r#""name":"a","blacklist":true,"options":{"b":1}"#, "takes no `options`"),
            (r#""name":"a","blacklist":true,"persist":false"#, "need a file"),
        ] {
            let error = Native::accept(&KernelModuleSetting, &format!("{{{keys}}}")).expect_err(keys);
            assert!(error.contains(word), "{keys}: {error}");
        }
        let text = |text: &str| spec_in(&KernelModuleSetting, text, "").expect("good").wanted().to_string();
        assert!(text(r#"{"name":"a","root":"/x","options":{"b":true,"c":-1}}"#).contains("options a b=Y c=-1"));
    }
}
