//! Diagnostics about a model: the place, the fault and the advice.
//!
//! Every reader of a model returns a list of diagnostics instead of stopping at the first fault:
//! [`model`](crate::model), [`expand`](crate::expand) and the later checks. [`Diagnostics`] collects the diagnostics in
//! bounded memory and in the order of the files; [`render`] prints text for people and [`to_json`] data for machines.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use cob_types::words::{clean_lines, count};
use serde_json::json;

use crate::draft::Place;
use crate::model::Sources;

/// The most diagnostics kept; more are no help, and a hostile model can cause millions.
const MAX_KEPT: usize = 1000;
/// The longest piece of a source line that is shown, in characters.
const MAX_SHOWN: usize = 160;

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The model is refused.
    Error,
    /// Worth a look, but not refused.
    Warning,
}

impl Severity {
    /// The printed form: `error`, `warning`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A diagnostic about a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// A short stable name of the fault, for machines: `unknown-key`.
    pub code: &'static str,
    /// The fault, in a sentence.
    pub message: String,
    /// The place of the fault.
    pub place: Option<Place>,
    /// Further information, each with its own place if it has a place.
    pub notes: Vec<(Option<Place>, String)>,
    /// Advice for the user.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, code, message: message.into(), place: None, notes: Vec::new(), help: None }
    }

    /// A warning.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, message) }
    }

    /// Sets the place.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Adds further information.
    #[must_use]
    pub fn note(mut self, place: Option<Place>, text: impl Into<String>) -> Self {
        self.notes.push((place, text.into()));
        self
    }

    /// Sets the advice.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Sets the advice, if there is any.
    #[must_use]
    pub fn maybe_help(mut self, text: Option<String>) -> Self {
        self.help = text.or(self.help);
        self
    }
}

/// A bounded collection of diagnostics that keeps each fault once.
///
/// A fault in a line is found again for every host that the line applies to; it is kept once.
#[derive(Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    seen: BTreeSet<(Option<Place>, &'static str, String)>,
    errors: usize,
    /// The warnings in `list`.
    warnings: usize,
    dropped: Dropped,
}

/// The diagnostics beyond the limit, which are only counted.
#[derive(Debug, Default)]
struct Dropped {
    errors: usize,
    warnings: usize,
}

impl Diagnostics {
    /// Adds a diagnostic. Beyond the limit, an error replaces a warning.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let severity = diagnostic.severity;
        if severity == Severity::Error {
            self.errors += 1;
        }
        let told = (diagnostic.place.clone(), diagnostic.code, diagnostic.message.clone());
        if self.seen.contains(&told) {
            return;
        }
        if !self.has_room(severity) {
            match severity {
                Severity::Error => self.dropped.errors += 1,
                Severity::Warning => self.dropped.warnings += 1,
            }
            return;
        }
        self.seen.insert(told);
        if self.list.len() >= MAX_KEPT
            && let Some(last) = self.list.iter().rposition(|d| d.severity == Severity::Warning)
        {
            self.list.remove(last);
            self.warnings -= 1;
            self.dropped.warnings += 1;
        }
        self.warnings += usize::from(severity == Severity::Warning);
        self.list.push(diagnostic);
    }

    /// Whether there is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// The number of errors.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Whether a further diagnostic would be shown, not only counted.
    #[must_use]
    pub fn has_room(&self, severity: Severity) -> bool {
        self.list.len() < MAX_KEPT || severity == Severity::Error && self.warnings > 0
    }

    /// The diagnostics kept so far.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// All diagnostics, in the order of the files.
    #[must_use]
    pub fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.list.sort_by(|a, b| a.place.cmp(&b.place));
        let Dropped { errors, warnings } = self.dropped;
        if errors > 0 {
            let what = format!("{errors} further errors are not shown; fix some of the {MAX_KEPT} above first");
            self.list.push(Diagnostic::error("too-many", what));
        }
        if warnings > 0 {
            let what = format!("no more than {MAX_KEPT} are shown: {} left out", count(warnings, "further warning"));
            self.list.push(Diagnostic::warning("too-many", what));
        }
        self.list
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<I: IntoIterator<Item = Diagnostic>>(&mut self, iter: I) {
        iter.into_iter().for_each(|d| self.push(d));
    }
}

