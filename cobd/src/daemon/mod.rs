//! The daemon: one loop around the engine.
//!
//! ```text
//!   links, jobs that ended, questions and orders, depot, clock
//!                |  take all that is there
//!                v
//!        engine.handle(event) …            (pure) ── records, where they are very many ──> journal: append
//!                |  effects of the whole turn
//!                v
//!   1 journal: append, one commit   2 answers to orders   3 links: send   4 jobs: start   5 index: a list
//! ```
//!
//! The loop waits in one place only, for the next event or deadline. Whatever takes long (fetching a
//! generation, checks, actions) runs in tasks that report back. The commit is made in the loop itself:
//! nothing else may happen before it anyway, and what arrives meanwhile shares the next one.

mod ahead;
mod askers;
mod book;
mod brakes;
mod checks;
mod departures;
mod first;
mod folders;
mod follow;
mod foresee;
mod indexing;
mod orders;
mod outputs;
mod parts;
mod perform;
mod resting;
mod rounds;
mod route;
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

use crate::clock::Clock;
use crate::config::Config;
use crate::generations::{FetchError, Generations, Prepared, Wanted};
use crate::journal::JournalError;
use crate::kinds::{self, JobEnd, JobEnded, JobHandle, Kinds};
use crate::peer::{LinkEvent, Links, Quiet, Refusals, Transport as _};
use crate::run::{JobId, Program};
use crate::web::{Ask, Command, Done, Front, Refusal};

use ahead::Ahead;
use book::Book;
use folders::{Folders, Ready};
use service_manager::ServiceManager;
use switch::{Aim, SwitchWatch};

pub use start::StartError;

/// Events taken into one turn at most: a commit is shared by so many, and no deadline waits for more.
const TURN: usize = 512;
/// No more events are taken into a turn after this time: whatever peers say, people are answered in between.
const TURN_TIME: Span = Span::millis(50);
/// How long the end waits for peers to acknowledge what was said.
const GOODBYE: Duration = Duration::from_secs(2);
/// Records that nothing waits for are committed after this time: they are what people are told of the
/// past, and what they are told must not be taken back by the next life.
const COMMIT_WITHIN: Span = Span::secs(1);
/// How often it is looked up which hosts something is at stake with.
const BUSY_EVERY: Duration = Duration::from_millis(500);

/// Where the answer to an order goes.
type Reply = oneshot::Sender<Result<Done, Refusal>>;

