//! The real state of every change object, the running actions, and their reliance on each other.
//!
//! It is separate from the beliefs of the engines, and states the safety invariant: an action starts from the real
//! state, no action relies on the state that it changes, and all states that it relies on are as required and not in
//! transition.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cob_types::cob::Fingerprint;
use cob_types::message::Values;
use cob_types::{Bundle, CobId, GenerationNumber, Need, Number, StateName};

use crate::event::CheckOutcome;
use crate::record::{Body, Note, Record};
use crate::sim::switching::Bundles;

#[cfg(feature = "explored")]
#[path = "../../tests/explored/reality.rs"]
mod canonical;

/// The change objects of all hosts.
#[derive(Debug, Clone, Default)]
pub struct Reality {
    /// In the order in which they were added.
    pub things: Vec<Thing>,
    /// Looked up, never iterated.
    ix: Arc<HashMap<CobId, usize>>,
    /// Members of budgets that went out of service beside too many others.
    pub crowded: Vec<Crowded>,
}

/// A member of a budget goes out of service while others are out of service already, some of these without a token,
/// because their hosts have lost power: together more than the budget permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crowded {
    /// The budget.
    pub budget: CobId,
    /// Its limit.
    pub at_most: u32,
    /// The member that goes out of service.
    pub cob: CobId,
    /// All members that are out of service then.
    pub away: Vec<CobId>,
}

/// A change object as it really is.
#[derive(Debug, Clone)]
pub struct Thing {
    /// Its id.
    pub id: CobId,
    /// The index of its host.
    pub host: usize,
    /// Its real state.
    pub state: StateName,
    /// The content that the state was made with.
    content: Option<Fingerprint>,
    /// The action that really runs.
    pub running: Option<Running>,
    /// The number of running actions that rely on its state.
    relied_on: u32,
    /// Set from a transition that takes it out of service until it is back.
    disturbed: Option<Disturbed>,
    /// The budget that has granted it an unreleased token beyond its number.
    beyond: Option<CobId>,
    /// It departs or has departed in its present state: for departing change objects, and moves on their behalf, this
    /// state is as good as real.
    kept_from: Option<StateName>,
    /// Holders of a grant of that state while it was as good as there. The grant remains valid when it no longer
    /// departs, until it moves.
    promised_as_left: BTreeMap<CobId, StateName>,
    /// Set when its host loses power.
    lost: Option<Lost>,
}

/// A change object out of service because its host lost power.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Lost {
    /// Its host is off.
    Off,
    /// A service that died with the host, until it is in this state.
    Until(StateName),
}

/// A disturbed member of a budget.
#[derive(Debug, Clone)]
struct Disturbed {
    budget: CobId,
    /// The state in which it is back.
    back_in: StateName,
}

/// An action that really runs.
#[derive(Debug, Clone)]
pub struct Running {
    /// The number of its job.
    pub job: Number,
    /// The state before.
    pub from: StateName,
    /// The state after.
    pub to: StateName,
    content: Option<Fingerprint>,
    /// Which change object relies on which: first the acting change object, then the change objects that it relies on.
    ways: Vec<(usize, usize)>,
}

impl Running {
    /// All states that must not change while it runs.
    fn relies_on(&self) -> BTreeSet<usize> {
        self.ways.iter().map(|(_, on)| *on).collect()
    }
}

/// An action that is about to start.
#[derive(Debug)]
pub struct Begin<'a> {
    /// The index of its change object.
    pub thing: usize,
    /// The number of its job.
    pub job: Number,
    /// The state before.
    pub from: &'a StateName,
    /// The state after.
    pub to: &'a StateName,
    /// Also follows the dependencies of locks. This takes long in a large cluster.
    pub deep: bool,
    /// Reinstalled hosts that this host does not know of: their grants are invalid.
    pub void: &'a [usize],
}

impl Reality {
    /// Adds a change object, if it is not there yet.
    pub fn add(&mut self, id: &CobId, host: usize, state: StateName, content: Fingerprint) {
        if self.ix.contains_key(id) {
            return;
        }
        Arc::make_mut(&mut self.ix).insert(id.clone(), self.things.len());
        let (id, content) = (id.clone(), Some(content));
        self.things.push(Thing {
            id,
            host,
            state,
            content,
            running: None,
            relied_on: 0,
            disturbed: None,
            beyond: None,
            kept_from: None,
            promised_as_left: BTreeMap::new(),
            lost: None,
        });
    }

