//! The kind back end `user`: an account.
//!
//! Fields that the content leaves out keep their value or the host's default. A new account has its own group unless
//! the content names another. The departure removes an account that this kind made, and its own group. The home
//! folder stays unless `remove_home` is given.

use std::collections::BTreeSet;

use cob_kinds::User;
use serde_json::{Map, Value, json};

use super::account_absent::Absent;
use super::accounts::{
    Account, TURN, account, groups, has_line, has_shadow, has_stale_lock, remove_traces_of_group, run,
};
use super::{Entry, Setting, Spec};

/// A key in the note: the account did not exist.
const ABSENT: &str = "absent";

/// The back end `user`.
#[derive(Debug)]
pub(super) struct UserSetting;

impl Setting for UserSetting {
    type Content = User;

    fn spec(&self, entry: Entry<User>) -> Result<Box<dyn Spec>, String> {
        if entry.content.absent {
            return Ok(Absent::user(entry.host, entry.content.name, entry.longest));
        }
        Ok(Box::new(entry))
    }
}

impl Entry<User> {
    fn account(&self) -> Result<Option<Account>, String> {
        account(&self.host, &self.content.name)
    }

    /// Whether a program was killed after it had written only some of its files.
    fn is_half(&self) -> Result<bool, String> {
        let Some(found) = self.account()? else { return Ok(false) };
        let has_group = groups(&self.host)?.iter().any(|group| group.gid == found.gid);
        Ok(!has_group || !has_shadow(&self.host, &self.content.name)?)
    }

    /// The options for an account with these fields.
    fn options(&self, wanted: &Value) -> Result<Vec<String>, String> {
        let all = groups(&self.host)?;
        let there = |name: &str| {
            let found = all.iter().find(|group| group.name == name || group.gid.to_string() == name);
            found.ok_or_else(|| {
                format!("there is no group {name}; let the user come `after` the object that makes the group")
            })
        };
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut options = Vec::new();
        for (key, option) in [("uid", "--uid"), ("home", "--home"), ("shell", "--shell"), ("comment", "--comment")] {
            options.extend(wanted.get(key).into_iter().flat_map(|value| [option.to_owned(), text(value)]));
        }
        if let Some(group) = wanted.get("group").and_then(Value::as_str) {
            // By its number, because with `--prefix` the programs look up names on this host.
            options.extend(["--gid".to_owned(), there(group)?.gid.to_string()]);
        }
        if let Some(names) = wanted.get("groups").and_then(Value::as_array) {
            let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
            names.iter().try_for_each(|name| there(name).map(|_| ()))?;
            options.extend(["--groups".to_owned(), names.join(",")]);
        }
        Ok(options)
    }

    /// Removes traces of a killed removal from other files, by creating and removing an account of that name.
    fn remove_traces(&self) -> Result<(), String> {
        let name = &self.content.name;
        let mut is_trace =
            groups(&self.host)?.iter().any(|group| group.members.contains(name)) || has_stale_lock(&self.host)?;
        for file in ["/etc/shadow", "/etc/subuid", "/etc/subgid"] {
            is_trace |= has_line(&self.host, file, name)?;
        }
        if !is_trace {
            return Ok(());
        }
        let plain = ["--no-create-home", "--no-user-group", "--gid", "0"].map(str::to_owned);
        self.run("useradd", plain.to_vec())?;
        self.run("userdel", Vec::new())
    }

    fn run(&self, program: &str, mut options: Vec<String>) -> Result<(), String> {
        options.push(self.content.name.clone());
        run(&self.host, program, &options)
    }

    /// Whether an account that was made here got its own group: the content named no group then, whatever it names now.
    fn came_with_its_group(&self, before: &Value, there: Option<&Account>) -> Result<bool, String> {
        let all = groups(&self.host)?;
        let is_its_own = |gid| all.iter().any(|group| group.name == self.content.name && group.gid == gid);
        let is_made_here = match self.content.group.as_deref() {
            None => true,
            Some(named) => named != self.content.name && there.is_some_and(|account| is_its_own(account.gid)),
        };
        Ok(is_made_here && before["own_group"] == json!(false))
    }