/// The numbers of errors and warnings, in words; empty without diagnostics.
#[must_use]
pub fn summary(diagnostics: &[Diagnostic]) -> String {
    let number = |severity| diagnostics.iter().filter(|d| d.severity == severity).count();
    let words = |severity: Severity| match number(severity) {
        0 => None,
        n => Some(count(n, severity.as_str())),
    };
    [Severity::Error, Severity::Warning].into_iter().filter_map(words).collect::<Vec<_>>().join(", ")
}

/// Prints diagnostics for people: the sentence, the line with a caret below it, notes, and help.
#[must_use]
pub fn render(diagnostics: &[Diagnostic], sources: &Sources, colour: bool) -> String {
    let paint = Paint(colour);
    let mut out = String::new();
    for (i, diagnostic) in diagnostics.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        let head = match diagnostic.severity {
            Severity::Error => paint.red("error"),
            Severity::Warning => paint.yellow("warning"),
        };
        let _ = writeln!(out, "{head}: {}", paint.bold(&clean_lines(&diagnostic.message)));
        if let Some(place) = &diagnostic.place {
            let _ = writeln!(out, "  {} {}", paint.blue("-->"), clean_lines(&shown(place)));
            excerpt(&mut out, place, sources, &paint);
        }
        for (place, text) in &diagnostic.notes {
            let _ = writeln!(out, "  {} {}", paint.blue("note:"), clean_lines(text));
            if let Some(place) = place {
                let _ = writeln!(out, "  {} {}", paint.blue("-->"), clean_lines(&shown(place)));
                excerpt(&mut out, place, sources, &paint);
            }
        }
        if let Some(help) = &diagnostic.help {
            let _ = writeln!(out, "  {} {}", paint.green("help:"), clean_lines(help));
        }
    }
    out
}

/// Diagnostics as JSON: `[{"severity", "code", "message", "place"?: {"file", "line", "column"},
/// "notes": [{"message", "place"?}], "help"?}]`.
#[must_use]
pub fn to_json(diagnostics: &[Diagnostic]) -> serde_json::Value {
    let place = |p: &Place| json!({"file": p.file.display().to_string(), "line": p.line, "column": p.column});
    let with = |mut value: serde_json::Value, key: &str, more: Option<serde_json::Value>| {
        if let (Some(map), Some(more)) = (value.as_object_mut(), more) {
            map.insert(key.to_owned(), more);
        }
        value
    };
    diagnostics
        .iter()
        .map(|d| {
            let notes: Vec<_> = d
                .notes
                .iter()
                .map(|(p, text)| with(json!({"message": text}), "place", p.as_ref().map(place)))
                .collect();
            let value = json!({"severity": d.severity.as_str(), "code": d.code, "message": d.message, "notes": notes});
            let value = with(value, "place", d.place.as_ref().map(place));
            with(value, "help", d.help.as_ref().map(|h| json!(h)))
        })
        .collect()
}

/// A place in the form that editors and people read.
#[must_use]
pub fn shown(place: &Place) -> String {
    format!("{}:{}:{}", place.file.display(), place.line, place.column)
}

