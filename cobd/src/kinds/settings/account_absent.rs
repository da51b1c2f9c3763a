//! The absent form of `user` and `group`: no line of the account files names them.
//!
//! The lines are cut out of the files and put back at the departure, byte for byte: password, numbers and memberships
//! included. The line of `/etc/passwd` goes last and returns first, so that a killed transition is seen and continues. The
//! home and other files of a user stay untouched.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Spec;
use super::accounts::{self, TURN, account, groups};
use super::cut::{Cut, Rest, bare};
use crate::kinds::native::{Host, Turn, lines};

/// The files with lines of users, in the order in which the lines go.
const OF_USERS: [&str; 6] = ["gshadow", "group", "subgid", "subuid", "shadow", "passwd"];
/// The files with lines of groups.
const OF_GROUPS: [&str; 2] = ["gshadow", "group"];
/// The most processes that a message names.
const MAX_NAMED: usize = 5;

/// A user or group that must not exist.
#[derive(Debug)]
pub(super) struct Absent {
    host: Host,
    name: String,
    is_user: bool,
    longest: Duration,
}

/// The lines before any change.
#[derive(Debug, Serialize, Deserialize)]
struct Before {
    files: BTreeMap<String, Cut>,
    /// Other names that had the same number.
    #[serde(default)]
    twins: Vec<String>,
}

impl Absent {
    pub(super) fn user(host: Host, name: String, longest: Duration) -> Box<dyn Spec> {
        Box::new(Self { host, name, is_user: true, longest })
    }

    pub(super) fn group(host: Host, name: String, longest: Duration) -> Box<dyn Spec> {
        Box::new(Self { host, name, is_user: false, longest })
    }

