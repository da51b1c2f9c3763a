//! The common part of `bootstrap` and `upgrade`: many hosts over `ssh`, with a result line for each.

use std::path::PathBuf;
use std::sync::Arc;

use cob_types::words::count;
use cob_types::{HostName, manager_status};
use serde::Serialize;
use serde_with::skip_serializing_none;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::args::{ArtefactArgs, HostAt, SshArgs};
use crate::failure::{CommandResult, Exit, Failure};
use crate::install::artefact::{Artefact, ArtefactError, Form, Manager};
use crate::install::facts::Facts;
use crate::install::machine::Machine;
use crate::install::steps::Refusal;
use crate::screen::{Mark, Paint, Screen};
use crate::ssh::SshError;
use crate::words::{clean, list};

/// How many messages may wait for the screen.
const WAITING: usize = 64;
/// How many hints are shown; --json shows all.
const HINTS: usize = 5;
/// How many active hosts the progress line names.
const NAMED: usize = 4;

/// The result for a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// The host has the desired installation, and did not have it before.
    Changed,
    /// The host already had the desired installation.
    Unchanged,
    /// The host does not have the desired installation.
    Failed,
    /// The host could not be reached, or the connection was lost.
    Unreachable,
    /// The host was left alone, because an earlier host has not succeeded.
    Untouched,
}

/// The result for a host: the JSON of these commands.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
pub(super) struct HostResult {
    name: HostName,
    destination: String,
    outcome: Outcome,
    /// The completed steps.
    did: Vec<String>,
    version: Option<String>,
    status: Option<String>,
    error: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
}

/// The JSON of these commands.
#[derive(Debug, Serialize)]
struct Results<'a> {
    hosts: &'a [HostResult],
}

/// Why a host has not succeeded.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) what: String,
    pub(super) hint: String,
    pub(super) unreachable: bool,
}

impl From<SshError> for Trouble {
    fn from(error: SshError) -> Self {
        Self { what: error.to_string(), hint: error.hint(), unreachable: error.is_unreachable() }
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self { what: refusal.to_string(), hint: refusal.hint(), unreachable: false }
    }
}

impl Trouble {
    pub(super) fn of_depot(error: &dyn std::error::Error) -> Self {
        Self { what: clean(&error.to_string()), hint: String::new(), unreachable: false }
    }
}

/// The work on a host, with progress messages.
pub(super) struct Work {
    pub(super) host: HostAt,
    pub(super) machine: Machine,
    at: usize,
    made: Vec<&'static str>,
    pub(super) did: Vec<String>,
    events: mpsc::Sender<Event>,
}

enum Event {
    Does(usize, &'static str),
    Ended(usize, Box<HostResult>),
}

impl Work {
    /// Reports a step that changes the machine; refuses a step that was made before, without effect.
    pub(super) async fn makes(&mut self, step: &'static str) -> Result<(), Trouble> {
        if self.made.contains(&step) {
            return Err(Refusal::NoEffect(step).into());
        }
        self.made.push(step);
        self.does(step).await;
        Ok(())
    }

    /// Reports the current step.
    pub(super) async fn does(&self, what: &'static str) {
        // A closed screen has ended the command.
        let _ = self.events.send(Event::Does(self.at, what)).await;
    }

    fn result(self, ended: Result<Facts, Trouble>) -> HostResult {
        let did = self.did.clone();
        let of = |outcome| HostResult { did, ..HostResult::new(&self.host, outcome) };
        match ended {
            Ok(facts) => HostResult {
                version: facts.version,
                status: Some(facts.status).filter(|status| !status.is_empty()),
                ..of(if self.did.is_empty() { Outcome::Unchanged } else { Outcome::Changed })
            },
            Err(Trouble { what, hint, unreachable }) => HostResult {
                error: Some(what),
                hint,
                ..of(if unreachable { Outcome::Unreachable } else { Outcome::Failed })
            },
        }
    }
}

impl HostResult {
    /// The result for a host, without details.
    fn new(host: &HostAt, outcome: Outcome) -> Self {
        Self {
            name: host.name.clone(),
            destination: host.to.to_string(),
            outcome,
            did: Vec::new(),
            version: None,
            status: None,
            error: None,
            hint: String::new(),
        }
    }

    /// The result for a host that was left alone.
    pub(super) fn untouched(host: &HostAt) -> Self {
        Self::new(host, Outcome::Untouched)
    }

    /// Whether this step was made.
    pub(super) fn did(&self, step: &str) -> bool {
        self.did.iter().any(|did| did == step)
    }

    /// Whether the host has the desired installation.
    pub(super) fn is_good(&self) -> bool {
        matches!(self.outcome, Outcome::Changed | Outcome::Unchanged)
    }
}

/// Works on all hosts, at most `at_once` at a time, and prints a line for each at its end; keeps their order.
pub(super) async fn each<F, Fut>(
    screen: &mut Screen,
    json: bool,
    (hosts, at_once, ssh): (&[HostAt], u16, &SshArgs),
    work: F,
) -> Result<Vec<HostResult>, Failure>
where
    F: Fn(Work) -> Fut,
    Fut: Future<Output = (Work, Result<Facts, Trouble>)> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(usize::from(at_once)));
    let (events, mut heard) = mpsc::channel(WAITING);
    // Dropped with this future, which stops the running work.
    let mut working = JoinSet::new();
    for (at, host) in hosts.iter().enumerate() {
        let machine = Machine { ssh: ssh.ssh(), to: host.to.clone(), root: ssh.root.clone() };
        let places = Arc::clone(&places);
        let task =
            work(Work { host: host.clone(), machine, at, made: Vec::new(), did: Vec::new(), events: events.clone() });
        let events = events.clone();
        working.spawn(async move {
            let _place = places.acquire().await;
            let (work, ended) = task.await;
            let _ = events.send(Event::Ended(at, Box::new(work.result(ended)))).await;
        });
    }
    drop(events);
    let mut doing: Vec<Option<&'static str>> = vec![None; hosts.len()];
    let mut results: Vec<Option<HostResult>> = hosts.iter().map(|_| None).collect();
    while let Some(event) = heard.recv().await {
        match event {
            Event::Does(at, what) => doing[at] = Some(what),
            Event::Ended(at, result) => {
                doing[at] = None;
                wipe(screen);
                if !json {
                    screen.line(&line(screen, &result))?;
                }
                results[at] = Some(*result);
            }
        }
        tell_progress(screen, hosts, &doing, results.iter().flatten().count());
    }
    wipe(screen);
    while let Some(ended) = working.join_next().await {
        ended.map_err(Failure::environment)?;
    }
    Ok(results.into_iter().flatten().collect())
}

