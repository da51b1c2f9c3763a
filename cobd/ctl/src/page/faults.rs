//! The trial of every fault of a switch, as `cobgen verify --switch N..M --every-fault` does.
//!
//! A trial runs in a separate thread, reads only the depot, and tells the browser its progress. The end of its time and
//! the end of the browser's request end the trial.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cob_forecast::faults::{CaseEnd, FaultReport, Finding, NoTrial, Prepared, TrialProgress};
use cob_types::GenerationNumber;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use tokio::sync::{Semaphore, mpsc};

use crate::failure::Failure;
use crate::targets::Targets;

/// How long a trial may take, unless the browser asks for more.
const USUAL_S: u64 = 30;
/// How long a trial may take at most.
const MOST_S: u64 = 600;
/// How often the progress is told.
const TOLD_EVERY: Duration = Duration::from_millis(200);
/// How many lines may wait for the browser.
const WAITING: usize = 8;
/// The most findings that the browser gets.
const FINDINGS: usize = 200;

/// The browser's question.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    /// The first generation.
    pub from: GenerationNumber,
    /// The second generation.
    pub to: GenerationNumber,
    /// The longest time of the trial, in seconds.
    pub seconds: Option<u64>,
}

/// A line for the browser.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Told {
    /// How far the trial is.
    Progress {
        /// The step of the switch.
        step: u64,
        /// The number of steps.
        steps: u64,
        /// The cases tried so far.
        cases: u64,
        /// The runs made so far.
        runs: u64,
    },
    /// The result.
    Report(Box<Report>),
    /// The switch can't be tried: `error`, `causes`, `hints`.
    Refused(Value),
}

/// The result of a trial, with the sentences of the command line.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The first generation.
    from: GenerationNumber,
    /// The second generation.
    to: GenerationNumber,
    /// Whether every tried case converges or rolls back.
    is_well: bool,
    /// The cases by their ends, in a line.
    summary: String,
    /// The cases that were not tried, in a line.
    skipped: Option<String>,
    /// The number of simulated runs.
    runs: u64,
    /// The command line with the same report.
    command: String,
    /// The cases that do not converge, the worst end first.
    groups: Vec<Group>,
    /// The number of findings beyond these.
    left_off: usize,
}

/// The cases with the same end.
#[derive(Debug, Serialize)]
struct Group {
    end: CaseEnd,
    /// The end in words.
    words: &'static str,
    cases: u64,
    findings: Vec<Found>,
}

/// Cases for the same reasons.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
struct Found {
    title: String,
    cases: u64,
    why: Vec<String>,
    /// The command that replays the case.
    again: Option<String>,
    /// Further faults for the same reasons.
    also: Vec<String>,
}

impl Report {
    fn of(report: &FaultReport, depot: &Path) -> Self {
        let command = report.replay(depot);
        let found = |finding: &Finding| Found {
            title: finding.title(),
            cases: finding.cases,
            why: finding.why(),
            again: finding.again(&command),
            also: finding.also.clone(),
        };
        let mut groups: Vec<Group> = Vec::new();
        let findings = report.worst_first();
        for finding in findings.iter().take(FINDINGS) {
            if groups.last().is_none_or(|group| group.end != finding.end) {
                let cases = report.ends.get(&finding.end).copied().unwrap_or_default();
                groups.push(Group {
                    end: finding.end,
                    words: finding.end.in_words(cases),
                    cases,
                    findings: Vec::new(),
                });
            }
            if let Some(group) = groups.last_mut() {
                group.findings.push(found(finding));
            }
        }
        Self {
            from: report.from,
            to: report.to,
            is_well: report.is_well(),
            summary: report.summary(),
            skipped: report.skipped(),
            runs: report.runs,
            command: format!("{command} --every-fault"),
            groups,
            left_off: findings.len().saturating_sub(FINDINGS),
        }
    }
}

impl From<NoTrial> for Failure {
    fn from(error: NoTrial) -> Self {
        let hint = error.hint();
        Self::refused(error.to_string()).hint(hint)
    }
}

/// A switch that can be tried, and the folder of its depot.
type Ready = (Prepared, PathBuf);

/// The trials of a page: one at a time.
#[derive(Debug, Clone)]
pub(crate) struct Trials {
    place: Arc<Semaphore>,
}

impl Trials {
    /// No trial runs.
    pub(crate) fn new() -> Self {
        Self { place: Arc::new(Semaphore::new(1)) }
    }

