//! The switch that this host is in: set out, watched over, withdrawn, and told to others.
//!
//! What follows from what stands in `cob_engine::switch` and `cob_engine::guard`; here it is done. Each step is a
//! record of the turn before anything of it is said or started.
//!
//! ```text
//!   an operator, the depot, another host --> set_out --> begin: on record, told to others
//!   records of the turn, clock, links    --> watch: settle, withdraw, stop, on to the next
//!   link up, going, withdrawn            --> told
//! ```

mod dead_end;
mod parting;
mod tellers;
mod told;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_engine::guard::{Guard, Watch};
use cob_engine::record::{Body, Record};
use cob_engine::switch::{Act, Current, Failing, Parted, Stage, SwitchRecord, Switching, Terms, Withdrawal};
use cob_engine::time::Span;
use cob_engine::{Durable, Time};
use cob_types::generation::WayBack;
use cob_types::message::{Going, MAX_WHY, UnderWay, Withdrawn};
use cob_types::switch::{OnFailure, SwitchPolicy};
use cob_types::{BlobHash, CobId, GenerationNumber, HostName, Item, Manifest, StateName};
use tracing::{error, warn};

use super::orders::OLDER_CONTENT;
use super::{Asked, Daemon};
use crate::generations::{FetchError, Wanted};
use crate::peer::{Topic, Transport as _};
use crate::web::{Done, RefusalKind, SwitchHow};

use dead_end::DeadEnds;
use tellers::Tellers;

/// What an operator can do about the first generation.
const REMOVES_ALL: &str = "there was nothing before it: `cobctl rollback 0` removes all that it has made";
/// What a generation names that can't be left.
pub(in crate::daemon) const NO_WAY_BACK: &str = "no way back to a generation that was not withdrawn";
/// Between two tries to get a generation that another host has told of: the first, and the longest.
const AGAIN: [Span; 2] = [Span::secs(2), Span::secs(30)];
/// How long a host must be converged to have settled: what others restart in the switch may need it once more.
const SETTLED_AFTER: Span = Span::secs(3);

/// What a generation is fetched for.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) enum Aim {
    /// To have it.
    Keep,
    /// To go to it.
    Go(Start),
}

/// Who wants a host to go to a generation.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) enum Start {
    /// An operator.
    Ordered(SwitchHow),
    /// It is the newest of the depot that is followed.
    Followed,
    /// Another host, which goes too.
    Told,
    /// A withdrawal of this one.
    Return {
        /// The generation that is left.
        left: GenerationNumber,
    },
    /// The switch that the host is in already.
    Onward,
}

/// The switch that a host is in, in this life of its daemon.
#[derive(Debug)]
pub(in crate::daemon) struct SwitchWatch {
    state: Switching,
    /// Who ordered it, in this life: a way in steps goes on in this name.
    pub(in crate::daemon) by: Option<String>,
    guard: Option<Watch>,
    due: Time,
    /// What is on its way because of a return, or of a step.
    fetching: Option<GenerationNumber>,
    /// One that could not be had is not asked for again before this time.
    again: Option<(GenerationNumber, Time)>,
    /// Since when a return that the guard of this host has begun was seen to have hosts out of reach, in this life.
    cut_off: Option<Time>,
    /// What other hosts have told of and is not here yet.
    told: Tellers,
    /// When all hosts are told that this one has set out, and not only the first of them.
    tell_rest: Time,
    /// Who has asked something in this turn, in the switch that this host has settled in.
    asked_by: Option<HostName>,
    /// Hosts that have said over the present link, or the last one, that they have left.
    through: BTreeSet<HostName>,
    /// Hosts that were told so over the present link.
    said_through: BTreeSet<HostName>,
    /// Since when the host has been converged without a break.
    converged: Option<Time>,
    /// One that gave up in an earlier life, and when.
    failed_before: Option<(CobId, Time)>,
    /// Those that may have given up in this turn.
    failed: Vec<CobId>,
    dead_ends: DeadEnds,
    /// Moves that were made in this turn: whose, from where, to where.
    made: Vec<(CobId, StateName, StateName)>,
}

impl SwitchWatch {
    /// Takes up what came of moves: it is looked at when all of the turn is known.
    pub(in crate::daemon) fn hear(&mut self, records: &[Record]) {
        for record in records {
            if self.state.on_failure(record.at) == Failing::Withdraw {
                self.dead_ends.hear(record);
            }
            if let Body::Ended { cob, failed: true, .. }
            | Body::Checked { cob, state: None, .. }
            | Body::Checked { cob, unclear: true, .. } = &record.body
            {
                self.failed.push(cob.clone());
            } else if let Body::Ended { cob, from, to, ok: Some(true), .. } = &record.body {
                self.made.push((cob.clone(), from.clone(), to.clone()));
            }
        }
    }

