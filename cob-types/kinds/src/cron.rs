//! The kind `cron`: a command at certain times, in a separate file below `/etc/cron.d`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cob_types::{CobId, crontab, schedule};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint, Scalar};

/// The content of `cron`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cron {
    /// Five fields, `30 4 * * 1-5`, or `@daily` and the like.
    pub schedule: String,
    /// The command: a single line for the shell.
    pub command: String,
    /// The user.
    #[serde(default = "root_user")]
    pub user: String,
    /// The name of its file in `/etc/cron.d`; default: made of the change object's id.
    pub name: Option<String>,
    /// Variables, such as `MAILTO`; numbers, as they are written, and truth values become texts.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Scalar>", extend("x-texts" = true))]
    pub env: BTreeMap<String, String>,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

fn root_user() -> String {
    "root".to_owned()
}

impl Content for Cron {
    const KIND: Builtin = Builtin::setting("cron");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        if let Err(why) = schedule::check(&self.schedule) {
            let help = format!("write five fields as in \"30 4 * * 1-5\", or {}", schedule::WORDS.join(", "));
            faults.add("schedule", format!("{:?} is not a schedule: {why}", self.schedule), help);
        }
        if let Err(why) = crontab::command(&self.command) {
            let help = "put long commands, or commands with several lines, into a script";
            faults.add("command", format!("the command {why}"), help);
        }
        let user = &self.user;
        // After a schedule of one word, a leading `=` would turn the line into a variable.
        let is_odd = user.is_empty() || user.starts_with('=');
        if is_odd || user.contains(|c: char| c.is_whitespace() || c.is_control()) {
            faults.add("user", format!("{user:?} is not a user"), "the name of an account");
        }
        for (name, value) in &self.env {
            if let Err(why) = crontab::assignment(name, value) {
                let what = format!("the variable {name:?} can't be set: {why}");
                faults.add(("env", name), what, "set it in a script that the command runs");
            }
        }
        if let Some(name) = self.name.as_ref().filter(|name| !Self::is_file_name(name)) {
            faults.add("name", format!("cron ignores a file with the name {name:?}"), "letters, digits, - and _");
        }
    }

    fn footprint(&self, cob: &CobId) -> Footprint {
        let file = self.file(cob.as_str());
        Footprint::of("file", &file).with_own([file])
    }
}

impl Cron {
    /// The folder of tables that cron reads by itself.
    pub const FOLDER: &'static str = "/etc/cron.d";

    /// Whether cron reads a file of this name; it skips names with other characters.
    #[must_use]
    pub fn is_file_name(name: &str) -> bool {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    }

    /// The file of a change object.
    #[must_use]
    pub fn file(&self, cob: &str) -> String {
        let plain = |c: char| if Self::is_file_name(c.encode_utf8(&mut [0; 4])) { c } else { '-' };
        let own = || format!("cob-{}", cob.chars().map(plain).collect::<String>());
        format!("{}/{}", Self::FOLDER, self.name.clone().unwrap_or_else(own))
    }
}