fn wipe(screen: &mut Screen) {
    if screen.is_err_live() {
        screen.say_over("");
    }
}

fn tell_progress(screen: &mut Screen, hosts: &[HostAt], doing: &[Option<&'static str>], ended: usize) {
    if !screen.is_err_live() || ended == hosts.len() {
        return;
    }
    let under_way = hosts.iter().zip(doing).filter_map(|(host, what)| Some(format!("{} {}", host.name, (*what)?)));
    let text = format!("{ended} of {} done; {}", hosts.len(), list(under_way, NAMED));
    screen.say_over(&text);
}

/// A host's result in a line.
pub(super) fn line(screen: &Screen, result: &HostResult) -> String {
    let (mark, paint, word) = match result.outcome {
        Outcome::Changed => (Mark::Good, Paint::Good, result.did.join(", ")),
        Outcome::Unchanged => (Mark::Good, Paint::Good, "unchanged".to_owned()),
        Outcome::Failed => (Mark::Bad, Paint::Bad, "failed".to_owned()),
        Outcome::Unreachable => (Mark::Unknown, Paint::Bad, "unreachable".to_owned()),
        Outcome::Untouched => (Mark::Busy, Paint::Busy, "untouched".to_owned()),
    };
    let mut words = vec![word];
    words.extend(result.error.clone());
    if result.error.is_some() && !result.did.is_empty() {
        words.push(format!("done before: {}", result.did.join(", ")));
    }
    words.extend(result.version.clone());
    words.extend(result.status.as_deref().map(|status| manager_status::short(status).to_owned()));
    let sign = screen.paint(paint, &mark.sign().to_string());
    format!("{sign} {}  {}", result.name, words.join("; "))
}

/// Prints the summary; returns the exit status.
pub(super) fn conclude(screen: &mut Screen, json: bool, results: &[HostResult]) -> CommandResult {
    let of = |wanted: Outcome| results.iter().filter(|r| r.outcome == wanted).count();
    let (failed, unreachable) = (of(Outcome::Failed), of(Outcome::Unreachable));
    if json {
        screen.json(&Results { hosts: results })?;
    } else {
        let mut words =
            vec![format!("{} changed", of(Outcome::Changed)), format!("{} unchanged", of(Outcome::Unchanged))];
        let rest = [(failed, "failed"), (unreachable, "unreachable"), (of(Outcome::Untouched), "untouched")];
        words.extend(rest.iter().filter(|(n, _)| *n > 0).map(|(n, outcome)| format!("{n} {outcome}")));
        screen.say(&format!("{}: {}", count(results.len() as u64, "host"), words.join(", ")));
        let mut hints: Vec<&str> = Vec::new();
        for hint in results.iter().map(|r| r.hint.as_str()).filter(|hint| !hint.is_empty()) {
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
        for hint in hints.iter().take(HINTS) {
            screen.problem("hint", hint);
        }
    }
    Ok(match (failed, unreachable) {
        (0, 0) => Exit::Yes,
        (0, _) => Exit::Unreached,
        _ => Exit::No,
    })
}

/// Reads the artefacts to install.
pub(super) fn artefacts(args: &ArtefactArgs) -> Result<Arc<Vec<Artefact>>, Failure> {
    let all = |paths: &[PathBuf], read: fn(&std::path::Path) -> Result<Artefact, ArtefactError>| {
        paths.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()
    };
    let mut found = all(&args.packages, Artefact::package).map_err(Failure::usage)?;
    found.extend(all(&args.binaries, Artefact::program).map_err(Failure::usage)?);
    for (at, one) in found.iter().enumerate() {
        let twin = found[..at].iter().find(|other| {
            std::mem::discriminant(&other.form) == std::mem::discriminant(&one.form)
                && other.processor == one.processor
                && manager(other) == manager(one)
        });
        if let Some(twin) = twin {
            let what = format!("{} and {} are for the same hosts", twin.path.display(), one.path.display());
            return Err(Failure::usage(what).hint("leave out either file"));
        }
    }
    Ok(Arc::new(found))
}

fn manager(artefact: &Artefact) -> Option<Manager> {
    match &artefact.form {
        Form::Package(manager, _) => Some(*manager),
        Form::Program => None,
    }
}

/// Refuses a host that is named twice.
pub(super) fn once(hosts: &[HostAt]) -> Result<(), Failure> {
    for (at, host) in hosts.iter().enumerate() {
        if let Some(twin) = hosts[..at].iter().find(|other| other.name == host.name || other.to == host.to) {
            let what = format!("{} is named twice (as {} and {})", host.to, twin.name, host.name);
            return Err(Failure::usage(what));
        }
    }
    Ok(())
}
