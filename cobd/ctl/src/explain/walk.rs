//! The walk: from a change object along its waits; each change object is visited once.
//!
//! A change object is asked two questions. *Why is it not in its desired state?* leads along its locks to the change
//! objects that it waits for, and along its grants to the holders that must release them. *Why does it not release its
//! locks?* leads to its own holders in turn. Chains may be as long as a cluster is deep and share their ends, so no
//! function here recurses and no change object is visited twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cob_types::status::{ClusterStatus, CobStatus, Holder, HostStatus, Phase, SwitchWait, Wait};
use cob_types::{CobId, StateName};

use super::cause::{Cause, CauseKind};
use crate::words::states;

/// The most change objects that an explanation visits.
const MOST: usize = 20_000;

/// The known facts about a change object.
#[derive(Debug, Clone, Copy)]
pub enum Seen<'a> {
    /// Its host answered, and has it.
    Found(&'a HostStatus, &'a CobStatus),
    /// Its host answered, and does not have the change object.
    Absent(&'a HostStatus),
    /// Its host could not be reached, and why.
    Unreachable(&'a str),
    /// Its host was not asked.
    NotAsked,
}

impl<'a> Seen<'a> {
    /// A change object of this host; `None`: the host was not asked.
    #[must_use]
    pub fn of(host: Option<&'a HostStatus>, id: &CobId) -> Self {
        match host {
            None => Self::NotAsked,
            Some(host) if !host.reachable => Self::Unreachable(host.error.as_deref().unwrap_or("no reason is known")),
            Some(host) => match host.cobs.iter().find(|c| c.id == *id) {
                Some(cob) => Self::Found(host, cob),
                None => Self::Absent(host),
            },
        }
    }
}

/// A question about a change object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// Why is it not in its desired state?
    Away,
    /// Why does it not release its locks?
    Holding,
    /// Why does it, a budget, have no free token?
    Drained,
    /// Why has it not departed?
    Leaving,
}

pub(super) type Place = (CobId, Why);

/// A wait that leads to another change object.
#[derive(Debug, Clone)]
pub(super) struct Edge {
    /// In words, after the waiter's name: "waits for n1/db up".
    pub(super) words: String,
    /// The duration in nanoseconds.
    pub(super) for_ns: u64,
    /// The change object that it leads to.
    pub(super) to: CobId,
    pub(super) then: Then,
}

/// The continuation at the end of an edge.
#[derive(Debug, Clone)]
pub(super) enum Then {
    /// Continue with this question.
    Ask(Why),
    /// Stop: the cause lies between the two change objects.
    Stop(Cause),
}

impl Edge {
    /// The place that the edge leads to, if the walk continues there.
    pub(super) fn place(&self) -> Option<Place> {
        match &self.then {
            Then::Ask(why) => Some((self.to.clone(), *why)),
            Then::Stop(_) => None,
        }
    }

    fn stop(&self) -> Option<&Cause> {
        match &self.then {
            Then::Ask(_) => None,
            Then::Stop(cause) => Some(cause),
        }
    }
}

/// The edges and causes at a place.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) edges: Vec<Edge>,
    pub(super) causes: Vec<Cause>,
}

/// All visited places, and the first cause.
#[derive(Debug)]
pub struct Explanation<'a> {
    /// The change object of the question.
    pub cob: CobId,
    pub(super) places: BTreeMap<Place, Found>,
    pub(super) seen: BTreeMap<CobId, Seen<'a>>,
    /// The edges from the question to the first cause.
    pub(super) chain: Vec<Edge>,
    /// The cause of the chain's last place.
    pub first: Cause,
    /// Whether there were more places than [`MOST`].
    pub(super) cut: bool,
    /// The question.
    pub(super) why: Why,
}

/// Explains why a change object is in its state. The walk calls `see` once for each change object.
pub fn explain<'a>(cob: &CobId, see: &dyn Fn(&CobId) -> Seen<'a>) -> Explanation<'a> {
    answer(cob, Why::Away, see)
}

