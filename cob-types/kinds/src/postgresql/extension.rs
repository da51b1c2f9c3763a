//! The kind `postgresql-extension`: an extension of a database.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::sql::check_absent;
use super::super::{Builtin, Content, Faults, Footprint, TIMEOUT_MS};
use super::{PostgresqlServer, check_name};

/// The content of `postgresql-extension`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PostgresqlExtension {
    /// The name of the extension.
    pub name: String,
    /// The database.
    pub database: String,
    /// The schema of its objects; default: unchanged, of a new extension its own or the first of the search path.
    pub schema: Option<String>,
    /// Its version; default: unchanged, of a new extension the default of its package.
    pub version: Option<String>,
    /// The extension must not exist. It returns when the change object leaves.
    #[serde(default)]
    pub absent: bool,
    /// The folder of the server's socket; default: that of `psql`.
    pub socket: Option<PathBuf>,
    /// The port of the server; default: 5432.
    pub port: Option<u16>,
    /// The account of the host that is a superuser; default: postgres.
    pub account: Option<String>,
}

impl PostgresqlExtension {
    /// The server.
    #[must_use]
    pub fn server(&self) -> PostgresqlServer {
        PostgresqlServer::new(self.socket.as_ref(), self.port, self.account.as_ref())
    }
}

impl Content for PostgresqlExtension {
    const KIND: Builtin = Builtin { timeout_ms: TIMEOUT_MS, ..Builtin::setting("postgresql-extension") };

    fn check(&self, faults: &mut Faults) {
        self.server().check(faults);
        for (key, name) in [("name", &self.name), ("database", &self.database)] {
            check_name(key, name, faults);
        }
        if let Some(schema) = &self.schema {
            check_name("schema", schema, faults);
        }
        if self.version.as_ref().is_some_and(|version| version.is_empty() || version.contains(char::is_control)) {
            faults.add("version", "the version has no text", "write it as in pg_available_extension_versions");
        }
        if self.absent {
            check_absent(&[("schema", self.schema.is_some()), ("version", self.version.is_some())], faults);
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let name = format!("{} in {} at {}", self.name, self.database, self.server().name());
        Footprint::of("extension of PostgreSQL", name)
    }
}
