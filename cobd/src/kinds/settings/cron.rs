//! The kind back end `cron`: a command at certain times, in a separate file below `/etc/cron.d`.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, lchown};

use cob_kinds::Cron;
use cob_types::crontab;
use serde_json::{Value, json};

use super::{Entry, Setting, Spec, accounts, conf};
use crate::kinds::native::Host;

/// The back end `cron`.
#[derive(Debug)]
pub(super) struct CronSetting;

#[derive(Debug)]
struct Table {
    host: Host,
    file: String,
    text: String,
    user: String,
}

impl Setting for CronSetting {
    type Content = Cron;

    fn is_short(&self) -> bool {
        true
    }

    fn spec(&self, Entry { content, host, cob, .. }: Entry<Cron>) -> Result<Box<dyn Spec>, String> {
        let mut text = format!("# Written by cobd for {cob}.\n");
        for (name, value) in &content.env {
            // An earlier version accepted more variables.
            text.push_str(&crontab::assignment(name, value).unwrap_or_else(|_| format!("{name}={value}")));
            text.push('\n');
        }
        // cron accepts only spaces and tabs between fields.
        let schedule = content.schedule.split_whitespace().collect::<Vec<_>>().join(" ");
        text.push_str(&format!("{schedule} {} {}\n", content.user, content.command.trim()));
        Ok(Box::new(Table { host, file: content.file(&cob), text, user: content.user }))
    }
}

/// The variables of a table.
type Variables = BTreeMap<String, String>;

