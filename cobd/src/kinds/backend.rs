//! The contract between the daemon and a kind's back end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cob_types::message::Values;
use cob_types::status::FileDrift;
use cob_types::{Cob, CobId, Command, GenerationNumber, Kind, StateName, Transition, canonical};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::departure::Attempt;
use super::file_tree::{FilesAnswer, FilesQuery};
use super::known::KnownSecrets;
use super::saved::Saved;
use super::service::{LogsAnswer, LogsQuery, Systemd};
use crate::run::endings;
use crate::run::{Exit, JobResult, Opener, Program, Sealed, base_environment};

/// What carries out the checks and transitions of kinds that name it.
pub trait Backend: Send + Sync {
    /// The name by which kinds refer to it.
    fn name(&self) -> &'static str;

    /// Whether its transitions are processes, which outlive the daemon. Others die with it: their change
    /// objects are `unknown` after a return.
    fn durable(&self) -> bool;

    /// Looks at a kind before anything of it is used.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    fn accept(&self, kind: &Kind) -> Result<(), String>;

    /// Looks at a change object's content before it is used.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    fn accept_content(&self, content: &str) -> Result<(), String>;

    /// How the state is found out. Changes nothing, ever.
    fn check(&self, tools: &Tools, context: &Context) -> Work<CheckOutcome>;

    /// Whether its checks wait for threads of its own, so that it is of no use to begin many of them at the same time.
    fn checks_in_turn(&self) -> bool {
        false
    }

    /// How a move is made. Made twice, it ends as if made once.
    fn transition(&self, tools: &Tools, context: &Context, hop: &Hop) -> Work<Outcome>;

    /// Whether this move only waits for something outside and leaves nothing behind when it is ended before its time: when
    /// its content changes meanwhile it is ended, and made with the new one.
    fn only_waits(&self, _kind: &Kind, _hop: &Hop) -> bool {
        false
    }

    /// Whether what its transitions write to `COB_RESULT_OUT` is the author's, to be given to the way back also
    /// when the transition has failed. Else it is the back end's own word.
    fn saves(&self) -> bool {
        false
    }

    /// What a move of a change object that runs inside the daemon waits for, in words; none: nothing to be told.
    fn said(&self, _cob: &CobId) -> Option<String> {
        None
    }

    /// A change object has left: what is remembered of it is forgotten.
    fn forget(&self, _cob: &CobId) {}

    /// What others have changed of a change object, as far as its last check has found.
    fn drift(&self, _cob: &CobId) -> Vec<FileDrift> {
        Vec::new()
    }

    /// Answers what is asked of a change object's files; none: it has none.
    fn files(
        &self,
        _tools: &Tools,
        _context: &Context,
        _query: FilesQuery,
    ) -> Option<Work<Result<FilesAnswer, String>>> {
        None
    }

    /// What a change object prints while it runs; none: nothing of it runs.
    fn logs(&self, _tools: &Tools, _context: &Context, _query: LogsQuery) -> Option<Work<Result<LogsAnswer, String>>> {
        None
    }

    /// The daemon comes up: what is kept of an earlier life may be opened beside all else that it does then.
    fn wake(&self, _tools: &Tools) {}

    /// A change object has left: how what it has found when it came, and its last move did not bring back, is put back from
    /// here on. None: there is nothing.
    fn left(&self, _tools: &Tools, _cob: &CobId) -> Option<Attempt> {
        None
    }

    /// A change object is here. Where it had left before, nothing is put back for that any more.
    fn is_here(&self, _tools: &Tools, _cob: &CobId) {}

    /// Whether, with this content, what users have changed may be excluded by what is wanted.
    fn may_conflict(&self, _content: &str) -> bool {
        false
    }

    /// A change object has left, and what it has made stays: what it has found when it came is forgotten.
    fn kept(&self, _tools: &Tools, _cob: &CobId) {}

    /// The daemon has returned. `here` says of folders that belong to a change object each whether it is still
    /// there; the others have [left](Self::left).
    fn return_to(&self, _tools: &Tools, _here: &dyn Fn(&Path) -> bool) -> Vec<(CobId, Attempt)> {
        Vec::new()
    }

