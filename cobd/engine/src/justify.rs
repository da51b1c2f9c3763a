//! Which requests of other hosts count: requests that a dependency of a signed generation justifies.
//!
//! A request names the active generation of its asker's host. It counts if the askers in this host's bundle of that
//! generation name the asker, the asked change object and the set of states. Requests from hosts that are ahead or
//! behind are judged by the generation that they name, so old and new dependencies both count during a switch, and a
//! rollback needs no rule of its own.
//!
//! ```text
//!   request --> known here already under this number ---------------------> counts
//!          |--> generation active here, pending here, or learned ---------> counts or is refused, by its askers
//!          '--> generation not known here: stored, the daemon looks for it -> judged when Event::Askers comes
//! ```
//!
//! All stored data has a bound: requests and their bytes for each host, generations in total, a refusal for each host.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_types::message::{About, Refused, Request};
use cob_types::words::join;
use cob_types::{Askers, CobId, GenerationNumber, HostName, Item, Number, StateName};

use crate::adopt::SwitchTarget;
use crate::bundle::AnyBundle;
use crate::engine::Engine;
use crate::event::KnownAskers;
use crate::mail::{Mail, Msg};
use crate::names::{CobRef, HostRef, StateId};
use crate::time::{Span, Time};

/// The most generations with stored askers beside the active and the pending generation.
const OTHERS: usize = 8;
/// The most requests of a host that are stored until their generation is known.
const WAITING: usize = 4096;
/// The approximate maximum of their bytes.
const WAITING_BYTES: usize = 1 << 20;
/// The time before an unavailable generation is looked for again.
const LOOK_AGAIN: Span = Span::secs(30);
/// The most unavailable generations that are remembered.
const MISSING: usize = 64;
/// The most refusals per second that a host receives.
const TOLD: u32 = 32;

/// This host's knowledge of a generation's askers.
#[derive(Debug, Clone)]
enum Table {
    Named(Arc<Askers>),
    /// The previously active generation, made by a version without askers.
    Anything,
    /// Another generation made by such a version: the active and the pending generation judge.
    Unsaid,
}

/// The data that judge requests of other hosts, and the results.
#[derive(Debug, Clone, Default)]
pub(crate) struct Justification {
    /// Generations that are neither active nor pending here; the last learned is last.
    others: Vec<(GenerationNumber, Table)>,
    waiting: BTreeMap<HostRef, Waiting>,
    missing: Vec<(GenerationNumber, Time)>,
    refused: BTreeMap<HostRef, Unjustified>,
}

/// Requests of a host whose generation is not known here, by the asked and the asking change object.
#[derive(Debug, Clone, Default)]
struct Waiting {
    requests: BTreeMap<(CobId, CobId), Request>,
    bytes: usize,
}

/// Requests of a host that were refused because no dependency justifies them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unjustified {
    /// Their number in this incarnation of the daemon.
    pub count: u64,
    /// When the last came.
    pub at: Time,
    /// The asker of the last.
    pub asker: CobId,
    /// The asked change object of this host.
    pub asked: CobId,
    /// The requested states.
    pub states: Vec<StateName>,
    /// The generation that the request named, if any.
    pub generation: Option<GenerationNumber>,
    /// The second of the last refusal messages to the host, and their number.
    told: (Time, u32),
}

enum Verdict {
    Counts,
    Refused,
    /// The askers of its generation are not known here.
    Unknown,
    /// There is no generation yet to judge it by, and it will be repeated.
    Early,
}

impl Waiting {
    fn weight(request: &Request) -> usize {
        let states: usize = request.set.iter().map(|state| state.as_str().len() + 24).sum();
        256 + request.asker.as_str().len() + request.asked.as_str().len() + states
    }

    /// Stores a request, unless the pair has a newer request or there is no room. Returns whether it was stored.
    fn keep(&mut self, request: &Request) -> bool {
        let pair = (request.asked.clone(), request.asker.clone());
        let weight = Self::weight(request);
        let known = self.requests.get(&pair);
        let freed = known.map_or(0, Self::weight);
        let full = self.requests.len() >= WAITING && known.is_none();
        if full || self.bytes + weight - freed > WAITING_BYTES {
            return false;
        }
        if known.is_none_or(|known| (known.number, known.rev) < (request.number, request.rev)) {
            self.bytes = self.bytes + weight - freed;
            self.requests.insert(pair, request.clone());
        }
        true
    }
}

impl Justification {
    /// Another incarnation of the host has begun, or no incarnation counts: drops its earlier requests.
    pub(crate) fn forget_waiting(&mut self, host: HostRef) {
        self.waiting.remove(&host);
    }

    /// A stored request was released.
    pub(crate) fn given_back(&mut self, host: HostRef, about: &About) {
        let Some(waiting) = self.waiting.get_mut(&host) else { return };
        let pair = (about.asked.clone(), about.asker.clone());
        if waiting.requests.get(&pair).is_some_and(|request| request.number <= about.number)
            && let Some(request) = waiting.requests.remove(&pair)
        {
            waiting.bytes -= Waiting::weight(&request);
        }
        if waiting.requests.is_empty() {
            self.waiting.remove(&host);
        }
    }