    /// As it was left by an earlier life.
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
            told: Tellers::default(),
            tell_rest: Time::NEVER,
            asked_by: None,
            through: BTreeSet::new(),
            said_through: BTreeSet::new(),
            converged: None,
            failed_before,
            failed: Vec::new(),
            dead_ends: DeadEnds::default(),
            made: Vec::new(),
        }
    }

    /// When it is to be looked after next.
    pub(in crate::daemon) fn due(&self) -> Time {
        self.due
    }

    /// The switch that this host is in and has not settled in.
    pub(in crate::daemon) fn under_way(&self) -> Option<UnderWay> {
        self.state.under_way()
    }

    /// Whether there is a switch that has not settled.
    fn is_open(&self) -> bool {
        self.state.current.as_ref().is_some_and(|c| c.stage != Stage::Settled)
    }

    /// The hosts that were left behind.
    pub(in crate::daemon) fn parted(&self) -> &BTreeMap<HostName, Parted> {
        &self.state.parted
    }

    /// Hosts that were removed and have left.
    pub(in crate::daemon) fn drained(&self) -> &BTreeMap<HostName, GenerationNumber> {
        &self.state.drained
    }

    /// The generations that were withdrawn.
    pub(in crate::daemon) fn withdrawn(&self) -> BTreeSet<GenerationNumber> {
        self.state.withdrawn.keys().copied().collect()
    }

    /// Nothing is followed that other hosts have told of these generations; whether anything was about to be.
    pub(in crate::daemon) fn forget_told(&mut self, which: impl Fn(GenerationNumber) -> bool) -> bool {
        self.told.forget(which)
    }

    /// What other hosts have told of was fetched, or could not be: the next one may be.
    pub(in crate::daemon) fn told_was_fetched(&mut self) {
        self.told.fetched();
    }

    /// The generation that the host came from in the switch that it is in, or was in last.
    pub(in crate::daemon) fn came_from(&self) -> Option<GenerationNumber> {
        self.state.current.as_ref().map(|c| c.from).filter(|from| *from != GenerationNumber(0))
    }

    /// Whose word it is that a host goes by, when it is not an operator's.
    pub(in crate::daemon) fn teller(&self, goal: Wanted, start: Start) -> Option<String> {
        match start {
            Start::Told => self.told.of(goal).map(|(by, _)| format!("host {by}")),
            Start::Followed => Some("its depot".to_owned()),
            Start::Return { .. } | Start::Ordered(_) | Start::Onward => None,
        }
    }

    /// Where the switch that the host is in leads beyond a step of its way.
    pub(in crate::daemon) fn beyond(&self, step: GenerationNumber) -> Option<GenerationNumber> {
        self.state.beyond(step)
    }

    /// Whether it tells no other host of the generation that it has or goes to.
    pub(in crate::daemon) fn is_alone(&self) -> bool {
        self.state.current.as_ref().is_some_and(|c| c.left.is_none() && (c.terms.alone || c.quiet))
    }

    /// What this host tells of the switch that it is in.
    fn stance(&self, manifest: impl Fn(GenerationNumber) -> Option<BlobHash>) -> Option<Item> {
        let current = self.state.current.as_ref()?;
        let Terms { policy, round, alone } = current.terms;
        let Some((left, withdrawal)) = self.state.returned() else {
            let going = Going { generation: current.to, policy, round, manifest: manifest(current.to) };
            return self.state.is_told().then_some(Item::Going(going));
        };
        // Who goes alone still may be the one that finds out for all.
        (!alone || !withdrawal.ordered).then(|| told_withdrawal(left, withdrawal, manifest(left)))
    }
}

fn told_withdrawal(generation: GenerationNumber, withdrawal: &Withdrawal, manifest: Option<BlobHash>) -> Item {
    let Withdrawal { to, round, ordered, why } = withdrawal.clone();
    Item::Withdrawn(Withdrawn { generation, to, round, ordered, why, manifest })
}

