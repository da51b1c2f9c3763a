//! The kind `mariadb-grant`: the privileges of a user on the server, a database or a table.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::footprint::Subject;
use super::super::sql::{check_absent, check_privileges};
use super::super::{Builtin, Content, Faults, Footprint};
use super::{LOCAL, MariadbServer, check_table, check_user};

/// Privileges on a table.
const ON_TABLE: &[&str] = &[
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "CREATE",
    "DROP",
    "REFERENCES",
    "INDEX",
    "ALTER",
    "CREATE VIEW",
    "SHOW VIEW",
    "TRIGGER",
    "DELETE HISTORY",
];
/// Further privileges on a database.
const ON_DATABASE: &[&str] = &[
    "CREATE TEMPORARY TABLES",
    "LOCK TABLES",
    "EXECUTE",
    "CREATE ROUTINE",
    "ALTER ROUTINE",
    "SHOW CREATE ROUTINE",
    "EVENT",
];
/// Further privileges on the server.
const ON_SERVER: &[&str] = &[
    "RELOAD",
    "SHUTDOWN",
    "PROCESS",
    "FILE",
    "SHOW DATABASES",
    "SUPER",
    "REPLICATION SLAVE",
    "BINLOG MONITOR",
    "CREATE USER",
    "CREATE TABLESPACE",
    "SET USER",
    "FEDERATED ADMIN",
    "CONNECTION ADMIN",
    "READ_ONLY ADMIN",
    "REPLICATION SLAVE ADMIN",
    "REPLICATION MASTER ADMIN",
    "BINLOG ADMIN",
    "BINLOG REPLAY",
    "SLAVE MONITOR",
];

/// The content of `mariadb-grant`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MariadbGrant {
    /// The name of the user.
    pub user: String,
    /// The host of the user; default: localhost.
    pub host: Option<String>,
    /// The database, with all its tables; default: all databases (`*.*`).
    pub database: Option<String>,
    /// A single table of the database.
    pub table: Option<String>,
    /// All privileges of the user there, in the words of SHOW GRANTS: [SELECT, INSERT] or [ALL], for example.
    #[serde(default)]
    pub privileges: Vec<String>,
    /// Whether the user may pass the privileges on.
    #[serde(default)]
    pub grant_option: bool,
    /// The user must have no privilege there. Its privileges return when the change object leaves.
    #[serde(default)]
    pub absent: bool,
    /// The socket of the server; default: that of the client program.
    pub socket: Option<PathBuf>,
    /// The account of the host that has all privileges on the server; default: root.
    pub account: Option<String>,
}

impl MariadbGrant {
    /// The server.
    #[must_use]
    pub fn server(&self) -> MariadbServer {
        MariadbServer::new(self.socket.as_ref(), self.account.as_ref())
    }

    /// The host of the user.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.as_deref().unwrap_or(LOCAL)
    }

    /// The objects for people.
    #[must_use]
    pub fn place(&self) -> String {
        match (&self.database, &self.table) {
            (Some(database), Some(table)) => format!("table {table:?} in {database:?}"),
            (Some(database), None) => format!("database {database:?}"),
            (None, _) => "all databases".to_owned(),
        }
    }
}

impl Content for MariadbGrant {
    const KIND: Builtin = Builtin::setting("mariadb-grant");

    fn check(&self, faults: &mut Faults) {
        check_user("user", &self.user, self.host(), faults);
        self.server().check(faults);
        for (key, name) in [("database", &self.database), ("table", &self.table)] {
            if let Some(name) = name {
                check_table(key, name, faults);
            }
        }
        if self.table.is_some() && self.database.is_none() {
            faults.add("table", "the database of the table is missing", "add `database`");
        }
        let further = match (&self.database, &self.table) {
            (_, Some(_)) => [&[][..], &[][..]],
            (Some(_), None) => [ON_DATABASE, &[]],
            (None, None) => [ON_DATABASE, ON_SERVER],
        };
        check_privileges(&self.privileges, self.absent, &[ON_TABLE, further[0], further[1]].concat(), faults);
        if self.user == self.server().account && self.host() == LOCAL && self.database.is_none() {
            let what = format!("COB itself needs the privileges of {}", self.user);
            faults.add("user", what, "name another user, or another `account`");
        }
        if self.absent {
            let others = [("privileges", !self.privileges.is_empty()), ("grant_option", self.grant_option)];
            check_absent(&others, faults);
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let place = Subject::plain_part(&self.place());
        let name = format!("of {}@{} at {}: {place}", self.user, self.host(), self.server().name());
        Footprint::of(Subject::PRIVILEGES, name)
    }
}
