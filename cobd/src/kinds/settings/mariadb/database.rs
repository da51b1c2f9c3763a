//! The kind back end `mariadb-database`.
//!
//! MariaDB can't rename a database. A database that must not exist is made under the other name, and a single statement
//! moves all tables there. Then the empty database is dropped.

use cob_kinds::{MariadbDatabase, MariadbServer};
use serde_json::{Map, Value, json};

use super::super::sql::aside::{self, Aside, Renamed};
use super::super::sql::{literal, rows};
use super::super::{Entry, Setting, Spec};
use super::client::{self, name};

/// The back end `mariadb-database`.
#[derive(Debug)]
pub(in crate::kinds::settings) struct DatabaseSetting;

/// The desired database.
#[derive(Debug)]
struct Database {
    server: MariadbServer,
    content: MariadbDatabase,
}

/// A database that must not exist.
#[derive(Debug)]
struct NoDatabase {
    server: MariadbServer,
    name: String,
}

impl Setting for DatabaseSetting {
    type Content = MariadbDatabase;

    fn spec(&self, Entry { content, .. }: Entry<MariadbDatabase>) -> Result<Box<dyn Spec>, String> {
        let server = content.server();
        Ok(match content.absent {
            true => Box::new(Aside(NoDatabase { server, name: content.name })),
            false => Box::new(Database { server, content }),
        })
    }
}

/// The properties of a database. `None`: it does not exist.
fn properties(server: &MariadbServer, database: &str) -> Result<Option<Map<String, Value>>, String> {
    let query = format!(
        "SELECT JSON_OBJECT('exists', true, 'character_set', default_character_set_name,
            'collation', default_collation_name)
         FROM information_schema.schemata WHERE BINARY schema_name = {};",
        literal(database)
    );
    Ok(client::row(server, &query)?.and_then(|row| row.as_object().cloned()))
}

/// The words of CREATE DATABASE and ALTER DATABASE for these properties. Both are plain words.
fn options(wanted: &Map<String, Value>) -> String {
    let word = |key: &str, word: &str| Some(format!(" {word} {}", wanted.get(key)?.as_str()?));
    // A character set alone would bring its default collation.
    let words = [word("character_set", "CHARACTER SET"), word("collation", "COLLATE")];
    words.into_iter().flatten().collect()
}

impl Spec for Database {
    fn target(&self) -> String {
        format!("database {} at {}", self.content.name, self.server.name())
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(mut found) = properties(&self.server, &self.content.name)? else { return Ok(None) };
        let wanted = self.wanted();
        found.retain(|key, _| wanted.get(key).is_some());
        Ok(Some(Value::Object(found)))
    }

    /// Both properties: a new character set also changes the collation.
    fn before(&self) -> Result<Option<Value>, String> {
        Ok(properties(&self.server, &self.content.name)?.map(Value::Object))
    }

    fn wanted(&self) -> Value {
        let content = &self.content;
        let mut wanted = Map::from_iter([("exists".to_owned(), json!(true))]);
        let given = [("character_set", &content.character_set), ("collation", &content.collation)];
        wanted.extend(given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value.as_ref()?)))));
        Value::Object(wanted)
    }

    fn hindered(&self) -> Result<(), String> {
        client::is_installed()
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let (database, wanted) = (name(&self.content.name), self.wanted());
        let options = wanted.as_object().map(options).unwrap_or_default();
        let verb = match properties(&self.server, &self.content.name)? {
            Some(_) => "ALTER DATABASE",
            None => "CREATE DATABASE IF NOT EXISTS",
        };
        client::run(&self.server, &format!("{verb} {database}{options};")).map(|_| ())
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        if properties(&self.server, &self.content.name)?.is_none() {
            return Ok(());
        }
        let database = name(&self.content.name);
        let statement = match before.and_then(Value::as_object) {
            Some(_) if self.content.character_set.is_none() && self.content.collation.is_none() => return Ok(()),
            Some(before) => format!("ALTER DATABASE {database}{};", options(before)),
            None if self.content.drop => format!("DROP DATABASE IF EXISTS {database};"),
            None => {
                eprintln!("The database {:?} stays with its data.", self.content.name);
                return Ok(());
            }
        };
        client::run(&self.server, &statement).map(|_| ())
    }
}

