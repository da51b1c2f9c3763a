//! The layout and the plan of the texts that an editor has open: commands of `workspace/executeCommand`.
//!
//! A thread answers them. Only the newest text counts: an older question of the same kind that still waits is refused.
//! The values of secrets are not read, because a text is not published while somebody types.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use cob_depot::{Depot, DepotError};
use cob_forecast::{Asked, NoOrder, Sides, Source, forecast};
use cob_types::{CobId, Generation, GenerationNumber};
use lsp_server::{ErrorCode, Message, RequestId, Response};
use lsp_types::Uri;
use serde::Deserialize;
use serde_json::Value as Json;

use super::{json_of, read, refused};
use crate::make::{After, layouts_of, make_of};
use crate::model::{Model, Texts};
use crate::publish::latest;
use crate::solve::{Given, View};

/// The command with the layouts of clusters, as `cobgen solve --json` prints them.
pub(super) const SOLVE: &str = "cob.solve";
/// The command with the plan of a switch, as `cobgen plan --from N --json` prints it.
pub(super) const PLAN: &str = "cob.plan";

/// How often a switch is simulated, if durations have a spread.
const RUNS: u64 = 20;
/// The reason against a trial of a wrong model, whose findings the editor has.
const WRONG: &str = "the model has errors";

/// The argument of the commands.
#[derive(Debug, Deserialize)]
pub(super) struct Argument {
    /// A file of the model.
    pub(super) uri: Uri,
    /// The active generation; 0: none.
    #[serde(default)]
    from: GenerationNumber,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Solve,
    Plan,
}

#[derive(Debug)]
struct Job {
    id: RequestId,
    kind: Kind,
    from: GenerationNumber,
    model: PathBuf,
    texts: Texts,
}

/// Answers the commands, one after the other.
pub(super) struct Trials {
    jobs: Sender<Job>,
    has_depot: bool,
}

impl Trials {
    /// Starts the thread, which ends when this value is dropped; `editor` sends a message, and returns `false` when the
    /// editor is gone.
    pub(super) fn start(depot: Option<PathBuf>, editor: impl Fn(Message) -> bool + Send + 'static) -> Self {
        let (jobs, queue) = channel();
        let has_depot = depot.is_some();
        thread::spawn(move || run(&queue, depot.as_deref(), &editor));
        Self { jobs, has_depot }
    }

    /// The commands that can be answered.
    pub(super) fn commands(has_depot: bool) -> Vec<String> {
        let plan = has_depot.then(|| PLAN.to_owned());
        [SOLVE.to_owned()].into_iter().chain(plan).collect()
    }

    /// Answers a request later. The answer now: it can't be answered.
    pub(super) fn ask(
        &self,
        id: RequestId,
        params: Json,
        place: impl FnOnce(&Argument) -> Option<(PathBuf, Texts)>,
    ) -> Option<Response> {
        let Some(params) = read::<lsp_types::ExecuteCommandParams>(params) else {
            return Some(refused(id, "the parameters of workspace/executeCommand are wrong".to_owned()));
        };
        let kind = match params.command.as_str() {
            SOLVE => Kind::Solve,
            PLAN if self.has_depot => Kind::Plan,
            PLAN => return Some(refused(id, "there is no depot: start `cobgen lsp` with --depot".to_owned())),
            other => return Some(refused(id, format!("`cobgen lsp` has no command {other:?}"))),
        };
        let argument = params.arguments.into_iter().next().and_then(read::<Argument>);
        let found = argument.and_then(|argument| Some((argument.from, place(&argument)?)));
        let Some((from, (model, texts))) = found else {
            return Some(refused(id, "the command needs the argument {\"uri\": FILE}".to_owned()));
        };
        // Without the thread there is no editor.
        let _ = self.jobs.send(Job { id, kind, from, model, texts });
        None
    }
}

fn run(queue: &Receiver<Job>, depot: Option<&Path>, editor: &impl Fn(Message) -> bool) {
    let mut waiting: BTreeMap<Kind, Job> = BTreeMap::new();
    loop {
        if waiting.is_empty() {
            let Ok(job) = queue.recv() else { return };
            waiting.insert(job.kind, job);
        }
        for job in queue.try_iter() {
            if let Some(older) = waiting.insert(job.kind, job) {
                let what = "the text has changed since".to_owned();
                if !editor(Message::Response(Response::new_err(older.id, ErrorCode::ContentModified as i32, what))) {
                    return;
                }
            }
        }
        let Some((_, job)) = waiting.pop_first() else { continue };
        let answer = match job.kind {
            Kind::Solve => solve(&job, depot),
            Kind::Plan => plan(&job, depot),
        };
        let response = match answer {
            Ok(answer) => Response::new_ok(job.id, answer),
            Err(why) => refused(job.id, why),
        };
        if !editor(Message::Response(response)) {
            return;
        }
    }
}

fn solve(job: &Job, depot: Option<&Path>) -> Result<Json, String> {
    let recorded = |path| {
        let depot = Depot::open(path)?;
        layouts_of(&depot, depot.latest()?.unwrap_or_default())
    };
    let existing = depot.map(recorded).transpose().map_err(words)?.unwrap_or_default();
    let given = Given { existing, ..Given::default() };
    let view = View::of_model(Model::load_with(&job.model, &job.texts), &given, None);
    if view.is_refused() { Err(WRONG.to_owned()) } else { Ok(json_of(view.to_json())) }
}

fn plan(job: &Job, depot: Option<&Path>) -> Result<Json, String> {
    let depot = Depot::open(depot.unwrap_or(Path::new(""))).map_err(words)?;
    let before = latest(&depot).map_err(words)?;
    let names = depot.secret_names(before.manifest.generation).map_err(words)?;
    let secrets = names.into_iter().map(|(id, name)| (name, id)).collect();
    let after = After { secrets, ..After::latest(&depot, &before).map_err(words)? };
    let made = make_of(Model::load_with(&job.model, &job.texts), &after, None);
    if made.is_refused() {
        return Err(WRONG.to_owned());
    }
    let made = made.assembled.ok_or(WRONG)?;
    let empty = Generation::nothing();
    let from = match job.from {
        GenerationNumber(0) => Source::Made(&empty),
        number => Source::Depot(&depot, number),
    };
    let sides = Sides::open(from, Source::Made(&made.generation)).map_err(words)?;
    let asked = Asked { runs: RUNS, seed: 1, ..Asked::default() };
    match forecast(sides.naming(made.provenance.secrets), asked) {
        Ok(planned) => planned.to_json().map_err(|error| error.to_string()),
        Err(NoOrder::Depot(error)) => Err(words(error)),
        Err(NoOrder::Circle(circle)) => {
            let names: Vec<&str> = circle.iter().map(CobId::as_str).collect();
            Err(format!(
                "each of these must depart before the next, and the last before the first: {}",
                names.join(", ")
            ))
        }
    }
}

fn words(error: DepotError) -> String {
    error.to_string()
}
