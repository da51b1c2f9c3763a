//! The switch that this host is in: set out, watched over, withdrawn, and told to others.
//!
//! What follows from what stands in `cob_engine::switch` and `cob_engine::guard`; here it is done. Each step is a
//! record of the turn before anything of it is said or started.
//!
//! ```text
//!   an operator, the depot, another host --> set_out --> begin: on record, told to all links
//!   records of the turn, clock, links    --> look_after_switch: settle, withdraw, stop, on to the next
//!   link up, going, withdrawn            --> tell_switch, heard_of_switch
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use cob_engine::guard::{Heard, Judgement, Watch};
use cob_engine::record::{Body, Record};
use cob_engine::switch::{Act, Failing, Seen, Stage, SwitchRecord, Switching, Terms, Withdrawal};
use cob_engine::time::Span;
use cob_engine::{Durable, Time};
use cob_types::message::{Going, MAX_WHY, Withdrawn};
use cob_types::status::{MadeMove, SwitchStage, SwitchStatus};
use cob_types::switch::SwitchPolicy;
use cob_types::words::count;
use cob_types::{CobId, GenerationNumber, HostName, Item, Manifest};
use tracing::{error, info, warn};

use super::{Asked, Daemon};
use crate::generations::FetchError;
use crate::peer::Transport as _;
use crate::web::{RefusalKind, SwitchHow};

/// How often a guard is looked at.
const LOOK: Span = Span::millis(500);
/// Between two tries to get a generation that another host has told of: the first, and the longest.
const AGAIN: [Span; 2] = [Span::secs(2), Span::secs(30)];
/// How long a host must be converged to have settled: what others restart in the switch may need it once more.
const SETTLED_AFTER: Span = Span::secs(3);
/// The shortest guard that another host's word may set.
const TOLD_GUARD_MS: u64 = 5000;

/// What a generation is fetched for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Aim {
    /// To have it.
    Keep,
    /// To go to it.
    Go(Start),
}

/// Who wants a host to go to a generation.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start {
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
pub(super) struct SwitchWatch {
    state: Switching,
    guard: Option<Watch>,
    due: Time,
    /// What is on its way because of a return, or of a step.
    fetching: Option<GenerationNumber>,
    /// What another host has told of and is not here yet.
    told: Option<Told>,
    /// Since when the host has been converged without a break.
    converged: Option<Time>,
    /// One that gave up in an earlier life, and when.
    failed_before: Option<(CobId, Time)>,
}

#[derive(Debug, Clone)]
struct Told {
    by: HostName,
    generation: GenerationNumber,
    terms: Terms,
    /// When it is tried again; never: it is being fetched.
    at: Time,
    pause: Span,
}

impl SwitchWatch {
    /// As it was left by an earlier life.
    pub(super) fn returned(durable: &Durable) -> Self {
        let state = durable.switching.clone();
        let failed = durable.cobs.iter().filter(|(_, c)| c.failed).max_by_key(|(_, c)| c.since);
        let failed_before = failed.map(|(cob, c)| (cob.clone(), c.since));
        Self { state, guard: None, due: Time(0), fetching: None, told: None, converged: None, failed_before }
    }

    /// When it is to be looked after next.
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// Whether there is a switch that has not settled.
    fn is_open(&self) -> bool {
        self.state.current.as_ref().is_some_and(|c| c.stage != Stage::Settled)
    }

    /// The generations that were withdrawn.
    pub(super) fn withdrawn(&self) -> BTreeSet<GenerationNumber> {
        self.state.withdrawn.keys().copied().collect()
    }

    /// Whose word it is that a host goes by, when it is not an operator's.
    pub(super) fn teller(&self, start: Start) -> Option<String> {
        match start {
            Start::Told => self.told.as_ref().map(|told| format!("host {}", told.by)),
            Start::Return { .. } | Start::Ordered(_) | Start::Followed | Start::Onward => None,
        }
    }

