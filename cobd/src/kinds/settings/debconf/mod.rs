//! The kind back end `debconf`: answers to the questions that packages of Debian ask.
//!
//! A question without a package gets a dummy description, which the package replaces. The departure removes a question
//! that this kind made, or resets the answer if a package has described the question meanwhile. An answer to a question
//! of the type password is compared here, and is in no note and no difference.

mod database;

use std::collections::BTreeMap;

use cob_kinds::{Debconf, DebconfAnswer, DebconfType};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::database::{Answer, Database, Question, escaped};
use super::{Entry, Setting, Spec};
use crate::kinds::native::{Host, Turn};
use crate::kinds::package::TURN;

/// The value of a password that is as the content says.
const AS_WANTED: &str = "as in the content";
/// The value of another password.
const ANOTHER: &str = "another password";
/// The value of a question that waits for its earlier answer.
const DROPPED: &str = "no longer in the content, and not yet as before";

/// The back end `debconf`.
#[derive(Debug)]
pub(super) struct DebconfSetting;

/// The questions before the first change, by name. `None`: the question did not exist.
type Earlier = BTreeMap<String, Option<Noted>>;

/// A question before the first change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    value: String,
    #[serde(rename = "type")]
    form: Option<String>,
    seen: bool,
    owners: Vec<String>,
}

impl Setting for DebconfSetting {
    type Content = Debconf;

    fn spec(&self, entry: Entry<Debconf>) -> Result<Box<dyn Spec>, String> {
        Ok(Box::new(entry))
    }

    /// No answer is needed later.
    fn noted(&self, content: &str) -> String {
        let Ok(mut content) = serde_json::from_str::<Map<String, Value>>(content) else { return "{}".to_owned() };
        for answer in content.get_mut("answers").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(value) = answer.get_mut("value") {
                *value = "not noted".into();
            }
        }
        Value::Object(content).to_string()
    }
}

impl From<Question> for Noted {
    fn from(Question { value, form, seen, owners, .. }: Question) -> Self {
        Self { value, form, seen, owners }
    }
}

fn earlier(before: Option<&Value>) -> Earlier {
    before.and_then(|before| Earlier::deserialize(before).ok()).unwrap_or_default()
}

fn unregister(question: &str) -> String {
    format!("UNREGISTER {question}")
}

impl Entry<Debconf> {
    fn database(&self) -> Database<'_> {
        Database { host: &self.host, own: &self.own, longest: self.longest }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.content.answers.iter().map(|answer| answer.question.as_str())
    }

    fn has(&self, question: &str) -> bool {
        self.names().any(|name| name == question)
    }

    /// Gives questions their earlier answers. Made twice, it ends as if made once.
    fn give_back(&self, earlier: &Earlier) -> Result<(), String> {
        let (database, package) = (self.database(), &self.content.package);
        let found = database.questions(earlier.keys().map(String::as_str))?;
        let (mut made, mut changes) = (Vec::new(), Vec::new());
        for (name, was) in earlier {
            match (was, found.get(name)) {
                (None, None) => {
                    if database.has_trace(name)? {
                        let form = DebconfType::String.word();
                        made.push(Answer { package, question: name, form, value: "" });
                        changes.push(unregister(name));
                    }
                }
                (None, Some(question)) if database.is_of_package(name, question)? => {
                    changes.push(format!("RESET {name}"))
                }
                (None, Some(_)) => changes.push(unregister(name)),
                (Some(was), question) => {
                    let form = was.form.as_deref().unwrap_or(DebconfType::String.word());
                    let owners = if was.owners.is_empty() { std::slice::from_ref(package) } else { &was.owners };
                    if question.is_none_or(|question| question.form.is_none()) {
                        let made_for = |package| Answer { package, question: name, form, value: "" };
                        made.extend(owners.iter().map(|owner| made_for(owner.as_str())));
                    }
                    changes.push(format!("SET {name} {}", escaped(&was.value)));
                    changes.push(format!("FSET {name} seen {}", was.seen));
                    changes.extend((!owners.contains(package)).then(|| unregister(name)));
                }
            }
        }
        database.make(&made)?;
        database.change(package, &changes)
    }
}