    /// Updates the kept change objects of a host for its active generation and its target: departing if the target
    /// lacks them, departed if the active generation does. In a rollback a departed change object comes again when its
    /// host has switched, not when the rollback is ordered.
    pub fn note_kept(&mut self, bundles: &Bundles, at: [GenerationNumber; 2]) {
        for bundle in bundles.values() {
            for (id, cob) in bundle.cobs.iter().filter(|(_, cob)| cob.leaves_as_it_is()) {
                let Some(thing) = self.find(id) else { continue };
                let lacks = |at: &GenerationNumber| bundles.get(at).is_some_and(|b| !b.cobs.contains_key(id));
                let off = bundle.kinds.get(&cob.kind).map(|kind| kind.pre_remove.clone());
                self.things[thing].kept_from = off.filter(|_| at.iter().any(lacks));
            }
        }
    }

    /// Updates the reliance from a record.
    pub fn note(&mut self, record: &Record) {
        if let Body::Granted { cob, to, grant } = &record.body {
            self.granted(cob, to, &grant.state);
        } else if let Body::Returned { cob, from, .. } = &record.body {
            self.returned(cob, from);
        } else if let Body::Note { cob, note: Note::Overdrawn { by, .. } } = &record.body {
            self.overdrawn(cob, by);
        }
    }
    /// Notes a grant: of the real state, or of the state that is as good.
    fn granted(&mut self, asked: &CobId, by: &CobId, state: &StateName) {
        let Some(thing) = self.find(asked) else { return };
        let thing = &mut self.things[thing];
        let as_left = thing.state != *state && thing.kept_from.as_ref() == Some(state);
        if as_left {
            thing.promised_as_left.insert(by.clone(), state.clone());
        } else {
            thing.promised_as_left.remove(by);
        }
    }

    /// The index of a change object.
    #[must_use]
    pub fn find(&self, id: &CobId) -> Option<usize> {
        self.ix.get(id).copied()
    }

    /// The result of a check: during an action the state before it, as many checks find. No engine checks then.
    #[must_use]
    pub fn look(&self, id: &CobId, active: Option<&Bundle>) -> CheckOutcome {
        match self.find(id) {
            Some(thing) => {
                let state = self.judged(thing, active);
                CheckOutcome::Found { state, values: Values::new(), detail: String::new(), fresh: false }
            }
            None => CheckOutcome::Failed("the change object does not exist".to_owned()),
        }
    }

    /// Its state as its own host names it: `outdated` if it was made with other content than the active content.
    fn judged(&self, thing: usize, active: Option<&Bundle>) -> StateName {
        let Thing { id, state, content, .. } = &self.things[thing];
        let outdated = || {
            let cob = active?.cobs.get(id)?;
            let kind = active?.kinds.get(&cob.kind)?;
            let old = *content != Some(cob.fingerprint) && *state != kind.pre_remove;
            kind.outdated().filter(|_| old).cloned()
        };
        outdated().unwrap_or_else(|| state.clone())
    }