    /// What this host tells of the switch that it is in.
    fn stance(&self) -> Option<Item> {
        let current = self.state.current.as_ref()?;
        let Terms { policy, round, alone } = current.terms;
        let Some((left, withdrawal)) = self.state.returned() else {
            let going = !alone && current.left.is_none() && !self.state.is_withdrawn(current.to, round);
            return going.then(|| Item::Going(Going { generation: current.to, policy, round }));
        };
        // Who goes alone still may be the one that finds out for all.
        (!alone || !withdrawal.ordered).then(|| told_withdrawal(left, withdrawal))
    }
}

fn told_withdrawal(generation: GenerationNumber, withdrawal: &Withdrawal) -> Item {
    let Withdrawal { to, round, ordered, why } = withdrawal.clone();
    Item::Withdrawn(Withdrawn { generation, to, round, ordered, why })
}

/// Setting out.
impl Daemon {
    /// Whether a generation that was fetched is still to be gone to.
    pub(super) fn still_wanted(&mut self, goal: GenerationNumber, start: Start) -> bool {
        let next = self.switch.state.next(self.seen());
        match start {
            Start::Ordered(_) | Start::Followed => {
                let on_its_way = self.current_goal() == Some(goal);
                goal != self.here() && !(on_its_way && self.engine.going_to().is_some())
            }
            Start::Told => {
                let told = self.switch.told.as_ref().filter(|t| t.generation == goal);
                told.is_some_and(|t| self.goes_when_told(goal, t.terms.round))
            }
            Start::Return { left } => {
                self.switch.fetching = None;
                next == Some(Act::GoBack { left, to: goal })
            }
            Start::Onward => {
                self.switch.fetching = None;
                next == Some(Act::GoOn(goal))
            }
        }
    }

