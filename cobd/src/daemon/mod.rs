//! The daemon: a loop around the engine.
//!
//! ```text
//!   links, ended jobs, questions and orders, depot, clock
//!                |  take all available events
//!                v
//!        engine.handle(event) …            (pure) ── records, if they are very many ──> journal: append
//!                |  effects of the whole tick
//!                v
//!   1 journal: append, one commit   2 answers to orders   3 links: send   4 jobs: start   5 index: a list
//! ```
//!
//! The loop waits in a single place, for the next event or deadline. Slow work (fetching a generation, checks, actions)
//! runs in tasks that report back. The loop itself makes the commit: no other work may happen before it anyway, and
//! events that arrive meanwhile share the next commit.

mod askers;
mod checks;
mod commands;
mod conflict_preview;
mod departures;
mod first;
mod folders;
mod follow;
mod inbox;
mod indexing;
mod job_table;
mod neighbours;
mod orders;
mod outputs;
mod parts;
mod perform;
mod prechecks;
mod present;
mod rate_limits;
mod record_writer;
mod reports;
mod resting;
mod rounds;
mod route;
mod scheduled;
mod service_manager;
mod start;
mod stopping;
mod switch;
mod tell;
mod trust;
mod words;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cob_engine::event::{ActionOutcome, CheckOutcome};
use cob_engine::record::{Body, Record};
use cob_engine::time::Span;
use cob_engine::{Effects, Engine, Event, Time};
use cob_types::api::Done;
use cob_types::{CobId, HostName, Number};
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use crate::adhoc::Adhoc;
use crate::clock::Clock;
use crate::config::Config;
use crate::generations::{FetchError, Generations, Wanted};
use crate::journal::JournalError;
use crate::kinds::{self, JobEnd, JobEnded, Kinds};
use crate::peer::LinkEvent;
use crate::run::JobId;
use crate::web::Refusal;

use inbox::{Inbox, Input, TaskResult, Tasks};
use job_table::JobTable;
use neighbours::Neighbours;
use prechecks::Prechecks;
use present::Present;
use record_writer::RecordWriter;
use reports::Reports;
use switch::{Aim, SwitchWatch};
use words::Fetches;

pub use start::StartError;

/// The most events of a tick: they share a commit, and a deadline waits for no more events.
const TURN: usize = 512;
/// The longest time in which a tick takes events: operators get answers in between, regardless of the traffic of peers.
const TURN_TIME: Span = Span::millis(50);
/// How long the shutdown waits until peers have acknowledged the last messages.
const GOODBYE: Duration = Duration::from_secs(2);
/// Records without a waiting effect are committed after this time. People read such records as history, and a later
/// incarnation must not contradict that history.
const COMMIT_WITHIN: Span = Span::secs(1);
/// How often the busy hosts are looked up: the hosts with which work is under way.
const BUSY_EVERY: Span = Span::millis(500);

/// The channel for the answer to an order.
type Reply = oneshot::Sender<Result<Done, Refusal>>;

/// A running daemon. [`Daemon::run`] is its main loop.
pub struct Daemon {
    config: Config,
    clock: Clock,
    engine: Engine,
    /// The record writer.
    book: RecordWriter,
    kinds: Arc<Kinds>,
    neighbours: Neighbours,
    generations: Generations,
    present: Present,
    fetches: Fetches,
    jobs: JobTable,
    /// Commands of operators.
    adhoc: Adhoc,
    reports: Reports,
    turn: Tick,
    payload_root: PathBuf,
    /// The boots of the machine.
    boot: start::Boot,
    inbox: Inbox,
    tasks: Tasks,
    /// Departed change objects whose previous state is still being restored.
    departures: departures::Departures,
    /// Check rounds that operators have ordered.
    rounds: rounds::Rounds,
    /// The conflict preview and prechecks of prepared generations.
    ahead: Prechecks,
    /// The present switch and its supervision.
    switch: SwitchWatch,
    /// The schedule of this host.
    scheduled: scheduled::Scheduled,
}

/// Adds the operator's name to the records of an order.
fn name(records: &mut [Record], who: Option<&str>) {
    let Some(who) = who else { return };
    for record in records.iter_mut().filter(|record| matches!(record.body, Body::Ordered(_) | Body::SwitchStarted(_))) {
        record.by = Some(who.to_owned());
    }
}

