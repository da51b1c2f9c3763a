//! Expands the sections of a model into change objects with explicit dependencies.
//!
//! `hosts`, `kinds` and `clusters` come first. `objects` makes every change object, listed by hand or of a service, and
//! renders its templates; `targets` resolves the names in dependency words; `words` turns the short words into
//! transition and lock dependencies; `gates` thins out dependencies between two large services; `budgets` adds the
//! change objects that grant tokens; `arrows` collects the dependencies. Every step reports all its faults and
//! continues; only a model without errors gives a [`Draft`].

mod actions;
mod arrows;
mod as_text;
mod asks;
mod bearers;
mod bounded;
mod budgets;
mod builtin;
mod chains;
mod clusters;
mod concat;
mod desired;
mod file_tree;
mod files;
mod firewall;
mod footprint;
mod gates;
mod ground;
pub(crate) mod hosts;
mod kinds;
pub(crate) mod macros;
mod masks;
mod objects;
mod owners;
mod plugin;
mod scope;
mod secrets;
mod service;
mod spread;
mod targets;
mod template;
mod timetable;
mod trust;
mod unrendered;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cob_depot::enrolled::Enrolments;
use cob_types::generation::Security;
use cob_types::switch::{OnFailure, SwitchPolicy};
use cob_types::{BlobHash, CobId, IdError};
use rayon::prelude::*;

use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::draft::{At, Draft, DraftHost, Place};
use crate::guard::{self, Guarded};
use crate::model::{Mark, Marked, Model, OnFailureEntry, Sections, Sources, did_you_mean_or_list};
use crate::solve::{Given, Layouts};

/// The result of an expansion.
#[derive(Debug)]
pub struct Expansion {
    /// The change objects; `None` if the model has an error.
    pub draft: Option<Draft>,
    /// All findings, in the order of the files.
    pub diagnostics: Vec<Diagnostic>,
    /// The model's files, to show lines.
    pub sources: Sources,
    /// The other files of the model, by relative name; the draft has the contents.
    pub beside: BTreeMap<String, BlobHash>,
    /// The layouts of clusters with templates.
    pub layouts: Layouts,
}

pub(crate) use ground::Ground;
pub use trust::Keys;

/// Knowledge from outside the model.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The change objects of the previous generation: objects placed on the `first` node stay on their node.
    pub previous: &'a BTreeSet<CobId>,
    /// The keys of enrolled hosts; `None`: enrolments are unknown.
    pub enrolled: Option<&'a Enrolments>,
    /// The valid keys that the previous generation named for its hosts.
    pub before: &'a Keys,
    /// The present layouts of clusters.
    pub given: &'a Given,
}

/// Loads a model and expands it.
///
/// `previous` are the change objects of the previous generation: objects placed on the `first` node stay on their node.
#[must_use]
pub fn load(path: &Path, previous: &BTreeSet<CobId>) -> Expansion {
    expand(Model::load(path), previous)
}

/// Expands a loaded model; `previous` as for [`load`].
#[must_use]
pub fn expand(model: Model, previous: &BTreeSet<CobId>) -> Expansion {
    let (before, given) = (&Keys::new(), &Given::default());
    expand_knowing(model, &Known { previous, enrolled: None, before, given })
}

/// Expands a loaded model with all outside knowledge.
pub(crate) fn expand_knowing(model: Model, known: &Known<'_>) -> Expansion {
    let Model { sources, sections, mut diagnostics } = model;
    let mut files = files::Files::default();
    let mut layouts = Layouts::new();
    let draft = sections.and_then(|sections| {
        let mut report = Report { sources: &sources, out: &mut diagnostics };
        draft(&sections, known, &mut files, &mut layouts, &mut report)
    });
    let draft = draft.filter(|_| !diagnostics.has_errors()).map(|draft| Draft { blobs: files.blobs, ..draft });
    Expansion { draft, diagnostics: diagnostics.into_sorted(), sources, beside: files.names, layouts }
}