    /// Starts an action. `active` is the active bundle of a host.
    ///
    /// # Errors
    /// Every breach of safety, in words. The action runs all the same, unless another action of the change object runs
    /// or it starts from another state.
    pub fn begin<'b>(
        &mut self,
        begin: &Begin<'_>,
        active: impl Fn(usize) -> Option<&'b Bundle>,
    ) -> Result<(), Vec<String>> {
        let Begin { thing, job, from, to, .. } = *begin;
        let Thing { id, host, relied_on, lost, .. } = &self.things[thing];
        if self.things[thing].running.is_some() {
            return Err(vec![format!("{id} acts while an action of it runs")]);
        }
        let bundle = active(*host);
        let real = self.judged(thing, bundle);
        if real != *from {
            return Err(vec![format!("{id} leaves {from}, but is in {real}")]);
        }
        let mut breaches = Vec::new();
        // A power loss ends a service without regard to its grants.
        if *relied_on > 0 && lost.is_none() {
            breaches.push(format!("{id} leaves {from} while an action relies on it"));
        }
        let content = bundle.and_then(|b| b.cobs.get(id)).map(|c| c.fingerprint);
        let ways = self.relies_on(begin, &active, &mut breaches);
        breaches.extend(self.disturb(begin, &active, &ways));
        self.things[thing].promised_as_left.clear();
        let running = Running { job, from: from.clone(), to: to.clone(), content, ways };
        for other in running.relies_on() {
            self.things[other].relied_on += 1;
        }
        self.things[thing].running = Some(running);
        if breaches.is_empty() { Ok(()) } else { Err(breaches) }
    }

    /// The change objects that must not change while this action runs, by the bundles alone: its needs, and their needs
    /// through lock dependencies.
    fn relies_on<'b>(
        &self,
        begin: &Begin<'_>,
        active: impl Fn(usize) -> Option<&'b Bundle>,
        breaches: &mut Vec<String>,
    ) -> Vec<(usize, usize)> {
        let Begin { thing, from, to, deep, void, .. } = *begin;
        let Thing { id, host, .. } = &self.things[thing];
        let mut open: Vec<(&CobId, &Need)> = Vec::new();
        if let Some(c) = active(*host).and_then(|b| b.cobs.get(id)) {
            for t in c.transitions.iter().filter(|t| t.from == *from && t.to == *to) {
                open.extend(t.needs.iter().map(|need| (&c.id, need)));
            }
        }
        let (mut found, mut ways) = (BTreeSet::new(), Vec::new());
        while let Some((asker, need)) = open.pop() {
            let other = &need.cob;
            let Some(ix) = self.find(other) else { continue };
            let Thing { state, running, host, kept_from, promised_as_left, lost, .. } = &self.things[ix];
            if void.contains(host) {
                continue;
            }
            let as_left = kept_from.iter().chain(promised_as_left.get(asker));
            let left = as_left.into_iter().any(|off| need.states.contains(off));
            // The grants of a host without power stay valid: no daemon can know better.
            if running.is_some() && lost.is_none() {
                breaches.push(format!("{id} goes from {from} to {to} while {other} is moving"));
            } else if !need.states.contains(state) && !left && lost.is_none() {
                breaches.push(format!("{id} goes from {from} to {to} with {other} in {state}"));
            }
            ways.extend(self.find(asker).map(|asker| (asker, ix)));
            if !found.insert(ix) || !deep || (left && !need.states.contains(state)) {
                continue;
            }
            if let Some(c) = active(*host).and_then(|b| b.cobs.get(other)) {
                let promised = c.locks.iter().filter(|l| l.state == *state).flat_map(|l| &l.needs);
                open.extend(promised.map(|need| (&c.id, need)));
            }
        }
        ways
    }

    /// A host is off, and others were informed: no action relies on its grants and on the locks under them any more.
    pub fn forget_promises_of(&mut self, lost: usize) {
        for actor in 0..self.things.len() {
            let Some(running) = &self.things[actor].running else { continue };
            let mut kept = BTreeSet::new();
            let mut open = vec![actor];
            while let Some(at) = open.pop() {
                let next = running.ways.iter().filter(|(asker, _)| *asker == at).map(|(_, on)| *on);
                open.extend(next.filter(|on| self.things[*on].host != lost && kept.insert(*on)));
            }
            let gone = &running.relies_on() - &kept;
            if let Some(running) = &mut self.things[actor].running {
                running.ways.retain(|(_, on)| kept.contains(on));
            }
            for on in gone {
                self.things[on].relied_on -= 1;
            }
        }
    }

    /// A member of a budget leaves the state in which it serves: checks the limit of the budget.
    fn disturb<'b>(
        &mut self,
        begin: &Begin<'_>,
        active: impl Fn(usize) -> Option<&'b Bundle>,
        ways: &[(usize, usize)],
    ) -> Option<String> {
        let Thing { id, host, .. } = &self.things[begin.thing];
        let cob = active(*host)?.cobs.get(id)?;
        let budget = &cob.budget.as_ref()?.cob;
        let leaves = *begin.from == cob.preferred || *begin.from == StateName::OUTDATED;
        if leaves {
            let away = Disturbed { budget: budget.clone(), back_in: cob.preferred.clone() };
            self.things[begin.thing].disturbed = Some(away);
        }
        let keeper = self.find(budget)?;
        let at_most = active(self.things[keeper].host)?.cobs.get(budget)?.at_most? as usize;
        let counts = |t: &&Thing| t.beyond.is_none() && t.disturbed.as_ref().is_some_and(|d| d.budget == *budget);
        let away: Vec<_> = self.things.iter().filter(counts).map(|t| t.id.as_str()).collect();
        if away.len() <= at_most {
            let crowded = if leaves { self.crowd(budget, &active, ways) } else { Vec::new() };
            if crowded.len() > at_most {
                let (budget, cob) = (budget.clone(), self.things[begin.thing].id.clone());
                self.crowded.push(Crowded { budget, at_most: at_most as u32, cob, away: crowded });
            }
            return None;
        }
        (away.len() > at_most).then(|| format!("{} are away, and {budget} lets {at_most}", away.join(", ")))
    }

    /// The members of a budget that are out of service, if a host has lost its power. Without the members that have
    /// granted to stay: they died later, and no model can prevent that.
    fn crowd<'b>(
        &self,
        budget: &CobId,
        active: impl Fn(usize) -> Option<&'b Bundle>,
        ways: &[(usize, usize)],
    ) -> Vec<CobId> {
        if self.things.iter().all(|t| t.lost.is_none()) {
            return Vec::new();
        }
        let is_member = |t: &Thing| {
            let cob = active(t.host).and_then(|bundle| bundle.cobs.get(&t.id));
            cob.and_then(|cob| cob.budget.as_ref()).is_some_and(|need| need.cob == *budget)
        };
        let is_disturbed = |t: &Thing| t.beyond.is_none() && t.disturbed.as_ref().is_some_and(|d| d.budget == *budget);
        let granted = |at: usize| ways.iter().any(|(_, on)| *on == at);
        let is_away = |(at, t): &(usize, &Thing)| is_disturbed(t) || t.lost.is_some() && is_member(t) && !granted(*at);
        self.things.iter().enumerate().filter(is_away).map(|(_, t)| t.id.clone()).collect()
    }

    /// A host loses its power.
    pub fn power_off(&mut self, host: usize) {
        for thing in self.things.iter_mut().filter(|thing| thing.host == host) {
            thing.lost = Some(Lost::Off);
        }
    }

    /// A host starts after a power loss: its services have ended. `active` is its active bundle.
    pub fn boot(&mut self, host: usize, active: Option<&Bundle>) {
        for thing in self.things.iter_mut().filter(|thing| thing.host == host) {
            let known = active.and_then(|bundle| {
                let cob = bundle.cobs.get(&thing.id)?;
                Some((cob, bundle.kinds.get(&cob.kind)?))
            });
            let service = known.filter(|(_, kind)| kind.is_service());
            let ended = service.and_then(|(cob, kind)| Some((cob, kind.stopped()?)));
            thing.lost = None;
            if let Some((cob, stopped)) = ended.filter(|(_, stopped)| thing.state != **stopped) {
                thing.state = stopped.clone();
                thing.lost = Some(Lost::Until(cob.preferred.clone())).filter(|_| cob.preferred != *stopped);
            }
        }
    }

    /// A budget has granted a token beyond its number.
    fn overdrawn(&mut self, budget: &CobId, by: &CobId) {
        if let Some(thing) = self.find(by) {
            self.things[thing].beyond = Some(budget.clone());
        }
    }

    /// A grant is released: perhaps a token.
    fn returned(&mut self, asked: &CobId, by: &CobId) {
        if let Some(thing) = self.find(asked) {
            self.things[thing].promised_as_left.remove(by);
        }
        if let Some(thing) = self.find(by) {
            self.things[thing].beyond.take_if(|budget| budget == asked);
        }
    }

    /// The state of a change object on a reinstalled host: as given, without content. Its action is gone.
    pub fn wipe(&mut self, thing: usize, state: Option<StateName>) {
        self.end(thing, false);
        let thing = &mut self.things[thing];
        thing.state = state.unwrap_or_else(|| thing.state.clone());
        (thing.content, thing.relied_on, thing.disturbed, thing.beyond) = (None, 0, None, None);
        thing.promised_as_left.clear();
    }

    /// The running action ends: in the state after its transition, or not.
    pub fn end(&mut self, thing: usize, arrives: bool) {
        let Some(running) = self.things[thing].running.take() else { return };
        for other in running.relies_on() {
            self.things[other].relied_on -= 1;
        }
        if arrives {
            let thing = &mut self.things[thing];
            thing.state = running.to;
            thing.content = running.content.or(thing.content);
        }
        let thing = &mut self.things[thing];
        thing.disturbed.take_if(|away| away.back_in == thing.state);
        thing.lost.take_if(|lost| matches!(lost, Lost::Until(state) if *state == thing.state));
    }

    /// Whether this action of the change object still runs.
    #[must_use]
    pub fn runs(&self, cob: &CobId, job: Number) -> bool {
        self.find(cob).is_some_and(|t| self.things[t].running.as_ref().is_some_and(|r| r.job == job))
    }
}
