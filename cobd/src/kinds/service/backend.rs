//! The daemon's side: checks services, and describes their transitions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cob_kinds::{Content as _, OnChange, Service};
use cob_types::api::{LogsAnswer, LogsQuery};
use cob_types::message::Values;
use cob_types::{Cob, CobId, Command, Kind, StateName, Transition, canonical};
use serde::Serialize;

use super::commands::Status;
use super::folder::{Look, ServiceFolder};
use super::former::{self, Form};
use super::leaving;
use super::link::Link;
use super::logs;
use super::mover::{Answer, Goal, Task};
use super::unit::{self, Judgement, Question};
use super::watch::Watcher;
use crate::blocking::beside;
use crate::kinds::backend::{
    Backend, CheckOutcome, Context, Outcome, Process, Tools, TransitionAttempt, Work, complaint,
};
use crate::kinds::departure::Attempt;
use crate::run::{Exit, JobResult, MOVE_SERVICE};

/// All states. A kind needs the first two. `stale`, of units: the running service differs in a way that can be
/// corrected without a restart.
const STATES: [&str; 5] = ["down", "up", "outdated", "failed", "stale"];

/// The back end `service`.
#[derive(Debug, Default)]
pub(in crate::kinds) struct ServiceKind {
    link: Link,
    watcher: Watcher,
}

pub(super) fn read(text: &str) -> Result<Service, String> {
    let content: Service = cob_kinds::read(text)?;
    let commands = [&content.start, &content.stop, &content.status, &content.reload, &content.ready];
    if commands.into_iter().flatten().any(is_empty) {
        return Err("content: a command is empty".to_owned());
    }
    Ok(content)
}

/// The form of a service of commands.
pub(super) fn form(content: &Service) -> Form<'static> {
    if content.status.is_some() { Form::Driven } else { Form::Kept }
}

fn is_empty(command: &Command) -> bool {
    match command {
        Command::Shell(line) => line.trim().is_empty(),
        Command::Argv(words) => words.first().is_none_or(String::is_empty),
    }
}

/// Differs whenever the service must be restarted: for another content, other files or changed dependencies.
fn identity(context: &Context) -> String {
    let files = context.folder.file_name().unwrap_or_default().as_encoded_bytes();
    let rests_on = context.cob.rests_on.map(|f| f.0.to_vec()).unwrap_or_default();
    canonical::fingerprint(&[context.cob.content.as_bytes(), files, &rests_on]).to_string()
}

fn exports(content: &Service) -> Values {
    content.exports.iter().map(|(name, value)| (name.clone(), canonical::json(value))).collect()
}

/// The fingerprint of its dependencies as text.
fn rests_on(context: &Context) -> Option<String> {
    context.cob.rests_on.map(|print| print.to_string())
}

fn rests_down(context: &Context) -> bool {
    context.cob.preferred == *"down"
}

fn is_socket(content: &Service) -> bool {
    content.unit_name().is_some_and(|name| name.ends_with(".socket"))
}

impl Backend for ServiceKind {
    fn name(&self) -> &'static str {
        Service::KIND.name
    }

    fn accept(&self, kind: &Kind) -> Result<(), String> {
        if let Some(state) = kind.states.iter().find(|s| !STATES.contains(&s.as_str())) {
            return Err(format!("a service has no state {state}; it has {}", STATES.join(", ")));
        }
        if let Some(missing) = STATES[..2].iter().find(|s| !kind.states.iter().any(|k| *k == **s)) {
            return Err(format!("a service needs the state {missing}"));
        }
        match kind.transitions.iter().find(|t| !STATES[..2].contains(&t.to.as_str())) {
            Some(t) => Err(format!("a service has no transition from {} to {}", t.from, t.to)),
            None => Ok(()),
        }
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        read(content).map(|_| ())
    }

    fn check(&self, tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        match read(&context.cob.content) {
            Ok(content) if content.unit.is_some() => self.check_unit(tools, context, content),
            Ok(content) => check_commands(tools, context, content),
            Err(reason) => Work::known(CheckOutcome::unknown(reason)),
        }
    }

    fn transition(&self, tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        let content = read(&context.cob.content);
        let Some(transition) = context.transition(attempt).filter(|t| STATES[..2].contains(&t.to.as_str())) else {
            return Work::known(Outcome::failed(format!(
                "a service has no transition from {} to {}",
                attempt.from, attempt.to
            )));
        };
        let content = match content {
            Ok(content) => content,
            Err(reason) => return Work::known(Outcome::failed(reason)),
        };
        let task = self.task(tools, context, (attempt, transition), &content);
        let work = Call { word: MOVE_SERVICE, call: &task, goal: task.goal, transition };
        work.work(tools, &content)
    }

    fn logs(&self, tools: &Tools, context: &Context, query: LogsQuery) -> Option<Work<Result<LogsAnswer, String>>> {
        let folder = ServiceFolder::new(tools.service_folder(&context.cob.id));
        let content = read(&context.cob.content);
        let future = async move {
            let content = content?;
            if let Some(unit) = &content.unit {
                return unit::logs(unit, &query).await;
            }
            if content.status.is_some() {
                return Err(
                    "the service manages itself (`status`), and its output, too: no output is kept here".to_owned()
                );
            }
            let read = beside(move || logs::of_kept(&folder, &query)).await;
            read.unwrap_or_else(|lost| Err(lost.to_string()))
        };
        Some(Work::Inside { future: Box::pin(future), timeout: None })
    }

    fn left(&self, tools: &Tools, cob: &CobId) -> Option<Attempt> {
        leaving::put_back(tools, tools.service_folder(cob), cob, &|unit| self.watcher.about(unit))
    }

    fn is_here(&self, tools: &Tools, cob: &CobId) {
        leaving::is_here(&tools.service_folder(cob));
    }

    fn kept(&self, tools: &Tools, cob: &CobId) {
        leaving::keep(&tools.service_folder(cob));
    }

    fn return_to(&self, tools: &Tools, here: &dyn Fn(&Path) -> bool) -> Vec<(CobId, Attempt)> {
        leaving::put_back_all(tools, here)
    }

    fn watch(&self, tools: &Tools, cobs: &mut dyn Iterator<Item = Arc<Cob>>) {
        self.watcher.watch(tools, cobs);
    }
}