/// A daemon that is up. [`Daemon::run`] is its life.
pub struct Daemon {
    config: Config,
    clock: Clock,
    engine: Engine,
    /// What is on record.
    book: Book,
    kinds: Arc<Kinds>,
    links: Links,
    /// Lines about what peers send, held down.
    quiet: Quiet,
    /// What peers said that is not theirs to say.
    refused: Refusals,
    /// How much of what they say may leave something on record.
    brakes: brakes::Brakes,
    /// Hosts of which nothing counts that they say, as it was told last.
    unheard: BTreeMap<HostName, Unheard>,
    /// Where it listens since its start because the depot says so: what it has on disk names another address.
    moved: Option<std::net::SocketAddr>,
    /// When it is tried again to listen where the generation says that this host is.
    listen_again: Time,
    /// The key of this host that is shown, or the newest that it has.
    identity: Option<PublicKey>,
    /// How links are protected.
    security: Security,
    /// Hosts that generations have which are here, or were since the start, with their keys.
    known_hosts: BTreeMap<HostName, BTreeSet<PublicKey>>,
    generations: Generations,
    /// What change objects and kinds are under the active generation.
    active: Option<Active>,
    /// The generation to which `go` was said.
    coming: Option<Prepared>,
    /// The one that was fetched last to be gone to later.
    at_hand: Option<Prepared>,
    /// As long as there is neither: the newest generation that is accepted. Its operators may give the
    /// first order.
    introduction: Option<Arc<Manifest>>,
    /// Jobs that run, by change object.
    running: BTreeMap<CobId, (JobId, JobHandle)>,
    outputs: outputs::Outputs,
    front: Front,
    changes: watch::Sender<u64>,
    manager: ServiceManager,
    /// Up to which change the service manager has been told.
    told_changes: u64,
    turn: Turn,
    payload_root: PathBuf,
    link_events: mpsc::Receiver<LinkEvent>,
    ended: mpsc::Receiver<JobEnded>,
    /// When a transition of a change object ended last in this life of the daemon.
    moved_at: BTreeMap<CobId, Time>,
    /// The machine has not restarted since the daemon's life before this one.
    same_boot: bool,
    /// What is still put back for change objects that have left, and who is told of its steps.
    departures: departures::Departures,
    departed: Arc<Notify>,
    /// Change objects that somebody else may have changed.
    drifts: mpsc::Receiver<CobId>,
    asks: mpsc::Receiver<Ask>,
    fetched: (mpsc::Sender<Fetched>, mpsc::Receiver<Fetched>),
    /// Orders whose generation was looked up in the depot.
    identified: (mpsc::Sender<Identified>, mpsc::Receiver<Identified>),
    foreseen: (mpsc::Sender<foresee::Foreseen>, mpsc::Receiver<foresee::Foreseen>),
    /// Fetches begun, and which of them count for nothing any more.
    fetches: words::Fetches,
    /// Askers of generations that other hosts name.
    askers: askers::Looks,
    depot_changes: mpsc::Receiver<GenerationNumber>,
    /// What is followed to and could not be had yet.
    again: follow::Again,
    /// Kept alive: they stop when they are dropped.
    _guards: Vec<Box<dyn std::any::Any>>,
    busy_hosts: BTreeSet<HostName>,
    /// When it is looked up next who is busy.
    busy_at: Time,
    /// Ends of jobs that could not even begin.
    pending_ends: Vec<JobEnded>,
    /// What is left of a batch with very many items: each part has a turn of its own.
    parts: VecDeque<Batch>,
    checks: checks::Checks,
    /// Checks that operators have asked for.
    rounds: rounds::Rounds,
    /// What was looked at while a generation was prepared.
    ahead: Ahead,
    /// The switch that the host is in, and what watches over it.
    switch: SwitchWatch,
}

/// The active generation, ready for jobs.
struct Active {
    prepared: Prepared,
    folders: Folders,
}

impl Active {
    /// A change object of it.
    fn ready(&self, cob: &CobId) -> Option<Ready<'_>> {
        self.folders.ready(&self.prepared, cob)
    }

    fn kind_of(&self, cob: &CobId) -> Option<&Arc<Kind>> {
        self.folders.kind_of(&self.prepared, cob)
    }
}

/// Says of what was ordered by whom.
fn name(records: &mut [Record], who: Option<&str>) {
    let Some(who) = who else { return };
    for record in records.iter_mut().filter(|record| matches!(record.body, Body::Ordered(_) | Body::Go(_))) {
        record.by = Some(who.to_owned());
    }
}

/// What one turn of the loop has gathered.
#[derive(Default)]
struct Turn {
    effects: Effects,
    /// Records of it were very many: some are written already.
    in_parts: bool,
    answers: Vec<(Reply, Result<Done, Refusal>)>,
    /// What is begun beside the loop once the records of this turn are durable.
    beside: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Job folders that may go once the records of this turn are durable.
    finished: Vec<JobId>,
    /// Actions that are asked to end once the records of this turn are durable.
    cancel: Vec<CobId>,
}

/// A generation was fetched from the depot.
struct Fetched {
    wanted: Wanted,
    result: Result<route::Route, FetchError>,
    /// What for.
    aim: Aim,
    /// On which terms `go` is said then.
    terms: words::Terms,
    /// Which fetch it was.
    fetch: u64,
    asked: Option<Asked>,
}

/// An order whose generation was looked up in the depot.
type Identified = (Command, Asked);

