//! The contract between the daemon and a kind's back end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cob_types::api::{FilesAnswer, LogsAnswer, LogsQuery};
use cob_types::message::Values;
use cob_types::status::FileDrift;
use cob_types::{Cob, CobId, Command, GenerationNumber, Kind, StateName, Transition, canonical};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::departure::Attempt;
use super::known::KnownSecrets;
use super::queries::FilesQuery;
use super::saved::Saved;
use super::systemd::Systemd;
use crate::run::endings;
use crate::run::{Exit, JobResult, Opener, Program, Sealed, base_environment};

/// Carries out the checks and transitions of all kinds that name it.
pub trait Backend: Send + Sync {
    /// The name by which kinds refer to this back end.
    fn name(&self) -> &'static str;

    /// Whether its transitions are processes, which outlive the daemon. Other transitions end with the daemon: after a
    /// restart their change objects are `unknown`.
    fn durable(&self) -> bool {
        true
    }

    /// Validates a kind before its first use.
    ///
    /// # Errors
    /// The fault of the kind, as text.
    fn accept(&self, _kind: &Kind) -> Result<(), String> {
        Ok(())
    }

    /// Validates a change object's content before its first use.
    ///
    /// # Errors
    /// The fault of the content, as text.
    fn accept_content(&self, content: &str) -> Result<(), String>;

    /// Validates a new or changed change object for this host: whether it has what no other change object brings.
    ///
    /// # Errors
    /// The missing part, as text.
    fn accept_here(&self, _cob: &Cob) -> Result<(), String> {
        Ok(())
    }

    /// Describes how to find out the state. A check never changes the host.
    fn check(&self, tools: &Tools, context: &Context) -> Work<CheckOutcome>;

    /// Whether its checks wait for the back end's own threads, so that parallel checks bring no gain.
    fn checks_in_turn(&self) -> bool {
        false
    }

    /// Describes how to carry out a transition. Transitions are idempotent.
    fn transition(&self, tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome>;

    /// Describes how to read the end of a transition that an earlier daemon started as a process.
    fn adopted(&self, tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        self.transition(tools, context, attempt)
    }

    /// Whether this transition only waits for an outside condition and may end early without leftovers. If the content
    /// changes meanwhile, the transition ends and starts again with the new content.
    fn only_waits(&self, _kind: &Kind, _attempt: &TransitionAttempt) -> bool {
        false
    }

    /// Whether the kind's author writes `COB_RESULT_OUT` for the revert, which then gets it also after a failed
    /// transition. Otherwise the file holds the back end's own answer.
    fn saves(&self) -> bool {
        false
    }

    /// Says as text which condition a transition inside the daemon waits for. `None`: nothing to report.
    fn said(&self, _cob: &CobId) -> Option<String> {
        None
    }

    /// Forgets a departed change object.
    fn forget(&self, _cob: &CobId) {}

    /// The changes from outside that the last check of this change object found.
    fn drift(&self, _cob: &CobId) -> Vec<FileDrift> {
        Vec::new()
    }

    /// Answers a query about a change object's files. `None`: the kind has no files.
    fn files(
        &self,
        _tools: &Tools,
        _context: &Context,
        _query: FilesQuery,
    ) -> Option<Work<Result<FilesAnswer, String>>> {
        None
    }

    /// Reads the output of a running change object. `None`: the kind runs no process.
    fn logs(&self, _tools: &Tools, _context: &Context, _query: LogsQuery) -> Option<Work<Result<LogsAnswer, String>>> {
        None
    }

    /// Prepares at the daemon's start: opens data of earlier runs in parallel with the rest of the start.
    fn wake(&self, _tools: &Tools) {}

    /// Returns the attempt that restores the original state of a departed change object, as far as the last transition
    /// did not restore it. `None`: nothing to restore.
    fn left(&self, _tools: &Tools, _cob: &CobId) -> Option<Attempt> {
        None
    }

    /// Announces that a change object is in the model. After an earlier departure, the back end stops restoring the
    /// original state.
    fn is_here(&self, _tools: &Tools, _cob: &CobId) {}

    /// Whether, with this content, a user's change may conflict with the desired state.
    fn may_conflict(&self, _content: &str) -> bool {
        false
    }

    /// Forgets the original state of a departed change object whose effects stay on the host.
    fn kept(&self, _tools: &Tools, _cob: &CobId) {}

    /// Handles departures that the daemon missed while it was down. `here` says whether the change object that owns a
    /// folder is still in the model; the other change objects have [departed](Self::left).
    fn return_to(&self, _tools: &Tools, _here: &dyn Fn(&Path) -> bool) -> Vec<(CobId, Attempt)> {
        Vec::new()
    }

    /// Watches exactly these change objects for changes from outside, as well as the back end can.
    fn watch(&self, _tools: &Tools, _cobs: &mut dyn Iterator<Item = Arc<Cob>>) {}
}

/// The subject of a check or transition.
#[derive(Debug, Clone)]
pub struct Context {
    /// The change object.
    pub cob: Arc<Cob>,
    /// Its kind.
    pub kind: Arc<Kind>,
    /// The active generation.
    pub generation: GenerationNumber,
    /// The working folder, with the files of kind and change object: see [`crate::run::payload`].
    pub folder: PathBuf,
    /// The values that the held locks carry.
    pub imports: BTreeMap<CobId, Import>,
    /// The encrypted secrets that its content names.
    pub secrets: Sealed,
    /// It departs from the model, and its effects shall not stay.
    pub leaving: bool,
    /// How long all its dependencies have been unchanged. `None`: not known.
    pub rested_for: Option<Duration>,
}

/// The data that a held lock carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The granted state.
    pub state: StateName,
    /// The values that the grantor exports in this state.
    pub values: Values,
}

