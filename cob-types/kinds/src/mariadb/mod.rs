//! Kinds for a MariaDB server on the host: users and databases; [`grant`] has privileges.

mod grant;

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::sql::{check_absent, check_account, check_aside, check_name};
use super::{Builtin, Content, Faults, Footprint, TIMEOUT_MS};

pub use grant::MariadbGrant;

/// The longest name of a user, in bytes.
const MAX_USER: usize = 80;
/// The longest name of a host, in bytes.
const MAX_HOST: usize = 255;
/// The longest name of a database or table, in bytes.
const MAX_NAME: usize = 64;
/// The default host of an account.
const LOCAL: &str = "localhost";

/// The content of `mariadb-user`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MariadbUser {
    /// The name of the user.
    pub name: String,
    /// The host from which it may log in, with % for any text; default: localhost.
    pub host: Option<String>,
    /// Its password: a secret, as in `"{{ secret('db') }}"`.
    pub password: Option<String>,
    /// The hash of its password, a secret, as the function PASSWORD() of MariaDB returns it: `*` and 40 digits.
    pub password_hash: Option<String>,
    /// Whether the account of the host with this name logs in, without a password.
    #[serde(default)]
    pub unix_socket: bool,
    /// Whether it is locked: it can't log in; default: false.
    pub locked: Option<bool>,
    /// The TLS that a connection needs.
    pub tls: Option<MariadbTls>,
    /// The most statements in an hour; 0: no limit.
    pub max_queries_per_hour: Option<u32>,
    /// The most changing statements in an hour; 0: no limit.
    pub max_updates_per_hour: Option<u32>,
    /// The most logins in an hour; 0: no limit.
    pub max_connections_per_hour: Option<u32>,
    /// The most connections at the same time; 0: the limit of the server.
    pub max_user_connections: Option<u32>,
    /// The user must not exist. It returns when the change object leaves.
    #[serde(default)]
    pub absent: bool,
    /// The socket of the server; default: that of the client program.
    pub socket: Option<PathBuf>,
    /// The account of the host that has all privileges on the server; default: root.
    pub account: Option<String>,
}

/// The TLS that a connection of a user needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MariadbTls {
    /// Connections without TLS are accepted.
    Optional,
    /// TLS with any certificate.
    Required,
    /// TLS with a valid certificate of the client.
    Certificate,
}

/// The content of `mariadb-database`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MariadbDatabase {
    /// The name of the database.
    pub name: String,
    /// The character set of new tables: utf8mb4, for example.
    pub character_set: Option<String>,
    /// The collation of new tables: `utf8mb4_unicode_ci`, for example.
    pub collation: Option<String>,
    /// Whether the database is dropped with all its data when the change object leaves, if the change object has
    /// created it.
    #[serde(default)]
    pub drop: bool,
    /// The database must not exist. It returns when the change object leaves.
    #[serde(default)]
    pub absent: bool,
    /// The socket of the server; default: that of the client program.
    pub socket: Option<PathBuf>,
    /// The account of the host that has all privileges on the server; default: root.
    pub account: Option<String>,
}

/// The way to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MariadbServer {
    /// Its socket.
    pub socket: Option<PathBuf>,
    /// The account of the host that has all privileges.
    pub account: String,
}

impl MariadbServer {
    fn new(socket: Option<&PathBuf>, account: Option<&String>) -> Self {
        Self { socket: socket.cloned(), account: account.map_or("root", String::as_str).to_owned() }
    }

    /// Its name, unique on the host.
    #[must_use]
    pub fn name(&self) -> String {
        self.socket.as_ref().map_or_else(|| "the default socket".to_owned(), |socket| socket.display().to_string())
    }

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("socket", self.socket.as_ref());
        check_account(&self.account, faults);
    }
}

impl MariadbUser {
    /// The server.
    #[must_use]
    pub fn server(&self) -> MariadbServer {
        MariadbServer::new(self.socket.as_ref(), self.account.as_ref())
    }

    /// The host from which it may log in.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.as_deref().unwrap_or(LOCAL)
    }

    fn check_authentication(&self, faults: &mut Faults) {
        let given = [
            ("password", self.password.is_some()),
            ("password_hash", self.password_hash.is_some()),
            ("unix_socket", self.unix_socket),
        ];
        let mut given = given.iter().filter(|(_, given)| *given).map(|(key, _)| *key);
        if let Some((first, second)) = given.next().zip(given.next()) {
            faults.add(second, format!("`{second}` and `{first}` contradict each other"), "remove either key");
        }
        let is_own = self.name == self.server().account && self.host() == LOCAL;
        let has_password = self.password.is_some() || self.password_hash.is_some();
        if is_own && (has_password || self.locked == Some(true) || self.absent) {
            let what = format!("COB itself logs in as {} through the socket", self.name);
            faults.add("name", what, "name another user, or another `account`");
        }
    }
}