/// Explains from the statuses of a cluster.
#[must_use]
pub fn explain_in<'a>(cluster: &'a ClusterStatus, cob: &CobId) -> Explanation<'a> {
    let by_name: BTreeMap<&str, &HostStatus> = cluster.hosts.iter().map(|host| (host.name.as_str(), host)).collect();
    explain(cob, &|id: &CobId| Seen::of(by_name.get(id.host_str()).copied(), id))
}

/// Explains why a change object that a switch removes has not departed.
pub fn explain_leaving<'a>(cob: &CobId, see: &dyn Fn(&CobId) -> Seen<'a>) -> Explanation<'a> {
    answer(cob, Why::Leaving, see)
}

fn answer<'a>(cob: &CobId, why: Why, see: &dyn Fn(&CobId) -> Seen<'a>) -> Explanation<'a> {
    let mut walk = Walk { see, seen: BTreeMap::new(), places: BTreeMap::new(), order: Vec::new() };
    let root = (cob.clone(), why);
    let cut = walk.collect(&root);
    walk.name_circles();
    let (chain, mut first) = walk.first_cause(&root);
    if let Some(remedy) = walk.more_tokens(&chain, &first) {
        first.add_hint(&remedy);
        walk.replace_hint(&chain, &root, &first);
    }
    Explanation { cob: cob.clone(), places: walk.places, seen: walk.seen, chain, first, cut, why }
}

impl Explanation<'_> {
    /// Whether a host on the path could not be asked.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.seen.values().any(|s| matches!(s, Seen::Unreachable(_) | Seen::NotAsked))
    }
}

struct Walk<'a, 's> {
    see: &'s dyn Fn(&CobId) -> Seen<'a>,
    seen: BTreeMap<CobId, Seen<'a>>,
    places: BTreeMap<Place, Found>,
    /// The places in the order in which they were reached.
    order: Vec<Place>,
}