    fn has_own_group(&self) -> Result<bool, String> {
        Ok(groups(&self.host)?.iter().any(|group| group.name == self.content.name))
    }

    fn add(&self, wanted: &Value) -> Result<(), String> {
        let mut options = self.options(wanted)?;
        if wanted.get("group").is_none() {
            // A group that a killed attempt has created is used.
            let own = self.has_own_group()?;
            options.extend(if own {
                vec!["--gid".to_owned(), self.content.name.clone()]
            } else {
                vec!["--user-group".to_owned()]
            });
        }
        options.extend(self.content.system.then(|| "--system".to_owned()));
        options.push(if self.content.create_home { "--create-home" } else { "--no-create-home" }.to_owned());
        self.run("useradd", options)
    }
}

/// Whether the account did not exist originally.
fn is_made_here(before: Option<&Value>) -> bool {
    before.is_some_and(|before| before.get(ABSENT).is_some())
}

impl Spec for Entry<User> {
    fn target(&self) -> String {
        self.content.name.clone()
    }

    fn turn(&self) -> Option<&'static str> {
        Some(TURN)
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(found) = self.account()? else { return Ok(None) };
        let all = groups(&self.host)?;
        let primary = all.iter().find(|group| group.gid == found.gid);
        let mut shown = Map::new();
        let mut show = |key: &str, asked: bool, value: Value| _ = asked.then(|| shown.insert(key.to_owned(), value));
        show("uid", self.content.uid.is_some(), json!(found.uid));
        let group = primary.map_or_else(|| found.gid.to_string(), |group| group.name.clone());
        show("group", self.content.group.is_some(), json!(group));
        let is_member = |members: &[String]| members.contains(&self.content.name);
        let others: BTreeSet<_> = all.iter().filter(|g| is_member(&g.members)).map(|g| g.name.clone()).collect();
        show("groups", self.content.groups.is_some(), json!(others));
        show("home", self.content.home.is_some(), json!(found.home));
        show("shell", self.content.shell.is_some(), json!(found.shell));
        show("comment", self.content.comment.is_some(), json!(found.comment));
        show("half", is_made_here(before) && self.is_half()?, json!(true));
        Ok(Some(Value::Object(shown)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        match self.look(None)? {
            Some(found) => Ok(Some(found)),
            // A group of its name may belong to a user.
            None => Ok(Some(json!({ ABSENT: true, "own_group": self.has_own_group()? }))),
        }
    }

    fn wanted(&self) -> Value {
        let mut wanted = Map::new();
        let mut want = |key: &str, value: Option<Value>| _ = value.map(|value| wanted.insert(key.to_owned(), value));
        want("uid", self.content.uid.map(Value::from));
        want("group", self.content.group.clone().map(Value::from));
        want("groups", self.content.groups.as_ref().map(|groups| json!(groups)));
        want("home", self.content.home.clone().map(Value::from));
        want("shell", self.content.shell.clone().map(Value::from));
        want("comment", self.content.comment.clone().map(Value::from));
        Value::Object(wanted)
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let wanted = self.wanted();
        match self.account()? {
            None => self.add(&wanted),
            Some(_) if is_made_here(before) && self.is_half()? => {
                // Left by a killed attempt: it is removed and created again.
                self.run("userdel", vec!["--force".to_owned()])?;
                self.add(&wanted)
            }
            Some(_) => self.run("usermod", self.options(&wanted)?),
        }
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        let there = self.account()?;
        if !is_made_here(Some(before)) {
            return match there {
                Some(_) if self.look(None)?.as_ref() == Some(before) => Ok(()),
                Some(_) => self.run("usermod", self.options(before)?),
                None => self.add(before),
            };
        }
        let has_own_group = self.came_with_its_group(before, there.as_ref())?;
        if there.is_some() {
            self.run("userdel", self.content.remove_home.then(|| "--remove".to_owned()).into_iter().collect())?;
        } else {
            self.remove_traces()?;
        }
        if has_own_group {
            // Its own group, if `userdel` does not remove it or was killed before.
            if self.has_own_group()? {
                run(&self.host, "groupdel", std::slice::from_ref(&self.content.name))?;
            }
            remove_traces_of_group(&self.host, &self.content.name)?;
        }
        Ok(())
    }
}
