//! The kind back end `group`: a group of accounts.

use cob_kinds::Group;
use serde_json::{Value, json};

use super::account_absent::Absent;
use super::accounts::{TURN, groups, remove_traces_of_group, run};
use super::{Entry, Setting, Spec};

/// The back end `group`.
#[derive(Debug)]
pub(super) struct GroupSetting;

impl Setting for GroupSetting {
    type Content = Group;

    fn spec(&self, entry: Entry<Group>) -> Result<Box<dyn Spec>, String> {
        if entry.content.absent {
            return Ok(Absent::group(entry.host, entry.content.name, entry.longest));
        }
        Ok(Box::new(entry))
    }
}

impl Entry<Group> {
    fn run(&self, program: &str, options: &[(&str, Option<u32>)], flag: Option<&str>) -> Result<(), String> {
        let mut arguments: Vec<String> = flag.into_iter().map(str::to_owned).collect();
        for (option, number) in options {
            arguments.extend(number.iter().flat_map(|n| [(*option).to_owned(), n.to_string()]));
        }
        arguments.push(self.content.name.clone());
        run(&self.host, program, &arguments)
    }

    fn gid(&self) -> Result<Option<u32>, String> {
        Ok(groups(&self.host)?.into_iter().find(|group| group.name == self.content.name).map(|group| group.gid))
    }
}

impl Spec for Entry<Group> {
    fn target(&self) -> String {
        self.content.name.clone()
    }

    fn turn(&self) -> Option<&'static str> {
        Some(TURN)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let asked = self.content.gid.is_some();
        Ok(self.gid()?.map(|gid| if asked { json!({ "gid": gid }) } else { json!({}) }))
    }

    fn wanted(&self) -> Value {
        self.content.gid.map_or_else(|| json!({}), |gid| json!({ "gid": gid }))
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        if self.gid()?.is_some() {
            return self.run("groupmod", &[("--gid", self.content.gid)], None);
        }
        self.run("groupadd", &[("--gid", self.content.gid)], self.content.system.then_some("--system"))
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let was = before.and_then(|before| before["gid"].as_u64()).and_then(|gid| u32::try_from(gid).ok());
        match (before, self.gid()?) {
            (None, Some(_)) => self.run("groupdel", &[], None),
            (Some(_), Some(gid)) if was.is_some_and(|was| was != gid) => self.run("groupmod", &[("--gid", was)], None),
            (Some(_), None) => self.run("groupadd", &[("--gid", was)], None),
            (None, None) => remove_traces_of_group(&self.host, &self.content.name),
            (Some(_), Some(_)) => Ok(()),
        }
    }
}