/// The collected effects of a tick of the loop.
#[derive(Default)]
struct Tick {
    effects: Effects,
    /// The tick had very many records: a part is written already.
    in_parts: bool,
    answers: Vec<(Reply, Result<Done, Refusal>)>,
    /// Tasks that start once the records of this tick are durable.
    beside: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Job folders to remove once the records of this tick are durable.
    finished: Vec<JobId>,
    /// Actions to cancel once the records of this tick are durable.
    cancel: Vec<CobId>,
}

/// The result of a fetch from the depot.
struct Fetched {
    wanted: Wanted,
    result: Result<route::Route, FetchError>,
    /// The purpose.
    aim: Aim,
    /// The circumstances of the switch that follows.
    circumstances: words::Circumstances,
    /// The number of the fetch.
    fetch: u64,
    asked: Option<Asked>,
}

/// An order that is answered later.
struct Asked {
    /// The operator.
    who: String,
    reply: Reply,
}

/// Why a daemon ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The journal cannot make records durable: the daemon must not continue.
    #[error("the journal can't be written, so the daemon stops: {0}")]
    Journal(#[from] JournalError),
}

impl Daemon {
    /// Runs until `stop` is set or the journal fails.
    ///
    /// # Errors
    /// [`RunError`].
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<(), RunError> {
        self.finish_turn()?;
        self.reports.manager().up();
        loop {
            self.tell_manager();
            if !self.take_pending_ends() && !self.take_part() {
                let at_most = self.clock.until(self.next_deadline()).min(Duration::from_secs(3600));
                let Some(input) = self.inbox.next(&mut stop, at_most).await else { break };
                self.take(input);
                self.take_more();
            }
            self.feed(Event::Tick);
            if self.neighbours.listen_again() <= self.clock.now() {
                self.listen_where_named();
            }
            self.look_at_schedule();
            self.look_after_switch();
            self.end_parting();
            self.end_preparing();
            self.look_for_askers();
            self.finish_turn()?;
        }
        info!("stopping");
        self.reports.manager().stopping();
        self.engine_stops().await;
        Ok(())
    }