    fn files(&self) -> &'static [&'static str] {
        if self.is_user { &OF_USERS } else { &OF_GROUPS }
    }

    fn sort(&self) -> &'static str {
        if self.is_user { "user" } else { "group" }
    }

    fn text(&self, file: &str) -> Result<String, String> {
        self.host.read(&format!("/etc/{file}"))
    }

    /// Whether a line of this file, whose first field is the name, is a line of the user or group.
    fn is_own_file(&self, file: &str, goes: bool) -> bool {
        !self.is_user || goes || !OF_GROUPS.contains(&file)
    }

    /// Whether the group of a user's name goes with the user: nobody else is in it.
    fn has_own_group(&self) -> Result<bool, String> {
        let Some(found) = account(&self.host, &self.name)? else { return Ok(false) };
        let Some(group) = groups(&self.host)?.into_iter().find(|group| group.name == self.name) else {
            return Ok(true);
        };
        let is_alone = group.members.iter().all(|member| *member == self.name);
        Ok(group.gid == found.gid && is_alone && self.first_group_of(group.gid)?.iter().all(|name| *name == self.name))
    }

    /// The accounts with this first group.
    fn first_group_of(&self, gid: u32) -> Result<Vec<String>, String> {
        self.named("passwd", 3, gid)
    }

    /// The names of all lines with this number.
    fn named(&self, file: &str, field: usize, number: u32) -> Result<Vec<String>, String> {
        let text = self.text(file)?;
        let fields = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let has_number = |fields: &Vec<&str>| fields.get(field).and_then(|text| text.parse().ok()) == Some(number);
        Ok(fields.filter(has_number).map(|fields| fields[0].to_owned()).collect())
    }

    /// The part of a line that stays.
    fn rest(&self, file: &str, own_group: bool, line: &str) -> Rest {
        if is_of(line, &self.name) {
            let goes = self.is_own_file(file, own_group);
            return if goes { Rest::Nothing } else { self.without_member(line) };
        }
        if self.is_user && OF_GROUPS.contains(&file) { self.without_member(line) } else { Rest::Whole }
    }

    /// The line of a group without the user, in the members and in the administrators.
    fn without_member(&self, line: &str) -> Rest {
        let text = bare(line);
        let mut fields: Vec<String> = text.split(':').map(str::to_owned).collect();
        let mut is_changed = false;
        for field in fields.iter_mut().skip(2) {
            let all: Vec<&str> = field.split(',').collect();
            if all.contains(&self.name.as_str()) {
                *field = all.into_iter().filter(|name| *name != self.name).collect::<Vec<_>>().join(",");
                is_changed = true;
            }
        }
        if is_changed { Rest::Part(fields.join(":") + &line[text.len()..]) } else { Rest::Whole }
    }

    /// The line of a group that others changed, with the user again.
    fn with_member(&self, line: &str, was: &str) -> Option<String> {
        if !self.is_user || first_field(line) != first_field(was) {
            return None;
        }
        let text = bare(line);
        let mut fields: Vec<String> = text.split(':').map(str::to_owned).collect();
        for (field, was) in fields.iter_mut().zip(bare(was).split(':')).skip(2) {
            let has = |field: &str| field.split(',').any(|name| name == self.name);
            if has(was) && !has(field) {
                *field = if field.is_empty() { self.name.clone() } else { format!("{field},{}", self.name) };
            }
        }
        Some(fields.join(":") + &line[text.len()..])
    }

    /// The processes of the user, as texts.
    fn processes(&self, uid: u32) -> Vec<String> {
        let entries = fs::read_dir(self.host.path("/proc")).into_iter().flatten().flatten();
        let mut found = Vec::new();
        for number in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            let Ok(text) = fs::read_to_string(self.host.path(&format!("/proc/{number}/status"))) else { continue };
            let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim();
            let is_of_user = value("Uid:").split_whitespace().any(|id| id.parse() == Ok(uid));
            if is_of_user && !value("State:").starts_with('Z') {
                found.push(format!("{number} ({})", value("Name:")));
            }
        }
        found.sort();
        found
    }

    /// Whether the number was given to another name meanwhile.
    fn is_number_free(&self, before: &Before) -> Result<(), String> {
        let (file, field) = if self.is_user { ("passwd", 2) } else { ("group", 2) };
        let lines = before.files.get(file).into_iter().flat_map(|cut| &cut.gone);
        for gone in lines.filter(|gone| is_of(&gone.line, &self.name)) {
            let number = bare(&gone.line).split(':').nth(field).and_then(|text| text.parse().ok());
            let Some(number) = number else { continue };
            let is_new = |name: &String| *name != self.name && !before.twins.contains(name);
            if let Some(other) = self.named(file, field, number)?.into_iter().find(is_new) {
                let (sort, name) = (self.sort(), &self.name);
                return Err(format!(
                    "the {sort} {name} can't return: {other} has its number {number} now; give {other} another number"
                ));
            }
        }
        Ok(())
    }

    fn edit(&self, file: &str, change: &dyn Fn(&str) -> String) -> Result<(), String> {
        let mode = if file.ends_with("shadow") { 0o600 } else { 0o644 };
        let changed = |text: &str| Some(change(text)).filter(|new| new != text);
        self.host.edit(&format!("/etc/{file}"), mode, &changed).map(|_| ())
    }
}

fn first_field(line: &str) -> &str {
    bare(line).split(':').next().unwrap_or_default()
}

/// Whether a line begins with this name.
fn is_of(line: &str, name: &str) -> bool {
    first_field(line) == name
}

impl Spec for Absent {
    fn target(&self) -> String {
        format!("no {} {}", self.sort(), self.name)
    }