impl Table {
    /// Whether another table of the host has the same effect.
    fn is_run_for_others(&self) -> Result<bool, String> {
        let folder = fs::read_dir(self.host.path(Cron::FOLDER)).into_iter().flatten().flatten();
        let names = folder.filter_map(|entry| entry.file_name().into_string().ok());
        let read = names.filter(|name| Cron::is_file_name(name)).map(|name| format!("{}/{name}", Cron::FOLDER));
        let ours = jobs(&self.text);
        for file in read.chain(["/etc/crontab".to_owned()]) {
            if self.host.inspect(&file)?.is_some_and(|meta| faults(&meta).is_none()) {
                let theirs = jobs(&self.host.read(&file)?);
                let does = |(variables, job): &(Variables, String)| {
                    let has = |(has, does): &(Variables, String)| {
                        does == job && variables.iter().all(|(name, value)| has.get(name) == Some(value))
                    };
                    theirs.iter().any(has)
                };
                if ours.iter().all(does) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether the host has the user. A root folder that becomes a host may have no accounts yet.
    fn has_user(&self) -> Result<bool, String> {
        if accounts::account(&self.host, &self.user)?.is_some() {
            return Ok(true);
        }
        if self.host.root().is_some() {
            return Ok(self.host.read_if_there("/etc/passwd")?.is_none());
        }
        Ok(accounts::other_source("passwd", &self.user).is_some())
    }
}

/// The jobs of a table, each with its variables.
fn jobs(text: &str) -> Vec<(Variables, String)> {
    let (mut variables, mut jobs) = (Variables::new(), Vec::new());
    for line in conf::of(text) {
        match crontab::assigned(&line) {
            Some((name, value)) => {
                variables.insert(name.to_owned(), value.to_owned());
            }
            None => jobs.push((variables.clone(), line.split_whitespace().collect::<Vec<_>>().join(" "))),
        }
    }
    jobs
}

/// Why cron skips a file, in Debian's cron or cronie. A user may have written the file.
fn faults(meta: &Metadata) -> Option<String> {
    let mode = meta.mode() & 0o7777;
    if !meta.is_file() {
        return Some("it is no regular file".to_owned());
    }
    // If the daemon runs as root, the owner must be root.
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Some(format!("its owner is {}", meta.uid()));
    }
    if mode & 0o7533 != 0o400 {
        return Some(format!("its mode is {mode:04o}"));
    }
    (meta.nlink() > 1).then(|| "it has another name besides".to_owned())
}

impl Spec for Table {
    fn target(&self) -> String {
        self.file.clone()
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(meta) = self.host.inspect(&self.file)? else { return Ok(None) };
        let text = if meta.is_file() { self.host.read_if_there(&self.file)? } else { None };
        Ok(match faults(&meta) {
            None => text.map(Value::from),
            Some(fault) => Some(json!({ "text": text, "cron would skip it": fault })),
        })
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        match self.is_run_for_others()? {
            true => Ok(Some(self.wanted())),
            false => self.look(None),
        }
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let Some(meta) = self.host.inspect(&self.file)? else { return Ok(None) };
        let path = self.host.path(&self.file);
        if meta.is_symlink() {
            let target = fs::read_link(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            return Ok(Some(json!({ "link": target })));
        }
        if !meta.is_file() {
            return Err(format!("{}: it is not a regular file", path.display()));
        }
        let text = self.host.read_if_there(&self.file)?;
        Ok(match faults(&meta) {
            None => text.map(Value::from),
            Some(_) => {
                Some(json!({ "text": text, "mode": meta.mode() & 0o7777, "uid": meta.uid(), "gid": meta.gid() }))
            }
        })
    }

    fn wanted(&self) -> Value {
        json!(self.text)
    }

    fn of_use(&self) -> Result<(), String> {
        if self.has_user()? {
            return Ok(());
        }
        let user = &self.user;
        Err(format!(
            "cron would skip the file: there is no user {user}; let it come `after` the object that makes the user"
        ))
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        match self.host.inspect(&self.file)?.as_ref().and_then(faults) {
            Some(_) => self.host.replace(&self.file, &self.text, 0o644),
            None => self.host.write(&self.file, &self.text, 0o644),
        }
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let path = self.host.path(&self.file);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        match before {
            None | Some(Value::Null) => self.host.remove(&self.file),
            Some(Value::String(text)) => self.host.write(&self.file, text, 0o644),
            // The file as it was, although cron skipped it.
            Some(before) if before["link"].is_string() => {
                self.host.link(&self.file, before["link"].as_str().unwrap_or_default())
            }
            Some(before) => {
                let number = |key: &str| before[key].as_u64().and_then(|number| u32::try_from(number).ok());
                let text = before["text"].as_str().unwrap_or_default();
                self.host.replace(&self.file, text, number("mode").unwrap_or(0o644))?;
                lchown(&path, number("uid"), number("gid")).map_err(failed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;
    use std::process::Command;

    use super::super::tests::spec_in;
    use super::*;
    use crate::kinds::native::Native;

    fn table(root: &Path) -> Box<dyn Spec> {
        let content = format!(r#"{{"root":{root:?},"name":"mine","schedule":"@daily","command":"true"}}"#);
        spec_in(&CronSetting, &content, "n1/mine").expect("good")
    }

    #[test]
    fn a_file_that_cron_would_skip_is_written_again() {
        let root = tempfile::tempdir().expect("a folder");
        let spec = table(root.path());
        let file = root.path().join("etc/cron.d/mine");
        let found = || spec.look(None).expect("seen").expect("there");
        spec.apply(None).expect("applied");
        assert_eq!(found(), spec.wanted());
        let mode = |mode: u32| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
        let elsewhere = root.path().join("elsewhere");
        let odd: [(&str, &dyn Fn()); 5] = [
            ("its mode is 0664", &|| mode(0o664)),
            ("its mode is 0755", &|| mode(0o755)),
            ("it has another name", &|| fs::hard_link(&file, &elsewhere).expect("linked")),
            ("no regular file", &|| {
                fs::rename(&file, &elsewhere).expect("moved");
                symlink(&elsewhere, &file).expect("linked");
            }),
            ("its owner is 65534", &|| _ = lchown(&file, Some(65534), None)),
        ];
        let is_root = rustix::process::geteuid().is_root();
        for (fault, make) in odd.into_iter().take(if is_root { 5 } else { 4 }) {
            make();
            let told = found()["cron would skip it"].as_str().unwrap_or_default().to_owned();
            assert!(told.contains(fault), "{fault}: {told}");
            spec.apply(None).expect("applied");
            assert_eq!(found(), spec.wanted(), "{fault}");
        }
        mode(0o600);
        assert_eq!(found(), spec.wanted(), "cron ignores the read permission");
    }

    /// The check by an installed cron: Debian's cron has `crontab -n`, cronie has `crontab -T`.
    #[test]
    fn the_installed_cron_accepts_the_written_tables() {
        let validate = |text: &str| -> Option<bool> {
            let file = tempfile::NamedTempFile::new().expect("a file");
            // The lines of a user's table have no user.
            fs::write(file.path(), text.replace(" root ", " ")).expect("written");
            let tries = ["-n", "-T"].map(|flag| Command::new("crontab").arg(flag).arg(file.path()).output());
            let said = tries.into_iter().flatten().map(|ran| (ran.status.success(), ran.stderr));
            let answers = said.filter(|(_, said)| !String::from_utf8_lossy(said).contains("invalid option"));
            answers.map(|(success, _)| success).reduce(|one, other| one || other)
        };
        for (env, command) in [
            (r#"{"MAILTO":""}"#, "date"),
            (r#"{"A":"'","B":"'a' b","C":" x ","D":"\"","E":"x 'y' \"z\"","F":"1=2 # 3"}"#, "true"),
            (r"{}", &"x".repeat(998)),
            (r"{}", "date \\\\% x"),
        ] {
            let content = format!(r#"{{"name":"x","schedule":"*/5 * * * *","command":"{command}","env":{env}}}"#);
            let spec = spec_in(&CronSetting, &content, "n1/x").expect("read");
            assert_eq!(Native::accept(&CronSetting, &content), Ok(()), "{content}");
            let text = spec.wanted().as_str().expect("a text").to_owned();
            match validate(&text) {
                Some(is_read) => assert!(is_read, "cron would skip {text}"),
                None => eprintln!("skipped: it takes crontab"),
            }
        }
        // A content that an earlier version wrote is still readable, and its fault is named.
        for (env, command, word) in [
            (r#"{"A":"'\" "}"#, "true".to_owned(), "both sorts of quotes"),
            (r#"{"A B":"x"}"#, "true".to_owned(), "can't be set"),
            ("{}", "x".repeat(999), "longer than 998 bytes"),
            ("{}", "a\\rb".to_owned(), "control characters"),
        ] {
            let content = format!(r#"{{"name":"x","schedule":"@daily","command":"{command}","env":{env}}}"#);
            let why = Native::accept(&CronSetting, &content);
            assert!(why.as_ref().is_err_and(|why| why.contains(word)), "{content}: {why:?}");
        }
    }

    #[test]
    fn a_file_that_cron_skipped_before_is_restored_as_it_was() {
        let root = tempfile::tempdir().expect("a folder");
        let spec = table(root.path());
        let file = root.path().join("etc/cron.d/mine");
        fs::create_dir_all(file.parent().expect("below")).expect("made");
        let there_and_back = || {
            let before = spec.before().expect("seen");
            spec.apply(before.as_ref()).expect("applied");
            assert_eq!(spec.look(None).expect("seen"), Some(spec.wanted()));
            for _ in 0..2 {
                spec.restore(before.as_ref()).expect("restored");
            }
        };
        fs::write(&file, "theirs\n").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("set");
        there_and_back();
        assert_eq!(fs::read_to_string(&file).expect("read"), "theirs\n");
        assert_eq!(fs::metadata(&file).expect("there").mode() & 0o7777, 0o666);
        let other = root.path().join("other");
        fs::rename(&file, &other).expect("moved");
        symlink("../../other", &file).expect("linked");
        there_and_back();
        assert_eq!(fs::read_link(&file).expect("a link"), Path::new("../../other"));
        assert_eq!(fs::read_to_string(&other).expect("read"), "theirs\n");
    }
}

#[cfg(test)]
#[path = "cron_test.rs"]
mod reader;
