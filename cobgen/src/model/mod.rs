//! Loads a model: from files to typed sections with the positions of all values.
//!
//! `source` finds and reads the files, `yaml` parses positioned values, `merge` merges the sections of several files,
//! `structure` checks these against the JSON Schema that `schema` makes from the types in `sections`, and `read` fills
//! these types. Every fault is reported with its place, and no fault hides an independent fault: only invalid YAML ends
//! the loading early.

mod entities;
pub(crate) mod file_mode;
mod forms;
mod merge;
mod node;
mod read;
mod schema;
mod sections;
mod source;
mod structure;
mod yaml;

use std::path::Path;

pub(crate) use cob_types::suggest::{did_you_mean, did_you_mean_or_list};
pub use entities::{
    ActionEntry, ActionsEntry, CompatibilityEntry, ConstraintsEntry, DefaultsEntry, DependenciesEntry,
    HardwaretypeEntry, ImagetypeEntry, LayoutEntry, ProviderEntry, QuantitiesEntry, RatioEntry, ServiceConstraintEntry,
    SizeEntry, StageDependenciesEntry, TemplateEntry,
};
pub use forms::{
    Action, Cost, Duration, HostLabel, HostPick, HostSet, KeySet, Label, NodeSet, Nodes, On, Placed, PreferenceForm,
    Ratio, Run, RunForm, Target, WindowSet,
};
pub use node::{Key, Map, Mark, Node, Value, Written};
pub use read::{Marked, Maybe, Named, ReadError};
pub use schema::schema;
pub use sections::{
    BackendEntry, BudgetEntry, CheckEntry, ClusterEntry, CobEntry, HostEntry, KindEntry, LockNeedsEntry,
    MaintenanceEntry, Mode, OnFailureEntry, OnRemove, OperatorEntry, RoleEntry, ScheduleEntry, SecretEntry, Sections,
    Security, ServiceEntry, ServiceState, SwitchEntry, TransitionEntry, TransitionNeedsEntry, VariablesEntry,
};
pub use source::Sources;
pub(crate) use source::{MAX_FILE, Texts, list as list_files};
pub(crate) use structure::check as check_structure;
pub(crate) use yaml::{Trace, is_blank_that_is_none};

use crate::diagnostic::{Diagnostic, Diagnostics};

/// A loaded model.
#[derive(Debug)]
pub struct Model {
    /// The files.
    pub sources: Sources,
    /// The sections; `None` if the files could not be read as YAML.
    pub sections: Option<Sections>,
    /// The findings so far.
    pub diagnostics: Diagnostics,
}

impl Model {
    /// Loads a file, or a folder of files whose sections are merged.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        Self::load_with(path, &Texts::new())
    }

    /// As [`load`](Self::load), with the texts of an editor in place of files.
    pub(crate) fn load_with(path: &Path, texts: &Texts) -> Self {
        let mut diagnostics = Diagnostics::default();
        let sources = Sources::read(path, texts, &mut diagnostics);
        Self::of_sources(sources, diagnostics)
    }

    /// Loads a text as if it were a file of this name.
    #[must_use]
    pub fn of_text(name: &str, text: &str) -> Self {
        let mut sources = Sources::default();
        sources.add(name.into(), text.to_owned());
        Self::of_sources(sources, Diagnostics::default())
    }

    fn of_sources(sources: Sources, mut diagnostics: Diagnostics) -> Self {
        let sections = sections(&sources, &mut diagnostics);
        Self { sources, sections, diagnostics }
    }
}

/// Adds a file with a single value, and reads it.
pub(crate) fn read_one(
    sources: &mut Sources,
    path: &Path,
    text: String,
    diagnostics: &mut Diagnostics,
) -> Option<Node> {
    let file = sources.add(path.to_owned(), text.clone());
    let found = yaml::parse(file, sources, &text, &mut yaml::Budget::default(), diagnostics)?;
    found.into_iter().next()
}

/// The values of all documents of a text, with its trace.
pub(crate) fn values_of(
    sources: &mut Sources,
    path: &Path,
    text: &str,
    diagnostics: &mut Diagnostics,
) -> (Vec<Node>, Trace) {
    let file = sources.add(path.to_owned(), text.to_owned());
    let (found, trace) = yaml::parse_traced(file, sources, text, &mut yaml::Budget::default(), diagnostics);
    (found.unwrap_or_default(), trace)
}

/// All sections of a model as they are written, after the check of their structure. `None` if a file is no YAML.
pub(crate) fn read_tree(path: &Path) -> (Sources, Option<Node>, Diagnostics) {
    let mut diagnostics = Diagnostics::default();
    let sources = Sources::read(path, &Texts::new(), &mut diagnostics);
    let root = tree(&sources, &mut diagnostics);
    (sources, root, diagnostics)
}

fn sections(sources: &Sources, diagnostics: &mut Diagnostics) -> Option<Sections> {
    let root = tree(sources, diagnostics)?;
    match root.read() {
        Ok(sections) => Some(sections),
        // Wrong forms are already reported, with their places.
        Err(_) if diagnostics.has_errors() => None,
        Err(e) => {
            diagnostics.push(Diagnostic::error("structure", format!("the model can't be read: {e}")));
            None
        }
    }
}

fn tree(sources: &Sources, diagnostics: &mut Diagnostics) -> Option<Node> {
    // If a file were missing, all names that it defines would be reported as unknown.
    let mut complete = !diagnostics.has_errors();
    let mut budget = yaml::Budget::default();
    let mut documents = Vec::new();
    for (file, text) in sources.iter() {
        let Some(found) = yaml::parse(file, sources, text, &mut budget, diagnostics) else {
            complete = false;
            continue;
        };
        if found.iter().all(|d| d.value == Value::Null) {
            let mark = Mark { file, line: 1, column: 1 };
            let fault = Diagnostic::error("empty-file", "this file is empty").at(sources.place(mark));
            diagnostics.push(fault.help("write a model, or delete the file; `cobgen init` makes an example"));
        }
        documents.extend(found.into_iter().filter(|d| d.value != Value::Null));
    }
    // A document without a mapping has no sections to check.
    complete &= !documents.is_empty() && documents.iter().all(|d| d.map().is_some());
    let mut root = merge::merge(documents, sources, diagnostics);
    if !complete {
        return None;
    }
    check_structure(&mut root, schema(), "the model", sources, diagnostics);
    Some(root)
}