    fn turn(&self) -> Option<&'static str> {
        Some(TURN)
    }

    fn clear_killed(&self, host: &Host, own: &Path) -> Result<(), String> {
        let files: Vec<String> = self.files().iter().map(|file| format!("/etc/{file}")).collect();
        if !files.iter().any(|file| host.is_half_edited(file)) {
            return Ok(());
        }
        // The holder of the lock is editing.
        let Some(_turn) = Turn::take(own, TURN) else { return Ok(()) };
        files.iter().try_for_each(|file| host.clear_edit(file))
    }

    /// The places that name it.
    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = Vec::new();
        for file in self.files().iter().rev() {
            let text = self.text(file)?;
            for line in lines(&text) {
                // A group of the user's name need not be the user's.
                if is_of(line, &self.name) && self.is_own_file(file, false) {
                    found.push(format!("/etc/{file}"));
                } else if self.is_user && self.rest(file, false, line) != Rest::Whole {
                    found.push(format!("/etc/{file}: {}", first_field(line)));
                }
            }
        }
        Ok(Some(json!(found)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let own_group = self.has_own_group()?;
        let cut = |file: &&str| {
            Ok((*file).to_owned()).and_then(|name: String| {
                let text = self.text(file)?;
                Ok::<_, String>((name, Cut::of(&text, &|line| self.rest(file, own_group, line))))
            })
        };
        let files = self.files().iter().map(cut).collect::<Result<_, String>>()?;
        let number = match self.is_user {
            true => account(&self.host, &self.name)?.map(|account| account.uid),
            false => groups(&self.host)?.into_iter().find(|group| group.name == self.name).map(|group| group.gid),
        };
        let file = if self.is_user { "passwd" } else { "group" };
        let twins = number.map_or(Ok(Vec::new()), |number| self.named(file, 2, number))?;
        Ok(Some(json!(Before { files, twins })))
    }

    fn wanted(&self) -> Value {
        json!([])
    }

    fn hindered(&self) -> Result<(), String> {
        let name = &self.name;
        if self.is_user {
            let Some(found) = account(&self.host, name)? else { return Ok(()) };
            let mut processes = self.processes(found.uid);
            if processes.is_empty() {
                return Ok(());
            }
            let more = processes.len().saturating_sub(MAX_NAMED);
            processes.truncate(MAX_NAMED);
            let (named, more) =
                (processes.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() });
            return Err(format!(
                "processes of the user {name} run: {named}{more}; stop them (`loginctl terminate-user {name}` ends its \
                 sessions), or let the user come `after` the service that stops"
            ));
        }
        let group = groups(&self.host)?.into_iter().find(|group| group.name == *name);
        let accounts = group.map_or(Ok(Vec::new()), |group| self.first_group_of(group.gid))?;
        if accounts.is_empty() {
            return Ok(());
        }
        let accounts = accounts.join(", ");
        Err(format!(
            "the group {name} is the first group of {accounts}; give each of these accounts another group, or let this \
             group come `after` the object with which the account goes"
        ))
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let _lock = accounts::lock(&self.host, self.longest)?;
        self.hindered()?;
        let own_group = self.has_own_group()?;
        for file in self.files() {
            self.edit(file, &|text| Cut::out_of(text, &|line| self.rest(file, own_group, line)))?;
        }
        Ok(())
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before.and_then(|before| serde_json::from_value::<Before>(before.clone()).ok()) else {
            return Ok(());
        };
        let _lock = accounts::lock(&self.host, self.longest)?;
        let last = if self.is_user { "passwd" } else { "group" };
        let noted = before.files.get(last).into_iter().flat_map(|cut| &cut.gone).map(|gone| bare(&gone.line));
        let (noted, text) = (noted.collect::<Vec<_>>(), self.text(last)?);
        let mut now = text.lines().filter(|line| is_of(line, &self.name));
        if now.any(|line| !noted.contains(&bare(line))) {
            eprintln!("the {} {} was made anew and stays; its earlier lines do not return", self.sort(), self.name);
            return Ok(());
        }
        self.is_number_free(&before)?;
        for file in self.files().iter().rev() {
            let Some(cut) = before.files.get(*file).filter(|cut| !cut.is_empty()) else { continue };
            let is_there = |line: &str, gone: &str| match file.starts_with("sub") {
                true => bare(line) == bare(gone),
                false => first_field(line) == first_field(gone),
            };
            self.edit(file, &|text| cut.put_back(text, &is_there, &|line, was| self.with_member(line, was)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "account_absent_test.rs"]
mod tests;
