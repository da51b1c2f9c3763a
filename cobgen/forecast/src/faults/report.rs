//! The report on all faults: for people, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use cob_types::words::{count, list, list_and};
use cob_types::{GenerationNumber, HostName};
use serde::{Deserialize, Serialize};

use super::judge::{CaseEnd, LeftObject};

/// The most findings that are written for people.
const WRITTEN: usize = 50;
/// The most reasons of a finding, and the most hosts of a generation, that are written.
const REASONS: usize = 4;

/// The result of all tried faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultReport {
    /// The format: 1.
    pub format: u32,
    /// The first generation.
    pub from: GenerationNumber,
    /// The second generation.
    pub to: GenerationNumber,
    /// The steps of the switch without a fault.
    pub steps: u64,
    /// The number of tried cases, with the symmetric cases.
    pub cases: u64,
    /// The number of simulated runs.
    pub runs: u64,
    /// The number of cases that the limit has left out.
    pub not_tried: u64,
    /// The number of tried cases by their end.
    pub ends: BTreeMap<CaseEnd, u64>,
    /// The cases that do not converge; a finding has all cases with the same reasons.
    pub findings: Vec<Finding>,
}

/// Cases that do not converge, for the same reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The end of the cases.
    pub end: CaseEnd,
    /// A fault that leads there; empty: the switch without any fault.
    pub fault: String,
    /// The action, message or record of the step.
    pub occasion: String,
    /// The number of cases.
    pub cases: u64,
    /// Further faults with this end.
    pub also: Vec<String>,
    /// The reasons that the status names, or the violated rules.
    pub reasons: Vec<String>,
    /// The generation of each host at the end.
    pub hosts: BTreeMap<HostName, GenerationNumber>,
    /// The first change objects that did not end in their desired states.
    pub objects: Vec<LeftObject>,
    /// The number of these.
    pub objects_left: usize,
    /// The virtual time from the order to the end.
    pub end_us: u64,
}

impl CaseEnd {
    /// The end of a case, or of several cases, in words.
    #[must_use]
    pub fn in_words(self, cases: u64) -> &'static str {
        match (self, cases == 1) {
            (Self::Converges, true) => "converges",
            (Self::Converges, false) => "converge",
            (Self::RollsBack, true) => "rolls back",
            (Self::RollsBack, false) => "roll back",
            (Self::NeedsPerson, true) => "needs a person",
            (Self::NeedsPerson, false) => "need a person",
            (Self::Crowds, true) => "interrupts more than a budget permits",
            (Self::Crowds, false) => "interrupt more than a budget permits",
            (Self::Stuck, true) => "is stuck without a report",
            (Self::Stuck, false) => "are stuck without a report",
            (Self::BreaksRule, true) => "breaks a rule",
            (Self::BreaksRule, false) => "break a rule",
        }
    }
}

impl FaultReport {
    /// Whether every tried case converges or rolls back.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let is_well =
            |(end, cases): (&CaseEnd, &u64)| *cases == 0 || matches!(end, CaseEnd::Converges | CaseEnd::RollsBack);
        self.ends.iter().all(is_well) && self.findings.iter().all(|finding| !finding.fault.is_empty())
    }

    /// The report for people. `replay` is the command without the fault.
    #[must_use]
    pub fn in_words(&self, replay: &str) -> String {
        let mut text = format!("{}\n", self.summary());
        if self.runs < self.cases {
            let (runs, steps) = (count(grouped(self.runs), "run"), count(grouped(self.steps), "step"));
            let _ = writeln!(text, "{runs} over {steps}: symmetric cases ran once");
        }
        if let Some(skipped) = self.skipped() {
            let _ = writeln!(text, "{skipped}");
        }
        let findings = self.worst_first();
        for finding in findings.iter().take(WRITTEN) {
            finding.write(&mut text, replay);
        }
        if findings.len() > WRITTEN {
            let more = findings.len() - WRITTEN;
            let _ = writeln!(text, "\n{} more; all are in the output of --json", count(more, "finding"));
        }
        text
    }

    /// The number of cases by their ends, in a line.
    #[must_use]
    pub fn summary(&self) -> String {
        let part = |(end, cases): (&CaseEnd, &u64)| format!("{} {}", grouped(*cases), end.in_words(*cases));
        let parts: Vec<String> = self.ends.iter().filter(|(_, cases)| **cases > 0).map(part).collect();
        let parts = if parts.is_empty() { "no case was tried".to_owned() } else { parts.join(", ") };
        format!("{}: {parts}", count(grouped(self.cases), "case"))
    }

    /// The cases that the limit has left out, in a line, if any.
    #[must_use]
    pub fn skipped(&self) -> Option<String> {
        let skipped = self.not_tried;
        (skipped > 0).then(|| format!("not tried, beyond the limit: {}", count(grouped(skipped), "case")))
    }

    /// The findings, sorted from the worst end to the best.
    #[must_use]
    pub fn worst_first(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.end));
        findings
    }

    /// The command that replays a fault of the switch, without the fault.
    #[must_use]
    pub fn replay(&self, depot: &Path) -> String {
        format!("cobgen verify --depot {} --switch {}..{}", depot.display(), self.from, self.to)
    }
}

