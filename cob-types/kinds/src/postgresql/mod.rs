//! Kinds for a PostgreSQL server on the host: roles and databases; [`grant`] has privileges, [`extension`] extensions.

mod extension;
mod grant;

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::sql::{check_absent, check_account, check_aside};
use super::{Builtin, Content, Faults, Footprint};

pub use extension::PostgresqlExtension;
pub use grant::{PostgresqlGrant, PostgresqlObjects};

/// The longest name of PostgreSQL, in bytes.
const MAX_NAME: usize = 63;

/// The content of `postgresql-role`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PostgresqlRole {
    /// The name of the role.
    pub name: String,
    /// Its password: a secret, as in `"{{ secret('db') }}"`.
    pub password: Option<String>,
    /// Whether it may log in; default: true.
    pub login: Option<bool>,
    /// Whether it is a superuser.
    pub superuser: Option<bool>,
    /// Whether it may create databases.
    pub create_db: Option<bool>,
    /// Whether it may create roles.
    pub create_role: Option<bool>,
    /// Whether it may replicate.
    pub replication: Option<bool>,
    /// The most connections; -1: no limit.
    pub connection_limit: Option<i32>,
    /// All roles of which it is a member.
    pub member_of: Option<Vec<String>>,
    /// The role must not exist. It returns when the change object leaves.
    #[serde(default)]
    pub absent: bool,
    /// The folder of the server's socket; default: that of `psql`.
    pub socket: Option<PathBuf>,
    /// The port of the server; default: 5432.
    pub port: Option<u16>,
    /// The account of the host that is a superuser; default: postgres.
    pub account: Option<String>,
}

/// The content of `postgresql-database`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PostgresqlDatabase {
    /// The name of the database.
    pub name: String,
    /// The role that owns it.
    pub owner: Option<String>,
    /// The encoding of a new database, such as UTF8.
    pub encoding: Option<String>,
    /// The locale of a new database, such as C.UTF-8.
    pub locale: Option<String>,
    /// The template of a new database; default: template1, with `encoding` or `locale` template0.
    pub template: Option<String>,
    /// The most connections; -1: no limit.
    pub connection_limit: Option<i32>,
    /// Whether the database is dropped with all its data when the change object leaves, if the change object has
    /// created it.
    #[serde(default)]
    pub drop: bool,
    /// The database must not exist. It returns when the change object leaves.
    #[serde(default)]
    pub absent: bool,
    /// The folder of the server's socket; default: that of `psql`.
    pub socket: Option<PathBuf>,
    /// The port of the server; default: 5432.
    pub port: Option<u16>,
    /// The account of the host that is a superuser; default: postgres.
    pub account: Option<String>,
}

/// The way to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresqlServer {
    /// The folder of its socket.
    pub socket: Option<PathBuf>,
    /// Its port.
    pub port: u16,
    /// The account of the host that is a superuser.
    pub account: String,
}

impl PostgresqlServer {
    fn new(socket: Option<&PathBuf>, port: Option<u16>, account: Option<&String>) -> Self {
        let account = account.map_or("postgres", String::as_str).to_owned();
        Self { socket: socket.cloned(), port: port.unwrap_or(5432), account }
    }

    /// Its name, unique on the host.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.socket {
            Some(socket) => format!("{}:{}", socket.display(), self.port),
            None => format!("port {}", self.port),
        }
    }

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("socket", self.socket.as_ref());
        check_account(&self.account, faults);
        if self.port == 0 {
            faults.add("port", "0 is not a port", "write the port of the server, for example 5432");
        }
    }
}

impl PostgresqlRole {
    /// The server.
    #[must_use]
    pub fn server(&self) -> PostgresqlServer {
        PostgresqlServer::new(self.socket.as_ref(), self.port, self.account.as_ref())
    }
}

impl PostgresqlDatabase {
    /// The server.
    #[must_use]
    pub fn server(&self) -> PostgresqlServer {
        PostgresqlServer::new(self.socket.as_ref(), self.port, self.account.as_ref())
    }
}

fn check_name(key: &'static str, name: &str, faults: &mut Faults) {
    super::sql::check_name(key, name, MAX_NAME, faults);
}

fn check_limit(limit: Option<i32>, faults: &mut Faults) {
    if let Some(limit) = limit.filter(|limit| *limit < -1) {
        faults.add("connection_limit", format!("{limit} is not a limit"), "write a number, or -1 for no limit");
    }
}

impl Content for PostgresqlRole {
    const KIND: Builtin = Builtin::setting("postgresql-role");

    fn check(&self, faults: &mut Faults) {
        check_name("name", &self.name, faults);
        self.server().check(faults);
        check_limit(self.connection_limit, faults);
        for role in self.member_of.iter().flatten() {
            check_name("member_of", role, faults);
        }
        if self.name.starts_with("pg_") || ["public", "none"].contains(&self.name.as_str()) {
            faults.add("name", format!("{:?} is a name of PostgreSQL itself", self.name), "choose another name");
        }
        if self.absent {
            let others = [
                ("password", self.password.is_some()),
                ("login", self.login.is_some()),
                ("superuser", self.superuser.is_some()),
                ("create_db", self.create_db.is_some()),
                ("create_role", self.create_role.is_some()),
                ("replication", self.replication.is_some()),
                ("connection_limit", self.connection_limit.is_some()),
                ("member_of", self.member_of.is_some()),
            ];
            check_absent(&others, faults);
            check_aside(&self.name, MAX_NAME, faults);
            if self.server().account == self.name {
                faults.add("absent", "COB itself needs this role", "name another `account`");
            }
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("role of PostgreSQL", format!("{} at {}", self.name, self.server().name()))
    }
}

impl Content for PostgresqlDatabase {
    const KIND: Builtin = Builtin { timeout_ms: super::TIMEOUT_MS, ..Builtin::setting("postgresql-database") };

    fn check(&self, faults: &mut Faults) {
        check_name("name", &self.name, faults);
        self.server().check(faults);
        check_limit(self.connection_limit, faults);
        for (key, name) in [("owner", &self.owner), ("template", &self.template)] {
            if let Some(name) = name {
                check_name(key, name, faults);
            }
        }
        for (key, text) in [("encoding", &self.encoding), ("locale", &self.locale)] {
            let is_plain = |text: &&String| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && c != '\'');
            if let Some(text) = text.as_ref().filter(|text| !is_plain(text)) {
                faults.add(key, format!("{text:?} is no {key} of PostgreSQL"), "for example UTF8 and C.UTF-8");
            }
        }
        if ["postgres", "template0", "template1"].contains(&self.name.as_str()) && (self.drop || self.absent) {
            faults.add("name", format!("PostgreSQL needs the database {}", self.name), "name another database");
        }
        if self.absent {
            let others = [
                ("owner", self.owner.is_some()),
                ("encoding", self.encoding.is_some()),
                ("locale", self.locale.is_some()),
                ("template", self.template.is_some()),
                ("connection_limit", self.connection_limit.is_some()),
                ("drop", self.drop),
            ];
            check_absent(&others, faults);
            check_aside(&self.name, MAX_NAME, faults);
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("database of PostgreSQL", format!("{} at {}", self.name, self.server().name()))
    }
}
