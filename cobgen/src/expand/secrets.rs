//! Secrets in a model: a template names a secret by `secret('pw')` and gets only a mark.
//!
//! The generator does not look up values here. A template gets a mark with an id made from the secret's name, and the
//! host replaces the mark by the value, so no template can reveal a value. The output of a template is checked for
//! altered marks, which no host could replace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cob_types::secret::{self, Piece, SecretId};
use cob_types::{CobId, canonical};
use minijinja::value::Value as Jinja;
use minijinja::{Error, ErrorKind};

use super::Report;
use super::files::Files;
use super::kinds::Known;
use super::template::Fault;
use crate::diagnostic::Diagnostic;
use crate::draft::{At, DraftCob, DraftSecret, SecretSource};
use crate::model::{Mark, Marked, Named, Node, SecretEntry, Value, did_you_mean_or_list};

/// All secrets of a model.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    by_name: BTreeMap<String, Entry>,
    names: BTreeMap<SecretId, String>,
    /// The ids that the current template has requested; shared with the functions of templates.
    asked: Arc<Mutex<BTreeSet<SecretId>>>,
}

#[derive(Debug)]
struct Entry {
    mark: Mark,
    /// `None`: it has faults, which are already reported.
    source: Option<SecretSource>,
}

/// The id of a secret before its value is read.
fn id_of(name: &str) -> SecretId {
    SecretId(canonical::fingerprint(&[b"the name of a secret", name.as_bytes()]).0)
}

impl Secrets {
    pub(super) fn read(entries: &Named<SecretEntry>, report: &mut Report<'_>) -> Self {
        let mut secrets = Self::default();
        for (name, entry) in entries.iter() {
            if !report.segment("secret", name) {
                continue;
            }
            let source = source(name, entry, report);
            secrets.names.insert(id_of(&name.value), name.value.clone());
            secrets.by_name.insert(name.value.clone(), Entry { mark: name.mark, source });
        }
        secrets
    }

    /// The function `secret` of templates.
    pub(super) fn function(&self) -> Jinja {
        let (asked, names) = (Arc::clone(&self.asked), self.by_name.keys().cloned().collect::<Vec<_>>());
        Jinja::from_function(move |name: String| -> Result<Jinja, Error> {
            if names.contains(&name) {
                let id = id_of(&name);
                asked.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
                return Ok(Jinja::from(id.mark()));
            }
            let help = did_you_mean_or_list(&name, names.iter().map(String::as_str));
            let help = help.unwrap_or_else(|| "the model has no section `secrets`".to_owned());
            Err(Error::new(ErrorKind::InvalidOperation, format!("unknown secret `{name}`; {help}")))
        })
    }

    /// Starts the rendering of a template.
    pub(super) fn begin(&self) {
        self.asked().clear();
    }

    /// Checks that every secret that the template requested is in its output, unaltered.
    pub(super) fn look_at(&self, texts: &[String]) -> Result<(), Fault> {
        let asked = std::mem::take(&mut *self.asked());
        let fault = |message: String| {
            let help = "a template knows only a secret's place, not its value: write `{{ secret('NAME') }}` \
                        without filters, tests or conditions";
            Err(Fault { message, line: None, help: Some(help.to_owned()) })
        };
        let mut found = BTreeSet::new();
        for text in texts.iter().filter(|text| secret::is_suspect(text)) {
            for piece in secret::pieces(text) {
                match piece {
                    Piece::Mark(id) if self.names.contains_key(&id) => drop(found.insert(id)),
                    Piece::Mark(_) => return fault("this template alters a secret".to_owned()),
                    Piece::Text(rest) if secret::is_suspect(rest) => {
                        return fault("this template alters a secret, or cuts it".to_owned());
                    }
                    Piece::Text(_) => {}
                }
            }
        }
        match asked.difference(&found).next().and_then(|id| self.names.get(id)) {
            Some(name) => fault(format!("this template uses the secret `{name}` without writing it into its text")),
            None => Ok(()),
        }
    }