/// The whole draft except the contents of its files, which are in `files`.
fn draft(
    sections: &Sections,
    known: &Known<'_>,
    files: &mut files::Files,
    layouts: &mut Layouts,
    report: &mut Report<'_>,
) -> Option<Draft> {
    let ground = Ground::read(sections, report);
    let ground::Placed { security, templates, hosts, clusters, needs, .. } =
        ground.place(sections, known.given, layouts, report);
    let mut trust = trust::Trust::read(sections, security, &hosts, known, report);
    let kinds = kinds::Kinds::read(&sections.kinds, files, report);
    let secrets = secrets::Secrets::read(&sections.secrets, report);
    unrendered::warn(sections, &templates, report);
    let world = scope::World::new(sections, templates, hosts, clusters, secrets, needs, report);
    let mut objects = objects::Objects::make(&world, &kinds, known.previous, files, report);
    let mut no_address = arrows::NoAddress::default();
    let tokens = budgets::give_out(sections, &world.hosts, &mut objects, &mut no_address, report);
    let (links, many) = targets::links(&world, &objects, report);
    let links = gates::thin_out(links, many, &mut objects);
    let mut arrows = arrows::Arrows::default();
    words::explicit(&objects, &mut arrows, report);
    words::short(&links, &objects, &mut arrows, report);
    masks::before_packages(&links, &objects, &mut arrows, report);
    let mut arrows = arrows.checked(&world.hosts, &mut no_address, report);
    no_address.report(report);
    owners::report_nested(&objects.all, &arrows, report);
    owners::report_sockets(&objects.all, report);
    let restarts_on = words::restarts_on(&links);
    desired::stop(sections, &world, &mut objects, &mut arrows, report);

    let hosts = world.hosts.0.values().map(|host| {
        let value =
            DraftHost { address: host.address.clone(), keys: trust.keys.remove(&host.name).unwrap_or_default() };
        (host.name.clone(), At { value, place: report.place(host.mark) })
    });
    let hosts = hosts.collect();
    let (labels, clusters) = (world.hosts.by_label(), world.clusters.services());
    let (kinds, cobs) = objects.into_draft(&mut arrows, restarts_on, tokens, report);
    let trust::Trust { revoked, operators, .. } = trust;
    let secrets = world.secrets.into_draft(&cobs, files, report);
    let (blobs, sealed) = (BTreeMap::new(), BTreeMap::new());
    let policy = switch_policy(sections, report);
    let timetable = timetable::read(sections, &world.hosts, &world.clusters, report);
    Some(Draft {
        security: security?,
        revoked,
        policy,
        timetable,
        operators,
        hosts,
        labels,
        clusters,
        kinds,
        cobs,
        blobs,
        secrets,
        sealed,
    })
}

/// The behaviour of hosts in a switch.
fn switch_policy(sections: &Sections, report: &mut Report<'_>) -> SwitchPolicy {
    let Some(entry) = &sections.switch else { return SwitchPolicy::default() };
    let on_failure = match entry.on_failure {
        Some(OnFailureEntry::Rollback) => OnFailure::Rollback,
        Some(OnFailureEntry::Hold) | None => OnFailure::Hold,
    };
    let guard_ms = entry.guard.as_ref().map(|guard| {
        let span = kinds::milliseconds(Some(guard), 1, report);
        if span == 0 {
            let fault = Diagnostic::error("bad-value", "a guard of zero would roll every host back at once");
            report.push(guard.0.mark, fault.help("`guard: 60s` gives links a minute to come up again"));
        }
        span
    });
    SwitchPolicy { on_failure, guard_ms }
}

/// The protection of links: identities, unless the model sets another value.
fn security(sections: &Sections, report: &Report<'_>) -> Option<Security> {
    match sections.security.as_ref().map(|security| security.value) {
        Some(crate::model::Security::LoopbackOnly) => Some(Security::LoopbackOnly),
        Some(crate::model::Security::Identities) => Some(Security::Identities),
        // An invalid value is already reported, and reads as absent.
        None if report.out.iter().any(|d| d.place.is_some() && d.message.starts_with("`security`")) => None,
        None => Some(Security::Identities),
    }
}

/// Marks the template at a place as running until the returned value is dropped.
fn guarded(mark: Mark, report: &Report<'_>) -> Option<Guarded> {
    guard::begin(|| report.place(mark))
}

/// Collects faults and knows the files for their places.
pub(crate) struct Report<'a> {
    sources: &'a Sources,
    out: &'a mut Diagnostics,
}

impl<'a> Report<'a> {
    pub(crate) fn new(sources: &'a Sources, out: &'a mut Diagnostics) -> Self {
        Self { sources, out }
    }
}

