//! The kind back end `postgresql-role`.

use std::collections::BTreeSet;

use cob_kinds::{PostgresqlRole, PostgresqlServer};
use serde_json::{Map, Value, json};

use super::super::sql::aside::{Aside, Renamed};
use super::super::sql::{check_password, literal, without_secrets};
use super::super::{Entry, Setting, Spec};
use super::psql::{self, name};
use super::scram;
use crate::kinds::native::random;

/// The value of `password` if the role has the password of the content.
const AS_WANTED: &str = "as in the content";
/// The attributes that are true or false, with their words.
const FLAGS: [(&str, &str, &str); 5] = [
    ("login", "LOGIN", "NOLOGIN"),
    ("superuser", "SUPERUSER", "NOSUPERUSER"),
    ("create_db", "CREATEDB", "NOCREATEDB"),
    ("create_role", "CREATEROLE", "NOCREATEROLE"),
    ("replication", "REPLICATION", "NOREPLICATION"),
];

/// The back end `postgresql-role`.
#[derive(Debug)]
pub(in crate::kinds::settings) struct RoleSetting;

/// The desired role.
#[derive(Debug)]
struct Role {
    server: PostgresqlServer,
    content: PostgresqlRole,
}

/// A role that must not exist.
#[derive(Debug)]
struct NoRole {
    server: PostgresqlServer,
    name: String,
}

impl Setting for RoleSetting {
    type Content = PostgresqlRole;

    fn spec(&self, Entry { content, .. }: Entry<PostgresqlRole>) -> Result<Box<dyn Spec>, String> {
        let server = content.server();
        Ok(match content.absent {
            true => Box::new(Aside(NoRole { server, name: content.name })),
            false => Box::new(Role { server, content }),
        })
    }

    /// The password stays in memory.
    fn noted(&self, content: &str) -> String {
        without_secrets(content)
    }
}

/// The attributes of a role. `None`: it does not exist.
fn attributes(server: &PostgresqlServer, role: &str) -> Result<Option<Map<String, Value>>, String> {
    let query = format!(
        "SELECT json_build_object('login', rolcanlogin, 'superuser', rolsuper, 'create_db', rolcreatedb,
            'create_role', rolcreaterole, 'replication', rolreplication, 'connection_limit', rolconnlimit,
            'password', rolpassword, 'member_of', (SELECT coalesce(json_agg(g.rolname ORDER BY g.rolname), '[]')
            FROM pg_auth_members m JOIN pg_authid g ON g.oid = m.roleid WHERE m.member = r.oid))
         FROM pg_authid r WHERE rolname = {};",
        literal(role)
    );
    Ok(psql::row(server, &query)?.and_then(|row| row.as_object().cloned()))
}

/// The statements that give a role these attributes; `found` are its present attributes.
fn changes(role: &str, wanted: &Map<String, Value>, found: &Map<String, Value>) -> String {
    let role = name(role);
    let mut words = Vec::new();
    for (key, yes, no) in FLAGS {
        words.extend(wanted.get(key).and_then(Value::as_bool).map(|is| if is { yes } else { no }.to_owned()));
    }
    words.extend(wanted.get("connection_limit").map(|limit| format!("CONNECTION LIMIT {limit}")));
    words.extend(wanted.get("password").map(|stored| match stored.as_str() {
        Some(stored) => format!("PASSWORD {}", literal(stored)),
        None => "PASSWORD NULL".to_owned(),
    }));
    let mut statements = String::new();
    if !words.is_empty() {
        statements.push_str(&format!("ALTER ROLE {role} WITH {};\n", words.join(" ")));
    }
    if let Some(groups) = wanted.get("member_of") {
        let (wanted, found) = (texts(Some(groups)), texts(found.get("member_of")));
        wanted.difference(&found).for_each(|group| statements.push_str(&format!("GRANT {} TO {role};\n", name(group))));
        found
            .difference(&wanted)
            .for_each(|group| statements.push_str(&format!("REVOKE {} FROM {role};\n", name(group))));
    }
    statements
}

fn texts(list: Option<&Value>) -> BTreeSet<&str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

impl Role {
    /// Creates or alters the role in a single transaction.
    fn set(&self, wanted: &Map<String, Value>, found: Option<&Map<String, Value>>) -> Result<(), String> {
        let role = &self.content.name;
        let create = if found.is_none() { format!("CREATE ROLE {};\n", name(role)) } else { String::new() };
        let changes = changes(role, wanted, found.unwrap_or(&Map::new()));
        psql::run(&self.server, &format!("BEGIN;\n{create}{changes}COMMIT;\n")).map(|_| ())
    }

    /// The text that the server stores for the password.
    fn stored(&self, password: &str) -> Result<String, String> {
        check_password(password)?;
        Ok(scram::verifier(password, &random::<16>()?))
    }

