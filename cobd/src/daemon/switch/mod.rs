//! The switch of this host: start, supervision, rollback and announcements. `cob_engine::switch` and
//! `cob_engine::guard` derive each step; this module performs it, after the step is recorded.
//!
//! ```text
//!   an operator, the depot, another host --> set_out --> begin: on record, announced to others
//!   records of the tick, clock, links    --> watch: settle, withdraw, stop, on to the next
//!   link up, going, withdrawn            --> told
//! ```

mod announcements;
mod removed_hosts;
mod told;
mod watch;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_engine::guard::{Guard, GuardTimer};
use cob_engine::no_exit_state::NoExitStates;
use cob_engine::record::{Body, Record};
use cob_engine::switch::{
    Act, Current, Failing, RemovedHost, Stage, SwitchRecord, Switching, Terms, Withdrawal, rollback_target,
};
use cob_engine::time::Span;
use cob_engine::{Durable, Time};
use cob_types::api::{Done, SwitchHow, order};
use cob_types::generation::RollbackTarget;
use cob_types::message::{Going, MAX_WHY, UnderWay, Withdrawn};
use cob_types::switch::{OnFailure, SwitchPolicy};
use cob_types::{BlobHash, CobId, GenerationNumber, HostName, Item, Manifest, StateName};
use tracing::{error, warn};

use super::orders::OLDER_CONTENT;
use super::{Asked, Daemon};
use crate::generations::{FetchError, Wanted};
use crate::peer::Topic;
use crate::web::RefusalKind;

use announcements::Announcements;

/// The operator's way out of the first generation.
const REMOVES_ALL: &str = "there is no earlier generation: `cobctl rollback 0` removes all its change objects";
/// The error of a generation without a rollback target.
pub(in crate::daemon) const NO_ROLLBACK_TARGET: &str = "no usable rollback target";
/// The first and the longest delay between attempts to fetch a generation that another host has announced.
const AGAIN: [Span; 2] = [Span::secs(2), Span::secs(30)];

/// The purpose of a fetch.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) enum Aim {
    /// To have it prepared.
    Keep,
    /// To switch to it.
    Go(Start),
}

/// The cause of a switch.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) enum Start {
    /// An operator's order.
    Ordered(SwitchHow),
    /// It is the newest generation of a depot that this host follows.
    Followed,
    /// A schedule of this host: it is the newest generation of the depot.
    Scheduled,
    /// Another host that switches too.
    Told,
    /// The rollback of a generation by this host.
    Return {
        /// The abandoned generation.
        left: GenerationNumber,
    },
    /// The switch in progress: its next step.
    Onward,
}

/// The switch of this host in the present incarnation of its daemon.
#[derive(Debug)]
pub(in crate::daemon) struct SwitchWatch {
    state: Switching,
    /// The operator who ordered the switch in this incarnation: further steps bear the same name.
    pub(in crate::daemon) by: Option<String>,
    guard: Option<GuardTimer>,
    due: Time,
    /// The generation that is being fetched for a rollback or a step.
    fetching: Option<GenerationNumber>,
    /// A generation that could not be fetched, and the time of the next attempt.
    again: Option<(GenerationNumber, Time)>,
    /// Since when this incarnation has seen unreachable hosts during a rollback that this host's guard began.
    cut_off: Option<Time>,
    /// Announced generations that are not here yet.
    told: Announcements,
    /// When the switch is announced to all hosts, and not only to the first hosts.
    tell_rest: Time,
    /// A host that has sent a request in this tick, in the switch in which this host has settled.
    asked_by: Option<HostName>,
    /// Hosts that have announced over the present or last link that they are drained.
    through: BTreeSet<HostName>,
    /// Hosts to which this host has announced over the present link that it is drained.
    said_through: BTreeSet<HostName>,
    /// Since when the host has been converged without a break.
    converged: Option<Time>,
    /// A change object that failed in an earlier incarnation, and when.
    failed_before: Option<(CobId, Time)>,
    /// Change objects that may have failed in this tick.
    failed: Vec<CobId>,
    no_exit_states: NoExitStates,
    /// Transitions of this tick: change object, from, to.
    made: Vec<(CobId, StateName, StateName)>,
    /// The order that waits for maintenance windows.
    windows: windows::WindowWatch,
}

