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
mod indexing;
mod orders;
mod outputs;
mod parts;
mod perform;
mod prechecks;
mod rate_limits;
mod record_writer;
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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cob_engine::event::{ActionOutcome, CheckOutcome};
use cob_engine::record::{Body, Record};
use cob_engine::time::Span;
use cob_engine::{Effects, Engine, Event, Time};
use cob_types::generation::Security;
use cob_types::status::Unheard;
use cob_types::{Batch, CobId, GenerationNumber, HostName, Kind, Manifest, Number, PublicKey};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::{info, warn};

use crate::adhoc::{self, Adhoc};
use crate::clock::Clock;
use crate::config::Config;
use crate::generations::{FetchError, Generations, Prepared, Wanted};
use crate::journal::JournalError;
use crate::kinds::{self, JobEnd, JobEnded, JobHandle, Kinds};
use crate::peer::{LinkEvent, Links, Quiet, Refusals, Transport as _};
use crate::run::{JobId, Program};
use crate::web::{Ask, Command, Done, Front, Refusal};

use folders::{Folders, Ready};
use prechecks::Prechecks;
use record_writer::RecordWriter;
use service_manager::ServiceManager;
use switch::{Aim, SwitchWatch};

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
const BUSY_EVERY: Duration = Duration::from_millis(500);

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
    links: Links,
    /// Limits log lines about messages of peers.
    quiet: Quiet,
    /// Messages of peers that they had no right to send.
    refused: Refusals,
    /// Limits the records that messages of peers may cause.
    brakes: rate_limits::RateLimits,
    /// Hosts whose messages are ignored, as last reported.
    unheard: BTreeMap<HostName, Unheard>,
    /// The address where the daemon listens since its start, because the generation in the depot names another address
    /// than the generation on disk.
    moved: Option<std::net::SocketAddr>,
    /// When the next attempt is made to listen on the address that the generation names.
    listen_again: Time,
    /// The key that this host shows, or else the newest key in its file.
    identity: Option<PublicKey>,
    /// How links are protected.
    security: Security,
    /// Hosts of present generations, or of generations since the start, with their keys.
    known_hosts: BTreeMap<HostName, BTreeSet<PublicKey>>,
    generations: Generations,
    /// Change objects and kinds under the active generation.
    active: Option<Active>,
    /// The generation of the pending switch.
    coming: Option<Prepared>,
    /// The last prepared generation.
    at_hand: Option<Prepared>,
    /// The newest accepted generation before the first switch. Its operators may give the first order.
    introduction: Option<Arc<Manifest>>,
    /// Running jobs by change object.
    running: BTreeMap<CobId, (JobId, JobHandle)>,
    outputs: outputs::Outputs,
    /// Commands of operators, and their records for the history.
    adhoc: Adhoc,
    command_notes: mpsc::Receiver<adhoc::Note>,
    front: Front,
    changes: watch::Sender<u64>,
    manager: ServiceManager,
    /// The last change that was reported to the service manager.
    told_changes: u64,
    turn: Tick,
    payload_root: PathBuf,
    link_events: mpsc::Receiver<LinkEvent>,
    ended: mpsc::Receiver<JobEnded>,
    /// When the last transition of a change object ended in this incarnation of the daemon.
    moved_at: BTreeMap<CobId, Time>,
    /// The boots of the machine.
    boot: start::Boot,
    /// Departed change objects whose previous state is still being restored.
    departures: departures::Departures,
    departed: Arc<Notify>,
    /// Change objects that another program may have changed.
    drifts: mpsc::Receiver<CobId>,
    asks: mpsc::Receiver<Ask>,
    fetched: (mpsc::Sender<Fetched>, mpsc::Receiver<Fetched>),
    /// Orders after the lookup of their generation in the depot.
    identified: (mpsc::Sender<Identified>, mpsc::Receiver<Identified>),
    foreseen: (mpsc::Sender<conflict_preview::ConflictPreview>, mpsc::Receiver<conflict_preview::ConflictPreview>),
    /// Started fetches, and which fetches were discarded.
    fetches: words::Fetches,
    /// Lookups of the askers of generations that other hosts name.
    askers: askers::Looks,
    depot_changes: mpsc::Receiver<GenerationNumber>,
    /// A followed generation that could not be fetched yet.
    again: follow::Again,
    /// Kept alive: the tasks stop when their guards are dropped.
    _guards: Vec<Box<dyn std::any::Any>>,
    busy_hosts: BTreeSet<HostName>,
    /// When the busy hosts are looked up next.
    busy_at: Time,
    /// Ends of jobs that could not start.
    pending_ends: Vec<JobEnded>,
    /// The rest of a batch with very many items: each part has a tick of its own.
    parts: VecDeque<Batch>,
    checks: checks::Checks,
    /// Check rounds that operators have ordered.
    rounds: rounds::Rounds,
    /// The conflict preview and prechecks of prepared generations.
    ahead: Prechecks,
    /// The present switch and its supervision.
    switch: SwitchWatch,
    /// The schedule of this host.
    scheduled: scheduled::Scheduled,
}

/// The active generation, ready for jobs.
struct Active {
    prepared: Prepared,
    folders: Folders,
}