impl MariadbDatabase {
    /// The server.
    #[must_use]
    pub fn server(&self) -> MariadbServer {
        MariadbServer::new(self.socket.as_ref(), self.account.as_ref())
    }
}

/// Checks an account of the server.
fn check_user(key: &'static str, name: &str, host: &str, faults: &mut Faults) {
    check_name(key, name, MAX_USER, faults);
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._%:/".contains(c);
    if host.is_empty() || host.len() > MAX_HOST || !host.chars().all(is_plain) {
        let what = format!("{host:?} is not a host of a user");
        faults.add("host", what, "write localhost, a lower-case name, an address or a pattern, for example 10.0.0.%");
    }
    if name == "mariadb.sys" {
        faults.add(key, "MariaDB needs the user mariadb.sys", "name another user");
    }
}

/// Checks the name of a database or table.
fn check_table(key: &'static str, name: &str, faults: &mut Faults) {
    check_name(key, name, MAX_NAME, faults);
    if name.ends_with(' ') || name.chars().any(|c| u32::from(c) > 0xFFFF) {
        let what = format!("{name:?} can't be a name of MariaDB");
        faults.add(key, what, "no blank at the end, and no characters above U+FFFF");
    }
}

impl Content for MariadbUser {
    const KIND: Builtin = Builtin::setting("mariadb-user");

    fn check(&self, faults: &mut Faults) {
        check_user("name", &self.name, self.host(), faults);
        self.server().check(faults);
        self.check_authentication(faults);
        let is_hash = |text: &str| {
            text.strip_prefix('*')
                .is_some_and(|digits| digits.len() == 40 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
        };
        // A mark stands for a secret until the daemon has its value.
        let hash = self.password_hash.as_ref().filter(|text| text.is_ascii());
        if hash.is_some_and(|text| !is_hash(text)) {
            let what = "the hash is not `*` and 40 hexadecimal digits";
            faults.add("password_hash", what, "take the answer of SELECT PASSWORD('…')");
        }
        if self.absent {
            let others = [
                ("password", self.password.is_some()),
                ("password_hash", self.password_hash.is_some()),
                ("unix_socket", self.unix_socket),
                ("locked", self.locked.is_some()),
                ("tls", self.tls.is_some()),
                ("max_queries_per_hour", self.max_queries_per_hour.is_some()),
                ("max_updates_per_hour", self.max_updates_per_hour.is_some()),
                ("max_connections_per_hour", self.max_connections_per_hour.is_some()),
                ("max_user_connections", self.max_user_connections.is_some()),
            ];
            check_absent(&others, faults);
            check_aside(&self.name, MAX_USER, faults);
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let name = format!("{}@{} at {}", self.name, self.host(), self.server().name());
        Footprint::of("user of MariaDB", name)
    }
}

impl Content for MariadbDatabase {
    const KIND: Builtin = Builtin { timeout_ms: TIMEOUT_MS, ..Builtin::setting("mariadb-database") };

    fn check(&self, faults: &mut Faults) {
        check_table("name", &self.name, faults);
        self.server().check(faults);
        for (key, text) in [("character_set", &self.character_set), ("collation", &self.collation)] {
            let is_plain = |text: &&String| {
                !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            };
            if let Some(text) = text.as_ref().filter(|text| !is_plain(text)) {
                let help = "write it as SHOW COLLATION prints it, for example utf8mb4 and utf8mb4_unicode_ci";
                faults.add(key, format!("{text:?} is no {} of MariaDB", key.replace('_', " ")), help);
            }
        }
        if ["mysql", "sys", "information_schema", "performance_schema"]
            .contains(&self.name.to_ascii_lowercase().as_str())
        {
            faults.add("name", format!("MariaDB itself keeps the database {}", self.name), "name another database");
        }
        if self.absent {
            let others = [
                ("character_set", self.character_set.is_some()),
                ("collation", self.collation.is_some()),
                ("drop", self.drop),
            ];
            check_absent(&others, faults);
            check_aside(&self.name, MAX_NAME, faults);
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("database of MariaDB", format!("{} at {}", self.name, self.server().name()))
    }
}