/// One transition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitionAttempt {
    /// The old state.
    pub from: StateName,
    /// The new state.
    pub to: StateName,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOutcome {
    /// The state, or the reason why it is unknown.
    pub state: Result<StateName, String>,
    /// The difference from the desired content, for people; may be empty.
    pub difference: String,
    /// The values that the change object exports.
    pub exports: Values,
    /// Its process started after the last change of its dependencies, no matter which program started it.
    pub fresh: bool,
}

/// The result of a transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The change object is in the new state.
    Done {
        /// The values that the change object exports there.
        exports: Values,
        /// The data for the revert.
        saved: Option<String>,
    },
    /// The change object is not in the new state, or not for certain.
    Failed {
        /// The reason, in one sentence.
        reason: String,
    },
    /// It failed, because a person has to decide a conflict.
    Conflict {
        /// The reason, in one sentence.
        reason: String,
    },
    /// The daemon cancelled the transition.
    Cancelled,
    /// The result is unknown: the runner was killed, or the transition ran inside a daemon that has ended.
    Lost,
}

/// How the daemon executes a check or transition.
pub enum Work<T> {
    /// In a separate process.
    Process(Process<T>),
    /// Inside the daemon.
    Inside {
        /// The computation.
        future: Pin<Box<dyn Future<Output = T> + Send>>,
        /// The timeout. `None`: the future limits its own time.
        timeout: Option<Duration>,
    },
}

/// A process to execute, and the function that reads its end.
pub struct Process<T> {
    /// The command to execute.
    pub command: Command,
    /// Additional variables, besides the common variables of all actions.
    pub environment: BTreeMap<String, String>,
    /// The time limit.
    pub timeout: Duration,
    /// The pause between the request to end and the kill.
    pub grace: Duration,
    /// The standard output is the answer, and is kept apart from the log.
    pub stdout_apart: bool,
    /// Turns the end of the process into a result.
    pub read: Box<dyn FnOnce(JobResult) -> T + Send>,
}

/// The daemon's services for back ends.
#[derive(Debug)]
pub struct Tools {
    state_dir: PathBuf,
    program: Program,
    opener: Option<Opener>,
    saved: Saved,
    drifts: mpsc::Sender<CobId>,
    systemd: Systemd,
    known: Arc<KnownSecrets>,
    acts_apart: bool,
}

impl Tools {
    /// Creates folders below `state_dir` and sends change objects with possible changes from outside to `drifts`.
    #[must_use]
    pub fn new(state_dir: &Path, program: Program, opener: Option<Opener>, drifts: mpsc::Sender<CobId>) -> Self {
        let (saved, systemd) = (Saved::new(state_dir), Systemd::default());
        let known = Arc::new(KnownSecrets::new(opener.clone()));
        Self { state_dir: state_dir.to_owned(), program, opener, saved, drifts, systemd, known, acts_apart: false }
    }