impl<'a> Walk<'a, '_> {
    fn look(&mut self, cob: &CobId) -> Seen<'a> {
        let see = self.see;
        *self.seen.entry(cob.clone()).or_insert_with(|| see(cob))
    }

    /// Visits every reachable place; returns whether there were too many.
    fn collect(&mut self, root: &Place) -> bool {
        let mut next = VecDeque::from([root.clone()]);
        while let Some(place) = next.pop_front() {
            if self.places.contains_key(&place) {
                continue;
            }
            if self.places.len() == MOST {
                return true;
            }
            let found = self.visit(&place);
            next.extend(found.edges.iter().filter_map(Edge::place));
            self.order.push(place.clone());
            self.places.insert(place, found);
        }
        false
    }

    fn visit(&mut self, (id, why): &Place) -> Found {
        let only = |cause| Found { edges: Vec::new(), causes: vec![cause] };
        match (self.look(id), why) {
            (Seen::NotAsked, _) => only(Cause::not_asked(id)),
            (Seen::Unreachable(error), Why::Leaving) => only(Cause::leaves_unreachable(id, error)),
            (Seen::Unreachable(error), why) => only(Cause::unreachable(id, error, *why == Why::Holding)),
            (Seen::Absent(host), Why::Away | Why::Drained) => only(Cause::absent(id, host)),
            (Seen::Absent(host), Why::Leaving) => only(has_left(id, host)),
            (Seen::Absent(_), Why::Holding) => only(Cause::on_its_way("is gone: its locks are being released")),
            (Seen::Found(host, cob), Why::Away) => self.away(host, cob),
            (Seen::Found(host, cob), Why::Holding) => holding(host, cob),
            (Seen::Found(host, cob), Why::Drained) => drained(host, cob),
            (Seen::Found(host, cob), Why::Leaving) => self.leaving(host, cob),
        }
    }

    fn leaving(&mut self, host: &'a HostStatus, cob: &'a CobStatus) -> Found {
        if !cob.retiring && host.switching_to.is_none() {
            return Found { edges: Vec::new(), causes: vec![Cause::not_told(host)] };
        }
        if is_idle(cob) && cob.retiring {
            let held: Vec<Edge> = holders(host, cob).collect();
            let causes = if held.is_empty() { vec![is_where_it_leaves(&cob.id, host)] } else { vec![] };
            return Found { edges: held, causes };
        }
        self.away(host, cob)
    }

    fn away(&mut self, host: &'a HostStatus, cob: &'a CobStatus) -> Found {
        let now = host.now_ns;
        let mut found = Found::default();
        found.causes.extend(Cause::stuck(cob));
        match cob.phase {
            Phase::Moving => found.causes.push(Cause::moving(cob, now)),
            Phase::Checking => found.causes.push(Cause::checking(cob, now)),
            Phase::Settled if cob.failed => found.causes.push(flagged(host, cob)),
            Phase::Settled if host.switch_waits.is_empty() || cob.retiring => {
                if cob.state.as_ref() != Some(&cob.preferred) {
                    self.kept_there(host, cob, &mut found);
                }
                match &cob.stopped {
                    Some(stopped) => found.causes.push(Cause::stopped(&cob.id, stopped, true)),
                    None if found.edges.is_empty() => found.causes.push(Cause::settled(cob, now)),
                    None => {}
                }
            }
            Phase::Settled => found.edges.extend(activation(host, &cob.id)),
            Phase::Waiting => {}
        }
        for wait in &cob.waits_for {
            self.wait(host, cob, wait, &mut found);
        }
        if found.causes.is_empty() && found.edges.is_empty() {
            found.causes.push(if cob.failed {
                flagged(host, cob)
            } else {
                Cause::on_its_way("is about to start its transition")
            });
        }
        found
    }

    /// Its preferred state is another, and holders of its grants keep it there: leads to these holders.
    fn kept_there(&mut self, host: &'a HostStatus, cob: &'a CobStatus, found: &mut Found) {
        for holder in kept_by(cob) {
            let is_settled = matches!(self.look(&holder.cob), Seen::Found(_, by) if by.phase == Phase::Settled);
            found.edges.push(Edge {
                words: format!("is kept in this state by {}", holder.cob),
                for_ns: host.now_ns.saturating_sub(holder.since_ns.unwrap_or(cob.since_ns)),
                to: holder.cob.clone(),
                then: Then::Ask(if is_settled { Why::Holding } else { Why::Away }),
            });
        }
    }

    fn wait(&mut self, host: &'a HostStatus, cob: &'a CobStatus, wait: &Wait, found: &mut Found) {
        let now = host.now_ns;
        match wait {
            Wait::Lock { cob: asked, refused: Some(reason), refused_in, since_ns, .. }
                if self.still_refuses(asked, refused_in.as_ref()) =>
            {
                if let Seen::Found(_, CobStatus { stopped: Some(stopped), .. }) = self.look(asked) {
                    found.causes.push(Cause::stopped(asked, stopped, false));
                    return;
                }
                let is_lost = |wait: &Wait| matches!(wait, Wait::NoRoute { .. });
                if matches!(self.look(asked), Seen::Found(_, refusing) if refusing.waits_for.iter().any(is_lost)) {
                    // The asked change object reports its own obstacle and the hint.
                    found.edges.push(Edge {
                        words: format!("was refused by {asked}"),
                        for_ns: now.saturating_sub(*since_ns),
                        to: asked.clone(),
                        then: Then::Ask(Why::Away),
                    });
                } else {
                    found.causes.push(Cause::refused(asked, reason));
                }
            }
            Wait::Lock { cob: asked, states: wanted, since_ns, recalled, .. } => {
                let wanted_words = format!("{asked} {}", states(wanted));
                let for_ns = now.saturating_sub(*since_ns);
                if *recalled {
                    found.edges.extend(holders(host, cob));
                    let words = format!("must release {wanted_words}, and then waits for it again");
                    found.edges.push(Edge { words, for_ns, to: asked.clone(), then: Then::Ask(Why::Away) });
                    return;
                }
                found.causes.extend(self.link_down(host, asked));
                if self.is_ahead_of(host, asked) {
                    found.edges.extend(activation(host, &cob.id));
                }
                let then = self.between(host, asked, wanted).map_or(Then::Ask(Why::Away), Then::Stop);
                found.edges.push(Edge { words: format!("waits for {wanted_words}"), for_ns, to: asked.clone(), then });
            }
            Wait::Token { cob: budget, since_ns } => {
                found.causes.extend(self.link_down(host, budget));
                found.edges.push(Edge {
                    words: format!("waits for a token of {budget}"),
                    for_ns: now.saturating_sub(*since_ns),
                    to: budget.clone(),
                    then: Then::Ask(Why::Drained),
                });
            }
            Wait::Grant { cob: holder, state, since_ns } => found.edges.push(Edge {
                words: format!("waits for {holder} to release the grant of {state}"),
                for_ns: now.saturating_sub(*since_ns),
                to: holder.clone(),
                then: Then::Ask(Why::Holding),
            }),
            Wait::After { cob: other, since_ns } => found.edges.push(Edge {
                words: format!("may be requested until {other} has departed"),
                for_ns: now.saturating_sub(*since_ns),
                to: other.clone(),
                then: Then::Ask(Why::Away),
            }),
            Wait::Retry { at_ns, attempt, of } => found.causes.push(Cause::retry(cob, now, *at_ns, *attempt, *of)),
            Wait::Failed => found.causes.push(flagged(host, cob)),
            Wait::Paused => found.causes.push(Cause::paused(host)),
            Wait::Rest { until_ns } => found.causes.push(Cause::rest(cob, now, *until_ns)),
            Wait::NoRoute { to } => found.causes.push(Cause::no_route(cob, to)),
            Wait::Leaving => found.causes.push(Cause::leaving(cob)),
            Wait::Observed { to } => found.causes.push(Cause::observed(cob, to)),
            Wait::Limit { at_most } => found.causes.push(Cause::limit(host, *at_most)),
            Wait::Check => found.causes.push(Cause::checking(cob, now)),
            Wait::Other => found.causes.push(Cause::newer(host)),
        }
    }

    /// Whether a refusal still applies to the present state of the asked change object: the requester is not informed
    /// of later transitions.
    fn still_refuses(&mut self, asked: &CobId, refused_in: Option<&StateName>) -> bool {
        match self.look(asked) {
            Seen::Found(_, refusing) => refused_in.is_none() || refusing.state.as_ref() == refused_in,
            Seen::Absent(_) | Seen::Unreachable(_) | Seen::NotAsked => true,
        }
    }

    /// Whether the host of the asked change object has already activated a newer generation than the requester's host.
    fn is_ahead_of(&mut self, asking: &HostStatus, asked: &CobId) -> bool {
        match self.look(asked) {
            Seen::Found(host, _) | Seen::Absent(host) => host.generation > asking.generation,
            Seen::Unreachable(_) | Seen::NotAsked => false,
        }
    }

    /// A broken link to the host of the asked change object, or a host that ignores the other's messages.
    fn link_down(&mut self, asking: &HostStatus, asked: &CobId) -> Option<Cause> {
        let there = match self.look(asked) {
            Seen::Found(host, _) | Seen::Absent(host) => Some(host),
            Seen::Unreachable(_) | Seen::NotAsked => None,
        };
        let unheard = |says: &HostStatus, hears: &HostStatus| {
            let why = hears.peers.iter().find(|p| p.host == says.name)?.unheard?;
            Some(Cause::unheard(asked, says, hears, why))
        };
        if let Some(cause) = there.and_then(|there| unheard(asking, there).or_else(|| unheard(there, asking))) {
            return Some(cause);
        }
        let link = asking.peers.iter().find(|p| p.host.as_str() == asked.host_str() && !p.up)?;
        Some(Cause::link_down(asking, asked, link, there))
    }

    /// Why an idle change object has not given a grant: a cause outside the change object.
    fn between(&mut self, asking: &'a HostStatus, asked: &CobId, wanted: &[StateName]) -> Option<Cause> {
        let (host, cob) = match self.look(asked) {
            Seen::Found(host, cob) => (host, cob),
            Seen::Absent(_) | Seen::Unreachable(_) | Seen::NotAsked => return None,
        };
        if cob.phase != Phase::Settled || !cob.waits_for.is_empty() || cob.failed {
            return None;
        }
        match (host.generation, asking.generation) {
            (Some(active), Some(wanted)) if active != wanted => {
                if active < wanted && !host.switch_waits.is_empty() {
                    return None;
                }
                return Some(Cause::other_generation(host, active, asking, wanted));
            }
            (Some(_) | None, _) => {}
        }
        if cob.retiring {
            return Some(Cause::leaving(cob));
        }
        // Its holders keep it away from its preferred state: they explain the wait better.
        if cob.state.as_ref() != Some(&cob.preferred) && kept_by(cob).next().is_some() {
            return None;
        }
        let here = crate::words::state(cob.state.as_ref());
        Some(Cause::on_its_way(if cob.state.as_ref().is_some_and(|s| wanted.contains(s)) {
            format!("is {here}: its grant is on the way")
        } else {
            format!("is {here} and has not received the request yet")
        }))
    }

    /// Gives a cause to places that reach no cause: their waits form a cycle.
    fn name_circles(&mut self) {
        let mut before: BTreeMap<Place, Vec<&Place>> = BTreeMap::new();
        for (place, found) in &self.places {
            for to in found.edges.iter().filter_map(Edge::place) {
                before.entry(to).or_default().push(place);
            }
        }
        let has_cause = |f: &Found| !f.causes.is_empty() || f.edges.iter().any(|e| e.stop().is_some());
        let mut told: BTreeSet<&Place> = self.places.iter().filter(|(_, f)| has_cause(f)).map(|(p, _)| p).collect();
        let mut next: Vec<&Place> = told.iter().copied().collect();
        while let Some(place) = next.pop() {
            for waiter in before.get(place).into_iter().flatten() {
                if told.insert(waiter) {
                    next.push(waiter);
                }
            }
        }
        let mut circles = Vec::new();
        let mut done: BTreeSet<Place> = told.into_iter().cloned().collect();
        for start in &self.order {
            let round = self.round_from(start, &done);
            for place in &round {
                let ids: Vec<CobId> = rotated(&round, place);
                circles.push((place.clone(), Cause::circle(&ids)));
            }
            done.extend(round);
        }
        for (place, cause) in circles {
            if let Some(found) = self.places.get_mut(&place) {
                found.causes.push(cause);
            }
        }
    }

    /// Follows the first edges until a place repeats; returns that cycle, unless it reaches a place in `done`.
    fn round_from(&self, start: &Place, done: &BTreeSet<Place>) -> Vec<Place> {
        let mut path: Vec<Place> = Vec::new();
        let mut met: BTreeMap<Place, usize> = BTreeMap::new();
        let mut at = start.clone();
        loop {
            if done.contains(&at) {
                return Vec::new();
            }
            if let Some(begin) = met.get(&at) {
                return path.split_off(*begin);
            }
            met.insert(at.clone(), path.len());
            let onward = self.places.get(&at).and_then(|f| f.edges.iter().find_map(Edge::place));
            path.push(at);
            match onward {
                Some(place) => at = place,
                None => return Vec::new(),
            }
        }
    }

    /// A hint for a budget whose token holders wait for a gate or have failed. A gate may wait for the effect of a
    /// waiting member, without a dependency in the model.
    fn more_tokens(&self, chain: &[Edge], first: &Cause) -> Option<String> {
        let waits = chain.iter().find(|edge| matches!(edge.then, Then::Ask(Why::Drained)))?;
        let culprit = &chain.last()?.to;
        let Some(Seen::Found(_, cob)) = self.seen.get(culprit) else { return None };
        let Some(Seen::Found(_, budget)) = self.seen.get(&waits.to) else { return None };
        let more = format!("`cobctl budget {} --at-most {}`", budget.id, budget.held_by.len() + 1);
        let has_failed = matches!(first.kind, CauseKind::GivenUp | CauseKind::Retry);
        let still_waits = cob.is_gate() && matches!(first.kind, CauseKind::Moving | CauseKind::Rest);
        (has_failed || still_waits).then(|| format!("{more} adds a token until the next generation"))
    }

    /// Replaces a cause by the first cause with a new hint.
    fn replace_hint(&mut self, chain: &[Edge], root: &Place, first: &Cause) {
        let place = chain.last().map_or(Some(root.clone()), Edge::place);
        let Some(found) = place.and_then(|place| self.places.get_mut(&place)) else { return };
        let same = |cause: &&mut Cause| cause.kind == first.kind && cause.words == first.words;
        found.causes.iter_mut().filter(same).for_each(|cause| cause.hint.clone_from(&first.hint));
    }

    /// The worst reachable cause, the nearest among equals, and the path to it.
    fn first_cause(&self, root: &Place) -> (Vec<Edge>, Cause) {
        let mut came: BTreeMap<Place, Option<(Place, &Edge)>> = BTreeMap::from([(root.clone(), None)]);
        let mut next = VecDeque::from([root.clone()]);
        let mut best: Option<(Place, Option<&Edge>, &Cause)> = None;
        while let Some(place) = next.pop_front() {
            let Some(found) = self.places.get(&place) else { continue };
            let own = found.causes.iter().map(|c| (None, c));
            let between = found.edges.iter().filter_map(|e| Some((Some(e), e.stop()?)));
            for (edge, cause) in own.chain(between) {
                if best.as_ref().is_none_or(|(_, _, b)| cause.kind < b.kind) {
                    best = Some((place.clone(), edge, cause));
                }
            }
            for edge in &found.edges {
                if let Some(to) = edge.place()
                    && !came.contains_key(&to)
                {
                    came.insert(to.clone(), Some((place.clone(), edge)));
                    next.push_back(to);
                }
            }
        }
        let Some((place, last, cause)) = best else {
            return (Vec::new(), Cause::on_its_way("waits for too many change objects to follow"));
        };
        let mut chain: Vec<Edge> = last.into_iter().cloned().collect();
        let mut at = &place;
        while let Some(Some((from, edge))) = came.get(at) {
            chain.push((*edge).clone());
            at = from;
        }
        chain.reverse();
        (chain, cause.clone())
    }
}

