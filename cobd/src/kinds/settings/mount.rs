//! The kind back end `mount`: a file system that is mounted now, and at every boot by a line in `/etc/fstab`.
//!
//! The line is written last: without a line with exactly these options, a transition is not complete. In a root folder
//! that becomes a host no file system is mounted, and only the line counts.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cob_kinds::Mount;
use serde_json::{Value, json};

use super::boot_table::{FSTAB, has_systemd, mark_of};
use super::kernel_log::KernelLog;
use super::mount_absent::NoMount;
use super::mounted::{self, Mounted};
use super::refused;
use super::remount::{self, Changed};
use super::{Entry, Setting, Spec};
use crate::kinds::native::{Host, Ran, insert_line, lines, run_bounded};

/// The back end `mount`.
#[derive(Debug)]
pub(super) struct MountSetting;

/// The desired mount.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) host: Host,
    cob: String,
    pub(super) path: String,
    source: String,
    /// The type for `mount -t`; `none` for a bind mount.
    kind: String,
    options: Vec<String>,
    pass: u8,
    pub(super) own: PathBuf,
    /// The longest wait for the lock of the table. The lock is not held while mounting, which may take any time.
    longest: Duration,
}

impl Setting for MountSetting {
    type Content = Mount;

    fn spec(&self, Entry { content, host, cob, own, longest }: Entry<Mount>) -> Result<Box<dyn Spec>, String> {
        let path = content.mount_point().to_owned();
        let Mount { mut kind, mut options, source, pass, absent, .. } = content;
        if kind == "bind" {
            kind = "none".to_owned();
            options.insert(0, "bind".to_owned());
        }
        if options.is_empty() {
            options.push("defaults".to_owned());
        }
        let place = Place { host, cob, path, source, kind, options, pass, own, longest };
        Ok(if absent { Box::new(NoMount { place }) } else { Box::new(place) })
    }
}

impl Place {
    pub(super) fn is_live(&self) -> bool {
        self.host.root().is_none()
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }

    fn is_bind(&self) -> bool {
        self.has("bind") || self.has("rbind")
    }

    fn line(&self) -> String {
        let (source, path) = (mounted::escaped(&self.source), mounted::escaped(&self.path));
        format!("{source} {path} {} {} 0 {}", self.kind, self.options.join(","), self.pass)
    }

    fn mark(&self) -> String {
        mark_of(&self.cob)
    }

    /// Whether a line of the table is about this path.
    pub(super) fn is_about(&self, line: &str) -> bool {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let on = fields.get(1).map(|path| mounted::unescaped(path));
        !line.trim_start().starts_with('#') && on.is_some_and(|on| on.trim_end_matches('/') == self.path)
    }

    /// Whether a line about this path has the same effect as ours.
    fn does_the_same(&self, line: &str) -> bool {
        let (theirs, ours) = (line.split_whitespace().collect::<Vec<_>>(), self.line());
        let ours: Vec<&str> = ours.split_whitespace().collect();
        let options = |fields: &[&str]| {
            let all = fields.get(3).copied().unwrap_or_default().split(',').map(str::to_owned);
            all.filter(|option| !["", "defaults"].contains(&option.as_str())).collect::<BTreeSet<_>>()
        };
        let turn = |fields: &[&str]| fields.get(5).copied().unwrap_or("0").to_owned();
        let device = mounted::device(&self.source);
        let is_source = theirs.first() == ours.first()
            || device.is_some() && theirs.first().is_some_and(|source| mounted::device(source) == device);
        is_source && theirs.get(2) == ours.get(2) && options(&theirs) == options(&ours) && turn(&theirs) == turn(&ours)
    }

    /// The lines of the table about this path.
    pub(super) fn lines(&self) -> Result<Vec<String>, String> {
        FSTAB.lines(&self.host, |line| self.is_about(line))
    }

    /// Changes the table, and lets systemd read it again. An empty table goes unless it is `kept`.
    pub(super) fn edit_table(&self, kept: bool, change: &dyn Fn(&str) -> String) -> Result<(), String> {
        FSTAB.edit((&self.host, &self.own, self.longest), kept, change)
    }

    pub(super) fn has_systemd(&self) -> bool {
        has_systemd(&self.host)
    }

