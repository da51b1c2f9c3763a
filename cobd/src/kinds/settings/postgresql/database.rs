//! The kind back end `postgresql-database`.

use std::thread;
use std::time::Duration;

use cob_kinds::{PostgresqlDatabase, PostgresqlServer};
use serde_json::{Map, Value, json};

use super::super::sql::aside::{self, Aside, Renamed};
use super::super::sql::literal;
use super::super::{Entry, Setting, Spec};
use super::psql::{self, name};

/// How often a database is tried to be created while another session uses the template, or creates the database.
const ATTEMPTS: u32 = 10;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// The back end `postgresql-database`.
#[derive(Debug)]
pub(in crate::kinds::settings) struct DatabaseSetting;

/// The desired database.
#[derive(Debug)]
struct Database {
    server: PostgresqlServer,
    content: PostgresqlDatabase,
}

/// A database that must not exist.
#[derive(Debug)]
struct NoDatabase {
    server: PostgresqlServer,
    name: String,
}

impl Setting for DatabaseSetting {
    type Content = PostgresqlDatabase;

    fn spec(&self, Entry { content, .. }: Entry<PostgresqlDatabase>) -> Result<Box<dyn Spec>, String> {
        let server = content.server();
        Ok(match content.absent {
            true => Box::new(Aside(NoDatabase { server, name: content.name })),
            false => Box::new(Database { server, content }),
        })
    }
}

/// The properties of a database. `None`: it does not exist.
fn properties(server: &PostgresqlServer, database: &str) -> Result<Option<Map<String, Value>>, String> {
    let query = format!(
        "SELECT json_build_object('exists', true, 'owner', pg_get_userbyid(datdba), 'encoding',
            pg_encoding_to_char(encoding), 'locale', datcollate, 'connection_limit', datconnlimit)
         FROM pg_database WHERE datname = {};",
        literal(database)
    );
    Ok(psql::row(server, &query)?.and_then(|row| row.as_object().cloned()))
}

/// An encoding or locale in the form that is equal for all spellings: `UTF-8` is `utf8`.
fn plain(text: &str) -> String {
    text.to_ascii_lowercase().replace(['-', '_'], "")
}

impl Database {
    fn create(&self) -> Result<(), String> {
        let content = &self.content;
        let mut words = vec![format!("CREATE DATABASE {}", name(&content.name))];
        words.extend(content.owner.as_ref().map(|owner| format!("OWNER {}", name(owner))));
        words.extend(content.encoding.as_ref().map(|encoding| format!("ENCODING {}", literal(encoding))));
        words.extend(content.locale.as_ref().map(|locale| format!("LOCALE {}", literal(locale))));
        // Another template may have texts in another encoding.
        let is_plain = content.encoding.is_none() && content.locale.is_none();
        let template = content.template.as_deref().or((!is_plain).then_some("template0"));
        words.extend(template.map(|template| format!("TEMPLATE {}", name(template))));
        words.extend(content.connection_limit.map(|limit| format!("CONNECTION LIMIT {limit}")));
        let statement = format!("{};", words.join(" "));
        for attempt in 1.. {
            match psql::run(&self.server, &statement) {
                Ok(_) => break,
                // The session of a killed transition may go on for a moment.
                Err(why) if attempt < ATTEMPTS && (why.contains("being accessed") || why.contains("exists")) => {
                    if properties(&self.server, &content.name)?.is_some() {
                        break;
                    }
                    thread::sleep(PAUSE);
                }
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    fn alter(&self, wanted: &Map<String, Value>) -> Result<(), String> {
        let database = name(&self.content.name);
        let mut statements = String::new();
        if let Some(owner) = wanted.get("owner").and_then(Value::as_str) {
            statements.push_str(&format!("ALTER DATABASE {database} OWNER TO {};\n", name(owner)));
        }
        if let Some(limit) = wanted.get("connection_limit") {
            statements.push_str(&format!("ALTER DATABASE {database} WITH CONNECTION LIMIT {limit};\n"));
        }
        psql::run(&self.server, &format!("BEGIN;\n{statements}COMMIT;\n")).map(|_| ())
    }
}

impl Spec for Database {
    fn target(&self) -> String {
        format!("database {} at {}", self.content.name, self.server.name())
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(mut found) = properties(&self.server, &self.content.name)? else { return Ok(None) };
        let wanted = self.wanted();
        found.retain(|key, _| wanted.get(key).is_some());
        for key in ["encoding", "locale"] {
            if let Some(value) = found.get_mut(key) {
                *value = json!(value.as_str().map(plain));
            }
        }
        Ok(Some(Value::Object(found)))
    }

    fn wanted(&self) -> Value {
        let content = &self.content;
        let mut wanted = Map::from_iter([("exists".to_owned(), json!(true))]);
        let given = [
            ("owner", content.owner.clone().map(Value::from)),
            ("encoding", content.encoding.as_deref().map(|text| json!(plain(text)))),
            ("locale", content.locale.as_deref().map(|text| json!(plain(text)))),
            ("connection_limit", content.connection_limit.map(Value::from)),
        ];
        wanted.extend(given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        Value::Object(wanted)
    }

    fn hindered(&self) -> Result<(), String> {
        psql::is_installed()
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let Value::Object(wanted) = self.wanted() else { return Ok(()) };
        let Some(found) = self.look(before)? else { return self.create() };
        for key in ["encoding", "locale"] {
            if wanted.get(key).is_some_and(|wanted| found.get(key) != Some(wanted)) {
                let (wanted, found) = (&wanted[key], &found[key]);
                return Err(format!(
                    "the database has the {key} {found}, and PostgreSQL can't change it to {wanted}: dump it, drop it, \
                     and let COB create it"
                ));
            }
        }
        self.alter(&wanted)
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        if properties(&self.server, &self.content.name)?.is_none() {
            return Ok(());
        }
        match before.and_then(Value::as_object) {
            Some(before) => self.alter(before),
            None if self.content.drop => {
                psql::run(&self.server, &format!("DROP DATABASE IF EXISTS {};", name(&self.content.name))).map(|_| ())
            }
            None => {
                eprintln!("The database {:?} stays with its data.", self.content.name);
                Ok(())
            }
        }
    }
}

impl NoDatabase {
    fn rename(&self, from: &str, to: &str) -> Result<(), String> {
        psql::run(&self.server, &format!("ALTER DATABASE {} RENAME TO {};", name(from), name(to))).map(|_| ())
    }
}

impl Renamed for NoDatabase {
    fn target(&self) -> String {
        format!("database {} at {}", self.name, self.server.name())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_installed(&self) -> Result<(), String> {
        psql::is_installed()
    }

    fn attributes(&self, name: &str) -> Result<Option<Value>, String> {
        Ok(psql::has_database(&self.server, name)?.then(|| json!({})))
    }

    fn put_aside(&self, aside: &str) -> Result<(), String> {
        self.rename(&self.name, aside)
    }

    fn put_back(&self, aside: &str, _attributes: &Value) -> Result<(), String> {
        self.rename(aside, &self.name)
    }

    fn made_again(&self, aside: &str) -> Result<(), String> {
        Err(aside::data_twice(&self.name, aside))
    }
}