/// It has departed.
fn has_left(cob: &CobId, host: &HostStatus) -> Cause {
    heard_of(cob, host, "has departed: the report is on the way")
}

/// It is in its exit state, and counts as departed after all that depart before it.
fn is_where_it_leaves(cob: &CobId, host: &HostStatus) -> Cause {
    heard_of(cob, host, "is in its exit state: it counts as departed after the change objects that depart before it")
}

/// The waiting host learns of the departure, if the departed object's host understands the question.
fn heard_of(cob: &CobId, host: &HostStatus, words: &str) -> Cause {
    if host.says_final { Cause::on_its_way(words) } else { Cause::says_nothing(cob, host) }
}

/// The awaited change objects that are not in their exit states yet; if there are no others, all.
pub fn still_there(host: &HostStatus) -> impl Iterator<Item = &SwitchWait> {
    let done = move |wait: &&SwitchWait| host.cobs.iter().any(|cob| cob.id == wait.cob && has_nothing_to_do(cob));
    let nobody_else = host.switch_waits.iter().all(|wait| done(&wait));
    host.switch_waits.iter().filter(move |wait| nobody_else || !done(wait))
}

/// It is departing, is idle in its exit state, and has no holders.
fn has_nothing_to_do(cob: &CobStatus) -> bool {
    cob.retiring && is_idle(cob) && cob.held_by.is_empty()
}

