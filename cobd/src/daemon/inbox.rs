//! The inputs of the loop: a queue for each source, and the results of tasks.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cob_types::{Batch, CobId, GenerationNumber};
use tokio::sync::{Notify, mpsc, watch};

use super::conflict_preview::ConflictPreview;
use super::parts::in_parts;
use super::{Asked, Fetched, askers, scheduled};
use crate::adhoc::Note;
use crate::kinds::JobEnded;
use crate::peer::LinkEvent;
use crate::web::{Ask, Command};

/// The most results of tasks in the queue: a task waits until there is room.
const RESULTS: usize = 16;

/// An input of the loop.
pub(super) enum Input {
    /// A deadline has passed.
    Deadline,
    JobEnded(JobEnded),
    Link(LinkEvent),
    Task(TaskResult),
    /// Another program may have changed this change object.
    Drift(CobId),
    /// The restore of a departed change object made a step.
    Departure,
    Ask(Ask),
    /// A command of an operator starts or has ended.
    Note(Note),
    /// The newest generation of the depot.
    Newest(GenerationNumber),
}

/// The result of a task.
pub(super) enum TaskResult {
    Fetched(Box<Fetched>),
    /// The depot was asked for the generation of an order.
    Identified(Command, Asked),
    Preview(ConflictPreview),
    Askers(askers::Found),
    /// The newest generation of the depot, for a scheduled switch.
    Scheduled(scheduled::Found),
}

/// Starts tasks whose results reach the loop.
#[derive(Clone)]
pub(super) struct Tasks(mpsc::Sender<TaskResult>);

impl Tasks {
    pub(super) fn spawn(&self, task: impl Future<Output = TaskResult> + Send + 'static) {
        let results = self.0.clone();
        tokio::spawn(async move {
            let result = task.await;
            // Without a receiver the daemon is ending.
            let _ = results.send(result).await;
        });
    }
}

/// The sources outside the daemon's own tasks.
pub(super) struct Sources {
    pub(super) jobs: mpsc::Receiver<JobEnded>,
    pub(super) links: mpsc::Receiver<LinkEvent>,
    pub(super) drifts: mpsc::Receiver<CobId>,
    pub(super) departures: Arc<Notify>,
    pub(super) asks: mpsc::Receiver<Ask>,
    pub(super) notes: mpsc::Receiver<Note>,
    pub(super) depot: mpsc::Receiver<GenerationNumber>,
    /// Kept alive: the tasks that feed the queues stop when their guards are dropped.
    pub(super) _guards: Vec<Box<dyn Any>>,
}

/// The queues of all sources.
pub(super) struct Inbox {
    sources: Sources,
    results: mpsc::Receiver<TaskResult>,
    /// The rest of a batch with very many items: each part has a tick of its own.
    parts: VecDeque<Batch>,
}

impl Inbox {
    pub(super) fn new(sources: Sources) -> (Self, Tasks) {
        let (tasks, results) = mpsc::channel(RESULTS);
        (Self { sources, results, parts: VecDeque::new() }, Tasks(tasks))
    }

    /// Waits for the next input, at most for this time; absent: the daemon must stop.
    pub(super) async fn next(&mut self, stop: &mut watch::Receiver<bool>, at_most: Duration) -> Option<Input> {
        let Sources { jobs, links, drifts, departures, asks, notes, depot, _guards: _ } = &mut self.sources;
        Some(tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return None,
            Some(ended) = jobs.recv() => Input::JobEnded(ended),
            Some(event) = links.recv() => Input::Link(event),
            Some(result) = self.results.recv() => Input::Task(result),
            Some(cob) = drifts.recv() => Input::Drift(cob),
            () = departures.notified() => Input::Departure,
            Some(ask) = asks.recv() => Input::Ask(ask),
            Some(note) = notes.recv() => Input::Note(note),
            Some(newest) = depot.recv() => Input::Newest(newest),
            () = tokio::time::sleep(at_most) => Input::Deadline,
        })
    }

    /// A question or an order that is there already.
    pub(super) fn ask(&mut self) -> Option<Input> {
        self.sources.asks.try_recv().ok().map(Input::Ask)
    }

    /// An input that is there already and may share the tick. An event of a link comes only after all parts of the
    /// last batch.
    pub(super) fn more(&mut self) -> Option<Input> {
        let Sources { jobs, links, drifts, .. } = &mut self.sources;
        let ended = jobs.try_recv().ok().map(Input::JobEnded);
        let link = || self.parts.is_empty().then(|| links.try_recv().ok().map(Input::Link)).flatten();
        ended.or_else(link).or_else(|| drifts.try_recv().ok().map(Input::Drift))
    }

    /// Queues the parts of a batch.
    pub(super) fn divide(&mut self, batch: Batch) {
        self.parts.extend(in_parts(batch));
    }

    /// The next part of a batch.
    pub(super) fn part(&mut self) -> Option<Batch> {
        self.parts.pop_front()
    }
}