/// The line of a place with a caret below the column; for a long line only the part around the column.
fn excerpt(out: &mut String, place: &Place, sources: &Sources, paint: &Paint) {
    let Some(line) = sources.line(place) else { return };
    let column = place.column.saturating_sub(1) as usize;
    let start =
        if column > MAX_SHOWN / 2 && line.chars().nth(MAX_SHOWN).is_some() { column - MAX_SHOWN / 2 } else { 0 };
    // Control characters would move the terminal's cursor. A tab is shown as a single blank, so that the caret, which
    // counts characters, stands below the right character.
    let visible = |c: char| {
        if c == '\t' {
            ' '
        } else if c.is_control() {
            '\u{fffd}'
        } else {
            c
        }
    };
    let mut shown: String = line.chars().skip(start).take(MAX_SHOWN).map(visible).collect();
    if start > 0 {
        shown.insert(0, '…');
    }
    if line.chars().nth(start + MAX_SHOWN).is_some() {
        shown.push('…');
    }
    let caret = column - start.min(column) + usize::from(start > 0);
    let number = place.line.to_string();
    let gutter = " ".repeat(number.len());
    let _ = writeln!(out, "{gutter} {}", paint.blue("|"));
    let _ = writeln!(out, "{} {} {}", paint.blue(&number), paint.blue("|"), shown.trim_end());
    let _ = writeln!(out, "{gutter} {} {}{}", paint.blue("|"), " ".repeat(caret), paint.red("^"));
}

/// Prints colours if set.
pub(crate) struct Paint(pub(crate) bool);

impl Paint {
    pub(crate) fn with(&self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
    fn red(&self, text: &str) -> String {
        self.with("1;31", text)
    }
    fn yellow(&self, text: &str) -> String {
        self.with("1;33", text)
    }
    fn green(&self, text: &str) -> String {
        self.with("1;32", text)
    }
    fn blue(&self, text: &str) -> String {
        self.with("1;34", text)
    }
    fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }
}

/// The names as `a`, `b` and the number of further names.
pub(crate) fn quoted<N: fmt::Display>(names: &[N]) -> String {
    const SHOWN: usize = 12;
    let mut text: Vec<String> = names.iter().take(SHOWN).map(|n| format!("`{n}`")).collect();
    if names.len() > SHOWN {
        text.push(format!("{} more", names.len() - SHOWN));
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(errors: usize, warnings: usize, first: Severity) -> Vec<Diagnostic> {
        let mut out = Diagnostics::default();
        let all = [(Severity::Error, errors), (Severity::Warning, warnings)];
        let (now, then): (Vec<_>, Vec<_>) = all.into_iter().partition(|(severity, _)| *severity == first);
        for (severity, many) in now.into_iter().chain(then) {
            out.extend(
                (0..many).map(|i| Diagnostic { severity, ..Diagnostic::error("odd", format!("{severity:?} {i}")) }),
            );
        }
        assert_eq!(out.has_errors(), errors > 0);
        out.into_sorted()
    }

    #[test]
    fn no_number_of_warnings_hides_an_error() {
        for first in [Severity::Error, Severity::Warning] {
            let all = told(3, MAX_KEPT, first);
            assert_eq!(all.iter().filter(|d| d.severity == Severity::Error).count(), 3);
            assert_eq!(summary(&all), "3 errors, 998 warnings");
            assert_eq!(all[MAX_KEPT].message, "no more than 1000 are shown: 3 further warnings left out");
        }
        let all = told(MAX_KEPT + 2, MAX_KEPT, Severity::Warning);
        assert_eq!(all[MAX_KEPT].message, "2 further errors are not shown; fix some of the 1000 above first");
        assert_eq!(all[MAX_KEPT + 1].message, "no more than 1000 are shown: 1000 further warnings left out");
    }

    #[test]
    fn no_number_of_warnings_is_an_error() {
        let all = told(0, MAX_KEPT + 1, Severity::Warning);
        assert!(all.iter().all(|d| d.severity == Severity::Warning));
        assert_eq!(all[MAX_KEPT].message, "no more than 1000 are shown: 1 further warning left out");
        assert_eq!(told(0, MAX_KEPT, Severity::Warning).len(), MAX_KEPT);
    }

    #[test]
    fn the_same_said_again_is_not_counted_as_left_out() {
        let mut out = Diagnostics::default();
        for _ in 0..2 {
            out.extend((0..MAX_KEPT).map(|i| Diagnostic::warning("odd", i.to_string())));
        }
        assert_eq!(out.into_sorted().len(), MAX_KEPT);
    }
}
