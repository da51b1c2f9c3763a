//! The kind back end `swap-file`: a file for pages that do not fit into memory, in use now and after every boot.
//!
//! The file is made beside its place and renamed. Its line in `/etc/fstab` is below a line that marks it. In a root
//! folder that becomes a host, the file and the line are made, and the kernel does not use the file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;

use cob_kinds::SwapFile;
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::{Value, json};

use super::boot_table::{FSTAB, with_line};
use super::{Entry, Spec, mounted, place};
use crate::durable;
use crate::kinds::native::{NOTE, inspect, needs_program, run_bounded};

/// The mode of the file: it may contain memory of every program.
const MODE: u32 = 0o600;

impl Entry<SwapFile> {
    fn real(&self) -> Result<PathBuf, String> {
        place::real(&self.host, &self.content.path)
    }

    fn is_live(&self) -> bool {
        self.host.root().is_none()
    }

    fn beside(&self) -> Result<PathBuf, String> {
        let path = self.real()?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(path.with_file_name(format!(".{name}.cob-new")))
    }

    /// The priority with which the kernel uses the file. `None`: it does not use it.
    fn in_use(&self) -> Result<Option<i64>, String> {
        Ok(mounted::swap_priority(&self.real()?))
    }

    fn line(&self) -> String {
        let priority = self.content.priority.map_or(String::new(), |priority| format!(",pri={priority}"));
        format!("{} none swap sw{priority} 0 0", mounted::escaped(&self.content.path))
    }

    fn is_about(&self, line: &str) -> bool {
        let mut fields = line.split_whitespace();
        let is_path = fields.next().is_some_and(|path| mounted::unescaped(path) == self.content.path);
        is_path && fields.nth(1) == Some("swap")
    }

    fn table_lines(&self) -> Result<Vec<String>, String> {
        FSTAB.lines(&self.host, |line| self.is_about(line))
    }

    /// Replaces the lines about the file. An empty table goes unless it is `kept`.
    fn set_table(&self, line: Option<&str>, kept: bool) -> Result<(), String> {
        let change = |text: &str| with_line(text, |one| self.is_about(one), &self.cob, line);
        FSTAB.edit((&self.host, &self.own, self.longest), kept, &change)
    }

    /// Makes the file beside its place and renames it.
    fn make(&self) -> Result<(), String> {
        let (path, new) = (self.real()?, self.beside()?);
        place::remove_all(&new)?;
        place::make_folders(&path)?;
        let size = self.content.size.0;
        durable::stage(&new, MODE, |file| fallocate(&*file, FallocateFlags::empty(), 0, size).map_err(io::Error::from))
            .map_err(|error| format!("{}: {} can't be allocated: {error}", path.display(), self.content.size))?;
        run("mkswap", &["--", place::text(&new)?])?;
        let renamed = fs::rename(&new, &path).and_then(|()| path.parent().map_or(Ok(()), durable::sync_folder));
        renamed.map_err(|error| format!("{}: {error}", path.display()))
    }

    fn swap_off(&self) -> Result<(), String> {
        if self.is_live() && self.in_use()?.is_some() {
            run("swapoff", &["--", place::text(&self.real()?)?])?;
        }
        Ok(())
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    run_bounded(Command::new(program).env("LC_ALL", "C.UTF-8").args(arguments), b"")?.ok().map(|_| ())
}

impl Spec for Entry<SwapFile> {
    fn notes() -> &'static [&'static str] {
        &[NOTE, FSTAB.unread]
    }

    fn target(&self) -> String {
        self.content.path.clone()
    }

    fn shared(&self) -> Option<&str> {
        Some(FSTAB.path)
    }