/// Setting out.
impl Daemon {
    /// Whether a generation that was fetched is still to be gone to.
    pub(in crate::daemon) fn still_wanted(&mut self, wanted: Wanted, start: Start) -> bool {
        let goal = wanted.generation;
        let next = self.switch.state.next(self.seen());
        match start {
            // Gone to again by an order alone.
            Start::Followed if self.switch.state.withdrawn.contains_key(&goal) => false,
            Start::Ordered(_) | Start::Followed => goal != self.goal(),
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
                next == Some(Act::GoOn(goal)) && self.engine.held().is_none()
            }
        }
    }

    /// Puts on record that the host sets out, before the first `Go` on the way, and tells others. `left`: what an order
    /// leaves for something older; `by`: whose word it is, where no `go` follows that bears the name and is about the goal.
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
            Start::Followed => (None, Terms { policy: goal.policy, round, alone: false }),
            Start::Ordered(how) => {
                let terms = Terms { policy: policy(goal.policy, how), round, alone: how.alone };
                (left, terms)
            }
        };
        if let (Some(left), Start::Ordered(_)) = (left, start) {
            // An order to an older generation is a withdrawal of the newer one.
            let why = who.map_or_else(|| "ordered".to_owned(), |who| format!("ordered by {who}"));
            let round = self.switch.state.current.as_ref().filter(|c| c.to == left).map_or(0, |c| c.terms.round);
            let withdrawal = Withdrawal { to, round, ordered: true, why: short(why) };
            self.note_switch(SwitchRecord::Withdrawn(left, withdrawal), None);
        }
        let guarded = left.is_none() && terms.policy.guard_ms.is_some();
        let up = self.links.status().into_iter().filter(|p| guarded && p.up).map(|p| p.host);
        let up = up.filter(|host| goal.hosts.get(host).is_some_and(|entry| entry.address.is_some()));
        let peers = if left.is_some() { self.lost_under_guard() } else { up.collect() };
        self.note_switch(SwitchRecord::Begun { from, to, left, terms, peers }, by);
        self.switch.dead_ends.begin(self.engine.dead_ends(Time(0)).collect());
        self.switch.told.forget(|generation| generation <= to);
        self.switch.by = who.map(ToOwned::to_owned);
        self.switch.guard = None;
        if left.is_none() {
            self.spread_switch();
        } else {
            // Who goes back does not wait for others to say so.
            self.tell_all_of_switch();
        }
    }

    /// The hosts that had to be reached, when it was the guard of this host that fired.
    fn lost_under_guard(&self) -> BTreeSet<HostName> {
        let fired = |c: &&Current| !c.confirmed && c.guard.is_some_and(Guard::has_fired);
        self.switch.state.current.as_ref().filter(fired).map(|c| c.peers.clone()).unwrap_or_default()
    }

    /// The generation could not be gone to.
    pub(in crate::daemon) fn not_set_out(
        &mut self,
        wanted: Wanted,
        error: &FetchError,
        start: Start,
        asked: Option<Asked>,
    ) {
        let (now, generation) = (self.clock.now(), wanted.generation);
        match start {
            Start::Ordered(_) | Start::Followed => {
                return self.refuse_generation(generation, error, asked.map(|a| a.reply));
            }
            Start::Return { left } if matches!(error, FetchError::NoThread) => {
                self.switch.fetching = None;
                self.switch.again = Some((generation, now + AGAIN[0]));
                warn!(%generation, %error, "the way back from {left} can't be gone yet");
            }
            Start::Return { left } => {
                self.switch.fetching = None;
                error!(%generation, %error, "the way back from {left} can't be gone");
                let why = format!("generation {generation} can't be returned to: {error}");
                self.note_switch(SwitchRecord::Stopped { why: short(why) }, None);
            }
            Start::Onward => {
                self.switch.fetching = None;
                self.switch.again = Some((generation, now + AGAIN[1]));
                warn!(%generation, %error, "the next generation on the way can't be had yet");
            }
            Start::Told => {
                if let Some(by) = self.switch.told.failed(wanted, now) {
                    self.quiet.say(Topic::Told, Some(&by), |more| {
                        warn!(%generation, %error, %by, "told of a generation that can't be gone to yet{more}");
                    });
                }
                self.switch.due = self.switch.due.min(self.switch.told.due());
            }
        }
        if let Some(Asked { reply, .. }) = asked {
            self.refuse(reply, RefusalKind::Conflict, &error.to_string(), "the daemon's log tells more");
        }
    }

    /// The terms of an order for the generation that the host goes to already, if they are others. They count where it
    /// has settled, too: it follows others that still fail by them, and tells others on them.
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

    /// What a failure of the switch to a generation leads to.
    pub(in crate::daemon) fn on_failure(&self, generation: GenerationNumber) -> OnFailure {
        let current = self.switch.state.current.as_ref().filter(|c| c.to == generation && c.left.is_none());
        let policy = current.map(|c| c.terms.policy);
        policy.or_else(|| self.manifest_of(generation).ok().map(|m| m.policy)).unwrap_or_default().on_failure
    }

    /// The switch goes on under other terms.
    pub(in crate::daemon) fn reterm(&mut self, terms: Terms, who: Option<&str>) {
        self.note_switch(SwitchRecord::Reterm(terms), who);
        self.suspect_all();
        self.tell_all_of_switch();
    }

    /// The switch over a generation was cancelled: no other host is told of it from now on. Whether any was.
    pub(in crate::daemon) fn hush(&mut self, generation: GenerationNumber, who: &str) -> bool {
        let told = self.switch.state.is_told() && self.switch.state.leads_over(generation);
        if told {
            self.note_switch(SwitchRecord::Quiet(true), Some(who));
        }
        told
    }

    /// What was cancelled goes on here: others are told of it again. Whether it was kept from them.
    pub(in crate::daemon) fn speak_again(&mut self, who: &str) -> bool {
        let quiet = self.switch.state.current.as_ref().is_some_and(|c| c.quiet);
        if quiet {
            self.note_switch(SwitchRecord::Quiet(false), Some(who));
            self.tell_all_of_switch();
        }
        quiet
    }

    /// An operator's word: back from the generation that was gone to last; or only: bring here where that leads, and look.
    pub(in crate::daemon) fn rollback(&mut self, to: Option<GenerationNumber>, only_prepare: bool, asked: Asked) {
        let Asked { who, reply } = asked;
        let left = self.furthest();
        if let Some((from, withdrawal)) = self.switch.state.returned().filter(|_| to.is_none_or(|to| to == self.goal()))
        {
            let detail = format!("generation {from} is withdrawn already; this host returned to {}", withdrawal.to);
            return self.done(reply, false, detail);
        }
        // What runs well is not removed without a word about that.
        let has_settled = self.engine.generation() == left && self.book.durable().settled;
        let named = match to {
            None if has_settled => self.way_back(left).filter(|to| *to != GenerationNumber(0)),
            Some(to) => self.names_way_back(left, to).then_some(to),
            None => self.way_back(left),
        };
        let Some(target) = named else {
            let what = match to {
                Some(to) => format!("generation {left} names no way back to {to}"),
                None => format!("generation {left} names {NO_WAY_BACK}"),
            };
            let hint = match to {
                Some(to) if to > left => {
                    format!("that is no way back: if there is such a generation, `cobctl switch {to}` goes on to it")
                }
                Some(_) => OLDER_CONTENT.to_owned(),
                None if self.names_way_back(left, GenerationNumber(0)) => REMOVES_ALL.to_owned(),
                None => "`cobctl switch N` goes to one that was withdrawn, by its number".to_owned(),
            };
            return self.refuse(reply, RefusalKind::Conflict, &what, &hint);
        };
        if let Err(error) = self.way_to(target) {
            return self.refuse_generation(target, &error, Some(reply));
        }
        if only_prepare {
            return self.prepare(self.way_named(left, target), Asked { who, reply });
        }
        let why = format!("ordered by {who}");
        self.withdraw(left, target, true, why, Some(&who));
        let done = Done::new(true, format!("back from generation {left} to {target}"));
        self.turn.answers.push((reply, Ok(Done { generation: Some(target), ..done })));
    }

    /// Where a withdrawal of a generation leads, if nobody says.
    pub(in crate::daemon) fn way_back(&self, left: GenerationNumber) -> Option<GenerationNumber> {
        let state = &self.switch.state;
        let came_from = state.current.as_ref().filter(|c| c.to == left && c.left.is_none()).map(|c| c.from);
        let manifest = self.manifest_of(left).ok()?;
        // A host that came from another content under the number is led to no older one instead.
        let from_another = |way: &WayBack| Some(way.generation) == came_from && self.leads_to_another(way);
        if manifest.back.iter().any(from_another) {
            return None;
        }
        let is_none = |way: &WayBack| state.is_left(way.generation) || self.leads_to_another(way);
        way_back(&manifest, came_from, is_none)
    }

    /// Whether this host knows another content under the number of a way back.
    fn leads_to_another(&self, way: &WayBack) -> bool {
        self.generations.manifest_known(way.generation).is_some_and(|known| known != way.manifest)
    }

    /// Where a way back leads, with the content that it was signed for.
    fn way_named(&self, left: GenerationNumber, to: GenerationNumber) -> Wanted {
        let manifest = self.manifest_of(left).ok();
        let way = manifest.as_ref().and_then(|manifest| manifest.back.iter().find(|way| way.generation == to));
        Wanted { generation: to, manifest: way.map(|way| way.manifest) }
    }

    fn names_way_back(&self, left: GenerationNumber, to: GenerationNumber) -> bool {
        let leads = |way: &WayBack| way.generation == to && !self.leads_to_another(way);
        self.manifest_of(left).is_ok_and(|manifest| to < left && manifest.back.iter().any(leads))
    }

    /// Puts a withdrawal on record; what follows is done at the end of the turn.
    pub(in crate::daemon) fn withdraw(
        &mut self,
        left: GenerationNumber,
        to: GenerationNumber,
        ordered: bool,
        why: String,
        who: Option<&str>,
    ) {
        let current = self.switch.state.current.as_ref().filter(|c| c.to == left && c.left.is_none());
        let round = current.map_or_else(|| self.switch.state.round_of_order(left), |c| c.terms.round);
        warn!(generation = %left, %to, why, "withdrawn");
        if current.is_none() {
            // Gone to before there were records of switches.
            let from = self.engine.generation();
            let terms = Terms { round, ..Terms::default() };
            self.note_switch(SwitchRecord::Begun { from, to: left, left: None, terms, peers: BTreeSet::new() }, None);
        }
        let withdrawal = Withdrawal { to, round, ordered, why: short(why) };
        self.note_switch(SwitchRecord::Withdrawn(left, withdrawal), who);
        self.switch.guard = None;
    }
}

