//! Keys of contents with commands: the commands, their accounts, variables and times.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{Faults, Time};

/// Keys that become part of a kind, because the daemon needs the values for its transitions. Daemons get the content
/// without these keys.
pub const TIMES: &[&str] = &["timeout", "grace", "retries", "retry_delay"];

/// The schema of a command: a text for the shell, or words.
pub(super) struct CommandSchema;

/// The schema of a duration among [`TIMES`].
pub(super) struct KindTime;

impl JsonSchema for CommandSchema {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Command".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-command": true, "anyOf": [
            {"type": "string", "description": "Executed by /bin/sh -c."},
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "Executed without a shell."},
        ]})
    }
}

impl JsonSchema for KindTime {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Time::json_schema(generator);
        // The generator checks it with the kind.
        schema.remove("x-time");
        schema
    }
}

/// Checks the keys `user` and `group`.
pub(super) fn check_account(user: Option<&str>, group: Option<&str>, faults: &mut Faults) {
    for (key, name) in [("user", user), ("group", group)] {
        let fits = |c: char| c.is_alphanumeric() || "._-$@\\".contains(c);
        let is_name = |name: &&str| !name.is_empty() && !name.starts_with('-') && name.chars().all(fits);
        if let Some(name) = name.filter(|name| !is_name(name)) {
            let what = format!("{name:?} is not the name of a {key}");
            faults.add(key, what, "write it as in /etc/passwd and /etc/group");
        }
    }
    if group.is_some() && user.is_none() {
        faults.add_as("missing-key", "group", "`group` needs `user`", "add `user: NAME`");
    }
}

/// Checks the names of the variables in `env`.
pub(super) fn check_variables(env: &BTreeMap<String, String>, faults: &mut Faults) {
    for name in env.keys() {
        if name.is_empty() || name.contains(['=', '\0']) || name.starts_with("COB_") {
            let what = format!("the variable {name:?} can't be set");
            faults.add(("env", name), what, "names that begin with COB_ are reserved");
        }
    }
}