impl Finding {
    /// The end and the fault, in a line.
    #[must_use]
    pub fn title(&self) -> String {
        let end = self.end.in_words(1);
        if self.fault.is_empty() {
            return format!("without any fault, the switch {end}");
        }
        let occasion = Some(&self.occasion).filter(|occasion| !occasion.is_empty());
        let occasion = occasion.map(|occasion| format!(" ({occasion})")).unwrap_or_default();
        format!("{end}: {}{occasion}", self.fault)
    }

    /// Why the cases end so, and where the hosts are then; a line for each sentence.
    #[must_use]
    pub fn why(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.reasons.iter().take(REASONS).cloned().collect();
        if self.reasons.len() > REASONS {
            lines.push(format!("and {}", count(self.reasons.len() - REASONS, "more reason")));
        }
        let waiting = self.objects.iter().filter(|object| object.why.is_empty()).count();
        if waiting > 0 {
            let waits = |object: &&LeftObject| object.why.is_empty();
            let names = self.objects.iter().filter(waits).map(LeftObject::in_words);
            let unnamed = self.objects_left.saturating_sub(self.objects.len());
            lines.push(format!("not in the desired state: {}", list_and(names, REASONS, unnamed)));
        }
        lines.push(self.generations());
        if self.cases > 1 {
            lines.push(format!("{} for this reason", count(grouped(self.cases), "case")));
        }
        lines
    }

    /// The command that replays the fault. Absent: the switch ends so without any fault.
    #[must_use]
    pub fn again(&self, replay: &str) -> Option<String> {
        (!self.fault.is_empty()).then(|| format!("{replay} --fault '{}'", self.fault))
    }

    fn write(&self, text: &mut String, replay: &str) {
        let _ = writeln!(text, "\n{}", self.title());
        for line in self.why() {
            let _ = writeln!(text, "  {line}");
        }
        if let Some(command) = self.again(replay) {
            let _ = writeln!(text, "  again: {command}");
        }
    }

    /// The generations of the hosts at the end.
    fn generations(&self) -> String {
        let mut groups: BTreeMap<GenerationNumber, Vec<&str>> = BTreeMap::new();
        for (host, generation) in &self.hosts {
            groups.entry(*generation).or_default().push(host.as_str());
        }
        if let [(generation, hosts)] = groups.iter().collect::<Vec<_>>().as_slice() {
            return format!("{} in generation {generation}", count(hosts.len(), "host"));
        }
        let group = |(generation, hosts): (&GenerationNumber, &Vec<&str>)| {
            format!("{} in generation {generation}", list(hosts, REASONS))
        };
        format!("mixed: {}", groups.iter().map(group).collect::<Vec<_>>().join("; "))
    }
}

impl LeftObject {
    fn in_words(&self) -> String {
        let state = self.state.as_ref().map_or("unknown", |state| state.as_str());
        match &self.wanted {
            Some(wanted) if self.state.as_ref() != Some(wanted) => format!("{} ({state}, not {wanted})", self.cob),
            Some(_) | None => format!("{} ({state})", self.cob),
        }
    }
}

/// A number with commas between groups of three digits.
#[derive(PartialEq)]
struct Grouped(u64);

impl From<u8> for Grouped {
    fn from(number: u8) -> Self {
        Self(number.into())
    }
}

fn grouped(number: u64) -> Grouped {
    Grouped(number)
}

impl std::fmt::Display for Grouped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.char_indices() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_char(',')?;
            }
            f.write_char(digit)?;
        }
        Ok(())
    }
}