    fn learn(&mut self, generation: GenerationNumber, table: Table) {
        self.others.retain(|(known, _)| *known != generation);
        if self.others.len() >= OTHERS {
            self.others.remove(0);
        }
        self.others.push((generation, table));
    }
}

fn table_of(bundle: &AnyBundle, otherwise: Table) -> Table {
    bundle.askers().map_or(otherwise, |askers| Table::Named(askers.clone()))
}

impl Engine {
    /// The generation whose askers requests wait for; the daemon looks for them and sends [`Event::Askers`].
    ///
    /// [`Event::Askers`]: crate::Event::Askers
    #[must_use]
    pub fn wanted_askers(&self) -> Option<GenerationNumber> {
        self.justification.waiting.values().find_map(|waiting| waiting.requests.values().next()?.generation)
    }

    /// Hosts whose requests were refused because no dependency justifies them.
    pub fn unjustified(&self) -> impl Iterator<Item = (&HostName, &Unjustified)> {
        self.justification.refused.iter().map(|(host, refused)| (self.names.host_name(*host), refused))
    }

    /// Whether requests of other hosts are judged: the active generation names the askers.
    #[must_use]
    pub fn judges_requests(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.bundle.askers().is_some())
    }

    /// All hosts are trusted, as in a forecast: no request is judged.
    pub fn trust_askers(&mut self) {
        self.trusts_askers = true;
    }

    /// Whether a request of another host counts. A request of an unknown generation is stored until it is known.
    pub(crate) fn is_justified(&mut self, host: HostRef, request: &Request, now: Time) -> bool {
        let to_say = self.is_between(host, &request.asker, &request.asked);
        if !to_say || self.trusts_askers || self.faults.believes_any_asker() || self.stands(request) {
            // The interning of names rejects requests that the host may not send.
            return true;
        }
        match self.judge(request, now) {
            Verdict::Counts => true,
            Verdict::Refused => {
                self.refuse_unjustified(host, request, now);
                false
            }
            Verdict::Unknown => {
                let kept = self.justification.waiting.entry(host).or_default().keep(request);
                self.left_out += u64::from(!kept);
                false
            }
            Verdict::Early => false,
        }
    }

    /// The asker is a change object of the host, and the asked change object is local.
    pub(crate) fn is_between(&self, host: HostRef, asker: &CobId, asked: &CobId) -> bool {
        let is_of = |cob: &CobId, host| cob.host_str() == self.names.host_name(host).as_str();
        is_of(asker, host) && is_of(asked, self.here)
    }

    fn judge(&self, request: &Request, now: Time) -> Verdict {
        let Request { asker, asked, set, .. } = request;
        let is_named = |table: &Table| match table {
            Table::Named(askers) => askers.justify(asker, asked, set),
            Table::Anything => true,
            Table::Unsaid => false,
        };
        let of_own = || self.own_tables().into_iter().flatten();
        let counts = match request.generation {
            // A daemon of an earlier version does not name its generation.
            None => {
                if self.active.is_none() && self.going.is_none() {
                    return Verdict::Early;
                }
                of_own().any(|(_, table)| is_named(&table)) || self.others().any(|(_, table)| is_named(table))
            }
            Some(generation) => {
                let own = of_own().find(|(own, _)| *own == generation).map(|(_, table)| table);
                let known =
                    own.or_else(|| self.others().find(|(other, _)| *other == generation).map(|(_, t)| t.clone()));
                match known {
                    Some(Table::Unsaid) => of_own().any(|(_, table)| is_named(&table)),
                    Some(table) => is_named(&table),
                    None if generation == GenerationNumber(0) || self.is_missing(generation, now) => false,
                    None => return Verdict::Unknown,
                }
            }
        };
        if counts { Verdict::Counts } else { Verdict::Refused }
    }

    /// The tables of the active and the pending generation.
    fn own_tables(&self) -> [Option<(GenerationNumber, Table)>; 2] {
        let active = self.active.as_ref().map(|active| (self.generation, table_of(&active.bundle, Table::Anything)));
        let pending = self.going.as_ref().map(|going| &going.target);
        [active, pending.map(|to| (to.generation, table_of(&to.bundle.bundle, Table::Anything)))]
    }

    fn others(&self) -> impl Iterator<Item = &(GenerationNumber, Table)> {
        self.justification.others.iter().rev()
    }

    fn is_missing(&self, generation: GenerationNumber, now: Time) -> bool {
        self.justification.missing.iter().any(|(missing, until)| *missing == generation && now < *until)
    }

    /// The request repeats a known request: perhaps of an earlier generation, for an action that still runs. After a
    /// restart its asker may name only the state that it holds.
    fn stands(&self, request: &Request) -> bool {
        let pair = (self.names.find_cob(&request.asked), self.names.find_cob(&request.asker));
        let (Some(asked), Some(asker)) = pair else { return false };
        let is_same = |number: Number, set: &[StateId], promised: Option<StateId>| {
            let same = |states: &[StateId]| {
                let names = states.iter().map(|state| self.names.state_name(*state));
                names.eq(request.set.iter())
            };
            number == request.number && (same(set) || promised.is_some_and(|state| same(&[state])))
        };
        let here = self.object(asked).and_then(|o| o.request_ix(asker).ok().map(|at| &o.requests[at]));
        if let Some(known) = here.map(|known| &**known).or_else(|| self.left.find(asked, asker)) {
            return is_same(known.number, &known.set, known.granted.or(known.broken));
        }
        let early = self.early.get(&(asked, asker)).and_then(Mail::request);
        early.is_some_and(|early| is_same(early.number, &early.set, None))
    }

    /// Whether a known dependency names the pair: then its releases are worth storing.
    pub(crate) fn may_ask(&self, about: &About) -> bool {
        let names = |table: &Table| match table {
            Table::Named(askers) => askers.name(&about.asker, &about.asked),
            Table::Anything => true,
            Table::Unsaid => false,
        };
        self.own_tables().iter().flatten().any(|(_, table)| names(table))
            || self.others().any(|(_, table)| names(table))
    }

    fn refuse_unjustified(&mut self, host: HostRef, request: &Request, now: Time) {
        let Request { asker, asked, number, generation, .. } = request.clone();
        self.give_back_older(&asked, &asker, number);
        let fresh = || Unjustified {
            count: 0,
            at: now,
            asker: asker.clone(),
            asked: asked.clone(),
            states: Vec::new(),
            generation,
            told: (now, 0),
        };
        let refused = self.justification.refused.entry(host).or_insert_with(fresh);
        let told = if refused.told.0 + Span::secs(1) <= now { (now, 0) } else { refused.told };
        let states = request.set.clone();
        let count = refused.count.saturating_add(1);
        *refused = Unjustified { count, states, told: (told.0, told.1.saturating_add(1)), ..fresh() };
        if told.1 < TOLD {
            let by = match generation {
                Some(generation) => format!("no dependency of generation {generation}, as this host has it,"),
                None => "no dependency of the generation here".to_owned(),
            };
            let wanted: Vec<String> = request.set.iter().map(ToString::to_string).collect();
            let wanted = join(&wanted, "or");
            let reason = format!("{by} lets {asker} ask {asked} for {wanted}");
            self.send.push((host, Item::Refused(Refused { about: About { asker, asked, number }, reason })));
        }
    }

    /// A request under a new number is the release of the previous number, even if it is refused itself.
    fn give_back_older(&mut self, asked: &CobId, asker: &CobId, newer: Number) {
        let pair = (self.names.find_cob(asked), self.names.find_cob(asker));
        let (Some(to), Some(from)) = pair else { return };
        if let Some(number) = self.number_of(to, from).filter(|number| *number < newer) {
            self.out.mail.push_back(Mail { from, to, msg: Msg::Release(number) });
        }
    }

    fn number_of(&self, asked: CobRef, asker: CobRef) -> Option<Number> {
        let here = self.object(asked).and_then(|o| Some(o.requests[o.request_ix(asker).ok()?].number));
        let left = || self.left.find(asked, asker).map(|request| request.number);
        let early = || self.early.get(&(asked, asker))?.number();
        here.or_else(left).or_else(early)
    }

    /// The daemon has found the askers of a generation, or cannot get them.
    pub(crate) fn on_askers(&mut self, generation: GenerationNumber, askers: KnownAskers, now: Time) {
        self.justification.missing.retain(|(missing, until)| *missing != generation && now < *until);
        match askers {
            KnownAskers::Named(askers) => self.justification.learn(generation, Table::Named(askers)),
            KnownAskers::Unsaid => self.justification.learn(generation, Table::Unsaid),
            KnownAskers::Unavailable => {
                if self.justification.missing.len() >= MISSING {
                    self.justification.missing.remove(0);
                }
                self.justification.missing.push((generation, now + LOOK_AGAIN));
            }
        }
        self.judge_waiting(now);
    }

    /// Judges the stored requests, if their generation is known now.
    pub(crate) fn judge_waiting(&mut self, now: Time) {
        if self.justification.waiting.is_empty() {
            return;
        }
        for (host, waiting) in std::mem::take(&mut self.justification.waiting) {
            for request in waiting.requests.into_values() {
                let mail = self.take_in(host, Item::Request(request), now);
                self.out.mail.extend(mail);
            }
        }
    }

    /// Another generation becomes active: hosts that are behind may still ask by the old.
    pub(crate) fn keep_active_askers(&mut self) {
        let Some(active) = &self.active else { return };
        let table = table_of(&active.bundle, Table::Anything);
        // Of two generations of a version without askers the older no longer counts.
        let is_open = |table: &Table| matches!(table, Table::Anything);
        self.justification.others.retain(|(_, table)| !is_open(table));
        self.justification.learn(self.generation, table);
    }

    /// A switch is abandoned before its end: hosts that have gone further may ask by its generation in their rollback.
    pub(crate) fn keep_pending_askers(&mut self, target: &SwitchTarget) {
        self.justification.learn(target.generation, table_of(&target.bundle.bundle, Table::Unsaid));
    }
}

#[cfg(test)]
#[path = "justify_test.rs"]
mod tests;
