//! Findings of the check, in the user's words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::diagnostic::{Diagnostic, Severity};
use crate::draft::Place;
use crate::provenance::at;

/// The most findings of a code that are reported in full.
const MOST_OF_A_CODE: usize = 50;

/// A problem that the check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Error or warning.
    pub severity: Severity,
    /// The sort of finding: `P1` to `P4`, `name`, `structure`, `rank`, `expects`, `address`, `unreachable-state`,
    /// `redundant-need`, `leaving`, `budget`, `gate`, `observed`.
    pub code: &'static str,
    /// The problem, in a sentence.
    pub message: String,
    /// The place in the model, if it is a single place; the steps have their own places.
    pub place: Option<Place>,
    /// The arrows of the circle, or the chain of needs.
    pub steps: Vec<Step>,
    /// Advice for the user.
    pub help: String,
}

/// An arrow, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `a/app, which prefers up, needs b/db up to go down -> up`.
    pub text: String,
    /// The user's words that the arrow came from.
    pub words: Option<String>,
    /// The place of these words.
    pub place: Option<Place>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match (&self.words, &self.place) {
            (Some(words), Some(place)) => write!(f, " ({words}, {})", at(place)),
            (Some(words), None) => write!(f, " ({words})"),
            (None, Some(place)) => write!(f, " ({})", at(place)),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: {}", self.severity.as_str(), self.code, self.message)?;
        if let Some(place) = &self.place {
            write!(f, "\n  at {}", at(place))?;
        }
        for step in &self.steps {
            write!(f, "\n  - {step}")?;
        }
        if !self.help.is_empty() {
            write!(f, "\n  help: {}", self.help)?;
        }
        Ok(())
    }
}

impl From<Finding> for Diagnostic {
    /// Steps become notes with their places.
    fn from(finding: Finding) -> Self {
        let Finding { severity, code, message, place, steps, help } = finding;
        let notes = steps.into_iter().map(|step| (step.place, step.text)).collect();
        let help = (!help.is_empty()).then_some(help);
        Self { severity, code, message, place, notes, help }
    }
}

impl Finding {
    /// The places of the dependencies in this finding; empty if any place is unknown.
    fn lines(&self) -> BTreeSet<Place> {
        let arrows = || self.steps.iter().filter(|step| step.words.is_some());
        let places: BTreeSet<Place> = arrows().filter_map(|step| step.place.clone()).collect();
        if arrows().all(|step| step.place.is_some()) { places } else { BTreeSet::new() }
    }

    /// Whether this finding makes a later finding about the same lines redundant: both have the same code, or the later
    /// finding is about a later condition, which always fails when the earlier condition has an error.
    fn covers(&self, later: &Self) -> bool {
        let conditions = ["P2", "P3", "P4"];
        let place = |code| conditions.iter().position(|known| *known == code);
        let (Some(first), Some(second)) = (place(self.code), place(later.code)) else { return false };
        self.severity <= later.severity && (first == second || first < second && self.severity == Severity::Error)
    }
}

/// Collects findings. Of findings about the same lines only the first is kept, and the number of findings of each code
/// is bounded.
///
/// A line of a service stands for as many dependencies as the service has nodes, and a refused circle breaks several
/// conditions. A fix of the line fixes all of these findings.
#[derive(Default)]
pub(super) struct Findings {
    told: Vec<Finding>,
    counts: BTreeMap<(Severity, &'static str), usize>,
    /// For the lines of each finding: its index in `told`, and the number of further findings.
    lines: BTreeMap<BTreeSet<Place>, (usize, usize)>,
}

impl Findings {
    pub(super) fn push(&mut self, finding: Finding) {
        self.push_for(finding, 0);
    }

    /// Adds a finding that stands for `others` further findings about the same lines.
    fn push_for(&mut self, finding: Finding, others: usize) {
        let lines = finding.lines();
        if let Some((first, more)) = self.lines.get_mut(&lines)
            && self.told[*first].covers(&finding)
        {
            if self.told[*first].code == finding.code {
                *more += 1 + others;
            }
            return;
        }
        let count = self.counts.entry((finding.severity, finding.code)).or_default();
        *count += 1;
        if *count <= MOST_OF_A_CODE {
            if !lines.is_empty() {
                self.lines.entry(lines).or_insert((self.told.len(), others));
            }
            self.told.push(finding);
        }
    }

    /// Adds the findings of another part as if they were found here.
    pub(super) fn append(&mut self, other: Self) {
        let mut beyond = other.counts;
        let mut others: BTreeMap<usize, usize> = other.lines.into_values().collect();
        for (number, finding) in other.told.into_iter().enumerate() {
            if let Some(count) = beyond.get_mut(&(finding.severity, finding.code)) {
                *count -= 1;
            }
            self.push_for(finding, others.remove(&number).unwrap_or(0));
        }
        for (code, count) in beyond {
            *self.counts.entry(code).or_default() += count;
        }
    }

    /// All findings, errors first; findings beyond the bound are only counted.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        for (number, more) in self.lines.into_values().filter(|(_, more)| *more > 0) {
            let text = format!("the same lines of the model: {more} more of this kind");
            self.told[number].steps.push(Step { text, words: None, place: None });
        }
        for ((severity, code), count) in self.counts {
            if let Some(more) = count.checked_sub(MOST_OF_A_CODE).filter(|more| *more > 0) {
                self.told.push(Finding {
                    severity,
                    code,
                    message: format!("and {more} more of the same kind"),
                    place: None,
                    steps: Vec::new(),
                    help: String::new(),
                });
            }
        }
        self.told.sort_by_key(|finding| finding.severity);
        self.told
    }
}