/// An order that is answered later.
struct Asked {
    /// Who gave it.
    who: String,
    reply: Reply,
}

/// Why a daemon ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// What must be durable can't be made so: the daemon must not go on.
    #[error("the journal can't be written, so the daemon stops: {0}")]
    Journal(#[from] JournalError),
}

impl Daemon {
    /// Runs until `stop` says so, or what must be durable can't be made so.
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
                    Some(found) = self.askers.found.recv() => self.askers_found(found),
                    Some(newest) = self.depot_changes.recv() => self.depot_changed(newest),
                    () = tokio::time::sleep(sleep) => {}
                }
                self.take_what_is_there();
            }
            self.feed(Event::Tick);
            if self.listen_again <= self.clock.now() {
                self.listen_where_named();
            }
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

    /// Everything that has come meanwhile shares this turn's commit.
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

    /// What a host says next comes after all parts of what it has said.
    fn next_link_event(&mut self) -> Option<LinkEvent> {
        if self.parts.is_empty() { self.link_events.try_recv().ok() } else { None }
    }

    /// Hands the engine an event; what it wants done waits for the end of the turn.
    fn feed(&mut self, event: Event) {
        self.feed_for(event, None);
    }

    /// Hands the engine an event that somebody ordered; what it records bears the name.
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
            // What it carried is said again on the next one.
            LinkEvent::Down { .. } => {}
            LinkEvent::Received { host, bytes } => self.received(&host, &bytes),
            LinkEvent::Http(stream) => {
                tokio::spawn(crate::web::serve_connection(stream, self.front.clone()));
            }
        }
    }

    /// When an action began and ended, by the daemon's clock; its runner goes by the wall clock. Zero: not known.
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
        // One that the engine does not wait for any more says nothing about what is active.
        if self.rounds.is_idle() || !self.engine.awaits_check(&cob, number) {
            return self.feed(Event::CheckEnded { cob, job: number, found });
        }
        let rounds = self.rounds.awaiting(&cob, job);
        self.feed(Event::CheckEnded { cob: cob.clone(), job: number, found: found.clone() });
        self.looked_in(&rounds, &cob, &found);
    }

    /// Hosts with which something is at stake are watched more closely.
    fn look_who_is_busy(&mut self) {
        let everybody: Vec<HostName> = self.links.status().into_iter().map(|p| p.host).collect();
        let guarded = self.guarded_hosts();
        let at_stake = |host: &HostName| self.engine.is_busy_with(host) || guarded.contains(host);
        let busy: BTreeSet<_> = everybody.into_iter().filter(at_stake).collect();
        for host in busy.symmetric_difference(&self.busy_hosts) {
            self.links.busy(host, busy.contains(host));
        }
        self.busy_hosts = busy;
        // Nothing at stake changes without a turn: only a turn that says something sets the next look.
        self.busy_at = Time::NEVER;
    }

    async fn engine_stops(self) {
        let Self { engine, links, mut book, clock, .. } = self;
        let rests = engine.is_converged() && engine.going_to().is_none();
        if let Err(error) = book.commit() {
            warn!(%error, "the last notes of this life are lost");
        }
        let late = links.shutdown(GOODBYE).await;
        if !late.is_empty() {
            let names: Vec<_> = late.iter().map(HostName::as_str).collect();
            warn!(hosts = names.join(", "), "these hosts had not acknowledged everything; it is said again later");
        }
        book.close(rests, clock.now());
    }
}

/// The engine's number of a job as the name of its folder.
fn job_id(number: Number) -> JobId {
    JobId((u64::from(number.start) << 40) | (number.counter & ((1 << 40) - 1)))
}

fn job_number(job: JobId) -> Number {
    Number { start: u32::try_from(job.0 >> 40).unwrap_or(0), counter: job.0 & ((1 << 40) - 1) }
}

/// This program, for running itself again as a runner.
///
/// # Errors
/// When `/proc` does not tell.
pub fn this_program() -> std::io::Result<Program> {
    Program::this()
}
