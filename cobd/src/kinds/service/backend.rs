//! The daemon's side: checks services, and describes their transitions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cob_kinds::Time;
use cob_types::message::Values;
use cob_types::{Cob, CobId, Command, Kind, StateName, canonical};
use serde::Deserialize;

use super::commands::Status;
use super::folder::{Look, ServiceFolder};
use super::former::{self, Form};
use super::leaving;
use super::link::Link;
use super::logs::{self, LogsAnswer, LogsQuery};
use super::mover::{Answer, Goal, Wish};
use super::unit::{self, Judgement, OnChange, Question, UnitContent, unit_of};
use super::watch::Watcher;
use crate::blocking::beside;
use crate::kinds::backend::{Backend, CheckOutcome, Context, Hop, Outcome, Process, Tools, Work, complaint};
use crate::kinds::departure::Attempt;
use crate::run::{Exit, JobResult, MOVE_SERVICE};

/// All states. A kind needs the first two. `stale`, of units: the running service differs in a way that can be
/// corrected without a restart.
const STATES: [&str; 5] = ["down", "up", "outdated", "failed", "stale"];

/// The back end `service`.
#[derive(Debug, Default)]
pub(in crate::kinds) struct Service {
    link: Link,
    watcher: Watcher,
}

/// The content of a service.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// A unit of systemd.
    Unit(UnitContent),
    /// A service of commands.
    Commands(CommandsContent),
}

/// A service that is described by commands.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandsContent {
    pub(super) start: Command,
    #[serde(default)]
    pub(super) stop: Option<Command>,
    #[serde(default)]
    pub(super) status: Option<Command>,
    #[serde(default)]
    pub(super) reload: Option<Command>,
    #[serde(default)]
    pub(super) ready: Option<Command>,
    #[serde(default = "settle")]
    pub(super) settle: Time,
    #[serde(default)]
    pub(super) on_change: OnChange,
    #[serde(default)]
    pub(super) user: Option<String>,
    #[serde(default)]
    pub(super) group: Option<String>,
    #[serde(default)]
    pub(super) dir: Option<PathBuf>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) exports: serde_json::Map<String, serde_json::Value>,
}

impl CommandsContent {
    pub(super) fn form(&self) -> Form<'static> {
        if self.status.is_some() { Form::Driven } else { Form::Kept }
    }
}

/// Most services that can't start report it at once; a longer time would delay all others.
pub(super) fn settle() -> Time {
    Time::from_millis(250)
}

pub(super) fn read(text: &str) -> Result<Content, String> {
    match unit_of(text) {
        Some(_) => UnitContent::read(text).map(Content::Unit),
        None => read_commands(text).map(Content::Commands),
    }
}

