//! What the check has to say, in the user's words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::diagnostic::{self, Diagnostic};
use crate::draft::Place;
use crate::provenance::at;

/// The most findings of one code that are told one by one.
const MOST_OF_A_CODE: usize = 50;

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The generation is refused.
    Error,
    /// It can be published; a person should look.
    Warning,
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it weighs.
    pub severity: Severity,
    /// What sort of finding: `P1` to `P4`, `name`, `structure`, `rank`, `expects`, `address`,
    /// `unreachable-state`, `redundant-need`, `leaving`, `budget`, `gate`, `observed`.
    pub code: &'static str,
    /// What is wrong, in one sentence.
    pub message: String,
    /// Where, when it is one place; the steps have their own.
    pub place: Option<Place>,
    /// The arrows of the circle, or the chain of needs, that it consists of.
    pub steps: Vec<Step>,
    /// What to do.
    pub help: String,
}

/// One arrow, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `a/app, which prefers up, needs b/db up to go down -> up`.
    pub text: String,
    /// The words that the arrow came from, as the user wrote them.
    pub words: Option<String>,
    /// Where they stand.
    pub place: Option<Place>,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
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
        write!(f, "{}[{}]: {}", self.severity, self.code, self.message)?;
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
    /// Steps become notes, each with its place.
    fn from(finding: Finding) -> Self {
        let Finding { severity, code, message, place, steps, help } = finding;
        let severity = match severity {
            Severity::Error => diagnostic::Severity::Error,
            Severity::Warning => diagnostic::Severity::Warning,
        };
        let notes = steps.into_iter().map(|step| (step.place, step.text)).collect();
        let help = (!help.is_empty()).then_some(help);
        Self { severity, code, message, place, notes, help }
    }
}

impl Finding {
    /// Where the dependencies stand that it is about; empty where that is not known of all.
    fn lines(&self) -> BTreeSet<Place> {
        let arrows = || self.steps.iter().filter(|step| step.words.is_some());
        let places: BTreeSet<Place> = arrows().filter_map(|step| step.place.clone()).collect();
        if arrows().all(|step| step.place.is_some()) { places } else { BTreeSet::new() }
    }

    /// Whether another one about the same lines adds nothing: it says the same of others, or it is of a
    /// later condition, which the refused one makes fail too.
    fn covers(&self, later: &Self) -> bool {
        let conditions = ["P2", "P3", "P4"];
        let place = |code| conditions.iter().position(|known| *known == code);
        let (Some(first), Some(second)) = (place(self.code), place(later.code)) else { return false };
        self.severity <= later.severity && (first == second || first < second && self.severity == Severity::Error)
    }
}

/// Findings as they come in: of those that the same lines lead to only the first, and a bound on how
/// many of one sort are told.
///
/// A line of a service stands for as many dependencies as the service has nodes, and a circle that
/// is refused breaks more than one condition. Who mends the line mends all of them.
#[derive(Default)]
pub(super) struct Findings {
    told: Vec<Finding>,
    counts: BTreeMap<(Severity, &'static str), usize>,
    /// By the lines that a finding is about: its number in `told`, and how many more there were.
    lines: BTreeMap<BTreeSet<Place>, (usize, usize)>,
}

impl Findings {
    pub(super) fn push(&mut self, finding: Finding) {
        self.push_for(finding, 0);
    }

    /// Adds a finding that stands for `others` more about the same lines.
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

    /// Adds what another part has found, as if it had been found here.
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

    /// All of them, errors first; what went beyond the bound is counted.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        for (number, more) in self.lines.into_values().filter(|(_, more)| *more > 0) {
            let text = format!("the same lines lead to {more} more like this");
            self.told[number].steps.push(Step { text, words: None, place: None });
        }
        for ((severity, code), count) in self.counts {
            if let Some(more) = count.checked_sub(MOST_OF_A_CODE).filter(|more| *more > 0) {
                self.told.push(Finding {
                    severity,
                    code,
                    message: format!("and {more} more like these"),
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