impl ServiceKind {
    /// The task of a transition.
    pub(in crate::kinds) fn task(
        &self,
        tools: &Tools,
        context: &Context,
        (attempt, transition): (&TransitionAttempt, &Transition),
        content: &Service,
    ) -> Task {
        let private = tools.private_service_folder(&context.cob.id).filter(|_| !context.secrets.is_empty());
        // Only root has access to the folder of its files.
        let elsewhere = content.user.as_ref().map(|_| PathBuf::from("/"));
        Task {
            goal: goal(attempt, content.on_change),
            folder: tools.service_folder(&context.cob.id),
            identity: identity(context),
            working_folder: content.dir.clone().or(elsewhere).unwrap_or_else(|| context.folder.clone()),
            private,
            timeout_ms: transition.timeout_ms,
            grace_ms: transition.grace_ms,
            systemd: tools.systemd().clone(),
            rests_on: rests_on(context),
            rests_down: rests_down(context),
            leaving: context.leaving,
            triggers: self.watcher.triggers().as_ref().clone(),
            wanted: if is_socket(content) { self.watcher.wanted().as_ref().clone() } else { BTreeSet::new() },
        }
    }

    fn check_unit(&self, tools: &Tools, context: &Context, content: Service) -> Work<CheckOutcome> {
        let question = Question {
            systemd: tools.systemd().clone(),
            folder: tools.service_folder(&context.cob.id),
            payload: context.folder.clone(),
            rests_on: rests_on(context),
            rests_down: rests_down(context),
            leaving: context.leaving,
            triggers: self.watcher.triggers(),
            rested_for: context.rested_for,
            content: content.clone(),
        };
        let (link, states) = (self.link.clone(), context.kind.states.clone());
        let future = async move {
            let bus = match link.bus(&question.systemd).await {
                Ok(bus) => bus,
                Err(reason) => return CheckOutcome::unknown(reason),
            };
            match unit::check(&bus, question).await {
                Ok(Judgement { state, difference, fresh }) => {
                    let outcome = in_words_of(&states, &[state, "up"], difference, &content);
                    CheckOutcome { fresh, ..outcome }
                }
                Err(reason) => CheckOutcome::unknown(reason),
            }
        };
        Work::Inside { future: Box::pin(future), timeout: Some(context.check_timeout()) }
    }
}

/// The process of a transition: this program, executed with a call.
pub(in crate::kinds) struct Call<'a, C> {
    /// The hidden word of the work.
    pub(in crate::kinds) word: &'a str,
    pub(in crate::kinds) call: &'a C,
    pub(in crate::kinds) goal: Goal,
    pub(in crate::kinds) transition: &'a Transition,
}

impl<C: Serialize> Call<'_, C> {
    /// The work for a service with this content.
    pub(in crate::kinds) fn work(&self, tools: &Tools, content: &Service) -> Work<Outcome> {
        let command = match tools.call(self.word, self.call) {
            Ok(command) => command,
            Err(reason) => return Work::known(Outcome::failed(reason)),
        };
        let timeout = Duration::from_millis(self.transition.timeout_ms);
        let values = if self.goal == Goal::Stop { Values::new() } else { exports(content) };
        let grace = Duration::from_millis(self.transition.grace_ms);
        Work::process(command, timeout, grace, move |result| read_transition(timeout, result, values))
    }
}

