//! The kind back end `postgresql-extension`.

use cob_kinds::PostgresqlExtension;
use serde_json::{Map, Value, json};

use super::super::sql::{literal, rows};
use super::super::{Entry, Setting, Spec};
use super::psql::{self, name};

/// The back end `postgresql-extension`.
#[derive(Debug)]
pub(in crate::kinds::settings) struct ExtensionSetting;

impl Setting for ExtensionSetting {
    type Content = PostgresqlExtension;

    fn spec(&self, Entry { content, .. }: Entry<PostgresqlExtension>) -> Result<Box<dyn Spec>, String> {
        Ok(Box::new(Extension(content)))
    }
}

/// The desired extension, or its absence.
#[derive(Debug)]
struct Extension(PostgresqlExtension);

/// An extension of a database.
#[derive(Debug)]
struct Installed {
    /// `exists`, and version and schema.
    properties: Map<String, Value>,
    /// Whether it has tables, which would be lost with it.
    has_tables: bool,
}

impl Extension {
    fn rows(&self, query: &str) -> Result<Vec<Value>, String> {
        rows(&psql::run_in(&self.0.server(), &self.0.database, query)?)
    }

    fn run(&self, statements: &str) -> Result<(), String> {
        psql::run_in(&self.0.server(), &self.0.database, statements).map(|_| ())
    }

    fn has_database(&self) -> Result<bool, String> {
        psql::has_database(&self.0.server(), &self.0.database)
    }

    /// `None`: the database or the extension does not exist.
    fn installed(&self) -> Result<Option<Installed>, String> {
        if !self.has_database()? {
            return Ok(None);
        }
        let query = format!(
            "SELECT json_build_object('exists', true, 'version', extversion, 'schema', nspname, 'tables',
                EXISTS (SELECT 1 FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND c.relkind IN ('r', 'p', 'm')
                    WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
                    AND d.classid = 'pg_class'::regclass))
             FROM pg_extension e JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = {};",
            literal(&self.0.name)
        );
        let row = self.rows(&query)?.into_iter().next();
        Ok(row.as_ref().and_then(Value::as_object).cloned().map(|mut properties| {
            let has_tables = properties.remove("tables") == Some(json!(true));
            Installed { properties, has_tables }
        }))
    }

    /// All versions that packages have brought.
    fn versions(&self) -> Result<Vec<String>, String> {
        let query = format!(
            "SELECT to_json(version) FROM pg_available_extension_versions WHERE name = {};",
            literal(&self.0.name)
        );
        Ok(self.rows(&query)?.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    fn create(&self, schema: Option<&str>, version: Option<&str>) -> Result<(), String> {
        let (versions, extension) = (self.versions()?, &self.0.name);
        if versions.is_empty() {
            return Err(format!(
                "this server has no extension {extension:?}: install its package, such as postgresql-contrib or \
                 postgresql-NN-{extension}, and let this change object `require` the change object of the package"
            ));
        }
        if let Some(version) = version.filter(|version| !versions.iter().any(|known| known == version)) {
            let known = versions.join(", ");
            return Err(format!("the extension {extension:?} has no version {version:?} here: packages bring {known}"));
        }
        let mut words = vec![format!("CREATE EXTENSION IF NOT EXISTS {}", name(extension))];
        words.extend(schema.map(|schema| format!("SCHEMA {}", name(schema))));
        words.extend(version.map(|version| format!("VERSION {}", literal(version))));
        self.run(&format!("{};", words.join(" ")))
    }

    /// Gives an extension that exists this schema and version.
    fn alter(&self, found: &Map<String, Value>, wanted: &Map<String, Value>) -> Result<(), String> {
        let extension = name(&self.0.name);
        let differs = |key: &str| wanted.get(key).filter(|value| found.get(key) != Some(value)).and_then(Value::as_str);
        let mut statements = String::new();
        if let Some(version) = differs("version") {
            statements.push_str(&format!("ALTER EXTENSION {extension} UPDATE TO {};\n", literal(version)));
        }
        if let Some(schema) = differs("schema") {
            statements.push_str(&format!("ALTER EXTENSION {extension} SET SCHEMA {};\n", name(schema)));
        }
        self.run(&format!("BEGIN;\n{statements}COMMIT;\n"))
    }

    /// Whether the scripts of the extension lead from a version to another version.
    fn leads(&self, from: &Value, to: &Value) -> Result<bool, String> {
        let [from, to] = [from, to].map(|version| literal(version.as_str().unwrap_or_default()));
        let query = format!(
            "SELECT 1 FROM pg_extension_update_paths({}) WHERE source = {from} AND target = {to} AND path IS NOT NULL;",
            literal(&self.0.name)
        );
        Ok(!self.rows(&query)?.is_empty())
    }

    /// The properties in the content.
    fn named(&self) -> Map<String, Value> {
        let given = [("version", &self.0.version), ("schema", &self.0.schema)];
        let given = given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value.as_ref()?))));
        given.chain([("exists".to_owned(), json!(!self.0.absent))]).collect()
    }

    fn drop(&self) -> Result<(), String> {
        self.run(&format!("DROP EXTENSION IF EXISTS {};", name(&self.0.name)))
    }
}