    /// Native kinds act in processes, also for short work.
    pub(super) fn acts_apart(&self) -> bool {
        self.acts_apart
    }

    /// Lets native kinds act in processes, which can be killed, also for short work.
    pub(super) fn act_apart(&mut self) {
        self.acts_apart = true;
    }

    /// The secrets of this host.
    pub(super) fn known(&self) -> &Arc<KnownSecrets> {
        &self.known
    }

    /// The data that transitions have saved for their reverts.
    pub(super) fn saved(&self) -> &Saved {
        &self.saved
    }

    pub(super) fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    pub(super) fn opener(&self) -> Option<&Opener> {
        self.opener.as_ref()
    }

    pub(super) fn drifts(&self) -> &mpsc::Sender<CobId> {
        &self.drifts
    }

    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    /// The command that executes this program for this work, with a call.
    pub(super) fn call(&self, work: &str, call: &impl Serialize) -> Result<Command, String> {
        let text = |word: OsString| word.into_string().map_err(|word| format!("{}: not UTF-8", word.display()));
        let mut argv = self.program.argv(work).into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
        argv.push(serde_json::to_string(call).expect("a call is plain data"));
        Ok(Command::Argv(argv))
    }

    /// The persistent folder of a change object, `COB_STATE_DIR`.
    pub(super) fn own_folder(&self, cob: &CobId) -> PathBuf {
        self.cobs().join(folder_name(cob))
    }

    /// The parent of all change objects' own folders.
    pub(super) fn cobs(&self) -> PathBuf {
        self.state_dir.join("cobs")
    }

    /// The folder in memory for files that hold a service's secrets.
    pub(super) fn private_service_folder(&self, cob: &CobId) -> Option<PathBuf> {
        self.opener.as_ref().map(|opener| opener.service_folder(&folder_name(cob)))
    }

    /// The folder in memory for the file that holds a container's secrets.
    pub(super) fn private_container_folder(&self, cob: &CobId) -> Option<PathBuf> {
        self.opener.as_ref().map(|opener| opener.container_folder(&folder_name(cob)))
    }

    /// The folder in which services are supervised.
    pub(super) fn services(&self) -> PathBuf {
        self.state_dir.join("services")
    }

    /// The folder in which the service of a change object is supervised.
    pub(super) fn service_folder(&self, cob: &CobId) -> PathBuf {
        self.services().join(folder_name(cob))
    }

    #[cfg(test)]
    pub(super) fn set_systemd(&mut self, systemd: Systemd) {
        self.systemd = systemd;
    }

    /// How to reach systemd.
    pub(super) fn systemd(&self) -> &Systemd {
        &self.systemd
    }
}

/// The folder name of an id. Ids contain no `+`; with `/`, the folder of `n1/a` would contain `n1/a/b`.
pub(crate) fn folder_name(cob: &CobId) -> String {
    cob.as_str().replace('/', "+")
}

/// The id of a folder name.
pub(crate) fn of_folder_name(name: &str) -> Option<CobId> {
    CobId::new(&name.replace('+', "/")).ok()
}

/// A unique file name for an id, short enough for a suffix: the name of a long id ends with its hash.
pub(crate) fn file_name(cob: &CobId) -> String {
    const LONGEST: usize = 240;
    let name = folder_name(cob);
    if name.len() <= LONGEST {
        return name;
    }
    let hash = canonical::fingerprint(&[name.as_bytes()]).to_string();
    // No id contains a `=`.
    format!("{}={hash}", &name[..LONGEST - hash.len() - 1])
}

pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

impl Context {
    /// The environment of its actions, without the variables that point into the job's folder.
    pub(super) fn environment(&self, tools: &Tools, attempt: Option<&TransitionAttempt>) -> BTreeMap<String, String> {
        let mut all = base_environment();
        let mut set = |name: &str, value: String| all.insert(name.to_owned(), value);
        set("COB_ID", self.cob.id.to_string());
        set("COB_HOST", self.cob.id.host_str().to_owned());
        set("COB_GENERATION", self.generation.to_string());
        set("COB_STATE_DIR", tools.own_folder(&self.cob.id).display().to_string());
        if let Some(attempt) = attempt {
            set("COB_FROM", attempt.from.to_string());
            set("COB_TO", attempt.to.to_string());
            set("COB_ATTEMPT", attempt.attempt.to_string());
        }
        all
    }