    /// Puts on record that the host sets out, before the first `Go` on the way, and tells others.
    pub(super) fn begin(
        &mut self,
        goal: &Arc<Manifest>,
        start: Start,
        back: bool,
        who: Option<&str>,
    ) -> Result<(), FetchError> {
        let (from, to) = (self.engine.generation(), goal.generation);
        let before = self.switch.state.current.as_ref().map(|c| c.terms).unwrap_or_default();
        let round = self.switch.state.round_of_order(to);
        let (left, terms) = match start {
            Start::Onward => return Ok(()),
            Start::Return { left } => (Some(left), before),
            Start::Told => {
                let told = self.switch.told.take();
                (None, told.map_or(Terms { policy: goal.policy, round, alone: false }, |t| t.terms))
            }
            Start::Followed => (None, Terms { policy: goal.policy, round, alone: false }),
            Start::Ordered(how) => {
                let terms = Terms { policy: policy(goal.policy, how), round, alone: how.alone };
                (if back { Some(self.newest()?) } else { None }, terms)
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
        let peers = up.filter(|host| goal.hosts.get(host).is_some_and(|entry| entry.address.is_some())).collect();
        self.note_switch(SwitchRecord::Begun { from, to, left, terms, peers }, None);
        self.switch.guard = None;
        self.tell_all_of_switch();
        Ok(())
    }

    /// The generation could not be gone to.
    pub(super) fn not_set_out(
        &mut self,
        generation: GenerationNumber,
        error: &FetchError,
        start: Start,
        asked: Option<Asked>,
    ) {
        let now = self.clock.now();
        match start {
            Start::Ordered(_) | Start::Followed => {
                return self.refuse_generation(generation, error, asked.map(|a| a.reply));
            }
            Start::Return { left } => {
                self.switch.fetching = None;
                error!(%generation, %error, "the way back from {left} can't be gone");
                let why = format!("generation {generation} can't be returned to: {error}");
                self.note_switch(SwitchRecord::Stopped { why: short(why) }, None);
            }
            Start::Onward => {
                self.switch.fetching = None;
                self.switch.due = now + AGAIN[1];
                warn!(%generation, %error, "the next generation on the way can't be had yet");
            }
            Start::Told => {
                if let Some(told) = self.switch.told.as_mut().filter(|t| t.generation == generation) {
                    if told.pause == AGAIN[0] {
                        warn!(%generation, %error, by = %told.by, "told of a generation that can't be gone to yet");
                    }
                    told.at = now + told.pause;
                    told.pause = told.pause.doubled(1, AGAIN[1]);
                    self.switch.due = self.switch.due.min(told.at);
                }
            }
        }
        if let Some(Asked { reply, .. }) = asked {
            self.refuse(reply, RefusalKind::Conflict, &error.to_string(), "the daemon's log tells more");
        }
    }

    /// The terms of an order for the generation that the host goes to already, if they are others.
    pub(super) fn other_terms(&self, generation: GenerationNumber, how: SwitchHow) -> Option<Terms> {
        let current = self.switch.state.current.as_ref()?;
        if current.to != generation || current.left.is_some() || current.stage != Stage::UnderWay {
            return None;
        }
        let terms = Terms {
            policy: policy(current.terms.policy, SwitchHow { guard_ms: None, ..how }),
            alone: current.terms.alone && how.alone,
            ..current.terms
        };
        (terms != current.terms).then_some(terms)
    }

    /// The switch goes on under other terms.
    pub(super) fn reterm(&mut self, terms: Terms, who: Option<&str>) {
        self.note_switch(SwitchRecord::Reterm(terms), who);
        self.tell_all_of_switch();
    }

    /// An operator's word: back from the generation that was gone to last.
    pub(super) fn rollback(&mut self, to: Option<GenerationNumber>, asked: Asked) {
        let Asked { who, reply } = asked;
        let left = self.current_goal().unwrap_or(self.here()).max(self.here());
        if let Some((from, withdrawal)) = self.switch.state.returned().filter(|_| to.is_none_or(|to| to == self.here()))
        {
            let detail = format!("generation {from} is withdrawn already; this host returned to {}", withdrawal.to);
            return self.done(reply, false, detail);
        }
        let named = self.manifest_of(left).and_then(|manifest| way_back(&manifest, to));
        let Some(target) = named else {
            let what = match to {
                Some(to) => format!("generation {left} names no way back to {to}"),
                None => format!("generation {left} names no way back"),
            };
            return self.refuse(
                reply,
                RefusalKind::Conflict,
                &what,
                "make a new generation with the older content and switch to that",
            );
        };
        if let Err(error) = self.way_to(target) {
            return self.refuse_generation(target, &error, Some(reply));
        }
        let why = format!("ordered by {who}");
        self.withdraw(left, target, true, why, Some(&who));
        self.done(reply, true, format!("back from generation {left} to {target}"));
    }

    /// Puts a withdrawal on record; what follows is done at the end of the turn.
    fn withdraw(
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

/// Looking after it.
impl Daemon {
    /// Takes up what an earlier life was at.
    pub(super) fn take_up_switch(&mut self) {
        let guard = self.switch.state.current.as_ref().and_then(|c| c.guard);
        if let Some(guard) = guard {
            let guard = guard.restarted();
            self.note_switch(SwitchRecord::Guarded(guard), None);
            self.switch.guard = Some(Watch::new(guard, self.clock.now()));
        }
        if let Some((cob, at)) = self.switch.failed_before.take() {
            self.cob_failed(&cob, at);
        }
        self.look_after_switch();
    }

    /// Does what the switch asks for, once everything of the turn is known.
    pub(super) fn look_after_switch(&mut self) {
        let now = self.clock.now();
        if self.engine.is_converged() {
            self.switch.converged.get_or_insert(now);
        } else {
            self.switch.converged = None;
        }
        self.hear_of_the_turn();
        self.look_at_guard(now);
        let told = self.switch.told.as_mut().filter(|t| t.at <= now);
        if let Some(told) = told {
            told.at = Time::NEVER;
            let generation = told.generation;
            self.fetch(generation, Aim::Go(Start::Told), None);
        }
        self.switch.due = self.next_look(now);
        // What was activated in this turn is made ready first.
        if self.turn.effects.activated {
            self.switch.due = now;
            return;
        }
        match self.switch.state.next(self.seen()) {
            Some(Act::Settle) => {
                info!(generation = %self.engine.generation(), "settled");
                self.note_switch(SwitchRecord::Settled, None);
            }
            Some(Act::GoBack { left, to }) => self.get(to, Start::Return { left }),
            Some(Act::GoOn(goal)) => self.get(goal, Start::Onward),
            Some(Act::Guard(guard)) => {
                self.note_switch(SwitchRecord::Guarded(guard), None);
                self.switch.guard = Some(Watch::new(guard, now));
                self.switch.due = now;
                self.busy_at = now;
            }
            None => {}
        }
    }

    fn get(&mut self, generation: GenerationNumber, start: Start) {
        if self.switch.fetching != Some(generation) {
            self.switch.fetching = Some(generation);
            self.fetch(generation, Aim::Go(start), None);
        }
    }

    fn next_look(&self, now: Time) -> Time {
        let guard = if self.switch.guard.is_some() { now + LOOK } else { Time::NEVER };
        let told = self.switch.told.as_ref().map_or(Time::NEVER, |told| told.at);
        let settles =
            self.switch.converged.filter(|_| self.switch.is_open()).map_or(Time::NEVER, |at| at + SETTLED_AFTER);
        told.min(guard).min(if settles > now { settles } else { Time::NEVER })
    }

    /// Those that have given up, and moves that can't be taken back.
    fn hear_of_the_turn(&mut self) {
        let mut failed = Vec::new();
        let mut made = Vec::new();
        for record in &self.turn.effects.persist {
            match &record.body {
                Body::Ended { cob, failed: true, .. } => failed.push(cob.clone()),
                Body::Ended { cob, from, to, ok: Some(true), .. } => made.push((cob.clone(), from.clone(), to.clone())),
                Body::Checked { cob, state: None, .. } => failed.push(cob.clone()),
                _ => {}
            }
        }
        if self.switch.state.current.as_ref().is_none_or(|c| c.stage != Stage::UnderWay) {
            return;
        }
        let now = self.clock.now();
        for (cob, from, to) in made {
            let ready = self.active.as_ref().and_then(|a| a.cobs.get(&cob));
            let transition = ready.and_then(|r| r.kind.transitions.iter().find(|t| t.from == from && t.to == to));
            if transition.is_some_and(|t| t.irreversible) {
                self.note_switch(SwitchRecord::Made { cob, from, to }, None);
            }
        }
        for cob in failed {
            if self.engine.status_of(&cob, now).is_some_and(|status| status.failed) {
                self.cob_failed(&cob, now);
            }
        }
    }

    fn cob_failed(&mut self, cob: &CobId, at: Time) {
        let failing = self.switch.state.on_failure(at);
        let why = match self.engine.status_of(cob, self.clock.now()).and_then(|status| status.action) {
            Some(action) => match (&action.from, &action.to) {
                (Some(from), Some(to)) => format!("{cob} gave up moving from {from} to {to}: {}", action.error),
                _ => format!("{cob} can't be checked: {}", action.error),
            },
            None => format!("{cob} gave up"),
        };
        match failing {
            Failing::Hold => {}
            Failing::Stop => {
                error!(why, "the return has stopped");
                self.note_switch(SwitchRecord::Stopped { why: short(why) }, None);
            }
            Failing::Withdraw => self.withdraw_by_policy(why),
        }
    }

    /// Withdraws the generation that the host goes to, if there is a way back.
    fn withdraw_by_policy(&mut self, why: String) {
        let Some(left) = self.current_goal() else { return };
        match self.manifest_of(left).and_then(|manifest| way_back(&manifest, None)) {
            Some(to) => self.withdraw(left, to, false, why, None),
            None => {
                error!(generation = %left, why, "a generation that names no way back can't be withdrawn");
                let why = format!("{why}; generation {left} names no way back");
                self.note_switch(SwitchRecord::Stopped { why: short(why) }, None);
            }
        }
    }

    fn look_at_guard(&mut self, now: Time) {
        let Some(mut watch) = self.switch.guard.take() else { return };
        let required = self.required();
        let heard: Vec<Heard> = required.iter().map(|host| self.heard(host)).collect();
        let converged = self.engine.is_converged();
        match watch.look(&heard, converged, now) {
            Judgement::Wait => self.switch.guard = Some(watch),
            Judgement::Note(guard) => {
                self.note_switch(SwitchRecord::Guarded(guard), None);
                self.switch.guard = Some(watch);
            }
            Judgement::Confirmed => {
                info!("the guard is satisfied: all hosts that must be reached are");
                self.note_switch(SwitchRecord::Confirmed, None);
            }
            Judgement::Lost(_) => {
                let lost: Vec<_> = self.unreached(&required, now);
                let of = count(required.len(), "host");
                let lost: Vec<&str> = lost.iter().map(HostName::as_str).collect();
                self.withdraw_by_policy(format!("the guard: not reached of {of}: {}", lost.join(", ")));
            }
        }
    }

    /// The hosts that the guard asks for: they answered before, and are in the generation.
    fn required(&self) -> Vec<HostName> {
        let (Some(current), Some(active)) = (&self.switch.state.current, &self.active) else { return Vec::new() };
        let hosts = &active.prepared.manifest.hosts;
        current.peers.iter().filter(|host| hosts.contains_key(*host)).cloned().collect()
    }

    fn heard(&self, host: &HostName) -> Heard {
        let at = self.links.heard(host);
        Heard { up: at.is_some(), at: at.map_or(Time(0), |at| self.clock.at(at)) }
    }

    fn unreached(&self, required: &[HostName], now: Time) -> Vec<HostName> {
        let silent = |h: Heard| !h.up || now.0.saturating_sub(h.at.0) > Span::secs(7).0;
        required.iter().filter(|host| silent(self.heard(host))).cloned().collect()
    }

    /// The hosts that must be heard from soon.
    pub(super) fn guarded_hosts(&self) -> Vec<HostName> {
        if self.switch.guard.is_some() { self.required() } else { Vec::new() }
    }
}

/// Between hosts.
impl Daemon {
    /// Tells a host of the switch that this one is in.
    pub(super) fn tell_switch(&mut self, host: &HostName) {
        if let Some(item) = self.switch.stance() {
            self.turn.effects.send.push((host.clone(), item));
        }
    }

    fn tell_all_of_switch(&mut self) {
        let linked: Vec<_> = self.links.status().into_iter().filter(|p| p.up).map(|p| p.host).collect();
        linked.iter().for_each(|host| self.tell_switch(host));
    }

    /// What another host says of its switch.
    pub(super) fn heard_of_switch(&mut self, host: &HostName, item: Item) {
        match item {
            Item::Going(going) => self.heard_going(host, going),
            Item::Withdrawn(withdrawn) => self.heard_withdrawn(host, withdrawn),
            _ => {}
        }
    }

    fn heard_going(&mut self, host: &HostName, going: Going) {
        let Going { generation, mut policy, round } = going;
        if let Some(withdrawal) = self.switch.state.withdrawn.get(&generation).filter(|w| w.round >= round) {
            let item = told_withdrawal(generation, withdrawal);
            self.turn.effects.send.push((host.clone(), item));
            return;
        }
        let current = self.switch.state.current.as_ref().filter(|c| c.to == generation && c.left.is_none());
        if let Some(current) = current {
            if round > current.terms.round {
                let terms = Terms { round, ..current.terms };
                self.note_switch(SwitchRecord::Reterm(terms), None);
            }
            return;
        }
        let known = self.switch.told.as_ref().is_some_and(|t| t.generation >= generation && t.terms.round >= round);
        if known || !self.goes_when_told(generation, round) {
            return;
        }
        policy.guard_ms = policy.guard_ms.map(|ms| ms.max(TOLD_GUARD_MS));
        info!(%generation, by = %host, "told of a switch");
        let terms = Terms { policy, round, alone: false };
        let told = Told { by: host.clone(), generation, terms, at: Time::NEVER, pause: AGAIN[0] };
        self.switch.told = Some(told);
        self.fetch(generation, Aim::Go(Start::Told), None);
    }

    /// Whether this host goes where another one says that it goes: onward only, and to nothing that was left.
    fn goes_when_told(&self, generation: GenerationNumber, round: u32) -> bool {
        let here = self.here().max(self.current_goal().unwrap_or_default());
        let again = self.switch.state.withdrawn.contains_key(&generation);
        self.engine.generation() != GenerationNumber(0)
            && generation > here
            && !self.switch.state.is_withdrawn(generation, round)
            && (again || self.newest().is_ok_and(|newest| generation > newest))
    }

    fn heard_withdrawn(&mut self, host: &HostName, withdrawn: Withdrawn) {
        let Withdrawn { generation, to, round, ordered, why } = withdrawn;
        if !self.switch.state.follows(generation, round, ordered) {
            return;
        }
        let named = self.manifest_of(generation).and_then(|manifest| way_back(&manifest, Some(to)));
        if named.is_none() {
            warn!(%generation, %to, by = %host, "a withdrawal is not followed: no such way back is named");
            return;
        }
        let why = if why.contains(" (told by ") { why } else { format!("{why} (told by {host})") };
        self.withdraw(generation, to, ordered, why, None);
    }

    /// The manifest of a generation that this host has, or has had.
    fn manifest_of(&self, generation: GenerationNumber) -> Option<Arc<Manifest>> {
        let at_hand = [self.coming.as_ref(), self.active.as_ref().map(|a| &a.prepared)];
        let found = at_hand.into_iter().flatten().find(|p| p.manifest.generation == generation);
        match found {
            Some(prepared) => Some(prepared.manifest.clone()),
            None => self.generations.load(generation).ok().map(|p| p.manifest),
        }
    }

    /// Where the switch forward that the host is in, or was in last, leads.
    fn current_goal(&self) -> Option<GenerationNumber> {
        self.switch.state.current.as_ref().filter(|c| c.left.is_none()).map(|c| c.to)
    }

    fn seen(&self) -> Seen {
        let engine = &self.engine;
        let settled = |at: Time| at + SETTLED_AFTER <= self.clock.now();
        let converged = engine.is_converged() && self.switch.converged.is_some_and(settled);
        Seen { active: engine.generation(), going: engine.going_to(), converged }
    }

    fn note_switch(&mut self, step: SwitchRecord, by: Option<&str>) {
        let at = self.clock.now();
        self.switch.state.apply(&step, at);
        self.turn.effects.persist.push(Record {
            at,
            lamport: self.engine.lamport(),
            generation: self.engine.generation(),
            body: Body::Switch(step),
            by: by.map(ToOwned::to_owned),
        });
    }

    /// The switch for people; none when there is nothing to say of it.
    pub(super) fn switch_status(&self) -> Option<SwitchStatus> {
        let current = self.switch.state.current.as_ref()?;
        let returned = self.switch.state.returned();
        if current.stage == Stage::Settled && current.left.is_none() {
            return None;
        }
        let now = self.clock.now();
        let moves = current.made.iter().filter(|_| current.left.is_some());
        let why = match (current.stage, returned) {
            (Stage::Stopped, _) | (_, None) => current.why.clone(),
            (Stage::UnderWay | Stage::Settled, Some((_, withdrawal))) => withdrawal.why.clone(),
        };
        Some(SwitchStatus {
            to: current.to,
            stage: match current.stage {
                Stage::UnderWay => SwitchStage::Going,
                Stage::Settled => SwitchStage::Settled,
                Stage::Stopped => SwitchStage::Stopped,
            },
            left: current.left,
            why,
            on_failure: current.terms.policy.on_failure,
            guard_left_ms: self.switch.guard.as_ref().map(|watch| watch.left_ms(now)),
            unreached: self.switch.guard.as_ref().map_or(Vec::new(), |_| self.unreached(&self.required(), now)),
            remains: moves
                .map(|(cob, from, to)| MadeMove { cob: cob.clone(), from: from.clone(), to: to.clone() })
                .collect(),
        })
    }
}

/// The newest generation to which a manifest names a way back, or this one if it does.
fn way_back(manifest: &Manifest, to: Option<GenerationNumber>) -> Option<GenerationNumber> {
    let all = manifest.back.iter().map(|way| way.generation);
    all.filter(|back| *back < manifest.generation && to.is_none_or(|to| *back == to)).max()
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