impl SwitchWatch {
    /// Collects results of transitions; they are judged at the end of the tick.
    pub(in crate::daemon) fn hear(&mut self, records: &[Record]) {
        for record in records {
            if self.state.on_failure(record.at) == Failing::Withdraw {
                self.no_exit_states.hear(record);
            }
            if let Some(cob) = record.body.may_have_failed() {
                self.failed.push(cob.clone());
            } else if let Body::Ended { cob, from, to, ok: Some(true), .. } = &record.body {
                self.made.push((cob.clone(), from.clone(), to.clone()));
            }
        }
    }

    /// The state after an earlier incarnation.
    pub(in crate::daemon) fn returned(durable: &Durable) -> Self {
        let state = durable.switching.clone();
        let failed = durable.cobs.iter().filter(|(_, c)| c.failed).max_by_key(|(_, c)| c.since);
        let failed_before = failed.map(|(cob, c)| (cob.clone(), c.since));
        Self {
            state,
            by: None,
            guard: None,
            due: Time(0),
            fetching: None,
            again: None,
            cut_off: None,
            told: Announcements::default(),
            tell_rest: Time::NEVER,
            asked_by: None,
            through: BTreeSet::new(),
            said_through: BTreeSet::new(),
            converged: None,
            failed_before,
            failed: Vec::new(),
            no_exit_states: NoExitStates::default(),
            made: Vec::new(),
            windows: windows::WindowWatch::default(),
        }
    }

    /// The generation whose order waits, or was cancelled while it waited.
    pub(in crate::daemon) fn keeps_from_following(&self, generation: GenerationNumber) -> bool {
        let waits = self.state.waiting.as_ref().map(|waiting| waiting.generation);
        [waits, self.state.dropped].contains(&Some(generation))
    }

    /// The fetch for the waiting switch was discarded: the host looks at its windows again.
    pub(in crate::daemon) fn window_start_void(&mut self, waited: bool) {
        if waited {
            self.windows = windows::WindowWatch::default();
        }
    }

    /// When the switch is supervised next.
    pub(in crate::daemon) fn due(&self) -> Time {
        self.due
    }

    /// The switch in progress, unless this host has settled in it.
    pub(in crate::daemon) fn under_way(&self) -> Option<UnderWay> {
        self.state.under_way()
    }

    /// Whether there is a switch that has not settled.
    fn is_open(&self) -> bool {
        self.state.current.as_ref().is_some_and(|c| c.stage != Stage::Settled)
    }

    /// The removed hosts.
    pub(in crate::daemon) fn parted(&self) -> &BTreeMap<HostName, RemovedHost> {
        &self.state.parted
    }

    /// Removed hosts that are drained.
    pub(in crate::daemon) fn drained(&self) -> &BTreeMap<HostName, GenerationNumber> {
        &self.state.drained
    }

    /// The generations that were rolled back.
    pub(in crate::daemon) fn withdrawn(&self) -> BTreeSet<GenerationNumber> {
        self.state.withdrawn.keys().copied().collect()
    }

    /// Ignores announcements of these generations. Returns whether any were about to be followed.
    pub(in crate::daemon) fn forget_told(&mut self, which: impl Fn(GenerationNumber) -> bool) -> bool {
        self.told.forget(which)
    }

    /// The fetch of an announced generation has ended: the next fetch may start.
    pub(in crate::daemon) fn told_was_fetched(&mut self) {
        self.told.fetched();
    }

    /// The generation from which the present or last switch started.
    pub(in crate::daemon) fn came_from(&self) -> Option<GenerationNumber> {
        self.state.current.as_ref().map(|c| c.from).filter(|from| *from != GenerationNumber(0))
    }

