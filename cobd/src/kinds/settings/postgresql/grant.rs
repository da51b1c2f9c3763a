//! The kind back end `postgresql-grant`.
//!
//! A superuser acts as the owner of an object, so only privileges from the owner count. As in lists of the server, `*`
//! behind a privilege means that the role may pass it on.

use std::collections::BTreeSet;

use cob_kinds::{PostgresqlGrant, PostgresqlObjects};
use serde_json::{Value, json};

use super::super::sql::grants::{ALL, Change, Found, Granted, Grants, Object, Privileges};
use super::super::sql::{literal, rows};
use super::super::{Entry, Setting, Spec};
use super::psql::{self, name};

/// The start of the key of a default privilege, before the role that makes the objects.
const RULE: &str = "new objects of ";
/// The end of a privilege that may be passed on.
const PASSED_ON: char = '*';

/// The back end `postgresql-grant`.
#[derive(Debug)]
pub(in crate::kinds::settings) struct GrantSetting;

impl Setting for GrantSetting {
    type Content = PostgresqlGrant;

    fn spec(&self, Entry { content, .. }: Entry<PostgresqlGrant>) -> Result<Box<dyn Spec>, String> {
        Ok(Box::new(Granted(Grant(content))))
    }
}

/// The desired privileges.
#[derive(Debug)]
struct Grant(PostgresqlGrant);

/// The place of a sort of objects in the catalogue.
struct Catalogue {
    /// The letter of the sort in `acldefault`.
    letter: char,
    /// Tables, with the object as `o`.
    from: &'static str,
    /// The start of its columns.
    column: &'static str,
    /// The object in statements.
    object: &'static str,
    /// The column of its own name.
    name: &'static str,
    /// The condition beside the name of the database or schema.
    only: &'static str,
    /// The letter and the word of its default privileges.
    rule: (char, &'static str),
}

impl Catalogue {
    fn of(objects: PostgresqlObjects) -> Self {
        let relation = |letter, object, only, rule| Self {
            letter,
            from: "pg_class o JOIN pg_namespace n ON n.oid = o.relnamespace",
            column: "rel",
            object,
            name: "relname",
            only,
            rule,
        };
        match objects {
            PostgresqlObjects::Database => Self {
                letter: 'd',
                from: "pg_database o",
                column: "dat",
                object: "format('DATABASE %I', datname)",
                name: "datname",
                only: "true",
                rule: ('-', ""),
            },
            PostgresqlObjects::Schema => Self {
                letter: 'n',
                from: "pg_namespace o",
                column: "nsp",
                object: "format('SCHEMA %I', nspname)",
                name: "nspname",
                only: "true",
                rule: ('-', ""),
            },
            PostgresqlObjects::Tables => relation(
                'r',
                "format('TABLE %I.%I', nspname, relname)",
                "relkind IN ('r', 'v', 'm', 'f', 'p')",
                ('r', "TABLES"),
            ),
            PostgresqlObjects::Sequences => {
                relation('s', "format('SEQUENCE %I.%I', nspname, relname)", "relkind = 'S'", ('S', "SEQUENCES"))
            }
            PostgresqlObjects::Functions => Self {
                letter: 'f',
                from: "pg_proc o JOIN pg_namespace n ON n.oid = o.pronamespace",
                column: "pro",
                // With its arguments: several functions may have the name.
                object: "format('ROUTINE %s', o.oid::regprocedure)",
                name: "proname",
                only: "true",
                rule: ('f', "FUNCTIONS"),
            },
        }
    }
}

/// The query of an entry in a list of privileges.
fn held(list: &str, grantor: &str) -> String {
    format!(
        "(SELECT coalesce(json_agg(a.privilege_type || CASE WHEN a.is_grantable THEN '{PASSED_ON}' ELSE '' END), '[]')
          FROM aclexplode({list}) a WHERE a.grantee = g.id AND a.grantor = {grantor})"
    )
}

