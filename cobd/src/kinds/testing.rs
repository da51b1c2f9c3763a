//! For tests: kinds in a separate state folder, with their reports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cob_types::api::FilesAnswer;
use cob_types::cob::Fingerprint;
use cob_types::kind::KindCheck;
use cob_types::{Cob, CobId, Command, GenerationNumber, Kind, KindName, StateName, Transition};
use tokio::sync::mpsc;

use super::contract::Case;
use super::queries::FilesQuery;
use super::{CheckOutcome, Context, JobEnd, JobEnded, JobHandle, Kinds, Outcome, TransitionAttempt};
use crate::run::testing::{anybody_with, program, wait_for};
use crate::run::{JobId, payload};

pub(super) fn state(name: &str) -> StateName {
    StateName::new(name).expect("a name")
}

pub(super) fn cob_id(text: &str) -> CobId {
    CobId::new(text).expect("an id")
}

/// A kind with all transitions between its states; `run` returns the command of each.
pub(super) fn kind(backend: &str, states: &[&str], run: impl Fn(&str, &str) -> Option<&'static str>) -> Kind {
    let shell = |text: Option<&'static str>| text.map(|t| Command::Shell(t.to_owned()));
    let mut transitions = Vec::new();
    for from in states {
        for to in states.iter().filter(|to| *to != from && ["up", "down"].contains(to)) {
            transitions.push(Transition {
                from: state(from),
                to: state(to),
                run: shell(run(from, to)),
                timeout_ms: 200_000,
                grace_ms: 10_000,
                retries: 0,
                retry_delay_ms: 0,
                failure: None,
                revert: None,
                irreversible: false,
            });
        }
    }
    Kind {
        name: KindName::new("k").expect("a name"),
        backend: backend.to_owned(),
        states: states.iter().map(|s| state(s)).collect(),
        preferred: state("up"),
        pre_remove: state("down"),
        priority: states.iter().map(|s| state(s)).collect(),
        check: KindCheck { run: shell(run("", "check")), timeout_ms: 100_000, interval_ms: None },
        transitions,
        files: BTreeMap::new(),
    }
}

pub(super) fn plain_kind(backend: &str) -> Kind {
    kind(backend, &["down", "up"], |_, _| None)
}

/// A state folder. When it is dropped, no process that started in it may be left.
pub(super) struct Bench {
    pub(super) folder: tempfile::TempDir,
    pub(super) kinds: Kinds,
    ended: mpsc::Receiver<JobEnded>,
    next: u64,
}

impl Bench {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let (kinds, ended) = kinds_in(folder.path());
        Self { folder, kinds, ended, next: 1 }
    }

    /// Gives the daemon a key that opens secrets sealed for it.
    pub(super) fn with_key(&mut self, key: &cob_trust::SecretKey) {
        let (sender, receiver) = mpsc::channel(16);
        let file = self.path("identity.key");
        key.store(&file).expect("stored");
        let opener = crate::run::Opener::new(&file, self.folder.path(), None);
        self.kinds = Kinds::with_opener(self.folder.path(), program(), Some(opener), sender).expect("made");
        self.ended = receiver;
    }

    /// Restarts the daemon on the same state folder.
    pub(super) fn return_of_the_daemon(&mut self) {
        (self.kinds, self.ended) = kinds_in(self.folder.path());
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A context for a change object of this kind.
    pub(super) fn context(&self, kind: &Kind, content: &str) -> Context {
        let work = payload::materialise(&self.path("payload"), &BTreeMap::new(), &BTreeMap::new()).expect("made");
        let cob = Case::new(kind.clone(), content).cob;
        let cob = Cob { id: cob_id("n1/a/b"), fingerprint: Fingerprint([1; 16]), ..cob };
        Context {
            cob: Arc::new(cob),
            kind: Arc::new(kind.clone()),
            generation: GenerationNumber(4),
            folder: work,
            imports: BTreeMap::new(),
            secrets: BTreeMap::new(),
            leaving: false,
            rested_for: None,
        }
    }

    /// Sends a query about the files.
    pub(super) async fn ask(&self, context: &Context, query: FilesQuery) -> Result<FilesAnswer, String> {
        self.kinds.files(context, query)?.await
    }

    pub(super) fn job(&mut self) -> JobId {
        self.next += 1;
        JobId(self.next)
    }

    pub(super) fn begin(&mut self, context: &Context, from: &str, to: &str) -> (JobId, JobHandle) {
        let job = self.job();
        let attempt = TransitionAttempt { from: state(from), to: state(to), attempt: 1 };
        (job, self.kinds.transition(job, context.clone(), attempt).expect("begun"))
    }

    pub(super) async fn ended(&mut self) -> JobEnded {
        let limit = Duration::from_secs(300);
        tokio::time::timeout(limit, self.ended.recv()).await.expect("within the limit").expect("a report")
    }

    pub(super) async fn check(&mut self, context: &Context) -> CheckOutcome {
        let before = listing(self.folder.path());
        let job = self.job();
        let _handle = self.kinds.check(job, context.clone()).expect("begun");
        let ended = self.ended().await;
        assert_eq!((ended.job, &ended.cob), (job, &context.cob.id));
        assert_eq!(listing(self.folder.path()), before, "a check changes nothing");
        match ended.end {
            JobEnd::Checked(outcome) => outcome,
            JobEnd::Moved(_) => panic!("a check ended as a transition"),
        }
    }

    pub(super) async fn state(&mut self, context: &Context) -> String {
        match self.check(context).await.state {
            Ok(state) => state.to_string(),
            Err(reason) => format!("unknown: {reason}"),
        }
    }

    pub(super) async fn transition(&mut self, context: &Context, from: &str, to: &str) -> Outcome {
        self.transition_with_lines(context, from, to).await.0
    }

    pub(super) async fn transition_with_lines(&mut self, context: &Context, from: &str, to: &str) -> (Outcome, String) {
        let (job, _handle) = self.begin(context, from, to);
        let ended = self.ended().await;
        assert_eq!(ended.job, job);
        assert!(ended.began_ns > 0 && ended.began_ns <= ended.ended_ns);
        self.kinds.remove(job);
        match ended.end {
            JobEnd::Moved(outcome) => (outcome, ended.last_lines),
            JobEnd::Checked(_) => panic!("a transition ended as a check"),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let root = self.folder.path().to_str().expect("text").to_owned();
            wait_for("no process of the test is left", || !anybody_with(&root));
        }
    }
}

/// The reason of a failure.
pub(super) fn reason(outcome: Outcome) -> String {
    match outcome {
        Outcome::Failed { reason } | Outcome::Conflict { reason } => reason,
        Outcome::Done { .. } | Outcome::Cancelled | Outcome::Lost => panic!("not failed: {outcome:?}"),
    }
}

fn kinds_in(folder: &Path) -> (Kinds, mpsc::Receiver<JobEnded>) {
    let (sender, receiver) = mpsc::channel(16);
    (Kinds::new(folder, program(), sender).expect("made"), receiver)
}

/// The names of all files except for temporary files of jobs.
fn listing(folder: &Path) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("listed").flatten() {
            let path = entry.path();
            if ["jobs", "cobs", "files"].iter().any(|own| path.ends_with(own)) {
                continue;
            }
            if path.is_dir() {
                open.push(path.clone());
            }
            all.insert(path);
        }
    }
    all
}
