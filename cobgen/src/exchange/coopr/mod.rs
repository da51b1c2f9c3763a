//! Coopr's entities: providers, types of hardware and images, services, and templates of clusters, full and partial.
//!
//! `read` makes the sections of a model of them, `write` makes them of a model. Both report each part without a
//! counterpart, with its place.

mod read;
mod write;

use cob_types::words::shell_word;

use crate::model::{Key, Node, Value};

pub use read::{Imported, read};
pub use write::{Exported, write};

/// Coopr's groups of entities, which are folders and keys of its export, with the sections of a model.
const GROUPS: [(&str, &str); 6] = [
    ("providers", "providers"),
    ("hardwaretypes", "hardwaretypes"),
    ("imagetypes", "imagetypes"),
    ("services", "services"),
    ("clustertemplates", "templates"),
    ("partialtemplates", "templates"),
];

/// The actions of a service.
const ACTIONS: [&str; 6] = ["install", "configure", "initialize", "start", "stop", "remove"];

/// A mapping whose keys are taken out; the remaining keys have no counterpart.
struct Fields<'a> {
    what: String,
    left: Vec<(&'a Key, &'a Node)>,
}

impl<'a> Fields<'a> {
    fn of(what: &str, node: &'a Node) -> Self {
        let entries = node.map().map(|map| map.entries.iter().map(|(k, v)| (k, v)).collect());
        Self { what: what.to_owned(), left: entries.unwrap_or_default() }
    }

    fn take(&mut self, key: &str) -> Option<&'a Node> {
        let at = self.left.iter().position(|(k, _)| k.text == key)?;
        Some(self.left.remove(at).1).filter(|node| node.value != Value::Null)
    }

    /// The remaining keys with values that are not empty.
    fn rest(self) -> impl Iterator<Item = &'a Key> {
        self.left.into_iter().filter(|(_, node)| !is_empty(node)).map(|(key, _)| key)
    }
}

fn is_empty(node: &Node) -> bool {
    match &node.value {
        Value::Null => true,
        Value::Text(text) => text.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.entries.is_empty(),
        Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Invalid => false,
    }
}

/// The parts of a command before and after the attributes of an action: it prints them, and lays them over the
/// configuration.
const ATTRIBUTES: (&str, &str) =
    ("printf '%s' ", " | jq --slurp '.[0] * .[1]' \"$COB_CONTENT\" - > \"$COB_STATE_DIR/attributes.json\" && ");
/// The option of `chef-solo` before the run list.
const RUN_LIST: &str = " --override-runlist ";

/// The command for Chef's run list with the configuration, overlaid with the attributes of the action.
fn chef(list: &str, attributes: Option<&str>) -> String {
    let run = |file: &str| format!("chef-solo --json-attributes \"{file}\"{RUN_LIST}{}", shell_word(list));
    let (print, overlay) = ATTRIBUTES;
    match attributes {
        None => run("$COB_CONTENT"),
        Some(attributes) => {
            format!("{print}{}{overlay}{}", shell_word(attributes), run("$COB_STATE_DIR/attributes.json"))
        }
    }
}

/// The run list and attributes of a command that [`chef`] made.
fn of_chef(command: &str) -> Option<(String, Option<String>)> {
    let (before, list) = command.rsplit_once(RUN_LIST)?;
    let list = unquoted(list)?;
    let (print, overlay) = ATTRIBUTES;
    let attributes = match before.strip_prefix(print) {
        Some(rest) => Some(unquoted(rest.rsplit_once(overlay)?.0)?),
        None => None,
    };
    (chef(&list, attributes.as_deref()) == command).then_some((list, attributes))
}

/// The text of a [`shell_word`].
fn unquoted(word: &str) -> Option<String> {
    let text = word.strip_prefix('\'')?.strip_suffix('\'')?.replace(r"'\''", "'");
    (shell_word(&text) == word).then_some(text)
}