/// The contents of a database.
#[derive(Debug, Default)]
struct Contents {
    /// Tables and sequences.
    tables: Vec<String>,
    /// Objects that no statement moves to another database, for people.
    fixed: Vec<String>,
}

impl Contents {
    fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.fixed.is_empty()
    }
}

/// A query that returns rows if a database has contents.
fn contents_query(database: &str) -> String {
    let sources = [
        ("table", "tables", "table_name", "table_schema", "table_type <> 'VIEW'"),
        ("view", "tables", "table_name", "table_schema", "table_type = 'VIEW'"),
        ("trigger", "triggers", "trigger_name", "trigger_schema", "true"),
        ("routine", "routines", "routine_name", "routine_schema", "true"),
        ("event", "events", "event_name", "event_schema", "true"),
    ];
    let query = |(what, from, column, schema, only): (&str, &str, &str, &str, &str)| {
        let database = literal(database);
        format!(
            "SELECT JSON_ARRAY('{what}', {column}) FROM information_schema.{from} WHERE {schema} = {database} \
             AND BINARY {schema} = {database} AND {only}"
        )
    };
    sources.map(query).join(" UNION ALL ")
}

impl NoDatabase {
    fn contents(&self, database: &str) -> Result<Contents, String> {
        let mut contents = Contents::default();
        for row in rows(&client::run(&self.server, &format!("{};", contents_query(database)))?)? {
            let [what, name] = [0, 1].map(|at| row[at].as_str().unwrap_or_default().to_owned());
            match what.as_str() {
                "table" => contents.tables.push(name),
                _ => contents.fixed.push(format!("the {what} {name:?}")),
            }
        }
        Ok(contents)
    }

    /// Moves the tables, and drops the database that is empty then. A killed move begins again.
    fn move_to(&self, from: &str, to: &str) -> Result<(), String> {
        let Some(properties) = properties(&self.server, from)? else { return Ok(()) };
        let contents = self.contents(from)?;
        if let Some(first) = contents.fixed.first() {
            return Err(format!(
                "MariaDB can't move {first} of the database {from:?}: dump views, triggers, routines and events, and \
                 drop them"
            ));
        }
        let options = options(&properties);
        let [from_name, to_name] = [from, to].map(name);
        let mut statements = match self.attributes(to)? {
            None => format!("CREATE DATABASE {to_name}{options};\n"),
            Some(_) if contents.is_empty() => String::new(),
            Some(_) => format!("ALTER DATABASE {to_name}{options};\n"),
        };
        let moves = contents.tables.iter().map(|table| format!("{from_name}.{0} TO {to_name}.{0}", name(table)));
        let moves: Vec<String> = moves.collect();
        if !moves.is_empty() {
            statements.push_str(&format!("RENAME TABLE {};\n", moves.join(", ")));
        }
        // Users may have made a table in it meanwhile.
        let drop = literal(&format!("DROP DATABASE {from_name}"));
        let keep = literal("SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the database has new contents'");
        statements.push_str(&format!(
            "SET @drop = IF(EXISTS ({}), {keep}, {drop});\nEXECUTE IMMEDIATE @drop;\n",
            contents_query(from)
        ));
        client::run(&self.server, &statements).map(|_| ())
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
        client::is_installed()
    }

    fn attributes(&self, name: &str) -> Result<Option<Value>, String> {
        Ok(properties(&self.server, name)?.map(|_| json!({})))
    }

    /// An empty database is that of a killed move.
    fn is_taken(&self, from: &str, to: &str) -> Result<bool, String> {
        Ok(!self.contents(from)?.is_empty() && !self.contents(to)?.is_empty())
    }

    fn put_aside(&self, aside: &str) -> Result<(), String> {
        self.move_to(&self.name, aside)
    }

    fn put_back(&self, aside: &str, _attributes: &Value) -> Result<(), String> {
        self.move_to(aside, &self.name)
    }

    fn made_again(&self, aside: &str) -> Result<(), String> {
        Err(aside::data_twice(&self.name, aside))
    }
}