    /// The table with its lines about this path replaced.
    fn with_lines(&self, text: &str, ours: bool, new: &[String], open: bool) -> String {
        let mut out: Vec<String> = Vec::new();
        let mut at = None;
        for line in lines(text) {
            if self.is_about(line) {
                if out.last().is_some_and(|last| last.trim_end() == self.mark()) {
                    out.pop();
                }
                at.get_or_insert(out.len());
            } else {
                out.push(line.to_owned());
            }
        }
        let at = at.unwrap_or(out.len());
        // A last line without a line end stays the last line, unless its mount must come first.
        if at == out.len()
            && let Some(last) = out.last_mut().filter(|last| !last.ends_with('\n') && self.is_above(last))
        {
            last.push('\n');
        }
        let is_last = at == out.len();
        let mark = self.mark();
        let marked = ours.then_some(mark.as_str());
        for (offset, line) in marked.into_iter().chain(new.iter().map(String::as_str)).enumerate() {
            insert_line(&mut out, at + offset, line);
        }
        let mut changed = out.concat();
        if open && is_last && changed.ends_with('\n') {
            changed.pop();
        }
        changed
    }

    /// Whether a line of the table mounts a parent folder of this path.
    fn is_above(&self, line: &str) -> bool {
        let on = line.split_whitespace().nth(1).map(mounted::unescaped);
        on.is_some_and(|on| Path::new(&self.path).starts_with(on))
    }

    /// The options in the table for this path.
    fn options_in_table(&self) -> Result<Option<Vec<String>>, String> {
        let lines = self.lines()?;
        let options = lines.first().and_then(|line| line.split_whitespace().nth(3));
        Ok(options.map(|options| options.split(',').map(str::to_owned).collect()))
    }

    /// The mount on this path, with the desired values where they are equivalent.
    fn live(&self) -> Result<Option<Value>, String> {
        let Some(found) = mounted::at(&self.host, &self.path)?.seen else { return Ok(None) };
        if self.is_awaited(&found) {
            return Ok(Some(self.live_wanted()));
        }
        let same_source = self.is_same_source(&found);
        let is_kind = self.kind == "auto" || self.kind == found.kind || (self.kind == "nfs" && found.kind == "nfs4");
        // A bind mount has the type of the underlying file system.
        let same_kind = if self.is_bind() { same_source } else { is_kind };
        let source = if same_source { &self.source } else { &found.source };
        let kind = if same_kind { &self.kind } else { &found.kind };
        Ok(Some(json!({ "source": source, "type": kind, "flags": found.flags() })))
    }

    /// Whether systemd mounts it at the first access (automount): then it counts as mounted.
    fn is_awaited(&self, found: &Mounted) -> bool {
        found.kind == "autofs" && self.has("x-systemd.automount")
    }

    fn is_same_source(&self, found: &Mounted) -> bool {
        if self.is_bind() {
            return mounted::is_same_place(&self.host.path(&self.source), &self.host.path(&self.path));
        }
        let trimmed = |text: &str| text.trim_end_matches('/').to_owned();
        let device = mounted::device(&self.source);
        trimmed(&found.source) == trimmed(&self.source)
            || device.is_some_and(|device| mounted::device(&found.source) == Some(device))
            || mounted::backing_file(&found.source).is_some_and(|file| self.is_source(&file))
    }

    /// Whether the source is this file, perhaps by another path.
    fn is_source(&self, file: &Path) -> bool {
        let source = self.host.path(&self.source);
        file == source || mounted::is_same_place(file, &source)
    }

