//! The kind back end `mariadb-user`.

use cob_kinds::{MariadbServer, MariadbUser};
use serde_json::{Map, Value, json};

use super::super::sql::aside::{Aside, Renamed};
use super::super::sql::{check_password, literal, without_secrets};
use super::super::{Entry, Setting, Spec};
use super::account::{self, by_hash, by_nothing, by_socket, described, options, tls_word};
use super::client;
use super::grant::grants;

/// The value of `authentication` if the user logs in as the content says.
const AS_WANTED: &str = "as in the content";

/// The back end `mariadb-user`.
#[derive(Debug)]
pub(in crate::kinds::settings) struct UserSetting;

/// The desired user.
#[derive(Debug)]
struct User {
    server: MariadbServer,
    content: MariadbUser,
}

/// A user that must not exist.
#[derive(Debug)]
struct NoUser {
    server: MariadbServer,
    name: String,
    host: String,
}

impl Setting for UserSetting {
    type Content = MariadbUser;

    fn spec(&self, Entry { content, .. }: Entry<MariadbUser>) -> Result<Box<dyn Spec>, String> {
        let (server, host) = (content.server(), content.host().to_owned());
        Ok(match content.absent {
            true => Box::new(Aside(NoUser { server, name: content.name, host })),
            false => Box::new(User { server, content }),
        })
    }

    /// The password stays in memory.
    fn noted(&self, content: &str) -> String {
        without_secrets(content)
    }
}

impl User {
    fn host(&self) -> &str {
        self.content.host()
    }

    /// The account in statements.
    fn account(&self) -> String {
        client::account(&self.content.name, self.host())
    }

    fn found(&self) -> Result<Option<Map<String, Value>>, String> {
        account::attributes(&self.server, &self.content.name, self.host())
    }

    /// The ways to log in that the content names.
    fn ways(&self) -> Option<Value> {
        let by_password = self.content.password.as_deref().map(account::hash);
        let hash = by_password.or_else(|| self.content.password_hash.clone());
        hash.map(|hash| by_hash(&hash)).or_else(|| self.content.unix_socket.then(by_socket))
    }

    /// The attributes that the content names.
    fn named(&self, mut found: Map<String, Value>) -> Map<String, Value> {
        let wanted = self.wanted();
        found.retain(|key, _| wanted.get(key).is_some());
        found
    }

    /// Whether the user has privileges, or has made views, routines, triggers or events.
    fn is_in_use(&self) -> Result<bool, String> {
        let definer = literal(&format!("{}@{}", self.content.name, self.host()));
        let made = ["views", "routines", "triggers", "events"]
            .map(|table| format!("EXISTS (SELECT 1 FROM information_schema.{table} WHERE definer = {definer})"));
        let query = format!("SELECT {};", made.join(" OR "));
        let has_made = client::row(&self.server, &query)? != Some(json!(0));
        Ok(has_made || grants(&self.server, &self.account())?.iter().any(|grant| !grant.is_empty()))
    }
}

impl Spec for User {
    fn target(&self) -> String {
        format!("user {}@{} at {}", self.content.name, self.host(), self.server.name())
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(found) = self.found()? else { return Ok(None) };
        let mut found = self.named(found);
        if let Some(ways) = found.get_mut("authentication") {
            let is_wanted = self.ways().as_ref() == Some(ways);
            *ways = if is_wanted { json!(AS_WANTED) } else { json!(described(ways)) };
        }
        Ok(Some(Value::Object(found)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        Ok(self.found()?.map(|found| Value::Object(self.named(found))))
    }

    fn wanted(&self) -> Value {
        let content = &self.content;
        let mut wanted = Map::from_iter([("locked".to_owned(), json!(content.locked.unwrap_or(false)))]);
        let given = [
            ("authentication", self.ways().map(|_| json!(AS_WANTED))),
            ("tls", content.tls.map(|tls| json!(tls_word(tls)))),
            ("max_queries_per_hour", content.max_queries_per_hour.map(Value::from)),
            ("max_updates_per_hour", content.max_updates_per_hour.map(Value::from)),
            ("max_connections_per_hour", content.max_connections_per_hour.map(Value::from)),
            ("max_user_connections", content.max_user_connections.map(Value::from)),
        ];
        wanted.extend(given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        Value::Object(wanted)
    }

    fn hindered(&self) -> Result<(), String> {
        client::is_installed()
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let Value::Object(mut wanted) = self.wanted() else { return Ok(()) };
        self.content.password.as_deref().map_or(Ok(()), check_password)?;
        let is_new = self.found()?.is_none();
        // Without a way to log in, a new user would have the empty password.
        if let Some(ways) = self.ways().or_else(|| is_new.then(by_nothing)) {
            wanted.insert("authentication".to_owned(), ways);
        }
        let verb = if is_new { "CREATE" } else { "ALTER" };
        client::run(&self.server, &format!("{verb} USER {} {};\n", self.account(), options(&wanted))).map(|_| ())
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        if self.found()?.is_none() {
            return Ok(());
        }
        let account = self.account();
        let statement = match before.and_then(Value::as_object) {
            Some(before) => format!("ALTER USER {account} {};", options(before)),
            None if self.is_in_use()? => {
                eprintln!("The user {account} has privileges or has made views or programs: it stays, locked.");
                let locked =
                    Map::from_iter([("authentication".to_owned(), by_nothing()), ("locked".to_owned(), json!(true))]);
                format!("ALTER USER {account} {};", options(&locked))
            }
            None => format!("DROP USER {account};"),
        };
        client::run(&self.server, &statement).map(|_| ())
    }
}

impl NoUser {
    fn account(&self, name: &str) -> String {
        client::account(name, &self.host)
    }

    fn lock(&self, name: &str, locked: &Value) -> String {
        let attributes = Map::from_iter([("locked".to_owned(), locked.clone())]);
        format!("ALTER USER {} {};\n", self.account(name), options(&attributes))
    }

    fn rename(&self, from: &str, to: &str) -> String {
        format!("RENAME USER {} TO {};\n", self.account(from), self.account(to))
    }
}

impl Renamed for NoUser {
    fn target(&self) -> String {
        format!("user {}@{} at {}", self.name, self.host, self.server.name())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_installed(&self) -> Result<(), String> {
        client::is_installed()
    }

    fn attributes(&self, name: &str) -> Result<Option<Value>, String> {
        let found = account::attributes(&self.server, name, &self.host)?;
        Ok(found.map(|found| json!({ "locked": found["locked"] })))
    }

    /// The name changes last: a killed transition begins again.
    fn put_aside(&self, aside: &str) -> Result<(), String> {
        let statements = self.lock(&self.name, &json!(true)) + &self.rename(&self.name, aside);
        client::run(&self.server, &statements).map(|_| ())
    }

    fn put_back(&self, aside: &str, attributes: &Value) -> Result<(), String> {
        let locked = attributes.get("locked").unwrap_or(&Value::Bool(true));
        client::run(&self.server, &(self.lock(aside, locked) + &self.rename(aside, &self.name))).map(|_| ())
    }

    fn made_again(&self, _aside: &str) -> Result<(), String> {
        client::run(&self.server, &format!("DROP USER {};", self.account(&self.name))).map(|_| ())
    }
}