    fn edit_turn(&self) -> Option<&'static str> {
        Some(FSTAB.turn)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(meta) = inspect(&self.real()?)? else { return Ok(None) };
        let mut found = json!({
            "size": meta.size(),
            "mode": format!("{:04o}", meta.mode() & 0o7777),
            "table": self.table_lines()?,
        });
        if !meta.is_file() {
            found["size"] = json!("no regular file");
        }
        if self.is_live() {
            let priority = self.in_use()?;
            found["in use"] = json!(priority.is_some());
            if let (Some(_), Some(priority)) = (self.content.priority, priority) {
                found["priority"] = json!(priority);
            }
        }
        if FSTAB.is_unread(&self.own) {
            found["unfinished"] = json!(true);
        }
        Ok(Some(found))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let path = self.real()?;
        // The file is ours already.
        if self.own.join(NOTE).exists() {
            return Ok(None);
        }
        if inspect(&path)?.is_some() || !self.table_lines()?.is_empty() {
            return Err(format!(
                "{} exists, or {} names it: remove both, or choose another path",
                path.display(),
                FSTAB.path
            ));
        }
        let made = place::missing_folder(&path).map(place::text).transpose()?;
        Ok(Some(json!({ "made": made, "table": FSTAB.is_of_others(&self.host)? })))
    }

    fn wanted(&self) -> Value {
        let mut wanted = json!({ "size": self.content.size.0, "mode": format!("{MODE:04o}"), "table": [self.line()] });
        if self.is_live() {
            wanted["in use"] = json!(true);
            if let Some(priority) = self.content.priority {
                wanted["priority"] = json!(priority);
            }
        }
        wanted
    }

    fn of_use(&self) -> Result<(), String> {
        let programs: &[&str] = if self.is_live() { &["mkswap", "swapon", "swapoff"] } else { &["mkswap"] };
        programs.iter().try_for_each(|program| needs_program(program, "util-linux, or mount"))
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let found = self.look(before)?.unwrap_or_default();
        let wanted = self.wanted();
        if found["size"] != wanted["size"] || found["mode"] != wanted["mode"] {
            self.swap_off()?;
            self.make()?;
        }
        if self.is_live() {
            if found["priority"] != wanted["priority"] {
                self.swap_off()?;
            }
            if self.in_use()?.is_none() {
                let path = self.real()?;
                let priority = self.content.priority.map(|priority| priority.to_string());
                let mut arguments: Vec<&str> = priority.iter().flat_map(|priority| ["-p", priority.as_str()]).collect();
                arguments.extend(["--", place::text(&path)?]);
                run("swapon", &arguments)?;
            }
        }
        self.set_table(Some(&self.line()), true)
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        self.swap_off()?;
        // The note of an earlier version has no word about the table.
        self.set_table(None, before.is_none_or(|before| before["table"] != json!(false)))?;
        let path = self.real()?;
        place::remove_all(&self.beside()?)?;
        place::remove_all(&path)?;
        if let Some(first) = before.and_then(|before| before["made"].as_str()) {
            place::remove_folders(&path, first);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{content, host, moved, setting};
    use super::*;
    use crate::kinds::contract::Case;
    use crate::kinds::contract::tests::holds;
    use crate::kinds::native::has_program;
    use crate::kinds::testing::{Bench, reason};

    #[tokio::test]
    async fn swap_files_keep_the_contract() {
        if !has_program("mkswap") {
            return eprintln!("skipped: there is no mkswap");
        }
        for table in [None, Some(""), Some("UUID=1 / ext4 defaults 0 1\n# last, without an end")] {
            let host = host(&table.map_or(vec![("etc/hosts", "")], |table| vec![("etc/fstab", table)]));
            let [own, other] = [r#""path":"/var/swap","size":"1M""#, r#""path":"/var/swap","size":"2M","priority":5"#]
                .map(|keys| content(host.path(), keys));
            let case = Case::new(setting("swap-file"), &own).other(&other).watching(host.path()).kills(4);
            holds(&case, &[]).await;
            assert_eq!(fs::read_to_string(host.path().join("etc/fstab")).ok().as_deref(), table);
            assert!(!host.path().join("var").exists());
        }
    }

    #[tokio::test]
    async fn a_file_and_its_line_are_made_and_repaired() {
        if !has_program("mkswap") {
            return eprintln!("skipped: there is no mkswap");
        }
        let host = host(&[("etc/fstab", "UUID=1 / ext4 defaults 0 1\n")]);
        let (table, file) = (host.path().join("etc/fstab"), host.path().join("var/my swap"));
        let mut bench = Bench::new();
        let context = bench
            .context(&setting("swap-file"), &content(host.path(), r#""path":"/var/my swap","size":"1M","priority":7"#));
        moved(&mut bench, &context, "absent", "present").await;
        let expected = "UUID=1 / ext4 defaults 0 1\n# cob n1/a/b\n/var/my\\040swap none swap sw,pri=7 0 0\n";
        assert_eq!(fs::read_to_string(&table).expect("read"), expected);
        let meta = fs::metadata(&file).expect("there");
        assert_eq!((meta.len(), meta.mode() & 0o7777), (1 << 20, 0o600));
        assert!(fs::read(&file).expect("read")[..4096].ends_with(b"SWAPSPACE2"));
        fs::write(&table, "UUID=1 / ext4 defaults 0 1\n/var/my\\040swap none swap noauto 0 0\n").expect("written");
        fs::remove_file(&file).expect("removed");
        assert_eq!(bench.state(&context).await, "outdated");
        moved(&mut bench, &context, "outdated", "present").await;
        assert_eq!(fs::read_to_string(&table).expect("read"), expected);
        moved(&mut bench, &context, "present", "absent").await;
        assert_eq!(fs::read_to_string(&table).expect("read"), "UUID=1 / ext4 defaults 0 1\n");
        assert!(!host.path().join("var").exists());
    }

    #[tokio::test]
    async fn files_of_others_are_not_replaced() {
        let host = host(&[("var/swap", "theirs"), ("etc/fstab", "/var/swap2 none swap sw 0 0\n")]);
        for path in ["/var/swap", "/var/swap2"] {
            let mut bench = Bench::new();
            let keys = format!(r#""path":"{path}","size":"1M""#);
            let context = bench.context(&setting("swap-file"), &content(host.path(), &keys));
            let why = reason(bench.transition(&context, "absent", "present").await);
            assert!(why.contains("remove both, or choose another path") || why.contains("mkswap: not found"), "{why}");
        }
        assert_eq!(fs::read_to_string(host.path().join("var/swap")).expect("read"), "theirs");
    }
}