    /// `{"HOST/NAME": {"state": "up", "values": {…}}}`
    pub(super) fn imports_json(&self) -> String {
        let value = |text: &String| {
            // Values are canonical JSON; any other text becomes a JSON string.
            serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::from(text.as_str()))
        };
        let imports: serde_json::Map<_, _> = self
            .imports
            .iter()
            .map(|(cob, import)| {
                let values: serde_json::Map<_, _> = import.values.iter().map(|(k, v)| (k.clone(), value(v))).collect();
                (cob.to_string(), serde_json::json!({ "state": import.state.as_str(), "values": values }))
            })
            .collect();
        serde_json::Value::Object(imports).to_string()
    }

    /// The kind's declaration of a transition, if there is one.
    pub(super) fn transition(&self, attempt: &TransitionAttempt) -> Option<&Transition> {
        self.kind.transitions.iter().find(|t| t.from == attempt.from && t.to == attempt.to)
    }

    pub(super) fn check_timeout(&self) -> Duration {
        Duration::from_millis(self.kind.check.timeout_ms)
    }
}

impl CheckOutcome {
    /// The check found this state, and no difference from the desired content.
    #[must_use]
    pub fn found(state: StateName) -> Self {
        Self { state: Ok(state), difference: String::new(), exports: Values::new(), fresh: false }
    }

    /// The check did not find the state.
    #[must_use]
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self { state: Err(reason.into()), difference: String::new(), exports: Values::new(), fresh: false }
    }
}

impl Outcome {
    /// Success without exports or saved data.
    #[must_use]
    pub fn done() -> Self {
        Self::Done { exports: Values::new(), saved: None }
    }

    /// Failure with a reason.
    #[must_use]
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into() }
    }
}

impl<T: Send + 'static> Work<T> {
    /// A process with these limits, whose output is a single log.
    pub(super) fn process(
        command: Command,
        timeout: Duration,
        grace: Duration,
        read: impl FnOnce(JobResult) -> T + Send + 'static,
    ) -> Self {
        let (environment, read) = (BTreeMap::new(), Box::new(read));
        Self::Process(Process { command, environment, timeout, grace, stdout_apart: false, read })
    }

    /// A result that is known already.
    pub(super) fn known(value: T) -> Self {
        Self::Inside { future: Box::pin(std::future::ready(value)), timeout: None }
    }
}

/// The answer of a process to a [call](Tools::call); without an answer, the way the process ended.
pub(super) fn answer<A: DeserializeOwned>(result: &JobResult, timeout: Duration) -> Result<A, String> {
    let said = match &result.exit {
        Exit::Exited(_) => result.saved.as_ref().ok().and_then(|text| serde_json::from_str(text.as_deref()?).ok()),
        Exit::Signal(_) | Exit::TimedOut | Exit::Cancelled | Exit::SpawnFailed(_) | Exit::Lost => None,
    };
    said.ok_or_else(|| complaint(result, timeout).unwrap_or_else(|| "it ended without an answer".to_owned()))
}

/// Describes the failure of a process; `None` after success.
pub(super) fn complaint(result: &JobResult, timeout: Duration) -> Option<String> {
    let last = result.last_lines.lines().map(str::trim).rfind(|l| !l.is_empty());
    let last = last.map(|l| format!(": {}", l.chars().take(200).collect::<String>())).unwrap_or_default();
    Some(match &result.exit {
        Exit::Exited(0) => return None,
        Exit::Exited(126) => format!("exit status 126, not executable{last}"),
        Exit::Exited(127) => format!("exit status 127, a program was not found{last}"),
        Exit::Exited(code) => format!("exit status {code}{last}"),
        Exit::Signal(number) => format!("ended by {}{last}", endings::signal(*number)),
        Exit::TimedOut => format!("not done after {timeout:?}, so it was ended{last}"),
        Exit::Cancelled => "cancelled".to_owned(),
        Exit::SpawnFailed(why) => why.clone(),
        Exit::Lost => "its runner was killed".to_owned(),
    })
}