fn is_idle(cob: &CobStatus) -> bool {
    cob.phase == Phase::Settled && cob.waits_for.is_empty() && !cob.failed
}

/// The change objects that must depart before a host activates its next generation.
pub(super) fn activation<'a>(host: &'a HostStatus, of: &'a CobId) -> impl Iterator<Item = Edge> + 'a {
    let next = host.switching_to.map_or_else(String::new, |next| format!(" to generation {next}"));
    still_there(host).filter(move |wait| wait.cob != *of).map(move |wait| Edge {
        words: format!("waits for {} to switch{next}, for which {} must have departed", host.name, wait.cob),
        for_ns: host.now_ns.saturating_sub(wait.since_ns),
        to: wait.cob.clone(),
        then: Then::Ask(Why::Leaving),
    })
}

/// Why a holder does not release its lock.
fn holding(host: &HostStatus, cob: &CobStatus) -> Found {
    let now = host.now_ns;
    let mut found = Found::default();
    match cob.phase {
        Phase::Moving => found.causes.push(Cause::moving(cob, now)),
        Phase::Checking => found.causes.push(Cause::checking(cob, now)),
        Phase::Waiting | Phase::Settled => found.edges.extend(holders(host, cob)),
    }
    if found.causes.is_empty() && found.edges.is_empty() {
        found.causes.push(Cause::on_its_way("has no reason to hold the lock: its release is on the way"));
    }
    found
}