impl Spec for Entry<Debconf> {
    fn target(&self) -> String {
        format!("answers for {}", self.content.package)
    }

    fn turn(&self) -> Option<&'static str> {
        Some(TURN)
    }

    fn clear_killed(&self, _host: &Host, own: &std::path::Path) -> Result<(), String> {
        // The missing program is another fault.
        if self.hindered().is_err() {
            return Ok(());
        }
        // The holder of the lock may be at work.
        Turn::take(own, TURN).map_or(Ok(()), |_turn| self.database().finish_replacements())
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let questions = self.database().questions(self.names())?;
        let mut found = Map::new();
        for answer in &self.content.answers {
            let Some(question) = questions.get(&answer.question) else { continue };
            let is_password = [Some(DebconfType::Password.word()), None].contains(&question.form.as_deref());
            let value = match is_password || answer.form == DebconfType::Password {
                true if answer.text().is_ok_and(|text| text == question.value) => AS_WANTED,
                true => ANOTHER,
                false => &question.value,
            };
            found.insert(answer.question.clone(), json!({ "type": question.form, "value": value }));
        }
        let dropped = earlier(before).into_keys().filter(|name| !self.has(name));
        found.extend(dropped.map(|name| (name, json!(DROPPED))));
        Ok(Some(Value::Object(found)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        self.database().finish_replacements()?;
        let mut questions = self.database().questions(self.names())?;
        let noted = |name: &str| (name.to_owned(), questions.remove(name).map(Noted::from));
        let earlier: Earlier = self.names().map(noted).collect();
        Ok(Some(json!(earlier)))
    }

    /// Questions that the content names no more get their earlier answers before the note forgets the questions.
    fn merged(&self, noted: Option<Value>, found: Option<Value>) -> Result<Option<Value>, String> {
        let (dropped, kept): (Earlier, Earlier) =
            earlier(noted.as_ref()).into_iter().partition(|(name, _)| !self.has(name));
        self.give_back(&dropped)?;
        let mut merged = earlier(found.as_ref());
        merged.extend(kept);
        Ok(Some(json!(merged)))
    }

    fn wanted(&self) -> Value {
        let wanted = self.content.answers.iter().map(|answer| {
            let value = match answer.form {
                DebconfType::Password => AS_WANTED.to_owned(),
                DebconfType::Boolean
                | DebconfType::Multiselect
                | DebconfType::Select
                | DebconfType::String
                | DebconfType::Text => answer.text().unwrap_or_default(),
            };
            (answer.question.clone(), json!({ "type": answer.form.word(), "value": value }))
        });
        Value::Object(wanted.collect())
    }

    fn hindered(&self) -> Result<(), String> {
        self.database().is_installed()
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let (database, earlier) = (self.database(), earlier(before));
        database.finish_replacements()?;
        let found = database.questions(self.names())?;
        let (mut outdated, mut values) = (Vec::new(), Vec::new());
        for answer in &self.content.answers {
            let (name, form) = (&answer.question, answer.form.word());
            let question = found.get(name);
            let other = question.and_then(|question| question.form.as_deref()).filter(|other| *other != form);
            if let (Some(other), Some(question)) = (other, question) {
                if earlier.get(name) != Some(&None) || database.is_of_package(name, question)? {
                    return Err(format!("the question {name} has the type {other}; write `type: {other}`"));
                }
                // A password must not get to the file of other answers.
                outdated.push(unregister(name));
            }
            values.push(answer.text().map_err(|(what, help)| format!("{name}: {what}; {help}"))?);
        }
        let package = &self.content.package;
        database.change(package, &outdated)?;
        let mut answers = Vec::new();
        for (DebconfAnswer { question, form, .. }, value) in self.content.answers.iter().zip(&values) {
            answers.push(Answer { package, question, form: form.word(), value });
        }
        database.make(&answers)
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        self.database().finish_replacements()?;
        self.give_back(&earlier(before))
    }
}

#[cfg(test)]
#[path = "debconf_test.rs"]
mod tests;