    /// These change objects are here, and no others: what happens to them behind our back is to be noticed
    /// from here on, as well as that can be done.
    fn watch(&self, _tools: &Tools, _cobs: &mut dyn Iterator<Item = Arc<Cob>>) {}
}

/// What a check or a transition is about.
#[derive(Debug, Clone)]
pub struct Context {
    /// The change object.
    pub cob: Arc<Cob>,
    /// Its kind.
    pub kind: Arc<Kind>,
    /// The generation under which it acts.
    pub generation: GenerationNumber,
    /// The working folder, with the files of kind and change object: see [`crate::run::payload`].
    pub folder: PathBuf,
    /// What the held locks carry.
    pub imports: BTreeMap<CobId, Import>,
    /// The secrets that its content names, encrypted.
    pub secrets: Sealed,
    /// It is on its way out of the model, and what it has made is not to stay.
    pub leaving: bool,
    /// For so long everything that it rests on has been as it is now; none: that is not known.
    pub rested_for: Option<Duration>,
}

/// What a held lock carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The state that is promised.
    pub state: StateName,
    /// What the depended-on change object exports in it.
    pub values: Values,
}

/// One move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The state that is left.
    pub from: StateName,
    /// The state that is entered.
    pub to: StateName,
    /// From 1.
    pub attempt: u32,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOutcome {
    /// The state, or why it is not known.
    pub state: Result<StateName, String>,
    /// In what it differs from what is wanted, for people; may be empty.
    pub difference: String,
    /// What the change object exports.
    pub exports: Values,
    /// What runs was started after everything that it rests on had come to be as it is now, whoever started it.
    pub fresh: bool,
}

/// How a transition ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the new state.
    Done {
        /// What the change object exports there.
        exports: Values,
        /// What a revert will be given.
        saved: Option<String>,
    },
    /// It is not, or not for certain.
    Failed {
        /// Why, in one sentence.
        reason: String,
    },
    /// It was ended because the daemon asked for it.
    Cancelled,
    /// Nobody knows: its runner was killed, or it was inside a daemon that is gone.
    Lost,
}

/// How something is done.
pub enum Work<T> {
    /// By a process.
    Process(Process<T>),
    /// In this process.
    Inside {
        /// What is done.
        future: Pin<Box<dyn Future<Output = T> + Send>>,
        /// The time that it may take; none: it sees to that itself.
        timeout: Option<Duration>,
    },
}

/// A process that does something, and how its end is to be read.
pub struct Process<T> {
    /// What is executed.
    pub command: Command,
    /// Variables besides those that every action gets.
    pub environment: BTreeMap<String, String>,
    /// The time that it may take.
    pub timeout: Duration,
    /// Between asking it to end and killing it.
    pub grace: Duration,
    /// Its standard output is an answer, not just something to show.
    pub stdout_apart: bool,
    /// Makes an outcome of its end.
    pub read: Box<dyn FnOnce(JobResult) -> T + Send>,
}

/// What back ends may use.
#[derive(Debug)]
pub struct Tools {
    state_dir: PathBuf,
    program: Program,
    opener: Option<Opener>,
    saved: Saved,
    drifts: mpsc::Sender<CobId>,
    systemd: Systemd,
    known: Arc<KnownSecrets>,
}

impl Tools {
    /// Folders are made below `state_dir`; change objects that others may have changed are named to `drifts`.
    #[must_use]
    pub fn new(state_dir: &Path, program: Program, opener: Option<Opener>, drifts: mpsc::Sender<CobId>) -> Self {
        let (saved, systemd) = (Saved::new(state_dir), Systemd::default());
        let known = Arc::new(KnownSecrets::new(opener.clone()));
        Self { state_dir: state_dir.to_owned(), program, opener, saved, drifts, systemd, known }
    }

    /// The secrets of this host.
    pub(super) fn known(&self) -> &Arc<KnownSecrets> {
        &self.known
    }

    /// What moves have saved for the way back.
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

    /// The folder of a change object's own that lasts, `COB_STATE_DIR`.
    pub(super) fn own_folder(&self, cob: &CobId) -> PathBuf {
        self.cobs().join(folder_name(cob))
    }

    /// The folder that holds those of change objects.
    pub(super) fn cobs(&self) -> PathBuf {
        self.state_dir.join("cobs")
    }