/// Why a budget has no free token: its holders have not returned to their preferred states.
fn drained(host: &HostStatus, cob: &CobStatus) -> Found {
    let limited = host.limits.get(&cob.id).map(|tokens| format!(" ({tokens} at a time, by an operator's limit)"));
    let limited = limited.unwrap_or_default();
    let edges = cob.held_by.iter().map(|h| Edge {
        words: format!("has given a token to {}{limited}", h.cob),
        for_ns: host.now_ns.saturating_sub(h.since_ns.unwrap_or(cob.since_ns)),
        to: h.cob.clone(),
        then: Then::Ask(Why::Away),
    });
    let edges: Vec<_> = edges.collect();
    let causes =
        if edges.is_empty() { vec![Cause::on_its_way("has a free token: it is on the way")] } else { Vec::new() };
    Found { edges, causes }
}

/// The holders of a grant of its present state.
fn kept_by(cob: &CobStatus) -> impl Iterator<Item = &Holder> {
    cob.held_by.iter().filter(|holder| cob.state.as_ref() == Some(&holder.state))
}

/// The holders of a change object's grants; after recalls, only the recalled holders.
fn holders<'a>(host: &'a HostStatus, cob: &'a CobStatus) -> impl Iterator<Item = Edge> + 'a {
    let any = cob.held_by.iter().any(|h| h.recalled);
    cob.held_by.iter().filter(move |h| h.recalled || !any).map(|h| Edge {
        words: format!("needs {} to release the grant of {} first", h.cob, h.state),
        for_ns: host.now_ns.saturating_sub(h.since_ns.unwrap_or(cob.since_ns)),
        to: h.cob.clone(),
        then: Then::Ask(Why::Holding),
    })
}

/// The cause of a change object whose `failed` flag is set.
fn flagged(host: &HostStatus, cob: &CobStatus) -> Cause {
    match &cob.action {
        Some(action) if action.to.is_none() => Cause::check_failing(cob, action),
        Some(_) | None => Cause::given_up(host, cob),
    }
}

fn rotated(round: &[Place], first: &Place) -> Vec<CobId> {
    let at = round.iter().position(|p| p == first).unwrap_or(0);
    round[at..].iter().chain(&round[..at]).map(|(id, _)| id.clone()).collect()
}