    fn wanted_flags(&self) -> Vec<&'static str> {
        mounted::FLAGS.iter().map(|(flag, _)| *flag).filter(|flag| self.is_wanted(flag)).collect()
    }

    /// Whether a flag is desired: the last option about it counts.
    fn is_wanted(&self, flag: &str) -> bool {
        self.options.iter().rev().find_map(|option| mounted::sets(option, flag)).unwrap_or(false)
    }

    fn live_wanted(&self) -> Value {
        json!({ "source": self.source, "type": self.kind, "flags": self.wanted_flags() })
    }

    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C.UTF-8").args(arguments);
        let ran = run_bounded(&mut command, b"")?;
        if ran.code == Some(0) { Ok(()) } else { Err(reason(&ran)) }
    }

    /// Mounts; a failure includes the kernel's messages.
    fn run_mount(&self, arguments: &[&str]) -> Result<(), String> {
        let log = KernelLog::from_now();
        let name = self.source.rsplit('/').next().unwrap_or_default();
        self.run("mount", arguments).map_err(|why| why + &log.about(&[&self.kind, name]))
    }

    fn mount(&self) -> Result<(), String> {
        let folder = self.host.path(&self.path);
        // The mount point of a file is a file.
        if self.is_bind() && self.host.path(&self.source).is_file() {
            let made = folder.parent().map_or(Ok(()), fs::create_dir_all);
            let made = made.and_then(|()| fs::OpenOptions::new().append(true).create(true).open(&folder).map(|_| ()));
            made.map_err(|error| format!("{}: {error}", folder.display()))?;
        } else {
            fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let options = self.options.join(",");
        let done = self.run_mount(&["-t", &self.kind, "-o", &options, "--", &self.source, &self.path]);
        done.map_err(|why| {
            let what = format!("{} can't be mounted on {}", self.source, self.path);
            in_words(refused::option(&self.kind, &self.options), &what, &why)
        })
    }

    /// Remounts with all flags that the kernel knows, set or cleared, so that old flags disappear.
    fn remount(&self, flags: &[&str], options: &[String]) -> Result<(), String> {
        let mut all = vec!["remount".to_owned()];
        if self.is_bind() {
            all.push("bind".to_owned());
        }
        all.extend(options.iter().filter(|o| !["bind", "rbind", "defaults"].contains(&o.as_str())).cloned());
        let said = mounted::FLAGS.iter().map(|(flag, opposite)| if flags.contains(flag) { flag } else { opposite });
        all.extend(said.map(|said| (*said).to_owned()));
        let all = all.join(",");
        let done = self.run_mount(&["-o", &all, "--", &self.source, &self.path]);
        done.map_err(|why| {
            let refused = if self.kind == "tmpfs" {
                refused::option_of_mounted(&self.host.path(&self.path), options, flags.contains(&"ro"))
            } else {
                refused::option(&self.kind, options)
            };
            in_words(refused, &format!("{} can't be remounted with other options", self.path), &why)
        })
    }

    /// Remounts with all desired options, and checks that the new options have an effect.
    fn remount_all(&self, before: Option<&Value>) -> Result<(), String> {
        let seen = || Ok::<_, String>(mounted::at(&self.host, &self.path)?.seen);
        // An administrator's mount before the change object came.
        let found = before.filter(|found| !found["mounted"].is_null());
        let before = seen()?;
        let in_table = self.options_in_table()?;
        let is_adopted = in_table.is_none();
        let changed = Changed::of(&self.kind, &in_table.unwrap_or_default(), &self.options);
        let mut options = self.options.clone();
        options.extend(changed.defaults());
        self.remount(&self.wanted_flags(), &options)?;
        // The original options of another user's mount are unknown.
        if is_adopted && self.kind != "tmpfs" {
            return Ok(());
        }
        let theirs = found.and_then(|found| serde_json::from_value(found["root"].clone()).ok());
        changed.finish(&self.host.path(&self.path), before.as_ref(), seen()?.as_ref(), theirs.as_ref())
    }

    /// Restores the options of an existing mount as the kernel showed them. Some file systems do not show default
    /// values; these options stay as they are, except for a `tmpfs`.
    fn give_back_options(&self, before: &Value, other_flags: bool) -> Result<(), String> {
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let (flags, options) = (texts(&before["mounted"]["flags"]), texts(&before["options"]));
        let seen = mounted::at(&self.host, &self.path)?.seen;
        let now = seen.map(|now| remount::shown(&now, &self.host.path(&self.path))).transpose()?.unwrap_or_default();
        // The previous version of the daemon noted only the flags.
        let is_known = before["options"].is_array();
        let options = if is_known { remount::reverse_options(&self.kind, &options, &now) } else { Vec::new() };
        if other_flags || !options.is_empty() {
            self.remount(&flags.iter().map(String::as_str).collect::<Vec<_>>(), &options)?;
        }
        match serde_json::from_value(before["root"].clone()) {
            Ok(root) if self.kind == "tmpfs" => remount::set_root(&self.host.path(&self.path), &root),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(super) fn unmount(&self) -> Result<(), String> {
        self.run("umount", &["--", &self.path]).map_err(|why| {
            format!(
                "{} can't be unmounted: {why}; stop the processes that use it (`fuser -vm {}`)",
                self.path, self.path
            )
        })
    }

    /// The first missing folder on the path.
    fn missing_folder(&self) -> Option<String> {
        let ends = self.path.match_indices('/').skip(1).map(|(at, _)| at).chain([self.path.len()]);
        let folders = ends.map(|end| &self.path[..end]);
        folders.into_iter().find(|folder| !self.host.path(folder).exists()).map(str::to_owned)
    }

    /// Removes empty folders that were created for the mount.
    fn remove_folders(&self, first: &str) -> Result<(), String> {
        let mut folder = self.path.as_str();
        while folder.starts_with(first) {
            let path = self.host.path(folder);
            let removed = if path.is_file() {
                // Created to mount a file on it.
                let is_empty = fs::metadata(&path).is_ok_and(|meta| meta.len() == 0);
                if is_empty { fs::remove_file(&path) } else { Ok(()) }
            } else {
                fs::remove_dir(&path)
            };
            match removed {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Entries of others stay.
                Err(error) if is_of_others(error.kind()) => return Ok(()),
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
            folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
        }
        Ok(())
    }
}

/// The kernel's message comes first, because the end of a long text is cut off. It is also printed to the output.
fn in_words(refused: Option<String>, what: &str, why: &str) -> String {
    let Some(refused) = refused else { return format!("{what}: {why}") };
    let _ = writeln!(io::stderr(), "{refused}");
    format!("{refused}; {what}: {why}")
}

/// Why a program failed: its last error line, without hints about other sources.
pub(super) fn reason(ran: &Ran) -> String {
    let is_hint =
        |line: &&str| ["dmesg(1)", "(hint)", "systemctl daemon-reload"].iter().any(|hint| line.contains(hint));
    let said = ran.err.lines().map(str::trim).filter(|line| !line.is_empty()).rfind(|line| !is_hint(line));
    said.map_or_else(|| ran.complaint(), str::to_owned)
}

/// Whether a folder can't be removed because of others' entries in it or a mount on it.
fn is_of_others(error: io::ErrorKind) -> bool {
    matches!(error, io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::ResourceBusy)
}

impl Spec for Place {
    fn target(&self) -> String {
        format!("{} from {} ({})", self.path, self.source, self.kind)
    }

    fn shared(&self) -> Option<&str> {
        Some(FSTAB.path)
    }

    fn edit_turn(&self) -> Option<&'static str> {
        Some(FSTAB.turn)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = json!({ "fstab": self.lines()? });
        if self.is_live() {
            let mounted::On { hidden, cover, .. } = mounted::at(&self.host, &self.path)?;
            let hidden = (hidden > 0).then(|| json!(format!("hidden by a later mount on {cover}")));
            found["mounted"] = self.live()?.or(hidden).unwrap_or(Value::Null);
        }
        if FSTAB.is_unread(&self.own) {
            found["systemd"] = json!(format!("has not read {} again", FSTAB.path));
        }
        Ok(Some(found))
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        let mut found = self.look(None)?;
        if let (Some(found), [line]) = (&mut found, self.lines()?.as_slice())
            && self.does_the_same(line)
        {
            found["fstab"] = json!([self.line()]);
        }
        Ok(found)
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let mut found = self.look(None)?.unwrap_or_default();
        // With the original line ends, except for the newline itself.
        let text = self.host.read(FSTAB.path)?;
        let about: Vec<&str> = lines(&text).into_iter().filter(|line| self.is_about(line)).collect();
        found["fstab"] = json!(about.iter().map(|line| line.strip_suffix('\n').unwrap_or(line)).collect::<Vec<_>>());
        found["table"] = json!(FSTAB.is_of_others(&self.host)?);
        found["open"] = json!(about.last().is_some_and(|line| !line.ends_with('\n')));
        if self.is_live() {
            found["folder"] = json!(self.missing_folder());
            found["mounted"] = self.live()?.unwrap_or(Value::Null);
            let mounted::On { seen, hidden, .. } = mounted::at(&self.host, &self.path)?;
            found["hidden"] = json!(hidden);
            if let Some(theirs) = seen.filter(|_| !self.is_bind()) {
                found["options"] = json!(remount::shown(&theirs, &self.host.path(&self.path))?);
                found["root"] = json!(remount::root(&self.host.path(&self.path))?);
            }
        }
        Ok(Some(found))
    }

    fn wanted(&self) -> Value {
        let mut wanted = json!({ "fstab": [self.line()] });
        if self.is_live() {
            wanted["mounted"] = self.live_wanted();
        }
        wanted
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        if self.is_live() {
            match self.live()? {
                None => self.mount()?,
                Some(found) if found["source"] != self.source || found["type"] != self.kind => {
                    return Err(format!(
                        "{} is already mounted from {} ({}), and not from {} ({}): unmount it, or write this \
                         mount into the model",
                        self.path,
                        found["source"].as_str().unwrap_or_default(),
                        found["type"].as_str().unwrap_or_default(),
                        self.source,
                        self.kind
                    ));
                }
                // It gets its options at the first access.
                Some(_) if mounted::at(&self.host, &self.path)?.seen.is_some_and(|seen| self.is_awaited(&seen)) => {}
                // The kernel does not show most options; the line shows whether they were applied.
                Some(found) if found != self.live_wanted() || self.lines()? != [self.line()] => {
                    self.remount_all(before)?;
                }
                Some(_) => {}
            }
        }
        self.edit_table(true, &|text| self.with_lines(text, true, &[self.line()], false))
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        if self.is_live() {
            let (was, is) = (&before["mounted"], self.live()?);
            match is {
                // Also mounts stacked by earlier attempts.
                Some(_) if was.is_null() => {
                    while self.live()?.is_some_and(|is| is["source"] == self.source && is["type"] == self.kind) {
                        self.unmount()?;
                    }
                }
                Some(is) if is["source"] == was["source"] => {
                    self.give_back_options(before, is["flags"] != was["flags"])?
                }
                Some(_) | None => {}
            }
            let mounted::On { seen, hidden, cover } = mounted::at(&self.host, &self.path)?;
            if was.is_null() && hidden as u64 > before["hidden"].as_u64().unwrap_or_default() {
                let advice = if Path::new(&cover) == Path::new(&self.path) {
                    "unmount it first"
                } else {
                    "let this mount come `after` that mount"
                };
                return Err(format!(
                    "an earlier mount on {} is hidden by a later mount on {cover}, and can be unmounted after that \
                     mount: {advice}",
                    self.path
                ));
            }
            if let Some(first) = before["folder"].as_str()
                && seen.is_none()
            {
                self.remove_folders(first)?;
            }
        }
        let lines = before["fstab"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        let is_open = before["open"].as_bool().unwrap_or_default();
        // The note of an earlier version has no word about the table.
        let is_kept = before["table"] != json!(false);
        self.edit_table(is_kept, &|text| self.with_lines(text, false, &lines, is_open))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::spec_in;
    use super::*;

    #[test]
    fn mount_flags_include_named_and_implied_flags() {
        for (options, flags) in [
            (r#""ro","noatime""#, json!(["ro", "noatime"])),
            (r#""users","size=1m""#, json!(["noexec", "nosuid", "nodev"])),
            (r#""user","defaults""#, json!(["noexec", "nosuid", "nodev"])),
            (r#""owner""#, json!(["nosuid", "nodev"])),
            (r#""group","noexec""#, json!(["noexec", "nosuid", "nodev"])),
            // The last option counts.
            (r#""users","exec""#, json!(["nosuid", "nodev"])),
            (r#""exec","users""#, json!(["noexec", "nosuid", "nodev"])),
            (r#""owner","dev","suid""#, json!([])),
            (r#""noexec","exec","ro","rw""#, json!([])),
            (r#""noatime","relatime""#, json!(["noatime"])),
        ] {
            let content = format!(r#"{{"path":"/srv/x","source":"s","type":"tmpfs","options":[{options}]}}"#);
            let spec = spec_in(&MountSetting, &content, "n1/x").expect("good");
            assert_eq!(spec.wanted()["mounted"]["flags"], flags, "{options}");
        }
    }

    #[test]
    fn an_automount_of_systemd_counts_as_mounted() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("proc/self")).expect("made");
        let list = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n40 22 0:50 / /srv/x rw - autofs systemd-1 rw,direct\n";
        fs::write(root.path().join("proc/self/mountinfo"), list).expect("written");
        let place = |option: &str| Place {
            host: Host::below(Some(root.path())).expect("absolute"),
            cob: "n1/x".to_owned(),
            path: "/srv/x".to_owned(),
            source: "srv:/x".to_owned(),
            kind: "nfs".to_owned(),
            options: vec![option.to_owned(), "ro".to_owned()],
            pass: 0,
            own: PathBuf::new(),
            longest: Duration::ZERO,
        };
        let awaited = place("x-systemd.automount");
        assert_eq!(awaited.live().expect("seen"), Some(awaited.live_wanted()));
        assert_eq!(place("noatime").live().expect("seen").expect("there")["source"], "systemd-1");
    }
}