    /// The attributes that the content names.
    fn named(&self, mut found: Map<String, Value>) -> Map<String, Value> {
        let wanted = self.wanted();
        found.retain(|key, _| wanted.get(key).is_some());
        found
    }

    fn has_password(&self, found: &Map<String, Value>) -> bool {
        let stored = found.get("password").and_then(Value::as_str);
        stored.zip(self.content.password.as_deref()).is_some_and(|(stored, wanted)| scram::verifies(stored, wanted))
    }
}

impl Spec for Role {
    fn target(&self) -> String {
        format!("role {} at {}", self.content.name, self.server.name())
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(found) = attributes(&self.server, &self.content.name)? else { return Ok(None) };
        let has_password = self.has_password(&found);
        let mut found = self.named(found);
        if let Some(password) = found.get_mut("password") {
            *password = json!(match (has_password, password.is_null()) {
                (true, _) => AS_WANTED,
                (false, true) => "none",
                (false, false) => "another password, or stored in another way",
            });
        }
        Ok(Some(Value::Object(found)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        Ok(attributes(&self.server, &self.content.name)?.map(|found| Value::Object(self.named(found))))
    }

    fn wanted(&self) -> Value {
        let content = &self.content;
        let mut wanted = Map::from_iter([("login".to_owned(), json!(content.login.unwrap_or(true)))]);
        let given = [
            ("superuser", content.superuser.map(Value::from)),
            ("create_db", content.create_db.map(Value::from)),
            ("create_role", content.create_role.map(Value::from)),
            ("replication", content.replication.map(Value::from)),
            ("connection_limit", content.connection_limit.map(Value::from)),
            ("member_of", content.member_of.as_ref().map(|all| json!(all.iter().collect::<BTreeSet<_>>()))),
            ("password", content.password.as_ref().map(|_| json!(AS_WANTED))),
        ];
        wanted.extend(given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        Value::Object(wanted)
    }

    fn hindered(&self) -> Result<(), String> {
        psql::is_installed()
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let found = attributes(&self.server, &self.content.name)?;
        let Value::Object(mut wanted) = self.wanted() else { return Ok(()) };
        if let Some(password) = &self.content.password {
            if found.as_ref().is_some_and(|found| self.has_password(found)) {
                wanted.remove("password");
            } else {
                wanted["password"] = json!(self.stored(password)?);
            }
        }
        self.set(&wanted, found.as_ref())
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(found) = attributes(&self.server, &self.content.name)? else { return Ok(()) };
        if let Some(before) = before.and_then(Value::as_object) {
            return self.set(before, Some(&found));
        }
        // Objects and privileges of a role keep it from being dropped.
        let role = literal(&self.content.name);
        let query = format!(
            "SELECT to_json(EXISTS (SELECT 1 FROM pg_shdepend d JOIN pg_authid r ON d.refobjid = r.oid
             WHERE d.refclassid = 'pg_authid'::regclass AND r.rolname = {role}));"
        );
        let role = name(&self.content.name);
        let statement = match psql::row(&self.server, &query)? {
            Some(Value::Bool(true)) => {
                eprintln!("The role {role} owns objects or has privileges: it stays, without a login and password.");
                format!("ALTER ROLE {role} WITH NOLOGIN PASSWORD NULL;")
            }
            Some(_) | None => format!("DROP ROLE {role};"),
        };
        psql::run(&self.server, &statement).map(|_| ())
    }
}

impl Renamed for NoRole {
    fn target(&self) -> String {
        format!("role {} at {}", self.name, self.server.name())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_installed(&self) -> Result<(), String> {
        psql::is_installed()
    }

    fn attributes(&self, name: &str) -> Result<Option<Value>, String> {
        let kept = |found: Map<String, Value>| json!({ "login": found["login"], "password": found["password"] });
        Ok(attributes(&self.server, name)?.map(kept))
    }

    fn put_aside(&self, aside: &str) -> Result<(), String> {
        let (role, aside) = (name(&self.name), name(aside));
        let statements = format!("ALTER ROLE {role} WITH NOLOGIN;\nALTER ROLE {role} RENAME TO {aside};");
        psql::run(&self.server, &format!("BEGIN;\n{statements}\nCOMMIT;\n")).map(|_| ())
    }

    fn put_back(&self, aside: &str, attributes: &Value) -> Result<(), String> {
        let rename = format!("ALTER ROLE {} RENAME TO {};", name(aside), name(&self.name));
        let changes = attributes.as_object().map(|earlier| changes(&self.name, earlier, &Map::new()));
        let changes = changes.unwrap_or_default();
        psql::run(&self.server, &format!("BEGIN;\n{rename}\n{changes}COMMIT;\n")).map(|_| ())
    }

    fn made_again(&self, _aside: &str) -> Result<(), String> {
        psql::run(&self.server, &format!("DROP ROLE {};", name(&self.name))).map(|_| ())
    }
}