    /// The source of a switch that no operator has ordered on this host.
    pub(in crate::daemon) fn teller(&self, goal: Wanted, start: Start) -> Option<String> {
        match start {
            Start::Told => self.told.of(goal).map(|(by, _)| format!("host {by}")),
            Start::Followed => Some("its depot".to_owned()),
            Start::Return { .. } | Start::Ordered(_) | Start::Scheduled | Start::Onward => None,
        }
    }

    /// The target of the present switch beyond a step of its path.
    pub(in crate::daemon) fn beyond(&self, step: GenerationNumber) -> Option<GenerationNumber> {
        self.state.beyond(step)
    }

    /// Whether this host does not announce its active or pending generation.
    pub(in crate::daemon) fn is_alone(&self) -> bool {
        self.state.current.as_ref().is_some_and(|c| c.left.is_none() && (c.terms.alone || c.quiet))
    }

    /// The announcement of this host about its switch.
    fn stance(&self, own: &HostName, manifest: impl Fn(GenerationNumber) -> Option<BlobHash>) -> Option<Item> {
        let current = self.state.current.as_ref()?;
        let Terms { policy, round, alone } = current.terms;
        let Some((left, withdrawal)) = self.state.returned() else {
            let going = Going { generation: current.to, policy, round, manifest: manifest(current.to) };
            return self.state.is_told().then_some(Item::Going(going));
        };
        // A host that switches alone may still find a failure that concerns all hosts.
        (!alone || !withdrawal.ordered).then(|| told_withdrawal(own, left, withdrawal, manifest(left)))
    }
}

/// The announcement of a rollback by the host `own`, which the reason names if the host was the first.
fn told_withdrawal(own: &HostName, generation: GenerationNumber, of: &Withdrawal, manifest: Option<BlobHash>) -> Item {
    let Withdrawal { to, round, ordered, why, cancelled, heard } = of.clone();
    let why = if heard { why } else { short(format!("{why} (told by {own})")) };
    Item::Withdrawn(Withdrawn { generation, to, round, ordered, why, manifest, cancelled })
}

/// Start of a switch.
impl Daemon {
    /// Whether the switch to a fetched generation is still wanted.
    pub(in crate::daemon) fn still_wanted(&mut self, wanted: Wanted, start: Start) -> bool {
        let goal = wanted.generation;
        let next = self.switch.state.next(self.seen());
        match start {
            // Only an order switches to it again.
            Start::Followed | Start::Scheduled if self.switch.state.withdrawn.contains_key(&goal) => false,
            Start::Ordered(_) | Start::Followed | Start::Scheduled => goal != self.goal(),
            Start::Told => {
                let goes = |(_, terms): (_, Terms)| self.goes_when_told(goal, terms.round);
                let goes = self.switch.told.of(wanted).is_some_and(goes);
                if !goes {
                    self.switch.told.forget(|generation| generation == goal);
                }
                goes
            }
            Start::Return { left } => {
                self.switch.fetching = None;
                next == Some(Act::GoBack { left, to: goal })
            }
            Start::Onward => {
                self.switch.fetching = None;
                next == Some(Act::GoOn(goal)) && self.engine.cancelled().is_none()
            }
        }
    }

