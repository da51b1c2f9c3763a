//! Warnings about texts that look like templates in places where templates are not rendered.
//!
//! Values of variables and the commands of kinds reach hosts unchanged. There, `{{ host.ip }}` was probably meant as a
//! template; braces that are no template, for example `docker ps --format '{{.Names}}'`, are fine.

use super::Report;
use super::template::{Templates, is_template};
use crate::diagnostic::Diagnostic;
use crate::model::{Mark, Named, Node, Run, RunForm, Sections, Value};

/// Reports all these texts of a model.
pub(super) fn warn(sections: &Sections, templates: &Templates, report: &mut Report<'_>) {
    let mut walk = Walk { templates, report };
    let variables = &sections.variables;
    walk.variables(&variables.all);
    for group in [&variables.label, &variables.service, &variables.cluster, &variables.host] {
        group.iter().for_each(|(_, values)| walk.variables(values));
    }
    sections.hosts.iter().for_each(|(_, host)| walk.variables(&host.vars));
    for (_, kind) in sections.kinds.iter() {
        let check = kind.check.as_ref().and_then(|check| check.value.run.as_ref());
        let transitions = kind.transitions.iter().flatten().map(|t| &t.value);
        let moves = transitions.flat_map(|t| t.run.as_ref().into_iter().chain(&t.revert));
        check.into_iter().chain(moves).for_each(|run| walk.command(run));
    }
}

struct Walk<'a, 'r> {
    templates: &'a Templates,
    report: &'a mut Report<'r>,
}

impl Walk<'_, '_> {
    fn variables(&mut self, values: &Named<Node>) {
        values.iter().for_each(|(_, value)| self.node(value));
    }

    fn node(&mut self, node: &Node) {
        match &node.value {
            Value::Text(text) => {
                let help = "write the template where the variable is used";
                self.text(text, node.mark, "the values of variables", help);
            }
            Value::List(items) => items.iter().for_each(|item| self.node(item)),
            Value::Map(map) => map.entries.iter().for_each(|(_, value)| self.node(value)),
            Value::Null | Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Invalid => {}
        }
    }

    fn command(&mut self, run: &Run) {
        let help =
            "a command reads the object's own `content` from the file $COB_CONTENT; templates are rendered there";
        match &run.what {
            RunForm::Shell(text) => self.text(text, run.at.mark, "the commands of kinds", help),
            RunForm::Argv(words) => {
                words.iter().for_each(|word| self.text(&word.value, word.mark, "the commands of kinds", help));
            }
        }
    }

    fn text(&mut self, text: &str, mark: Mark, place: &str, help: &str) {
        if is_template(text) && self.templates.names_in(text).is_some_and(|names| !names.is_empty()) {
            let what = format!("this text looks like a template, but {place} are not rendered: it stays as written");
            self.report.push(mark, Diagnostic::warning("not-rendered", what).help(help));
        }
    }
}