fn texts(list: &Value) -> Privileges {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Grant {
    /// The row of the grantee, `g`.
    fn grantee_row(&self) -> String {
        match self.0.role.as_str() {
            PostgresqlGrant::PUBLIC => "(SELECT 0::oid AS id) g".to_owned(),
            role => format!("(SELECT oid AS id FROM pg_roles WHERE rolname = {}) g", literal(role)),
        }
    }

    fn grantee_name(&self) -> String {
        if self.0.role == PostgresqlGrant::PUBLIC { "PUBLIC".to_owned() } else { name(&self.0.role) }
    }

    /// All privileges of an object, in the words of the content.
    fn given(&self, all: &Privileges) -> Privileges {
        let has_all = self.0.privileges.iter().any(|privilege| privilege == "ALL");
        let given: Vec<&String> = if has_all { all.iter().collect() } else { self.0.privileges.iter().collect() };
        let mark = if self.0.grant_option { PASSED_ON.to_string() } else { String::new() };
        given.into_iter().map(|privilege| format!("{privilege}{mark}")).collect()
    }

    /// The query of the objects, and of the default privileges for objects of these roles.
    fn query(&self, creators: &BTreeSet<&str>) -> String {
        let Catalogue { letter, from, column, object, name, only, rule: (rule, _) } = Catalogue::of(self.0.objects());
        let place = match (&self.0.schema, self.0.objects()) {
            (Some(schema), _) => format!("nspname = {}", literal(schema)),
            (None, _) => format!("datname = {}", literal(&self.0.database)),
        };
        let owner = if column == "dat" { "datdba".to_owned() } else { format!("{column}owner") };
        let held_now = held(&format!("coalesce({column}acl, acldefault('{letter}', {owner}))"), &owner);
        // The role 10 is that of `initdb`: the owner of any object has all privileges at first.
        let mut query = format!(
            "SET search_path = '';
             SELECT json_build_object('all', (SELECT json_agg(a.privilege_type)
                FROM aclexplode(acldefault('{letter}', 10)) a WHERE a.grantee = 10));
             SELECT json_build_object('schema', nspname) FROM pg_namespace;
             SELECT json_build_object('object', {object}, 'name', {name}, 'owner', pg_get_userbyid({owner}),
                'held', {held_now}) FROM {grantee}, {from} WHERE {place} AND {only};\n",
            grantee = self.grantee_row(),
        );
        if let (Some(schema), false) = (&self.0.schema, creators.is_empty()) {
            let creators: Vec<String> = creators.iter().map(|creator| literal(creator)).collect();
            query.push_str(&format!(
                "SELECT json_build_object('creator', c.rolname, 'held', {held_later}) FROM {grantee}, pg_roles c LEFT JOIN (pg_default_acl d JOIN pg_namespace n
                    ON n.oid = d.defaclnamespace AND n.nspname = {schema} AND d.defaclobjtype = '{rule}')
                    ON d.defaclrole = c.oid WHERE c.rolname IN ({creators});\n",
                held_later = held("d.defaclacl", "c.oid"),
                grantee = self.grantee_row(),
                schema = literal(schema),
                creators = creators.join(", "),
            ));
        }
        query
    }

    /// The object of a row. `None`: neither the content nor the note is about it.
    fn object(&self, row: &Value, all: &Privileges, noted: &BTreeSet<&str>) -> Option<Object> {
        let (held, text) = (texts(&row["held"]), |key: &str| row[key].as_str().unwrap_or_default());
        let (key, is_wanted, inherits) = match row["creator"].as_str() {
            Some(creator) => (rule(creator), self.0.creators.iter().any(|of| of == creator), None),
            None => {
                let is_named = self.0.names.as_ref().is_none_or(|names| names.iter().any(|name| name == text("name")));
                (text("object").to_owned(), is_named, Some(rule(text("owner"))))
            }
        };
        let wanted = is_wanted.then(|| self.given(all));
        let is_noted = noted.contains(key.as_str()) || (inherits.is_some() && noted.contains(ALL));
        (is_wanted || is_noted).then_some(Object { key, held, wanted, inherits })
    }
}

/// The key of the default privileges for objects of a role.
fn rule(creator: &str) -> String {
    format!("{RULE}{creator}")
}