/// Checks a service of commands.
fn check_commands(tools: &Tools, context: &Context, content: Service) -> Work<CheckOutcome> {
    let folder = ServiceFolder::new(tools.service_folder(&context.cob.id));
    let (states, identity, timeout) = (context.kind.states.clone(), identity(context), context.check_timeout());
    let (status, form) = (content.status.clone(), form(&content));
    let Some(status) = status else {
        let look = move || {
            folder.bound_commands();
            let left = left(&states, &folder, form, &content);
            left.unwrap_or_else(|| judge(&states, &identity, &folder.look(), &content))
        };
        let future = async move { beside(look).await.unwrap_or_else(|lost| CheckOutcome::unknown(lost.to_string())) };
        return Work::Inside { future: Box::pin(future), timeout: Some(timeout) };
    };
    let read = move |result: JobResult| {
        folder.bound_commands();
        if let Some(left) = left(&states, &folder, form, &content) {
            return left;
        }
        let look = match Status::of(&result.exit, || complaint(&result, timeout).unwrap_or_default()) {
            Status::Runs => Look::Running { identity: folder.recorded_identity(), ready: true },
            Status::Stopped => Look::Stopped,
            Status::Unknown(what) => return CheckOutcome::unknown(format!("status: {what}")),
        };
        judge(&states, &identity, &look, &content)
    };
    Work::Process(Process {
        command: status,
        environment: content_environment(context),
        timeout,
        grace: Duration::from_secs(1),
        stdout_apart: false,
        read: Box::new(read),
    })
}

/// The result of a check while a service of an earlier content is left.
fn left(states: &[StateName], folder: &ServiceFolder, form: Form<'_>, content: &Service) -> Option<CheckOutcome> {
    match former::left(folder, form) {
        Ok(left) => left.map(|what| in_words_of(states, &["outdated", "failed"], what, content)),
        Err(reason) => Some(CheckOutcome::unknown(reason)),
    }
}

/// The variables of a service's own commands, in addition to the variables of every action.
fn content_environment(context: &Context) -> BTreeMap<String, String> {
    read(&context.cob.content).map(|content| content.env).unwrap_or_default()
}

/// The goal of a transition.
fn goal(attempt: &TransitionAttempt, on_change: OnChange) -> Goal {
    match (attempt.from.as_str(), attempt.to.as_str()) {
        (_, "down") => Goal::Stop,
        ("outdated", _) if on_change == OnChange::Reload => Goal::Reload,
        ("stale", _) => Goal::Adjust,
        (_, _) => Goal::Start,
    }
}

/// The state and the difference of a service of commands.
fn judge(states: &[StateName], identity: &str, look: &Look, content: &Service) -> CheckOutcome {
    let (wanted, difference) = match look {
        Look::Stopped => (["down"].as_slice(), String::new()),
        Look::Running { identity: running, ready: true } if running.as_deref() == Some(identity) => {
            (["up"].as_slice(), String::new())
        }
        Look::Running { identity: running, ready: true } => (
            ["outdated", "failed"].as_slice(),
            match running {
                Some(_) => "it runs with another content".to_owned(),
                None => "it runs, but was not started from here".to_owned(),
            },
        ),
        Look::Running { ready: false, .. } => {
            (["failed", "outdated"].as_slice(), "it runs, but has not become ready".to_owned())
        }
        Look::Ended(how) => (["failed", "down"].as_slice(), format!("it has ended by itself: {how}")),
        Look::Killed => {
            (["failed", "down"].as_slice(), "its supervisor was killed, and the service has ended, too".to_owned())
        }
        Look::Unsupervised => {
            (["failed", "outdated"].as_slice(), "its supervisor was killed, and the service still runs".to_owned())
        }
    };
    in_words_of(states, wanted, difference, content)
}

/// The result with the first of these states that the kind has.
fn in_words_of(states: &[StateName], wanted: &[&str], difference: String, content: &Service) -> CheckOutcome {
    let state = wanted.iter().find_map(|name| states.iter().find(|s| *s == *name)).cloned();
    let exports = if ["up", "stale"].contains(&wanted[0]) { exports(content) } else { Values::new() };
    match state {
        Some(state) => CheckOutcome { state: Ok(state), difference, exports, fresh: false },
        None => CheckOutcome::unknown(format!(
            "{difference}; the kind has no state for this difference ({})",
            wanted.join(", ")
        )),
    }
}

fn read_transition(timeout: Duration, result: JobResult, values: Values) -> Outcome {
    let answer = result.saved.as_ref().ok().and_then(|text| serde_json::from_str(text.as_deref()?).ok());
    match (&result.exit, answer) {
        (Exit::Lost, _) => Outcome::Lost,
        (Exit::Cancelled, _) => Outcome::Cancelled,
        (Exit::Exited(_), Some(Answer::Done)) => Outcome::Done { exports: values, saved: None },
        (Exit::Exited(_), Some(Answer::Failed(reason))) => Outcome::Failed { reason },
        (Exit::Exited(_) | Exit::Signal(_) | Exit::TimedOut | Exit::SpawnFailed(_), _) => {
            let what = complaint(&result, timeout).unwrap_or_else(|| "it ended without an answer".to_owned());
            Outcome::Failed { reason: what }
        }
    }
}