fn read_commands(text: &str) -> Result<CommandsContent, String> {
    let content: CommandsContent = cob_kinds::parse(text)?;
    if content.on_change == OnChange::Reload && content.reload.is_none() {
        return Err("content: `on_change: reload` needs the command `reload`".to_owned());
    }
    if content.status.is_some() && content.stop.is_none() {
        return Err("content: with `status` the service looks after itself, so `stop` is needed too".to_owned());
    }
    if content.dir.as_ref().is_some_and(|d| !d.is_absolute()) {
        return Err("content: `dir` must be absolute".to_owned());
    }
    if content.group.is_some() && content.user.is_none() {
        return Err("content: `group` needs `user`".to_owned());
    }
    let names = content.user.iter().chain(&content.group);
    if let Some(name) = names.into_iter().find(|name| name.is_empty() || name.starts_with('-') || name.contains('\0')) {
        return Err(format!("content: {name:?} is no name of a user or group"));
    }
    let others = [&content.stop, &content.status, &content.reload, &content.ready];
    if others.into_iter().flatten().chain([&content.start]).any(is_empty) {
        return Err("content: a command is empty".to_owned());
    }
    let bad = |name: &&String| name.is_empty() || name.contains(['=', '\0']) || name.starts_with("COB_");
    match content.env.keys().find(bad) {
        Some(name) => Err(format!("content: env {name:?} can't be set")),
        None => Ok(content),
    }
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

fn exports(content: &Content) -> Values {
    let exports = match content {
        Content::Unit(content) => &content.exports,
        Content::Commands(content) => &content.exports,
    };
    exports.iter().map(|(name, value)| (name.clone(), canonical::json(value))).collect()
}

/// The fingerprint of its dependencies as text.
fn rests_on(context: &Context) -> Option<String> {
    context.cob.rests_on.map(|print| print.to_string())
}

fn rests_down(context: &Context) -> bool {
    context.cob.preferred == *"down"
}

fn is_socket(content: &Content) -> bool {
    matches!(content, Content::Unit(content) if content.name().ends_with(".socket"))
}

impl Backend for Service {
    fn name(&self) -> &'static str {
        "service"
    }

    fn durable(&self) -> bool {
        true
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
            Ok(Content::Unit(content)) => self.check_unit(tools, context, content),
            Ok(Content::Commands(content)) => check_commands(tools, context, content),
            Err(reason) => Work::known(CheckOutcome::unknown(reason)),
        }
    }

    fn transition(&self, tools: &Tools, context: &Context, hop: &Hop) -> Work<Outcome> {
        let content = read(&context.cob.content);
        let Some(transition) = context.transition(hop).filter(|t| STATES[..2].contains(&t.to.as_str())) else {
            return Work::known(Outcome::failed(format!(
                "a service has no transition from {} to {}",
                hop.from, hop.to
            )));
        };
        let content = match content {
            Ok(content) => content,
            Err(reason) => return Work::known(Outcome::failed(reason)),
        };
        let private = tools.private_service_folder(&context.cob.id).filter(|_| !context.secrets.is_empty());
        let (dir, on_change) = match &content {
            Content::Unit(content) => (None, content.on_change),
            // Only root has access to the folder of its files.
            Content::Commands(content) => {
                let elsewhere = content.user.as_ref().map(|_| PathBuf::from("/"));
                (content.dir.clone().or(elsewhere), content.on_change)
            }
        };
        let wish = Wish {
            goal: goal(hop, on_change),
            folder: tools.service_folder(&context.cob.id),
            identity: identity(context),
            working_folder: dir.unwrap_or_else(|| context.folder.clone()),
            private,
            timeout_ms: transition.timeout_ms,
            grace_ms: transition.grace_ms,
            systemd: tools.systemd().clone(),
            rests_on: rests_on(context),
            rests_down: rests_down(context),
            leaving: context.leaving,
            triggers: if rests_down(context) { self.watcher.triggers().as_ref().clone() } else { BTreeSet::new() },
            wanted: if is_socket(&content) { self.watcher.wanted().as_ref().clone() } else { BTreeSet::new() },
        };
        let mut argv: Vec<String> = Vec::new();
        for word in tools.program().argv(MOVE_SERVICE) {
            match word.into_string() {
                Ok(word) => argv.push(word),
                Err(word) => return Work::known(Outcome::failed(format!("{}: not UTF-8", word.display()))),
            }
        }
        argv.push(serde_json::to_string(&wish).expect("paths came from text"));
        let timeout = Duration::from_millis(transition.timeout_ms);
        let values = if wish.goal == Goal::Stop { Values::new() } else { exports(&content) };
        Work::Process(Process {
            command: Command::Argv(argv),
            environment: BTreeMap::new(),
            timeout,
            grace: Duration::from_millis(transition.grace_ms),
            stdout_apart: false,
            read: Box::new(move |result| read_transition(timeout, result, values)),
        })
    }

    fn logs(&self, tools: &Tools, context: &Context, query: LogsQuery) -> Option<Work<Result<LogsAnswer, String>>> {
        let folder = ServiceFolder::new(tools.service_folder(&context.cob.id));
        let content = read(&context.cob.content);
        let future = async move {
            match content? {
                Content::Unit(content) => unit::logs(&content.unit, &query).await,
                Content::Commands(content) if content.status.is_some() => {
                    Err("the service manages itself (`status`), and its output, too: no output is kept here".to_owned())
                }
                Content::Commands(_) => {
                    let read = beside(move || logs::of_kept(&folder, &query)).await;
                    read.unwrap_or_else(|lost| Err(lost.to_string()))
                }
            }
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

impl Service {
    fn check_unit(&self, tools: &Tools, context: &Context, content: UnitContent) -> Work<CheckOutcome> {
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
                    let outcome = in_words_of(&states, &[state, "up"], difference, &Content::Unit(content));
                    CheckOutcome { fresh, ..outcome }
                }
                Err(reason) => CheckOutcome::unknown(reason),
            }
        };
        Work::Inside { future: Box::pin(future), timeout: Some(context.check_timeout()) }
    }
}

/// Checks a service of commands.
fn check_commands(tools: &Tools, context: &Context, content: CommandsContent) -> Work<CheckOutcome> {
    let folder = ServiceFolder::new(tools.service_folder(&context.cob.id));
    let (states, identity, timeout) = (context.kind.states.clone(), identity(context), context.check_timeout());
    let (status, form) = (content.status.clone(), content.form());
    let content = Content::Commands(content);
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
fn left(states: &[StateName], folder: &ServiceFolder, form: Form<'_>, content: &Content) -> Option<CheckOutcome> {
    match former::left(folder, form) {
        Ok(left) => left.map(|what| in_words_of(states, &["outdated", "failed"], what, content)),
        Err(reason) => Some(CheckOutcome::unknown(reason)),
    }
}

/// The variables of a service's own commands, in addition to the variables of every action.
fn content_environment(context: &Context) -> BTreeMap<String, String> {
    match read(&context.cob.content) {
        Ok(Content::Commands(content)) => content.env,
        Ok(Content::Unit(_)) | Err(_) => BTreeMap::new(),
    }
}

/// The goal of a transition.
fn goal(hop: &Hop, on_change: OnChange) -> Goal {
    match (hop.from.as_str(), hop.to.as_str()) {
        (_, "down") => Goal::Stop,
        ("outdated", _) if on_change == OnChange::Reload => Goal::Reload,
        ("stale", _) => Goal::Adjust,
        (_, _) => Goal::Start,
    }
}

/// The state and the difference of a service of commands.
fn judge(states: &[StateName], identity: &str, look: &Look, content: &Content) -> CheckOutcome {
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
fn in_words_of(states: &[StateName], wanted: &[&str], difference: String, content: &Content) -> CheckOutcome {
    let state = wanted.iter().find_map(|name| states.iter().find(|s| *s == *name)).cloned();
    let exports = if ["up", "stale"].contains(&wanted[0]) { exports(content) } else { Values::new() };
    match state {
        Some(state) => CheckOutcome { state: Ok(state), difference, exports, fresh: false },
        None => CheckOutcome::unknown(format!("{difference}; its kind has no state for that ({})", wanted.join(", "))),
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
