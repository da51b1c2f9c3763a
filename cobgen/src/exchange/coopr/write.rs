//! Writes the entities of a model in Coopr's form: a single JSON document, as Coopr exports all entities.

use std::path::Path;

use serde_json::{Map as Json, Value as JsonValue, json};

use super::{ACTIONS, Fields, GROUPS, of_chef};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::model::{Mark, Node, Sources, Value, read_tree};

/// The result for a model.
#[derive(Debug)]
pub struct Exported {
    /// Coopr's groups with the list of their entities.
    pub document: Json<String, JsonValue>,
    /// Parts without a counterpart, and faults of the model.
    pub diagnostics: Vec<Diagnostic>,
    /// The files, to show lines.
    pub sources: Sources,
    /// The number of entities.
    pub entities: usize,
}

/// Writes the entities of a model, a file or folder.
#[must_use]
pub fn write(path: &Path) -> Exported {
    let (sources, root, out) = read_tree(path);
    let mut writer = Writer { sources: &sources, out };
    let mut document = Json::new();
    let mut entities = 0;
    if let Some(root) = &root {
        let mut sections = Fields::of("the model", root);
        let lists = writer.sections(&mut sections);
        entities = lists.iter().map(|(_, list)| list.len()).sum();
        document = lists.into_iter().map(|(group, list)| (group.to_owned(), JsonValue::Array(list))).collect();
        writer.rest(sections);
    }
    let diagnostics = writer.out.into_sorted();
    Exported { document, diagnostics, sources, entities }
}

struct Writer<'a> {
    sources: &'a Sources,
    out: Diagnostics,
}

/// An object of JSON that is being written.
type Object = Json<String, JsonValue>;

