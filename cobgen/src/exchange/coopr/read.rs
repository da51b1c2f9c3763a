//! Reads Coopr's entities: JSON files in folders with the names that Coopr's server uses, or a single file, as Coopr
//! exports all entities.
//!
//! Configurations are taken over unchanged, including macros, which models support.

use std::path::{Component, Path, PathBuf};

use cob_types::HostName;
use serde_json::{Map as Json, Value as JsonValue, json};

use super::{ACTIONS, Fields, GROUPS, chef};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::expand::macros;
use crate::model::{Mark, Node, Sources, Value, read_one};
use cob_depot::input;

/// The result for a folder or file.
#[derive(Debug)]
pub struct Imported {
    /// The sections of a model by name.
    pub sections: Json<String, JsonValue>,
    /// Unsupported parts, and files that could not be read.
    pub diagnostics: Vec<Diagnostic>,
    /// The files, to show lines.
    pub sources: Sources,
    /// The number of entities.
    pub entities: usize,
}

/// The largest file, in bytes.
const MAX_FILE: u64 = 32 << 20;

/// Reads the entities of a folder, or of a file with all entities.
#[must_use]
pub fn read(path: &Path) -> Imported {
    let mut reader = Reader { sources: Sources::default(), out: Diagnostics::default(), folder: path.to_owned() };
    let mut sections = Sections::default();
    if path.is_dir() {
        reader.unknown_folders();
        for (group, section) in GROUPS {
            for path in reader.files(&path.join(group)) {
                if let Some(node) = reader.load(&path) {
                    reader.add(&mut sections, group, section, &node);
                }
            }
        }
    } else if let Some(node) = reader.load(path) {
        let mut groups = Fields::of("the file", &node);
        for (group, section) in GROUPS {
            for node in groups.take(group).and_then(Node::list).unwrap_or_default() {
                reader.add(&mut sections, group, section, node);
            }
        }
        reader.rest(groups);
    }
    if sections.entities == 0 && !reader.out.has_errors() {
        let names: Vec<String> = GROUPS.iter().map(|(name, _)| format!("`{name}`")).collect();
        let fault = Diagnostic::error("no-entities", format!("{} holds no entities of Coopr", path.display()));
        let help =
            format!("they are JSON files in folders, or lists of a single file, with the names {}", names.join(", "));
        reader.out.push(fault.help(help));
    }
    let Sections { all, entities } = sections;
    Imported { sections: all, diagnostics: reader.out.into_sorted(), sources: reader.sources, entities }
}

/// The sections of a model, and the number of their entities.
#[derive(Default)]
struct Sections {
    all: Json<String, JsonValue>,
    entities: usize,
}

struct Reader {
    sources: Sources,
    out: Diagnostics,
    folder: PathBuf,
}

impl Reader {
    fn tell(&mut self, diagnostic: Diagnostic, mark: Mark) {
        self.out.push(diagnostic.at(self.sources.place(mark)));
    }

    fn not_understood(&mut self, what: impl Into<String>, mark: Mark) {
        self.tell(Diagnostic::warning("not-understood", what), mark);
    }