impl Active {
    /// A change object of the generation, ready for jobs.
    fn ready(&self, cob: &CobId) -> Option<Ready<'_>> {
        self.folders.ready(&self.prepared, cob)
    }

    fn kind_of(&self, cob: &CobId) -> Option<&Arc<Kind>> {
        self.folders.kind_of(&self.prepared, cob)
    }
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
    /// The terms of the switch that follows.
    terms: words::Terms,
    /// The number of the fetch.
    fetch: u64,
    asked: Option<Asked>,
}

/// An order after the lookup of its generation in the depot.
type Identified = (Command, Asked);

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
        self.manager.up();
        loop {
            self.tell_manager();
            if !self.take_pending_ends() && !self.take_part() {
                let deadline = self
                    .engine
                    .next_wakeup()
                    .unwrap_or(Time::NEVER)
                    .min(self.busy_at)
                    .min(self.listen_again)
                    .min(self.switch.due())
                    .min(self.book.due())
                    .min(self.ahead.due())
                    .min(self.scheduled.due())
                    .min(self.manager.due());
                let sleep = self.clock.until(deadline).min(Duration::from_secs(3600));
                tokio::select! {
                    biased;
                    _ = stop.wait_for(|s| *s) => break,
                    Some(ended) = self.ended.recv() => self.job_ended(ended),
                    Some(event) = self.link_events.recv() => self.link_event(event),
                    Some(fetched) = self.fetched.1.recv() => self.generation_fetched(fetched),
                    Some((order, asked)) = self.identified.1.recv() => self.identified(order, asked),
                    Some(foreseen) = self.foreseen.1.recv() => self.foreseen(foreseen),
                    Some(cob) = self.drifts.recv() => self.feed(Event::CheckWanted(cob)),
                    () = self.departed.notified() => self.look_at_departures(),
                    Some(ask) = self.asks.recv() => self.answer(ask),
                    Some(note) = self.command_notes.recv() => self.note_command(note),
                    Some(found) = self.askers.found.recv() => self.askers_found(found),
                    Some(newest) = self.depot_changes.recv() => self.depot_changed(newest),
                    Some(found) = self.scheduled.found.1.recv() => self.scheduled_newest(found),
                    () = tokio::time::sleep(sleep) => {}
                }
                self.take_what_is_there();
            }
            self.feed(Event::Tick);
            if self.listen_again <= self.clock.now() {
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
        self.manager.stopping();
        self.engine_stops().await;
        Ok(())
    }

    /// Takes further events that have arrived: they share the commit of this tick.
    fn take_what_is_there(&mut self) {
        if let Ok(ask) = self.asks.try_recv() {
            self.answer(ask);
        }
        let (end, mut taken) = (self.clock.now() + TURN_TIME, 0);
        while taken < TURN && self.clock.now() <= end {
            taken += 1;
            if let Ok(ended) = self.ended.try_recv() {
                self.job_ended(ended);
            } else if let Some(event) = self.next_link_event() {
                self.link_event(event);
            } else if let Ok(cob) = self.drifts.try_recv() {
                self.feed(Event::CheckWanted(cob));
            } else {
                break;
            }
        }
    }

    /// The next event of a link, but only after all parts of the last batch.
    fn next_link_event(&mut self) -> Option<LinkEvent> {
        if self.parts.is_empty() { self.link_events.try_recv().ok() } else { None }
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
                tokio::spawn(crate::web::serve_connection(stream, self.front.clone()));
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
        self.checks.ended(job);
        let mut leaves_a_folder = true;
        if let Some((_, handle)) = self.running.get(&cob).filter(|(running, _)| *running == job) {
            leaves_a_folder = handle.leaves_a_folder();
            self.running.remove(&cob);
        }
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
                self.moved_at.insert(cob.clone(), self.clock.now());
                self.outputs.ended(&cob, last_lines, matches!(moved, kinds::Outcome::Failed { .. }));
                let outcome = match moved {
                    kinds::Outcome::Done { exports, .. } => ActionOutcome::Done { values: exports },
                    kinds::Outcome::Failed { reason } => ActionOutcome::Failed { error: reason },
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

    /// Watches a host more closely while work with it is under way.
    fn look_who_is_busy(&mut self) {
        let everybody: Vec<HostName> = self.links.status().into_iter().map(|p| p.host).collect();
        let guarded = self.guarded_hosts();
        let at_stake = |host: &HostName| self.engine.is_busy_with(host) || guarded.contains(host);
        let busy: BTreeSet<_> = everybody.into_iter().filter(at_stake).collect();
        for host in busy.symmetric_difference(&self.busy_hosts) {
            self.links.busy(host, busy.contains(host));
        }
        self.busy_hosts = busy;
        // Only a tick with effects changes the busy hosts: only it sets the next look.
        self.busy_at = Time::NEVER;
    }

    async fn engine_stops(self) {
        let Self { engine, links, mut book, clock, .. } = self;
        let rests = engine.is_converged() && engine.pending_generation().is_none();
        if let Err(error) = book.commit() {
            warn!(%error, "the last records before the stop are lost");
        }
        let late = links.shutdown(GOODBYE).await;
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

/// This program, to run itself again as a runner.
///
/// # Errors
/// If `/proc` does not name it.
pub fn this_program() -> std::io::Result<Program> {
    Program::this()
}