/// Where a generation is left for: where the host has come from, if the manifest names the way, else the newest that it
/// names. Never one that was withdrawn itself, or that is another one here; and the empty generation only where the host
/// has come from there and no other way is left: other hosts may have had something before.
fn way_back(
    manifest: &Manifest,
    came_from: Option<GenerationNumber>,
    is_none: impl Fn(&WayBack) -> bool,
) -> Option<GenerationNumber> {
    let ways = manifest.back.iter().filter(|way| way.generation < manifest.generation && !is_none(way));
    let named: BTreeSet<_> = ways.map(|way| way.generation).collect();
    let nothing = GenerationNumber(0);
    let newest = || named.last().copied().filter(|newest| *newest != nothing || came_from == Some(nothing));
    came_from.filter(|from| *from != nothing && named.contains(from)).or_else(newest)
}

/// A generation's policy as an order changes it.
fn policy(of: SwitchPolicy, how: SwitchHow) -> SwitchPolicy {
    let guard_ms = match how.guard_ms {
        None => of.guard_ms,
        Some(0) => None,
        Some(ms) => Some(ms),
    };
    SwitchPolicy { on_failure: how.on_failure.unwrap_or(of.on_failure), guard_ms }
}

/// At most so long as is kept and sent.
fn short(mut why: String) -> String {
    if why.len() > MAX_WHY {
        let end = (0..=MAX_WHY - 3).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0);
        why.truncate(end);
        why.push('…');
    }
    why
}