    /// Begins a trial of a switch of the depot. Absent: another trial runs.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn begin(&self, targets: Targets, question: Question) -> std::io::Result<Option<mpsc::Receiver<Told>>> {
        let limit = Duration::from_secs(question.seconds.unwrap_or(USUAL_S).min(MOST_S));
        self.start(limit, move || {
            let depot = targets.need_depot("the faults of a switch need the depot")?;
            let switch = Prepared::read(question.from, question.to, |number| depot.whole(number))?;
            Ok((switch, depot.path().to_owned()))
        })
    }

    /// Begins a trial of the switch that `prepare` reads.
    fn start(
        &self,
        limit: Duration,
        prepare: impl FnOnce() -> Result<Ready, Failure> + Send + 'static,
    ) -> std::io::Result<Option<mpsc::Receiver<Told>>> {
        let Ok(place) = Arc::clone(&self.place).try_acquire_owned() else { return Ok(None) };
        let (tell, told) = mpsc::channel(WAITING);
        std::thread::Builder::new().name("faults".to_owned()).spawn(move || {
            let last = match prepare().and_then(|(switch, depot)| tried(&switch, &depot, limit, &tell)) {
                Ok(report) => Told::Report(Box::new(report)),
                Err(failure) => Told::Refused(failure.to_json()),
            };
            drop(place);
            // Without a browser, the answer has no reader.
            let _ = tell.blocking_send(last);
        })?;
        Ok(Some(told))
    }
}

fn tried(switch: &Prepared, depot: &Path, limit: Duration, tell: &mpsc::Sender<Told>) -> Result<Report, Failure> {
    let began = Instant::now();
    let mut told = began;
    let report = switch.try_every(|TrialProgress { step: (step, steps), cases, runs }| {
        if told.elapsed() >= TOLD_EVERY {
            told = Instant::now();
            // A slow browser misses a line of progress.
            let _ = tell.try_send(Told::Progress { step, steps, cases, runs });
        }
        began.elapsed() < limit && !tell.is_closed()
    })?;
    Ok(Report::of(&report, depot))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn finding(end: CaseEnd, fault: &str, cases: u64) -> Finding {
        Finding {
            end,
            fault: fault.to_owned(),
            occasion: String::new(),
            cases,
            also: Vec::new(),
            reasons: vec![format!("because of {fault}")],
            hosts: BTreeMap::new(),
            objects: Vec::new(),
            objects_left: 0,
            end_us: 0,
        }
    }

    fn report(findings: Vec<Finding>) -> FaultReport {
        let mut ends = BTreeMap::from([(CaseEnd::Converges, 1000)]);
        for finding in &findings {
            *ends.entry(finding.end).or_default() += finding.cases;
        }
        let cases = ends.values().sum();
        let (from, to) = (GenerationNumber(1), GenerationNumber(2));
        FaultReport { format: 1, from, to, steps: 9, cases, runs: 7, not_tried: 5, ends, findings }
    }

    #[test]
    fn cases_are_grouped_by_their_end_the_worst_first() {
        let findings = vec![
            finding(CaseEnd::RollsBack, "kill n1 at step 1", 3),
            finding(CaseEnd::NeedsPerson, "kill n2 at step 2", 1),
            finding(CaseEnd::RollsBack, "kill n3 at step 3", 2),
        ];
        let report = Report::of(&report(findings), Path::new("/depot"));
        assert_eq!(report.summary, "1,006 cases: 1,000 converge, 5 roll back, 1 needs a person");
        assert_eq!(report.skipped.as_deref(), Some("not tried, beyond the limit: 5 cases"));
        assert_eq!(report.command, "cobgen verify --depot /depot --switch 1..2 --every-fault");
        assert!(!report.is_well);
        let groups: Vec<_> = report.groups.iter().map(|g| (g.words, g.cases, g.findings.len())).collect();
        assert_eq!(groups, [("needs a person", 1, 1), ("roll back", 5, 2)]);
        let first = &report.groups[0].findings[0];
        assert_eq!(first.why[0], "because of kill n2 at step 2");
        let again = "cobgen verify --depot /depot --switch 1..2 --fault 'kill n2 at step 2'";
        assert_eq!(first.again.as_deref(), Some(again));
    }

    #[test]
    fn the_browser_gets_a_bounded_number_of_findings() {
        let many = (0..FINDINGS + 7).map(|at| finding(CaseEnd::RollsBack, &format!("kill n{at} at step 1"), 1));
        let report = Report::of(&report(many.collect()), Path::new("/depot"));
        assert_eq!((report.groups[0].findings.len(), report.left_off), (FINDINGS, 7));
    }

    #[tokio::test]
    async fn one_trial_runs_at_a_time_and_gives_its_place_back() {
        let trials = Trials::new();
        let (goes, waits) = sync_channel::<()>(0);
        let limit = Duration::from_secs(1);
        let refuse = move || {
            waits.recv().expect("the test goes on");
            Err(NoTrial::Restless(GenerationNumber(1)).into())
        };
        let mut told = trials.start(limit, refuse).expect("a thread").expect("a place");
        assert!(trials.start(limit, || unreachable!("no place")).expect("no thread").is_none());
        goes.send(()).expect("the trial waits");
        let Some(Told::Refused(why)) = told.recv().await else { panic!("not refused") };
        assert_eq!(why["error"], "generation 1 does not converge by itself, without a switch");
        assert!(told.recv().await.is_none(), "the stream ends");
        let next = || Err(NoTrial::Restless(GenerationNumber(2)).into());
        assert!(trials.start(limit, next).expect("a thread").is_some());
    }
}
