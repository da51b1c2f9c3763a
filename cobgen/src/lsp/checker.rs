//! The thread that checks models while their user types.
//!
//! Only the newest text counts: texts that came during a check are checked together, once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use lsp_server::{Message, Notification};
use lsp_types::notification::{Notification as _, PublishDiagnostics};
use lsp_types::{DiagnosticRelatedInformation, DiagnosticSeverity, Location, NumberOrString, PublishDiagnosticsParams};

use super::buffers::uri_of;
use super::{cursor, range};
use crate::diagnostic::{Diagnostic, Severity};
use crate::draft::Place;
use crate::make::{After, make_of};
use crate::model::{Model, Sources, Texts};

/// Checks models, one after the other.
pub(super) struct Checker {
    jobs: Sender<(PathBuf, Texts)>,
}

impl Checker {
    /// Starts the thread; `editor` sends a message, and returns `false` when the editor is gone. The thread ends when this
    /// value is dropped.
    pub(super) fn start(editor: impl Fn(Message) -> bool + Send + 'static) -> Self {
        let (jobs, queue) = channel();
        thread::spawn(move || run(&queue, &editor));
        Self { jobs }
    }

    pub(super) fn check(&self, model: PathBuf, texts: Texts) {
        // Without the thread there are no findings; the editor has its other answers.
        let _ = self.jobs.send((model, texts));
    }
}

fn run(queue: &Receiver<(PathBuf, Texts)>, editor: &impl Fn(Message) -> bool) {
    // The files that have findings in their editors, by model.
    let mut shown: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    while let Ok(first) = queue.recv() {
        let mut newest = BTreeMap::from([first]);
        newest.extend(queue.try_iter());
        for (model, texts) in newest {
            let before = shown.remove(&model).unwrap_or_default();
            let mut findings = findings(&model, &texts);
            for file in before {
                findings.entry(file).or_default();
            }
            let with = findings.iter().filter(|(_, list)| !list.is_empty()).map(|(file, _)| file.clone());
            shown.insert(model, with.collect());
            for (file, diagnostics) in findings {
                let Some(uri) = uri_of(&file) else { continue };
                let params = PublishDiagnosticsParams { uri, diagnostics, version: None };
                let told = Notification::new(PublishDiagnostics::METHOD.to_owned(), params);
                if !editor(Message::Notification(told)) {
                    return;
                }
            }
        }
    }
}

/// The findings of a check, by file; every file of the model is there.
fn findings(model: &Path, texts: &Texts) -> BTreeMap<PathBuf, Vec<lsp_types::Diagnostic>> {
    let made = make_of(Model::load_with(model, texts), &After::default(), None);
    let mut by_file: BTreeMap<PathBuf, Vec<_>> =
        made.sources.files().map(|(path, _)| (path.to_owned(), Vec::new())).collect();
    for finding in made.diagnostics {
        let file = match &finding.place {
            Some(place) => place.file.to_path_buf(),
            // In the first file of the model.
            None => made.sources.files().next().map_or_else(|| model.to_owned(), |(path, _)| path.to_owned()),
        };
        by_file.entry(file).or_default().push(shown(&finding, &made.sources));
    }
    by_file
}

fn shown(finding: &Diagnostic, sources: &Sources) -> lsp_types::Diagnostic {
    let at = |place: &Place| {
        let line = sources.line(place).unwrap_or_default();
        let (from, to) = cursor::token_at(line, place.column.saturating_sub(1) as usize);
        range(place.line.saturating_sub(1), from, to)
    };
    let mut message = finding.message.clone();
    let mut related = Vec::new();
    for (place, text) in &finding.notes {
        match place.as_ref().and_then(|place| Some((uri_of(&place.file)?, at(place)))) {
            Some((uri, range)) => {
                related.push(DiagnosticRelatedInformation { location: Location { uri, range }, message: text.clone() })
            }
            None => message.push_str(&format!("\n{text}")),
        }
    }
    if let Some(help) = &finding.help {
        message.push_str(&format!("\n{help}"));
    }
    lsp_types::Diagnostic {
        range: finding.place.as_ref().map_or_else(|| range(0, 0, 0), at),
        severity: Some(match finding.severity {
            Severity::Error => DiagnosticSeverity::ERROR,
            Severity::Warning => DiagnosticSeverity::WARNING,
        }),
        code: Some(NumberOrString::String(finding.code.to_owned())),
        source: Some("cob".to_owned()),
        message,
        related_information: (!related.is_empty()).then_some(related),
        ..lsp_types::Diagnostic::default()
    }
}