#[cfg(test)]
mod tests {
    use cob_types::canonical::blob_hash;
    use cob_types::generation::Security;

    use super::*;

    #[test]
    fn a_generation_is_left_for_where_the_host_came_from_and_never_for_one_that_was_withdrawn() {
        let number = GenerationNumber;
        let mut manifest = Manifest::empty(number(8), number(7), Security::LoopbackOnly);
        let way = |generation| WayBack { generation: number(generation), manifest: blob_hash(b"") };
        manifest.back = vec![way(7), way(6), way(5), way(9)];
        let back = |from: Option<u64>, withdrawn: &[u64]| {
            way_back(&manifest, from.map(number), |way| withdrawn.contains(&way.generation.0)).map(|g| g.0)
        };
        assert_eq!(back(Some(7), &[]), Some(7));
        assert_eq!(back(Some(6), &[]), Some(6));
        assert_eq!(back(Some(6), &[7]), Some(6));
        // From where no way is named, or nobody knows from where: the newest that is.
        assert_eq!(back(Some(4), &[7]), Some(6));
        assert_eq!(back(None, &[]), Some(7));
        assert_eq!(back(Some(6), &[6, 7]), Some(5));
        assert_eq!(back(Some(6), &[5, 6, 7]), None);
        // To nothing by itself only where nothing was before, and no other way is left.
        manifest.back.push(way(0));
        let back = |from: Option<u64>, withdrawn: &[u64]| {
            way_back(&manifest, from.map(number), |way| withdrawn.contains(&way.generation.0)).map(|g| g.0)
        };
        assert_eq!(back(Some(0), &[]), Some(7));
        assert_eq!(back(Some(0), &[5, 6, 7]), Some(0));
        assert_eq!(back(Some(4), &[5, 6, 7]), None);
        assert_eq!(back(None, &[5, 6, 7]), None);
    }
}