impl Writer<'_> {
    fn no_counterpart(&mut self, what: impl Into<String>, mark: Mark) {
        let place = self.sources.place(mark);
        self.out.push(Diagnostic::warning("no-counterpart", what).at(place));
    }

    fn rest(&mut self, fields: Fields<'_>) {
        let what = fields.what.clone();
        for key in fields.rest() {
            self.no_counterpart(format!("`{}` in {what} has no counterpart in Coopr", key.text), key.mark);
        }
    }

    /// The lists of all groups, in Coopr's order.
    fn sections(&mut self, sections: &mut Fields<'_>) -> Vec<(&'static str, Vec<JsonValue>)> {
        let mut lists = GROUPS.map(|(group, _)| (group, Vec::new()));
        for (at, (group, section)) in GROUPS.into_iter().enumerate() {
            // Full and partial templates are a section.
            for (key, node) in sections.take(section).and_then(Node::map).into_iter().flat_map(|map| &map.entries) {
                let mut fields = Fields::of(&format!("`{}`", key.text), node);
                let mut entity = Object::new();
                entity.insert("name".to_owned(), json!(key.text));
                copy(&mut fields, "description", "description", &mut entity);
                let mut at = at;
                match group {
                    "providers" => {
                        copy(&mut fields, "type", "providertype", &mut entity);
                        let settings = fields.take("settings").map_or_else(|| json!({}), Node::to_json);
                        entity.insert("provisioner".to_owned(), settings);
                    }
                    "hardwaretypes" | "imagetypes" => copy(&mut fields, "providers", "providermap", &mut entity),
                    "services" => self.service(&mut fields, &mut entity),
                    _ => at += usize::from(self.template(&mut fields, &mut entity)),
                }
                self.rest(fields);
                if let Some((_, list)) = lists.get_mut(at) {
                    list.push(JsonValue::Object(entity));
                }
            }
        }
        lists.into()
    }

    fn service(&mut self, fields: &mut Fields<'_>, entity: &mut Object) {
        if let Some(node) = fields.take("dependencies") {
            let (mut of, mut found) = (Fields::of("`dependencies`", node), Object::new());
            for key in ["provides", "conflicts", "install", "runtime"] {
                copy(&mut of, key, key, &mut found);
            }
            self.rest(of);
            entity.insert("dependencies".to_owned(), JsonValue::Object(found));
        }
        let mut actions = Object::new();
        if let Some(node) = fields.take("actions") {
            let mut of = Fields::of("`actions`", node);
            for name in ACTIONS {
                if let Some(action) = of.take(name).and_then(|node| self.action(node)) {
                    actions.insert(name.to_owned(), action);
                }
            }
            self.rest(of);
        }
        entity.insert("provisioner".to_owned(), json!({ "actions": actions }));
    }

    /// The action of an automator with the effect of a command.
    fn action(&mut self, node: &Node) -> Option<JsonValue> {
        let mut command = node;
        if node.map().is_some() {
            let mut of = Fields::of("an action", node);
            let run = of.take("run");
            self.rest(of);
            command = run?;
        }
        let Some(text) = command.text() else {
            self.no_counterpart("an action with a list of words has no counterpart in Coopr", command.mark);
            return None;
        };
        if let Some((list, attributes)) = of_chef(text) {
            let attributes = attributes.unwrap_or_default();
            return Some(json!({"type": "chef-solo", "fields": {"run_list": list, "json_attributes": attributes}}));
        }
        let (script, args) = text.split_once(' ').unwrap_or((text, ""));
        let Some(script) = script.strip_prefix("./") else {
            let what = "an action that is no script beside the model (`./x`) has no counterpart in Coopr";
            self.no_counterpart(what, command.mark);
            return None;
        };
        Some(json!({"type": "shell", "fields": {"script": script, "args": args}}))
    }

    /// Whether it is a partial template.
    fn template(&mut self, fields: &mut Fields<'_>, entity: &mut Object) -> bool {
        let is_partial = fields.take("partial").is_some_and(|node| node.value == Value::Bool(true));
        copy(fields, "immutable", "immutable", entity);
        let reference = |node: &Node| json!({ "name": node.to_json() });
        if let Some(parent) = fields.take("parent") {
            entity.insert("extends".to_owned(), reference(parent));
        }
        if let Some(includes) = fields.take("includes").and_then(Node::list) {
            entity.insert("includes".to_owned(), includes.iter().map(reference).collect());
        }
        for key in ["compatibility", "defaults"] {
            copy(fields, key, key, entity);
        }
        if let Some(node) = fields.take("constraints") {
            let (mut of, mut found) = (Fields::of("`constraints`", node), Object::new());
            for key in ["layout", "size"] {
                copy(&mut of, key, key, &mut found);
            }
            if let Some(map) = of.take("services").and_then(Node::map) {
                let rules = map.entries.iter().map(|(key, node)| (key.text.clone(), self.rule(&key.text, node)));
                found.insert("services".to_owned(), JsonValue::Object(rules.collect()));
            }
            self.rest(of);
            entity.insert("constraints".to_owned(), JsonValue::Object(found));
        }
        is_partial
    }

    fn rule(&mut self, service: &str, node: &Node) -> JsonValue {
        let (mut of, mut rule) = (Fields::of(&format!("the rules for `{service}`"), node), Object::new());
        for key in ["hardwaretypes", "imagetypes"] {
            copy(&mut of, key, key, &mut rule);
        }
        if let Some(node) = of.take("quantities") {
            let (mut of, mut quantities) = (Fields::of("`quantities`", node), Object::new());
            for key in ["min", "max"] {
                copy(&mut of, key, key, &mut quantities);
            }
            self.rest(of);
            rule.insert("quantities".to_owned(), JsonValue::Object(quantities));
        }
        self.rest(of);
        JsonValue::Object(rule)
    }
}

fn copy(fields: &mut Fields<'_>, key: &str, name: &str, into: &mut Object) {
    if let Some(node) = fields.take(key) {
        into.insert(name.to_owned(), node.to_json());
    }
}