    /// Records the start of the switch before its first `Go`, and announces it. `left`: the generation that an order
    /// abandons for an older generation; `by`: the source of the switch, if no later `Go` to the target bears its name.
    pub(in crate::daemon) fn begin(
        &mut self,
        goal: &Arc<Manifest>,
        start: Start,
        left: Option<GenerationNumber>,
        who: Option<&str>,
        by: Option<&str>,
    ) {
        let (from, to) = (self.engine.generation(), goal.generation);
        let before = self.switch.state.current.as_ref().map(|c| c.terms).unwrap_or_default();
        let round = self.switch.state.round_of_order(to);
        let (left, terms) = match start {
            Start::Onward => return,
            Start::Return { left } => (Some(left), before),
            Start::Told => {
                let told = Wanted { generation: to, manifest: self.generations.manifest_known(to) };
                let told = self.switch.told.of(told).map(|(_, terms)| terms);
                (None, told.unwrap_or(Terms { policy: goal.policy, round, alone: false }))
            }
            Start::Followed | Start::Scheduled => (None, Terms { policy: goal.policy, round, alone: false }),
            Start::Ordered(how) => {
                let terms = Terms { policy: policy(goal.policy, how), round, alone: how.alone };
                (left, terms)
            }
        };
        if let (Some(left), Start::Ordered(_)) = (left, start) {
            // An order for an older generation rolls back the newer generation.
            let why = who.map_or_else(|| "ordered".to_owned(), |who| format!("ordered by {who}"));
            let round = self.switch.state.current.as_ref().filter(|c| c.to == left).map_or(0, |c| c.terms.round);
            let withdrawal = Withdrawal { to, round, ordered: true, why: short(why), ..Withdrawal::default() };
            self.note_switch(SwitchRecord::Withdrawn(left, withdrawal), None);
        }
        let guarded = left.is_none() && terms.policy.guard_ms.is_some();
        let up = self.neighbours.hosts(|peer| guarded && peer.up);
        let up = up.into_iter().filter(|host| goal.hosts.get(host).is_some_and(|entry| entry.address.is_some()));
        let peers = if left.is_some() { self.lost_under_guard() } else { up.collect() };
        self.note_switch(SwitchRecord::Begun { from, to, left, terms, peers }, by);
        if let Start::Ordered(_) = start {
            // A later order replaces the waiting order.
            self.drop_waiting(|_| true, who);
        }
        self.switch.no_exit_states.begin(self.engine.without_exit_state(Time(0)).collect());
        self.switch.told.forget(|generation| generation <= to);
        self.switch.by = who.map(ToOwned::to_owned);
        self.switch.guard = None;
        if left.is_none() {
            self.spread_switch();
        } else {
            // A rollback does not wait for announcements of other hosts.
            self.tell_all_of_switch();
        }
    }

    /// The hosts that this host had to reach, if its own guard fired.
    fn lost_under_guard(&self) -> BTreeSet<HostName> {
        let fired = |c: &&Current| !c.confirmed && c.guard.is_some_and(Guard::has_fired);
        self.switch.state.current.as_ref().filter(fired).map(|c| c.peers.clone()).unwrap_or_default()
    }

    /// The switch could not start.
    pub(in crate::daemon) fn not_set_out(
        &mut self,
        wanted: Wanted,
        error: &FetchError,
        start: Start,
        asked: Option<Asked>,
    ) {
        let (now, generation) = (self.clock.now(), wanted.generation);
        match start {
            Start::Ordered(_) | Start::Followed | Start::Scheduled => {
                return self.refuse_generation(generation, error, asked.map(|a| a.reply));
            }
            Start::Return { left } if matches!(error, FetchError::NoThread) => {
                self.switch.fetching = None;
                self.switch.again = Some((generation, now + AGAIN[0]));
                warn!(%generation, %error, "the rollback from {left} can't start yet");
            }
            Start::Return { left } => {
                self.switch.fetching = None;
                error!(%generation, %error, "the rollback from {left} has failed");
                let why = format!("the rollback to generation {generation} has failed: {error}");
                self.note_switch(SwitchRecord::Stopped { why: short(why) }, None);
            }
            Start::Onward => {
                self.switch.fetching = None;
                self.switch.again = Some((generation, now + AGAIN[1]));
                warn!(%generation, %error, "the next generation of the switch can't be fetched yet");
            }
            Start::Told => {
                if let Some(by) = self.switch.told.failed(wanted, now) {
                    self.neighbours.quiet().say(Topic::Told, Some(&by), |more| {
                        warn!(%generation, %error, %by, "an announced generation can't be fetched yet{more}");
                    });
                }
                self.switch.due = self.switch.due.min(self.switch.told.due());
            }
        }
        if let Some(Asked { reply, .. }) = asked {
            self.refuse(reply, RefusalKind::Conflict, &error.to_string(), "see the log of cobd on this host");
        }
    }