    /// Reports unsupported folders.
    fn unknown_folders(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|e| e.path().is_dir())
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with('.') && !GROUPS.iter().any(|(known, _)| known == name))
            .collect();
        names.sort();
        for name in names {
            let what = format!("the folder {} was not read", self.folder.join(name).display());
            self.out.push(Diagnostic::warning("not-understood", what));
        }
    }

    fn files(&mut self, folder: &Path) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| !p.is_dir()).collect();
        files.sort();
        for other in files.iter().filter(|p| p.extension().is_none_or(|e| e != "json")) {
            let what = format!("the file {} was not read", other.display());
            self.out.push(Diagnostic::warning("not-understood", what));
        }
        files.retain(|p| p.extension().is_some_and(|e| e == "json"));
        files
    }

    fn load(&mut self, path: &Path) -> Option<Node> {
        let unreadable =
            |e: &dyn std::fmt::Display| Diagnostic::error("unreadable", format!("can't read {}: {e}", path.display()));
        match input::read_text(path, MAX_FILE) {
            Ok(text) => read_one(&mut self.sources, path, text, &mut self.out),
            Err(error) => {
                self.out.push(unreadable(&error));
                None
            }
        }
    }

    fn add(&mut self, sections: &mut Sections, group: &str, section: &str, node: &Node) {
        let Some((entity, value)) = self.entity(group, node) else { return };
        let all = sections.all.entry(section.to_owned()).or_insert_with(|| json!({}));
        let taken = all.get(&entity).is_some();
        if let (false, Some(map)) = (taken, all.as_object_mut()) {
            map.insert(entity, value);
            sections.entities += 1;
        } else {
            let what = format!("two entities in `{section}` have the name `{entity}`");
            self.tell(Diagnostic::error("duplicate-name", what), node.mark);
        }
    }

    fn entity(&mut self, group: &str, node: &Node) -> Option<(String, JsonValue)> {
        let mut fields = Fields::of("an entity", node);
        let Some((name, mark)) = fields.take("name").and_then(|n| Some((n.text()?.to_owned(), n.mark))) else {
            let fault = Diagnostic::error("no-name", "this entity has no `name`");
            self.tell(fault, node.mark);
            return None;
        };
        self.check_name(&name, mark);
        fields.what = format!("`{name}`");
        let mut value = Json::new();
        self.copy(&mut fields, "description", &mut value);
        match group {
            "providers" => self.provider(&mut fields, &mut value),
            "hardwaretypes" | "imagetypes" => {
                if let Some(map) = fields.take("providermap") {
                    value.insert("providers".to_owned(), map.to_json());
                }
            }
            "services" => self.service(&mut fields, &mut value),
            _ => self.template(&mut fields, &mut value, group == "partialtemplates"),
        }
        self.rest(fields);
        Some((name, JsonValue::Object(value)))
    }

    /// Reports a name that models refuse. It is kept: other entities may refer to it, and `check` shows its place.
    fn check_name(&mut self, name: &str, mark: Mark) {
        if let Err(error) = HostName::new(name) {
            let what = error.to_string();
            // All names have the same rules; only the word differs.
            let what = what.strip_prefix("host").map_or(what.clone(), |rest| format!("the name{rest}"));
            let fault = Diagnostic::warning("bad-name", format!("{what}; the import keeps it unchanged"));
            self.tell(fault.help("models refuse it: rename it here and in all references"), mark);
        }
    }

    /// Reports a script that is not below the model's folder. It is kept, although models refuse it.
    fn check_script(&mut self, script: &str, mark: Mark) {
        let file = script.split_whitespace().next().unwrap_or_default();
        if file.is_empty() || !Path::new(file).components().all(|part| matches!(part, Component::Normal(_))) {
            let what =
                format!("the script {script:?} is no file below the model's folder; the import keeps it unchanged");
            let fault = Diagnostic::warning("bad-file", what);
            self.tell(fault.help("models refuse it: put the file beside the model, and name it as ./x"), mark);
        }
    }

    /// Reports the keys that were not taken, except keys with empty values.
    fn rest(&mut self, fields: Fields<'_>) {
        let what = fields.what.clone();
        for key in fields.rest() {
            self.not_understood(format!("`{}` in {what} was not understood", key.text), key.mark);
        }
    }

    fn copy(&mut self, fields: &mut Fields<'_>, key: &str, into: &mut Json<String, JsonValue>) {
        if let Some(node) = fields.take(key).filter(|node| node.text() != Some("")) {
            into.insert(key.to_owned(), node.to_json());
        }
    }

    /// Takes a list of names if it is not empty.
    fn names(&mut self, fields: &mut Fields<'_>, key: &str, into: &mut Json<String, JsonValue>) {
        if let Some(node) = fields.take(key).filter(|node| node.list().is_none_or(|items| !items.is_empty())) {
            into.insert(key.to_owned(), node.to_json());
        }
    }

    fn provider(&mut self, fields: &mut Fields<'_>, value: &mut Json<String, JsonValue>) {
        if let Some(sort) = fields.take("providertype") {
            value.insert("type".to_owned(), sort.to_json());
        }
        if let Some(provisioner) = fields.take("provisioner") {
            // Coopr's own files contain many keys with empty values.
            let mut settings = provisioner.to_json();
            if let Some(map) = settings.as_object_mut() {
                map.retain(|_, v| v.as_str() != Some(""));
            }
            value.insert("settings".to_owned(), settings);
        }
    }

    fn service(&mut self, fields: &mut Fields<'_>, value: &mut Json<String, JsonValue>) {
        let mut needs = Json::new();
        if let Some(node) = fields.take("dependencies") {
            let mut written = Fields::of("`dependencies`", node);
            self.names(&mut written, "provides", &mut needs);
            self.names(&mut written, "conflicts", &mut needs);
            for stage in ["install", "runtime"] {
                let Some(node) = written.take(stage) else { continue };
                let (mut of, mut found) = (Fields::of(&format!("`{stage}`"), node), Json::new());
                self.names(&mut of, "requires", &mut found);
                self.names(&mut of, "uses", &mut found);
                self.rest(of);
                if !found.is_empty() {
                    needs.insert(stage.to_owned(), JsonValue::Object(found));
                }
            }
            self.rest(written);
        }
        // Before version 0.9.8 these were dependencies at run time.
        if let Some(node) = fields.take("dependson").filter(|n| n.list().is_none_or(|items| !items.is_empty())) {
            needs.insert("runtime".to_owned(), json!({"requires": node.to_json()}));
        }
        if !needs.is_empty() {
            value.insert("dependencies".to_owned(), JsonValue::Object(needs));
        }
        let Some(node) = fields.take("provisioner") else { return };
        let mut provisioner = Fields::of("`provisioner`", node);
        if let Some(node) = provisioner.take("actions") {
            let mut actions = Json::new();
            for (key, node) in node.map().into_iter().flat_map(|m| &m.entries) {
                if !ACTIONS.contains(&key.text.as_str()) {
                    self.not_understood(format!("no action is called `{}`", key.text), key.mark);
                } else if let Some(command) = self.action(node) {
                    actions.insert(key.text.clone(), command);
                }
            }
            if !actions.is_empty() {
                value.insert("actions".to_owned(), JsonValue::Object(actions));
            }
        }
        self.rest(provisioner);
    }

    /// A command with the effect of Coopr's automators.
    fn action(&mut self, node: &Node) -> Option<JsonValue> {
        let mut fields = Fields::of("an action", node);
        let sort = fields.take("type").and_then(Node::text).unwrap_or_default().to_owned();
        // Before version 0.9.8 the fields were beside the type.
        let inner = fields.take("fields");
        let mut given = inner.map_or_else(
            || Fields { what: fields.what.clone(), left: std::mem::take(&mut fields.left) },
            |f| Fields::of("an action", f),
        );
        self.rest(fields);
        let mut text = |key: &str| given.take(key).and_then(Node::scalar);
        let command = match sort.as_str() {
            "shell" => {
                let script = text("script").or_else(|| text("command"));
                let args = text("args").or_else(|| text("data")).filter(|args| !args.is_empty());
                script.map(|script| {
                    let script = script.trim_start_matches("./");
                    self.check_script(script, node.mark);
                    args.map_or_else(|| format!("./{script}"), |args| format!("./{script} {args}"))
                })
            }
            "chef-solo" | "chef" => {
                let list = text("run_list").or_else(|| text("script"));
                let attributes = text("json_attributes").or_else(|| text("data")).filter(|a| !a.trim().is_empty());
                list.map(|list| chef(&list, attributes.as_deref()))
            }
            _ => {
                self.not_understood(format!("no command is known for actions of the type `{sort}`"), node.mark);
                return None;
            }
        };
        if command.is_none() {
            self.not_understood(format!("this action of the type `{sort}` has no command"), node.mark);
        }
        self.rest(given);
        command.map(JsonValue::from)
    }

    fn template(&mut self, fields: &mut Fields<'_>, value: &mut Json<String, JsonValue>, partial: bool) {
        if partial {
            value.insert("partial".to_owned(), json!(true));
            if let Some(Value::Bool(true)) = fields.take("immutable").map(|n| &n.value) {
                value.insert("immutable".to_owned(), json!(true));
            }
        }
        let parent = fields.take("extends").or_else(|| fields.take("parent"));
        if let Some(name) = parent.and_then(|node| self.reference(node)) {
            value.insert("parent".to_owned(), json!(name));
        }
        let includes: Vec<String> = match fields.take("includes").and_then(Node::list) {
            Some(items) => items.iter().filter_map(|node| self.reference(node)).collect(),
            None => Vec::new(),
        };
        if !includes.is_empty() {
            value.insert("includes".to_owned(), json!(includes));
        }
        if let Some(node) = fields.take("compatibility") {
            let (mut of, mut found) = (Fields::of("`compatibility`", node), Json::new());
            for key in ["services", "hardwaretypes", "imagetypes"] {
                self.names(&mut of, key, &mut found);
            }
            self.rest(of);
            value.insert("compatibility".to_owned(), JsonValue::Object(found));
        }
        if let Some(node) = fields.take("defaults") {
            let (mut of, mut found) = (Fields::of("`defaults`", node), Json::new());
            self.names(&mut of, "services", &mut found);
            for key in ["provider", "hardwaretype", "imagetype"] {
                self.copy(&mut of, key, &mut found);
            }
            if let Some(config) = of.take("config") {
                self.macros(config);
                found.insert("config".to_owned(), config.to_json());
            }
            self.rest(of);
            value.insert("defaults".to_owned(), JsonValue::Object(found));
        }
        if let Some(node) = fields.take("constraints") {
            let constraints = self.constraints(node);
            if !constraints.is_empty() {
                value.insert("constraints".to_owned(), JsonValue::Object(constraints));
            }
        }
    }

    /// Reads `{"name": "x", "version": 3}`; the version has no meaning in a model.
    fn reference(&mut self, node: &Node) -> Option<String> {
        if let Some(name) = node.text() {
            return Some(name.to_owned());
        }
        let mut fields = Fields::of("a reference", node);
        let name = fields.take("name").and_then(Node::text).map(str::to_owned);
        self.rest(fields);
        name
    }

    fn constraints(&mut self, node: &Node) -> Json<String, JsonValue> {
        let (mut of, mut found) = (Fields::of("`constraints`", node), Json::new());
        if let Some(node) = of.take("layout") {
            let (mut of, mut layout) = (Fields::of("`layout`", node), Json::new());
            self.names(&mut of, "mustcoexist", &mut layout);
            self.names(&mut of, "cantcoexist", &mut layout);
            self.rest(of);
            if !layout.is_empty() {
                found.insert("layout".to_owned(), JsonValue::Object(layout));
            }
        }
        if let Some(node) = of.take("services") {
            let mut services = Json::new();
            for (key, node) in node.map().into_iter().flat_map(|m| &m.entries) {
                let (mut of, mut rule) = (Fields::of(&format!("the rules for `{}`", key.text), node), Json::new());
                self.names(&mut of, "hardwaretypes", &mut rule);
                self.names(&mut of, "imagetypes", &mut rule);
                if let Some(node) = of.take("quantities") {
                    let quantities = self.bounds(node, "`quantities`");
                    rule.insert("quantities".to_owned(), JsonValue::Object(quantities));
                }
                self.rest(of);
                services.insert(key.text.clone(), JsonValue::Object(rule));
            }
            if !services.is_empty() {
                found.insert("services".to_owned(), JsonValue::Object(services));
            }
        }
        if let Some(node) = of.take("size") {
            let size = self.bounds(node, "`size`");
            found.insert("size".to_owned(), JsonValue::Object(size));
        }
        self.rest(of);
        found
    }

    /// `min` and `max`, which Coopr's files write as numbers and as texts.
    fn bounds(&mut self, node: &Node, what: &str) -> Json<String, JsonValue> {
        let (mut of, mut found) = (Fields::of(what, node), Json::new());
        for key in ["min", "max"] {
            let Some(node) = of.take(key) else { continue };
            match node.scalar().and_then(|text| text.trim().parse::<u32>().ok()) {
                Some(number) => drop(found.insert(key.to_owned(), json!(number))),
                None => self.not_understood(format!("`{key}` in {what} is no number"), node.mark),
            }
        }
        self.rest(of);
        found
    }

    /// Reports macros in a configuration that models don't support.
    fn macros(&mut self, node: &Node) {
        match &node.value {
            Value::Text(text) => {
                for fault in macros::faults(text) {
                    self.not_understood(fault, node.mark);
                }
            }
            Value::List(items) => items.iter().for_each(|item| self.macros(item)),
            Value::Map(map) => map.entries.iter().for_each(|(_, value)| self.macros(value)),
            Value::Null | Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Invalid => {}
        }
    }
}