    /// When the loop must act without an input.
    fn next_deadline(&self) -> Time {
        let deadlines = [
            self.neighbours.busy_at(),
            self.neighbours.listen_again(),
            self.switch.due(),
            self.book.due(),
            self.ahead.due(),
            self.scheduled.due(),
            self.reports.manager().due(),
        ];
        deadlines.into_iter().chain(self.engine.next_wakeup()).min().unwrap_or(Time::NEVER)
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Deadline => {}
            Input::JobEnded(ended) => self.job_ended(ended),
            Input::Link(event) => self.link_event(event),
            Input::Task(TaskResult::Fetched(fetched)) => self.generation_fetched(*fetched),
            Input::Task(TaskResult::Identified(order, asked)) => self.identified(order, asked),
            Input::Task(TaskResult::Preview(preview)) => self.previewed(preview),
            Input::Task(TaskResult::Askers(found)) => self.askers_found(found),
            Input::Task(TaskResult::Scheduled(found)) => self.scheduled_newest(found),
            Input::Drift(cob) => self.feed(Event::CheckWanted(cob)),
            Input::Departure => self.look_at_departures(),
            Input::Ask(ask) => self.answer(ask),
            Input::Note(note) => self.note_command(note),
            Input::Newest(newest) => self.depot_changed(newest),
        }
    }

    /// Takes further inputs that have arrived: they share the commit of this tick.
    fn take_more(&mut self) {
        if let Some(ask) = self.inbox.ask() {
            self.take(ask);
        }
        let end = self.clock.now() + TURN_TIME;
        for _ in 0..TURN {
            let Some(input) = (self.clock.now() <= end).then(|| self.inbox.more()).flatten() else { break };
            self.take(input);
        }
    }

    /// Passes an event to the engine; its effects wait for the end of the tick.
    fn feed(&mut self, event: Event) {
        self.feed_for(event, None);
    }

    /// Like [`Self::feed`], for an event that an operator ordered; its records bear the name.
    fn feed_ordered(&mut self, event: Event, who: &str) {
        self.feed_for(event, Some(who));
    }

    fn feed_for(&mut self, event: Event, who: Option<&str>) {
        let now = self.clock.now();
        let Self { engine, turn, book, switch, .. } = self;
        let mut effects = engine.handle_in_parts(event, now, &mut |mut part| {
            name(&mut part, who);
            switch.hear(&part);
            turn.effects.persist.append(&mut part);
            book.take_part(&std::mem::take(&mut turn.effects.persist), now);
            turn.in_parts = true;
        });
        name(&mut effects.persist, who);
        switch.hear(&effects.persist);
        turn.effects.extend(effects);
    }

    fn link_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Up { host, .. } | LinkEvent::Resync { host } => {
                self.ahead.linked(&host);
                self.parting_anew(&host);
                self.tell_switch(&host);
                self.feed(Event::LinkUp(host));
            }
            // The lost messages are sent again over the next link.
            LinkEvent::Down { .. } => {}
            LinkEvent::Received { host, bytes } => self.received(&host, &bytes),
            LinkEvent::Http(stream) => {
                tokio::spawn(crate::web::serve_connection(stream, self.reports.front()));
            }
        }
    }

    /// When an action started and ended, by the daemon's clock; its runner uses the wall clock. Zero: unknown.
    fn span(&self, began_ns: u64, ended_ns: u64) -> (u64, u64) {
        if ended_ns == 0 {
            return (0, 0);
        }
        let end = self.clock.of_wall(ended_ns).0;
        let took = ended_ns.checked_sub(began_ns).filter(|_| began_ns > 0);
        (took.map_or(0, |took| end.saturating_sub(took)), end)
    }

    fn job_ended(&mut self, ended: JobEnded) {
        let Some(ended) = self.ahead.ended(ended, self.clock.now()) else { return };
        let JobEnded { job, cob, end, last_lines, began_ns, ended_ns } = ended;
        let leaves_a_folder = self.jobs.end(&cob, job);
        let number = job_number(job);
        match end {
            JobEnd::Checked(checked) => {
                let found = match checked.state {
                    Ok(state) => CheckOutcome::Found {
                        state,
                        values: checked.exports,
                        detail: checked.difference,
                        fresh: checked.fresh && self.still_rests(&cob, began_ns),
                    },
                    Err(reason) => CheckOutcome::Failed(reason),
                };
                self.check_ended(cob, job, found);
            }
            JobEnd::Moved(moved) => {
                let failed = matches!(moved, kinds::Outcome::Failed { .. } | kinds::Outcome::Conflict { .. });
                self.jobs.moved(&cob, self.clock.now(), last_lines, failed);
                let outcome = match moved {
                    kinds::Outcome::Done { exports, .. } => ActionOutcome::Done { values: exports },
                    kinds::Outcome::Failed { reason } => ActionOutcome::Failed { error: reason, conflict: false },
                    kinds::Outcome::Conflict { reason } => ActionOutcome::Failed { error: reason, conflict: true },
                    kinds::Outcome::Cancelled => ActionOutcome::Cancelled,
                    kinds::Outcome::Lost => ActionOutcome::Lost,
                };
                let span = self.span(began_ns, ended_ns);
                self.feed(Event::ActionEnded { cob, job: number, outcome, span });
                self.turn.finished.extend(leaves_a_folder.then_some(job));
            }
        }
    }

    fn check_ended(&mut self, cob: CobId, job: JobId, found: CheckOutcome) {
        let number = job_number(job);
        // The engine ignores a check that it does not await: such a result may not concern the active generation.
        if self.rounds.is_idle() || !self.engine.awaits_check(&cob, number) {
            return self.feed(Event::CheckEnded { cob, job: number, found });
        }
        let rounds = self.rounds.awaiting(&cob, job);
        self.feed(Event::CheckEnded { cob: cob.clone(), job: number, found: found.clone() });
        self.looked_in(&rounds, &cob, &found);
    }

    fn look_who_is_busy(&mut self) {
        let guarded = self.guarded_hosts();
        let engine = &self.engine;
        self.neighbours.watch_busy(|host| engine.is_busy_with(host) || guarded.contains(host));
    }

    async fn engine_stops(self) {
        let Self { engine, neighbours, mut book, clock, .. } = self;
        let rests = engine.is_converged() && engine.pending_generation().is_none();
        if let Err(error) = book.commit() {
            warn!(%error, "the last records before the stop are lost");
        }
        let late = neighbours.into_links().shutdown(GOODBYE).await;
        if !late.is_empty() {
            let names: Vec<_> = late.iter().map(HostName::as_str).collect();
            warn!(
                hosts = names.join(", "),
                "these hosts have not acknowledged all messages; the messages are repeated later"
            );
        }
        book.close(rests, clock.now());
    }
}

/// Converts the engine's number of a job to the name of its folder.
fn job_id(number: Number) -> JobId {
    JobId((u64::from(number.start) << 40) | (number.counter & ((1 << 40) - 1)))
}

fn job_number(job: JobId) -> Number {
    Number { start: u32::try_from(job.0 >> 40).unwrap_or(0), counter: job.0 & ((1 << 40) - 1) }
}