    /// The changed terms in an order for the present target, if they differ. They also count after the host has
    /// settled: it then applies them when other hosts fail, and announces them.
    pub(in crate::daemon) fn other_terms(&self, generation: GenerationNumber, how: SwitchHow) -> Option<Terms> {
        let current = self.switch.state.current.as_ref()?;
        if current.to != generation || current.left.is_some() || current.stage == Stage::Stopped {
            return None;
        }
        let terms = Terms {
            policy: policy(current.terms.policy, SwitchHow { guard_ms: None, ..how }),
            alone: current.terms.alone && how.alone,
            ..current.terms
        };
        (terms != current.terms).then_some(terms)
    }

    /// The failure policy of the switch to a generation.
    pub(in crate::daemon) fn on_failure(&self, generation: GenerationNumber) -> OnFailure {
        let current = self.switch.state.current.as_ref().filter(|c| c.to == generation && c.left.is_none());
        let policy = current.map(|c| c.terms.policy);
        policy.or_else(|| self.manifest_of(generation).ok().map(|m| m.policy)).unwrap_or_default().on_failure
    }

    /// Changes the terms of the switch.
    pub(in crate::daemon) fn reterm(&mut self, terms: Terms, who: Option<&str>) {
        self.note_switch(SwitchRecord::Reterm(terms), who);
        self.suspect_all();
        self.tell_all_of_switch();
    }

    /// Mutes announcements of a cancelled switch over a generation. Returns whether it was announced before.
    pub(in crate::daemon) fn hush(&mut self, generation: GenerationNumber, who: &str) -> bool {
        let told = self.switch.state.is_told() && self.switch.state.leads_over(generation);
        if told {
            self.note_switch(SwitchRecord::Quiet(true), Some(who));
        }
        told
    }

    /// Unmutes announcements of a cancelled switch that continues. Returns whether they were muted.
    pub(in crate::daemon) fn speak_again(&mut self, who: &str) -> bool {
        let quiet = self.switch.state.current.as_ref().is_some_and(|c| c.quiet);
        if quiet {
            self.note_switch(SwitchRecord::Quiet(false), Some(who));
            self.tell_all_of_switch();
        }
        quiet
    }

    /// Handles an operator's order to roll back the last generation, or to prepare and preview the rollback.
    pub(in crate::daemon) fn rollback(&mut self, order: &order::Rollback, asked: Asked) {
        let (Asked { who, reply }, to) = (asked, order.generation);
        let left = self.furthest();
        if let Some((from, withdrawal)) = self.switch.state.returned().filter(|_| to.is_none_or(|to| to == self.goal()))
        {
            let detail = format!("generation {from} is rolled back already; this host returned to {}", withdrawal.to);
            return self.done(reply, false, detail);
        }
        // A rollback does not remove a working installation unless the order names generation 0.
        let has_settled = self.engine.generation() == left && self.book.durable().settled;
        let named = match to {
            None if has_settled => self.rollback_target(left).filter(|to| *to != GenerationNumber(0)),
            Some(to) => self.names_rollback_target(left, to).then_some(to),
            None => self.rollback_target(left),
        };
        let Some(target) = named else {
            let what = match to {
                Some(to) => format!("generation {left} names no rollback to {to}"),
                None => format!("generation {left} names {NO_ROLLBACK_TARGET}"),
            };
            let hint = match to {
                Some(to) if to > left => {
                    format!("a rollback goes to an older generation; `cobctl switch {to}` goes to a newer generation")
                }
                Some(_) => OLDER_CONTENT.to_owned(),
                None if self.names_rollback_target(left, GenerationNumber(0)) => REMOVES_ALL.to_owned(),
                None => "`cobctl switch N` goes to a generation that was rolled back".to_owned(),
            };
            return self.refuse(reply, RefusalKind::Conflict, &what, &hint);
        };
        if let Err(error) = self.way_to(target) {
            return self.refuse_generation(target, &error, Some(reply));
        }
        if order.prepare {
            return self.prepare(self.way_named(left, target), Asked { who, reply });
        }
        let why = format!("ordered by {who}");
        self.withdraw(left, Withdrawal { to: target, ordered: true, why, ..Withdrawal::default() }, Some(&who));
        let done = Done::new(true, format!("rollback from generation {left} to {target}"));
        self.turn.answers.push((reply, Ok(Done { generation: Some(target), ..done })));
    }