    /// The folder in memory for what a service's secrets are in.
    pub(super) fn private_service_folder(&self, cob: &CobId) -> Option<PathBuf> {
        self.opener.as_ref().map(|opener| opener.service_folder(&folder_name(cob)))
    }

    /// Where services are looked after.
    pub(super) fn services(&self) -> PathBuf {
        self.state_dir.join("services")
    }

    /// Where the service of a change object is looked after.
    pub(super) fn service_folder(&self, cob: &CobId) -> PathBuf {
        self.services().join(folder_name(cob))
    }

    #[cfg(test)]
    pub(super) fn set_systemd(&mut self, systemd: Systemd) {
        self.systemd = systemd;
    }

    /// Where systemd is found.
    pub(super) fn systemd(&self) -> &Systemd {
        &self.systemd
    }
}

/// One folder name for each id. Ids hold no `+`; without it, `n1/a` would stand in the way of `n1/a/b`.
pub(crate) fn folder_name(cob: &CobId) -> String {
    cob.as_str().replace('/', "+")
}

/// Whose folder that is.
pub(crate) fn of_folder_name(name: &str) -> Option<CobId> {
    CobId::new(&name.replace('+', "/")).ok()
}

/// One name for each id to which a file name's ending fits as well: that of a long id ends with its hash.
pub(crate) fn file_name(cob: &CobId) -> String {
    const LONGEST: usize = 240;
    let name = folder_name(cob);
    if name.len() <= LONGEST {
        return name;
    }
    let hash = canonical::fingerprint(&[name.as_bytes()]).to_string();
    // No id has a `=`.
    format!("{}={hash}", &name[..LONGEST - hash.len() - 1])
}

/// The names of its file: [as it is](file_name), and as an earlier version has named it.
pub(crate) fn file_names(cob: &CobId) -> BTreeSet<String> {
    BTreeSet::from([file_name(cob), folder_name(cob)])
}

pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

impl Context {
    /// The environment of its actions, but for what points into the job's folder.
    pub(super) fn environment(&self, tools: &Tools, hop: Option<&Hop>) -> BTreeMap<String, String> {
        let mut all = base_environment();
        let mut set = |name: &str, value: String| all.insert(name.to_owned(), value);
        set("COB_ID", self.cob.id.to_string());
        set("COB_HOST", self.cob.id.host_str().to_owned());
        set("COB_GENERATION", self.generation.to_string());
        set("COB_STATE_DIR", tools.own_folder(&self.cob.id).display().to_string());
        if let Some(hop) = hop {
            set("COB_FROM", hop.from.to_string());
            set("COB_TO", hop.to.to_string());
            set("COB_ATTEMPT", hop.attempt.to_string());
        }
        all
    }

    /// `{"HOST/NAME": {"state": "up", "values": {…}}}`
    pub(super) fn imports_json(&self) -> String {
        let value = |text: &String| {
            // Values are canonical JSON; what is not would be a text by itself.
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

    /// What the kind says about a move; none when it has no such move.
    pub(super) fn transition(&self, hop: &Hop) -> Option<&Transition> {
        self.kind.transitions.iter().find(|t| t.from == hop.from && t.to == hop.to)
    }

    pub(super) fn check_timeout(&self) -> Duration {
        Duration::from_millis(self.kind.check.timeout_ms)
    }
}

impl CheckOutcome {
    /// It is in a state, and there is nothing to say about it.
    #[must_use]
    pub fn found(state: StateName) -> Self {
        Self { state: Ok(state), difference: String::new(), exports: Values::new(), fresh: false }
    }

    /// The state is not known.
    #[must_use]
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self { state: Err(reason.into()), difference: String::new(), exports: Values::new(), fresh: false }
    }
}

impl Outcome {
    /// Done, with nothing to hand on.
    #[must_use]
    pub fn done() -> Self {
        Self::Done { exports: Values::new(), saved: None }
    }

    /// Failed, with the reason.
    #[must_use]
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into() }
    }
}

impl<T: Send + 'static> Work<T> {
    /// Something that is known already.
    pub(super) fn known(value: T) -> Self {
        Self::Inside { future: Box::pin(std::future::ready(value)), timeout: None }
    }
}

/// The end of a process that was to succeed, in words; nothing when it did.
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