impl Grants for Grant {
    fn target(&self) -> String {
        format!("privileges of {} on {} at {}", self.0.role, self.0.place(), self.0.server().name())
    }

    fn is_installed(&self) -> Result<(), String> {
        psql::is_installed()
    }

    fn privileges(&self) -> Privileges {
        self.given(&["ALL".to_owned()].into())
    }

    fn is_open(&self) -> bool {
        self.0.names.is_none()
    }

    fn is_rule(&self, key: &str) -> bool {
        key.starts_with(RULE)
    }

    fn find(&self, noted: &BTreeSet<&str>) -> Result<Option<Found>, String> {
        let server = self.0.server();
        let exists = format!("SELECT 1 FROM {};", self.grantee_row());
        if psql::row(&server, &exists)?.is_none() || !psql::has_database(&server, &self.0.database)? {
            return Ok(None);
        }
        let noted_creators = noted.iter().filter_map(|key| key.strip_prefix(RULE));
        let creators = self.0.creators.iter().map(String::as_str).chain(noted_creators).collect();
        let rows = rows(&psql::run_in(&server, &self.0.database, &self.query(&creators))?)?;
        let all = rows.first().map(|row| texts(&row["all"])).unwrap_or_default();
        let is_there = |key: &str, name: &String| rows.iter().any(|row| row[key] == json!(name));
        let lacks = |what: &'static str, key: &'static str, names: &[String]| -> Vec<String> {
            names.iter().filter(|name| !is_there(key, name)).map(|name| format!("{what} {name:?}")).collect()
        };
        let missing = [
            lacks("the schema", "schema", self.0.schema.as_slice()),
            lacks("the object", "name", self.0.names.as_deref().unwrap_or_default()),
            lacks("the role", "creator", &self.0.creators),
        ];
        let objects = rows.iter().skip(1).filter(|row| row.get("held").is_some());
        let objects = objects.filter_map(|row| self.object(row, &all, noted)).collect();
        Ok(Some(Found { objects, missing: missing.concat(), given: self.given(&all) }))
    }

    fn grantee(&self) -> String {
        format!("the role {:?} or the database {:?}", self.0.role, self.0.database)
    }

    /// Two changes of the same object at the same time fail.
    fn turn(&self) -> Option<&'static str> {
        Some("postgresql-grant")
    }

    fn change(&self, changes: &[Change]) -> Result<(), String> {
        let role = self.grantee_name();
        let schema = self.0.schema.as_deref().map(name).unwrap_or_default();
        let (_, later) = Catalogue::of(self.0.objects()).rule;
        let mut statements = String::new();
        for change in changes {
            let (start, on) = match change.key.strip_prefix(RULE) {
                Some(creator) => {
                    let creator = name(creator);
                    (format!("ALTER DEFAULT PRIVILEGES FOR ROLE {creator} IN SCHEMA {schema} "), later)
                }
                None => (String::new(), change.key.as_str()),
            };
            let bare = |privilege: &str| privilege.trim_end_matches(PASSED_ON).to_owned();
            let kept: BTreeSet<String> = change.to.iter().map(|privilege| bare(privilege)).collect();
            for privilege in change.taken() {
                let (word, passed_on) = (bare(privilege), privilege.ends_with(PASSED_ON));
                match (kept.contains(&word), passed_on) {
                    (false, _) => statements.push_str(&format!("{start}REVOKE {word} ON {on} FROM {role};\n")),
                    (true, true) => {
                        statements.push_str(&format!("{start}REVOKE GRANT OPTION FOR {word} ON {on} FROM {role};\n"));
                    }
                    (true, false) => {}
                }
            }
            for privilege in change.given() {
                let with = if privilege.ends_with(PASSED_ON) { " WITH GRANT OPTION" } else { "" };
                statements.push_str(&format!("{start}GRANT {} ON {on} TO {role}{with};\n", bare(privilege)));
            }
        }
        let statements = format!("BEGIN;\n{statements}COMMIT;\n");
        psql::run_in(&self.0.server(), &self.0.database, &statements).map(|_| ())
    }
}