    /// The default rollback target of a generation.
    pub(in crate::daemon) fn rollback_target(&self, left: GenerationNumber) -> Option<GenerationNumber> {
        let state = &self.switch.state;
        let came_from = state.current.as_ref().filter(|c| c.to == left && c.left.is_none()).map(|c| c.from);
        let manifest = self.manifest_of(left).ok()?;
        // If the host came from different content under this number, no older generation replaces it as the target.
        let from_another = |way: &RollbackTarget| Some(way.generation) == came_from && self.leads_to_another(way);
        if manifest.back.iter().any(from_another) {
            return None;
        }
        let is_none = |way: &RollbackTarget| state.is_left(way.generation) || self.leads_to_another(way);
        rollback_target(&manifest, came_from, is_none)
    }

    /// Whether this host knows different content under the number of a rollback target.
    fn leads_to_another(&self, way: &RollbackTarget) -> bool {
        self.generations.manifest_known(way.generation).is_some_and(|known| known != way.manifest)
    }

    /// A rollback target with the manifest that was signed for it.
    fn way_named(&self, left: GenerationNumber, to: GenerationNumber) -> Wanted {
        let manifest = self.manifest_of(left).ok();
        let way = manifest.as_ref().and_then(|manifest| manifest.back.iter().find(|way| way.generation == to));
        Wanted { generation: to, manifest: way.map(|way| way.manifest) }
    }

    fn names_rollback_target(&self, left: GenerationNumber, to: GenerationNumber) -> bool {
        let leads = |way: &RollbackTarget| way.generation == to && !self.leads_to_another(way);
        self.manifest_of(left).is_ok_and(|manifest| to < left && manifest.back.iter().any(leads))
    }

    /// Records a rollback; its steps follow at the end of the tick.
    pub(in crate::daemon) fn withdraw(&mut self, left: GenerationNumber, withdrawal: Withdrawal, who: Option<&str>) {
        let Withdrawal { to, why, .. } = &withdrawal;
        let current = self.switch.state.current.as_ref().filter(|c| c.to == left && c.left.is_none());
        let round = current.map_or_else(|| self.switch.state.round_of_order(left), |c| c.terms.round);
        warn!(generation = %left, %to, why, "withdrawn");
        if current.is_none() {
            // The switch to it started before the daemon recorded switches.
            let from = self.engine.generation();
            let terms = Terms { round, ..Terms::default() };
            self.note_switch(SwitchRecord::Begun { from, to: left, left: None, terms, peers: BTreeSet::new() }, None);
        }
        let withdrawal = Withdrawal { round, why: short(withdrawal.why), ..withdrawal };
        self.note_switch(SwitchRecord::Withdrawn(left, withdrawal), who);
        self.switch.guard = None;
    }
}

/// A generation's policy with the changes of an order.
fn policy(of: SwitchPolicy, how: SwitchHow) -> SwitchPolicy {
    let guard_ms = match how.guard_ms {
        None => of.guard_ms,
        Some(0) => None,
        Some(ms) => Some(ms),
    };
    SwitchPolicy { on_failure: how.on_failure.unwrap_or(of.on_failure), guard_ms }
}

/// Shortens a reason to the size that is kept and sent.
fn short(mut why: String) -> String {
    if why.len() > MAX_WHY {
        let end = (0..=MAX_WHY - 3).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0);
        why.truncate(end);
        why.push('…');
    }
    why
}
