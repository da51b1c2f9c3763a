//! The kind `postgresql-grant`: the privileges of a role on objects of a database.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::footprint::Subject;
use super::super::sql::{check_absent, check_privileges};
use super::super::{Builtin, Content, Faults, Footprint};
use super::{PostgresqlServer, check_name};

/// The content of `postgresql-grant`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PostgresqlGrant {
    /// The role that has the privileges; `public`: all roles.
    pub role: String,
    /// The database.
    pub database: String,
    /// The schema.
    pub schema: Option<String>,
    /// The objects; default: the schema, without `schema` the database.
    pub on: Option<PostgresqlObjects>,
    /// The names of tables, sequences or functions; default: all of the schema.
    pub names: Option<Vec<String>>,
    /// All privileges of the role on each of these objects: [SELECT, INSERT] or [ALL], for example.
    #[serde(default)]
    pub privileges: Vec<String>,
    /// Whether the role may grant the privileges to other roles.
    #[serde(default)]
    pub grant_option: bool,
    /// The roles whose new objects in the schema have the privileges from the beginning.
    #[serde(default)]
    pub creators: Vec<String>,
    /// The role must have no privilege on these objects. Its privileges return when the change object leaves.
    #[serde(default)]
    pub absent: bool,
    /// The folder of the server's socket; default: that of `psql`.
    pub socket: Option<PathBuf>,
    /// The port of the server; default: 5432.
    pub port: Option<u16>,
    /// The account of the host that is a superuser; default: postgres.
    pub account: Option<String>,
}

/// Objects of a database with privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PostgresqlObjects {
    /// The database itself.
    Database,
    /// A schema.
    Schema,
    /// Tables and views of a schema.
    Tables,
    /// Sequences of a schema.
    Sequences,
    /// Functions, procedures and aggregates of a schema.
    Functions,
}

impl PostgresqlObjects {
    /// Its word in a content.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Schema => "schema",
            Self::Tables => "tables",
            Self::Sequences => "sequences",
            Self::Functions => "functions",
        }
    }

    /// All privileges; `MAINTAIN` exists from PostgreSQL 17 on.
    fn privileges(self) -> &'static [&'static str] {
        match self {
            Self::Database => &["CREATE", "CONNECT", "TEMPORARY"],
            Self::Schema => &["CREATE", "USAGE"],
            Self::Tables => &["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN"],
            Self::Sequences => &["SELECT", "UPDATE", "USAGE"],
            Self::Functions => &["EXECUTE"],
        }
    }
}

impl PostgresqlGrant {
    /// The role that stands for all roles.
    pub const PUBLIC: &'static str = "public";

    /// The server.
    #[must_use]
    pub fn server(&self) -> PostgresqlServer {
        PostgresqlServer::new(self.socket.as_ref(), self.port, self.account.as_ref())
    }

    /// The objects.
    #[must_use]
    pub fn objects(&self) -> PostgresqlObjects {
        let default = if self.schema.is_some() { PostgresqlObjects::Schema } else { PostgresqlObjects::Database };
        self.on.unwrap_or(default)
    }

    /// The objects for people, without their names.
    #[must_use]
    pub fn place(&self) -> String {
        let (objects, database) = (self.objects(), &self.database);
        match &self.schema {
            Some(schema) if objects == PostgresqlObjects::Schema => format!("schema {schema:?} in {database:?}"),
            Some(schema) => format!("{} of schema {schema:?} in {database:?}", objects.word()),
            None => format!("database {database:?}"),
        }
    }

    /// Checks that the keys go with the objects.
    fn check_objects(&self, faults: &mut Faults) {
        let (objects, is_whole) = (self.objects(), self.schema.is_none());
        if is_whole && objects != PostgresqlObjects::Database {
            let what = format!("the schema of these {} is missing", objects.word());
            faults.add("on", what, "add `schema`, for example public");
        }
        if !is_whole && objects == PostgresqlObjects::Database {
            faults.add("schema", "a database is not in a schema", "remove `schema`, or write `on: schema`");
        }
        let has_many = !matches!(objects, PostgresqlObjects::Database | PostgresqlObjects::Schema);
        for (key, given) in [("names", self.names.is_some()), ("creators", !self.creators.is_empty())] {
            if given && !has_many {
                let what = format!("`{key}` has no meaning with `on: {}`", objects.word());
                faults.add(key, what, "remove it, or write `on: tables`, `sequences` or `functions`");
            }
        }
        if self.names.as_ref().is_some_and(Vec::is_empty) {
            faults.add("names", "there are no names", "write a list of names, or remove the key: then all are meant");
        }
        if self.names.is_some() && !self.creators.is_empty() {
            let what = "a grant for named objects does not cover new objects";
            faults.add("creators", what, "remove either `creators` or `names`");
        }
    }
}

impl Content for PostgresqlGrant {
    const KIND: Builtin = Builtin::setting("postgresql-grant");

    fn check(&self, faults: &mut Faults) {
        self.server().check(faults);
        for (key, name) in
            [("role", Some(&self.role)), ("database", Some(&self.database)), ("schema", self.schema.as_ref())]
        {
            if let Some(name) = name {
                check_name(key, name, faults);
            }
        }
        self.names.iter().flatten().for_each(|name| check_name("names", name, faults));
        self.creators.iter().for_each(|name| check_name("creators", name, faults));
        self.check_objects(faults);
        check_privileges(&self.privileges, self.absent, self.objects().privileges(), faults);
        if self.grant_option && self.role == Self::PUBLIC {
            faults.add("grant_option", "only a single role can pass privileges on", "remove either key");
        }
        if self.absent {
            let others = [("privileges", !self.privileges.is_empty()), ("grant_option", self.grant_option)];
            check_absent(&others, faults);
        }
    }

    /// The privileges on all objects of a schema include the privileges on each named object.
    fn footprint(&self, _cob: &CobId) -> Footprint {
        let place = format!("of {} at {}: {}", self.role, self.server().name(), Subject::plain_part(&self.place()));
        let of = |name: String| Subject { sort: Subject::PRIVILEGES, name };
        let parts = match &self.names {
            None => vec![of(place)],
            Some(names) => names.iter().map(|name| of(format!("{place}.{}", Subject::plain_part(name)))).collect(),
        };
        Footprint { parts, ..Footprint::default() }
    }
}