impl Report<'_> {
    pub(crate) fn push(&mut self, mark: Mark, diagnostic: Diagnostic) {
        self.out.push(diagnostic.at(self.sources.place(mark)));
    }

    pub(crate) fn place(&self, mark: Mark) -> Place {
        self.sources.place(mark)
    }

    fn folder(&self, mark: Mark) -> PathBuf {
        self.sources.folder(mark)
    }

    /// The number of errors so far.
    pub(crate) fn errors(&self) -> usize {
        self.out.errors()
    }

    /// A report with the same files that collects faults elsewhere.
    pub(crate) fn beside<'b>(&'b self, out: &'b mut Diagnostics) -> Report<'b> {
        Report { sources: self.sources, out }
    }

    fn parts(&mut self) -> (&Sources, &mut Diagnostics) {
        (self.sources, self.out)
    }

    /// Reports an unknown name.
    pub(crate) fn unknown<'n>(
        &mut self,
        what: &str,
        name: &Marked<String>,
        known: impl IntoIterator<Item = &'n str> + Clone,
    ) {
        self.missing("unknown-name", format!("unknown {what} `{}`", name.value), name, known);
    }

    /// The same, with the caller's message.
    pub(crate) fn missing<'n>(
        &mut self,
        code: &'static str,
        message: String,
        name: &Marked<String>,
        known: impl IntoIterator<Item = &'n str> + Clone,
    ) {
        // The search for the nearest of many names takes time; beyond the shown errors it is wasted.
        let help = if self.out.has_room(Severity::Error) { did_you_mean_or_list(&name.value, known) } else { None };
        self.push(name.mark, Diagnostic::error(code, message).maybe_help(help));
    }

    /// The checked name; a bad name is an error with the reason.
    fn name<T>(&mut self, name: &Marked<String>, check: impl Fn(&str) -> Result<T, IdError>) -> Option<T> {
        match check(&name.value) {
            Ok(good) => Some(good),
            Err(error) => {
                self.push(name.mark, Diagnostic::error("bad-name", error.to_string()));
                None
            }
        }
    }

    /// Whether a name can be a part of an id.
    pub(crate) fn segment(&mut self, what: &str, name: &Marked<String>) -> bool {
        match cob_types::HostName::new(&name.value) {
            Ok(_) => true,
            Err(error) => {
                // All parts of an id have the same rules; only the word for the name differs.
                let text = error.to_string();
                let text = text.strip_prefix("host").map_or(text.clone(), |rest| format!("{what}{rest}"));
                self.push(name.mark, Diagnostic::error("bad-name", text));
                false
            }
        }
    }
}

/// Processes all items, in parallel parts. A part with findings is processed again in order: so faults are reported in
/// the order of `all`, and suggestions are computed only if they are shown.
fn in_parts<T: Sync, F: Default + Send>(
    all: &[T],
    report: &mut Report<'_>,
    each: impl Fn(&T, &mut F, &mut Report<'_>) + Sync,
) -> Vec<F> {
    const PART: usize = 4096;
    let shared = &*report;
    let silently = |part: &[T]| {
        let (mut found, mut out) = (F::default(), Diagnostics::default());
        if !shared.out.has_room(Severity::Error) {
            return None;
        }
        for one in part {
            each(one, &mut found, &mut shared.beside(&mut out));
            if out.iter().next().is_some() {
                return None;
            }
        }
        Some(found)
    };
    let silent: Vec<Option<F>> = all.par_chunks(PART).map(silently).collect();
    let mut in_turn = |part: &[T]| {
        let mut found = F::default();
        part.iter().for_each(|one| each(one, &mut found, report));
        found
    };
    all.chunks(PART).zip(silent).map(|(part, found)| found.unwrap_or_else(|| in_turn(part))).collect()
}

/// Values by change object.
type ByCob<T> = BTreeMap<CobId, T>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_of_parallel_parts_keep_their_order() {
        let sources = Sources::default();
        let mut out = Diagnostics::default();
        let mut report = Report::new(&sources, &mut out);
        let all: Vec<u32> = (0..10_000).collect();
        let wrong = [9_999, 4_097, 3, 4_096];
        let parts = in_parts(&all, &mut report, |one, found: &mut Vec<u32>, report| match wrong.contains(one) {
            true => report.out.push(Diagnostic::error("odd", format!("{one} is wrong"))),
            false => found.push(*one),
        });
        let good: Vec<u32> = all.iter().copied().filter(|one| !wrong.contains(one)).collect();
        assert_eq!(parts.concat(), good);
        let told: Vec<&str> = out.iter().map(|fault| fault.message.as_str()).collect();
        assert_eq!(told, ["3 is wrong", "4096 is wrong", "4097 is wrong", "9999 is wrong"]);
        assert_eq!(out.errors(), 4);
    }
}