impl Spec for Extension {
    fn target(&self) -> String {
        let absence = if self.0.absent { "absence of " } else { "" };
        format!("{absence}extension {} in {} at {}", self.0.name, self.0.database, self.0.server().name())
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let wanted = self.wanted();
        let Some(mut found) = self.installed()?.map(|found| found.properties) else {
            return Ok(self.0.absent.then(|| json!({ "exists": false })));
        };
        found.retain(|key, _| wanted.get(key).is_some());
        Ok(Some(Value::Object(found)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        if self.0.absent { Ok(self.installed()?.map(|found| Value::Object(found.properties))) } else { self.look(None) }
    }

    fn wanted(&self) -> Value {
        Value::Object(self.named())
    }

    fn hindered(&self) -> Result<(), String> {
        psql::is_installed()
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let (content, found) = (&self.0, self.installed()?);
        match (found, content.absent) {
            (None, true) => Ok(()),
            (Some(found), true) if found.has_tables => Err(format!(
                "the extension {:?} has tables, whose data would be lost: save them, and drop it by hand",
                content.name
            )),
            (Some(_), true) => self.drop(),
            (Some(found), false) => self.alter(&found.properties, &self.named()),
            (None, false) if !self.has_database()? => Err(format!(
                "there is no database {:?}: let this change object `require` the change object of the database",
                content.database
            )),
            (None, false) => self.create(content.schema.as_deref(), content.version.as_deref()),
        }
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        if !self.has_database()? {
            return Ok(());
        }
        match (before.and_then(Value::as_object), self.installed()?) {
            (None, None) => Ok(()),
            // Users have made it again.
            (_, Some(_)) if self.0.absent => Ok(()),
            (None, Some(found)) if found.has_tables => {
                eprintln!("The extension {:?} has tables: it stays with their data.", self.0.name);
                Ok(())
            }
            (None, Some(_)) => match self.drop() {
                // Columns, indexes and functions may use it.
                Err(why) if why.contains("depend on it") => {
                    eprintln!("The extension {:?} is in use: it stays.", self.0.name);
                    Ok(())
                }
                dropped => dropped,
            },
            (Some(before), None) => {
                let (text, versions) = (|key: &str| before.get(key).and_then(Value::as_str), self.versions()?);
                // An upgrade of its package may have removed the earlier version.
                let version = text("version").filter(|version| versions.iter().any(|known| known == version));
                self.create(text("schema"), version)
            }
            (Some(before), Some(found)) => {
                let (mut before, found) = (before.clone(), found.properties);
                if before.get("version") != found.get("version")
                    && !self.leads(&found["version"], &before["version"])?
                {
                    eprintln!("The extension {:?} has no way back to version {}.", self.0.name, before["version"]);
                    before.remove("version");
                }
                self.alter(&found, &before)
            }
        }
    }
}
