//! The kind back end `cron`: one command at certain times, as a file of its own below `/etc/cron.d`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use cob_types::schedule;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Setting, Wish, accounts};
use crate::kinds::content;
use crate::kinds::native::{Host, run_bounded};

/// The back end `cron`.
#[derive(Debug)]
pub(in crate::kinds) struct Cron;

/// Its content.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    schedule: String,
    command: String,
    #[serde(default = "root_user")]
    user: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    root: Option<PathBuf>,
}

fn root_user() -> String {
    "root".to_owned()
}

#[derive(Debug)]
struct Table {
    host: Host,
    file: String,
    text: String,
    schedule: String,
    user: String,
}

impl Setting for Cron {
    fn name(&self) -> &'static str {
        "cron"
    }

    fn read(&self, content: &str, cob: &str) -> Result<Box<dyn Wish>, String> {
        let content: Content = content::read(content)?;
        // Whether it is one that cron takes is looked at elsewhere: what was written by an earlier cobd, which took any
        // five words, must be read for its way back.
        if content.schedule.contains('\n') {
            return Err(format!("content: {:?} is no schedule: it has more than one line", content.schedule));
        }
        // cron skips files with any other character in their names.
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
        let name = content.name.unwrap_or_else(|| format!("cob-{}", cob.chars().map(plain).collect::<String>()));
        if name.is_empty() || name.chars().any(|c| plain(c) != c) {
            return Err(format!("content: cron reads no file {name:?}; it may have letters, digits, - and _"));
        }
        let is_word = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
        if !is_word(&content.user) {
            return Err(format!("content: {:?} is no user", content.user));
        }
        if content.command.trim().is_empty() || content.command.contains(['\n', '\0']) {
            return Err("content: the command is empty, or has more than one line".to_owned());
        }
        let mut text = format!("# Written by cobd for {cob}.\n");
        for (name, value) in &content.env {
            if !is_word(name) || name.contains('=') || value.contains(['\n', '\0']) {
                return Err(format!("content: the variable {name:?} can't be set"));
            }
            text.push_str(&format!("{name}={value}\n"));
        }
        text.push_str(&format!("{} {} {}\n", content.schedule.trim(), content.user, content.command.trim()));
        let host = Host::below(content.root.as_deref())?;
        let Content { schedule, user, .. } = content;
        Ok(Box::new(Table { host, file: format!("/etc/cron.d/{name}"), text, schedule, user }))
    }
}

impl Table {
    /// Whether the host knows who is to run it. One that is only becoming a host may have no accounts yet.
    fn has_user(&self) -> Result<bool, String> {
        if accounts::account(&self.host, &self.user)?.is_some() {
            return Ok(true);
        }
        if self.host.root().is_some() {
            return Ok(self.host.read_if_there("/etc/passwd")?.is_none());
        }
        // Accounts may be kept elsewhere, too. Where nobody can be asked, it is known from the file alone.
        let asked = run_bounded(Command::new("getent").args(["passwd", "--", &self.user]), b"");
        Ok(asked.is_ok_and(|ran| ran.code == Some(0)))
    }
}

impl Wish for Table {
    fn host(&self) -> &Host {
        &self.host
    }

    fn target(&self) -> String {
        self.file.clone()
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        Ok(self.host.read_if_there(&self.file)?.map(Value::from))
    }

    fn wanted(&self) -> Value {
        json!(self.text)
    }

    fn sound(&self) -> Result<(), String> {
        schedule::check(&self.schedule).map_err(|why| format!("content: {:?} is no schedule: {why}", self.schedule))
    }

    fn of_use(&self) -> Result<(), String> {
        self.sound().map_err(|why| format!("cron would skip the file; {why}"))?;
        if self.has_user()? {
            return Ok(());
        }
        let user = &self.user;
        Err(format!("cron would skip the file: there is no user {user}; let it come `after` what makes the account"))
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        self.host.write(&self.file, &self.text, 0o644)
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        match before.and_then(Value::as_str) {
            Some(text) => self.host.write(&self.file, text, 0o644),
            None => self.host.remove(&self.file),
        }
    }
}