    fn asked(&self) -> std::sync::MutexGuard<'_, BTreeSet<SecretId>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that secrets are only in parts of a content that stay secret.
    pub(super) fn check_places(&self, content: &Node, known: &Known, report: &mut Report<'_>) {
        let kind = known.kind.name.as_str();
        let (builtin, backend) = (known.builtin.map(|entry| entry.kind.name), known.kind.backend.as_str());
        let place = |key: Option<&str>| match (builtin, key) {
            (Some("service"), Some("env")) => Ok(()),
            (Some("service"), Some("unit_file" | "drop_ins")) => {
                Err("all users can read unit files: write the secret into a separate file that the unit names"
                    .to_owned())
            }
            (Some("service"), _) => Err("put it into `env`: commands are visible in the process list".to_owned()),
            (Some("container"), Some("env")) => Ok(()),
            (Some("container"), _) => {
                Err("put it into `env`: the unit file and the words of commands are visible to all users".to_owned())
            }
            (Some("exec" | "acme-certificate"), Some("env")) => Ok(()),
            (Some("exec"), _) => Err("put it into `env`: commands are visible in the process list".to_owned()),
            (Some("script"), Some(key)) if is_definition(key) => {
                Err("commands are visible in the process list: add a key to `content`, and read it from the file \
                    $COB_CONTENT"
                    .to_owned())
            }
            (Some("script"), Some(_)) => Ok(()),
            (Some("plugin"), Some("config")) => Ok(()),
            (Some("plugin"), _) => {
                Err("put it into `config`, which only the plug-in reads: commands are visible in the process list"
                    .to_owned())
            }
            (Some("file-tree"), Some("files")) => {
                Err("put it into the `content` of a file, or into a template".to_owned())
            }
            (Some("postgresql-role"), Some("password"))
            | (Some("mariadb-user"), Some("password" | "password_hash"))
            | (Some("ha-cluster"), Some("authkey")) => Ok(()),
            (None, _) if backend == "command" => Ok(()),
            (Some(_) | None, _) => Err(format!("the content of `{kind}` is visible to other users")),
        };
        let mut wrong = Vec::new();
        match &content.value {
            Value::Map(map) => {
                for (key, node) in &map.entries {
                    if (builtin, key.text.as_str()) == (Some("file-tree"), "files") {
                        self.look_at_files(node, place(Some(&key.text)).err().as_deref(), &mut wrong);
                        continue;
                    }
                    if (builtin, key.text.as_str()) == (Some("debconf"), "answers") {
                        self.look_at_answers(node, &mut wrong);
                        continue;
                    }
                    match (builtin, key.text.as_str()) {
                        (Some("bmc"), "remote") => self.look_at_passwords(node, &mut wrong),
                        (Some("bmc"), "users") => {
                            for (name, user) in node.map().into_iter().flat_map(|map| &map.entries) {
                                self.look_at_key(&name.text, name.mark, &mut wrong);
                                self.look_at_passwords(user, &mut wrong);
                            }
                        }
                        (_, _) => self.look(node, place(Some(&key.text)).err().as_deref(), &mut wrong),
                    }
                    self.look_at_key(&key.text, key.mark, &mut wrong);
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Int(..)
            | Value::Float(..)
            | Value::Text(_)
            | Value::List(_)
            | Value::Invalid => self.look(content, place(None).err().as_deref(), &mut wrong),
        }
        for (mark, message, help) in wrong {
            report.push(mark, Diagnostic::error("secret-in-the-open", message).help(help));
        }
    }

    /// The same for the files of a tree: their texts stay secret, their other attributes do not.
    fn look_at_files(&self, files: &Node, never: Option<&str>, wrong: &mut Vec<(Mark, String, String)>) {
        for (path, file) in files.map().into_iter().flat_map(|map| &map.entries) {
            self.look_at_key(&path.text, path.mark, wrong);
            match file.map() {
                Some(entries) => entries.entries.iter().for_each(|(key, node)| {
                    let text = ["content", "template"].contains(&key.text.as_str());
                    self.look(node, never.filter(|_| !text), wrong);
                }),
                None => self.look(file, never, wrong),
            }
        }
    }

    /// The same for a mapping in which `password` alone stays secret.
    fn look_at_passwords(&self, node: &Node, wrong: &mut Vec<(Mark, String, String)>) {
        let never = Some("put it into `password`: other keys are visible to other users");
        let Some(map) = node.map() else { return self.look(node, never, wrong) };
        for (key, node) in &map.entries {
            self.look_at_key(&key.text, key.mark, wrong);
            self.look(node, never.filter(|_| key.text != "password"), wrong);
        }
    }

    /// The same for answers: the value of a password stays secret.
    fn look_at_answers(&self, answers: &Node, wrong: &mut Vec<(Mark, String, String)>) {
        let never = Some("all users can read other answers: a secret is the `value` of `type: password`");
        let Value::List(items) = &answers.value else { return self.look(answers, never, wrong) };
        for answer in items {
            let Some(map) = answer.map() else { return self.look(answer, never, wrong) };
            let is_type = |node: &Node| matches!(&node.value, Value::Text(text) if text == "password");
            let is_password = map.entries.iter().any(|(key, node)| key.text == "type" && is_type(node));
            for (key, node) in &map.entries {
                self.look_at_key(&key.text, key.mark, wrong);
                self.look(node, never.filter(|_| !is_password || key.text != "value"), wrong);
            }
        }
    }

    /// Collects faults of the marks in a value; `never`: the reason why no mark is allowed there.
    fn look(&self, node: &Node, never: Option<&str>, wrong: &mut Vec<(Mark, String, String)>) {
        match &node.value {
            Value::Text(text) => {
                for id in secret::marks(text) {
                    match (self.names.get(&id), never) {
                        (Some(_), None) => {}
                        (Some(name), Some(why)) => {
                            wrong.push((
                                node.mark,
                                format!("the secret `{name}` would not stay secret here"),
                                why.to_owned(),
                            ));
                        }
                        (None, _) => {
                            let help = "secrets are named by templates: `{{ secret('NAME') }}`";
                            let message = "this text looks like the mark of a secret".to_owned();
                            wrong.push((node.mark, message, help.to_owned()));
                        }
                    }
                }
            }
            Value::List(items) => items.iter().for_each(|node| self.look(node, never, wrong)),
            Value::Map(map) => map.entries.iter().for_each(|(key, node)| {
                self.look_at_key(&key.text, key.mark, wrong);
                self.look(node, never, wrong);
            }),
            Value::Null | Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Invalid => {}
        }
    }

    fn look_at_key(&self, key: &str, mark: Mark, wrong: &mut Vec<(Mark, String, String)>) {
        if secret::marks(key).next().is_some() {
            let help = "put it into the value: `password: \"{{ secret('NAME') }}\"`";
            wrong.push((mark, "a secret can't be a key".to_owned(), help.to_owned()));
        }
    }

    /// The secrets that change objects use.
    pub(super) fn into_draft(
        self,
        cobs: &BTreeMap<CobId, At<DraftCob>>,
        files: &Files,
        report: &mut Report<'_>,
    ) -> BTreeMap<SecretId, At<DraftSecret>> {
        let mut used = BTreeSet::new();
        for cob in cobs.values() {
            marks_of(&cob.value.content, &mut used);
        }
        let mut draft = BTreeMap::new();
        for (name, entry) in self.by_name {
            if let Some(SecretSource::File(path)) = &entry.source
                && files.travels(path)
            {
                let fault = Diagnostic::error(
                    "secret-in-the-open",
                    format!(
                        "the file of the secret `{name}` travels with a change object and is readable for all users"
                    ),
                );
                let help = "remove it from `files` and from commands; `{{ secret('NAME') }}` inserts its content";
                report.push(entry.mark, fault.help(help));
            }
            let id = id_of(&name);
            if let (true, Some(source)) = (used.contains(&id), entry.source) {
                draft.insert(id, At { value: DraftSecret { name, source }, place: report.place(entry.mark) });
            }
        }
        draft
    }
}

/// The keys of the content of `script` that make its kind.
fn is_definition(key: &str) -> bool {
    let keys = [
        "states",
        "preferred",
        "pre_remove",
        "priority",
        "check",
        "transitions",
        "timeout",
        "grace",
        "retries",
        "retry_delay",
        "failure",
    ];
    keys.contains(&key)
}

fn marks_of(value: &serde_json::Value, found: &mut BTreeSet<SecretId>) {
    match value {
        serde_json::Value::String(text) => found.extend(secret::marks(text)),
        serde_json::Value::Array(items) => items.iter().for_each(|item| marks_of(item, found)),
        serde_json::Value::Object(fields) => fields.values().for_each(|field| marks_of(field, found)),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}

/// The source of a secret's value.
fn source(name: &Marked<String>, entry: &SecretEntry, report: &mut Report<'_>) -> Option<SecretSource> {
    let folder = report.folder(name.mark);
    let mut sources = Vec::new();
    if let Some(file) = &entry.file {
        sources.push((!file.value.is_empty()).then(|| SecretSource::File(folder.join(Path::new(&file.value)))));
    }
    if let Some(variable) = &entry.env {
        let good = !variable.value.is_empty() && !variable.value.contains(['=', '\0']);
        sources.push(good.then(|| SecretSource::Env(variable.value.clone())));
    }
    if let Some(text) = &entry.age {
        let good = text.value.trim_start().starts_with("-----BEGIN AGE ENCRYPTED FILE-----");
        sources.push(good.then(|| SecretSource::Age(text.value.trim().to_owned())));
    }
    if let Some(command) = &entry.command {
        let words: Vec<String> = command.value.iter().map(|w| w.value.clone()).collect();
        let good = words.first().is_some_and(|w| !w.trim().is_empty());
        sources.push(good.then(|| SecretSource::Command { words, folder: folder.clone() }));
    }
    let fault = match <[_; 1]>::try_from(sources) {
        Ok([Some(source)]) => return Some(source),
        Ok([None]) => format!("the secret `{}` has a value in no known form", name.value),
        Err(several) if several.is_empty() => {
            format!("the model does not say where the value of the secret `{}` is", name.value)
        }
        Err(_) => format!("the secret `{}` has several sources for its value", name.value),
    };
    let help = "write a single source: {file: secrets/pw}, {env: DB_PASSWORD}, {command: [pass, show, db]}, \
                {age: \"-----BEGIN AGE ENCRYPTED FILE-----…\"}";
    let fault = Diagnostic::error("bad-secret", fault).help(help);
    if entry.age.is_some() {
        // Without a place: the line shown there may contain the secret itself.
        report.parts().1.push(fault);
    } else {
        report.push(name.mark, fault);
    }
    None
}
