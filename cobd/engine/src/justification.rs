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

use cob_types::message::{About, Request};
use cob_types::{Askers, CobId, GenerationNumber, Packed, StateName};

use crate::names::HostRef;
use crate::repeat::Window;
use crate::time::{Span, Time};

/// The most generations with stored askers beside the active and the pending generation.
pub(crate) const OTHERS: usize = 8;
/// The most requests of a host that are stored until their generation is known.
pub(crate) const WAITING: usize = 4096;
/// The approximate maximum of their bytes.
pub(crate) const WAITING_BYTES: usize = 1 << 20;
/// The time before an unavailable generation is looked for again.
pub(crate) const LOOK_AGAIN: Span = Span::secs(30);
/// The most unavailable generations that are remembered.
pub(crate) const MISSING: usize = 64;
/// The most refusals per second that a host receives.
pub(crate) const INFORMED: usize = 32;

/// This host's knowledge of a generation's askers.
#[derive(Debug, Clone)]
pub(crate) enum Table {
    Named(Arc<Askers>),
    /// The previously active generation, made by a version without askers.
    Anything,
    /// Another generation made by such a version: the active and the pending generation judge.
    Unsaid,
}

impl Table {
    /// The askers that a bundle names.
    pub(crate) fn of(bundle: &Packed, otherwise: Self) -> Self {
        bundle.askers().map_or(otherwise, |askers| Self::Named(askers.clone()))
    }

    /// Whether a dependency justifies the request.
    pub(crate) fn justifies(&self, request: &Request) -> bool {
        match self {
            Self::Named(askers) => askers.justify(&request.asker, &request.asked, &request.set),
            Self::Anything => true,
            Self::Unsaid => false,
        }
    }

    /// Whether a dependency names the pair.
    pub(crate) fn names(&self, about: &About) -> bool {
        match self {
            Self::Named(askers) => askers.name(&about.asker, &about.asked),
            Self::Anything => true,
            Self::Unsaid => false,
        }
    }
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
    /// The refusal messages to the host.
    informed: Window,
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
    pub(crate) fn forget_released(&mut self, host: HostRef, about: &About) {
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

    pub(crate) fn learn(&mut self, generation: GenerationNumber, table: Table) {
        self.others.retain(|(known, _)| *known != generation);
        if self.others.len() >= OTHERS {
            self.others.remove(0);
        }
        self.others.push((generation, table));
    }

    /// The askers of a generation that is neither active nor pending here.
    pub(crate) fn table_of(&self, generation: GenerationNumber) -> Option<&Table> {
        self.tables().find(|(known, _)| *known == generation).map(|(_, table)| table)
    }

    /// The askers of these generations; the last learned first.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &(GenerationNumber, Table)> {
        self.others.iter().rev()
    }

    /// Forgets the generations of versions without askers, which justify any request.
    pub(crate) fn forget_open_tables(&mut self) {
        self.others.retain(|(_, table)| !matches!(table, Table::Anything));
    }

    /// Stores a request until its generation is known; returns whether there is room.
    pub(crate) fn keep(&mut self, host: HostRef, request: &Request) -> bool {
        self.waiting.entry(host).or_default().keep(request)
    }

    /// Takes all stored requests.
    pub(crate) fn take_waiting(&mut self) -> impl Iterator<Item = (HostRef, Request)> + use<> {
        let all = std::mem::take(&mut self.waiting).into_iter();
        all.flat_map(|(host, waiting)| waiting.requests.into_values().map(move |request| (host, request)))
    }

    /// The generation that stored requests wait for.
    pub(crate) fn wanted(&self) -> Option<GenerationNumber> {
        self.waiting.values().find_map(|waiting| waiting.requests.values().next()?.generation)
    }

    /// The askers of a generation are not available for a while.
    pub(crate) fn miss(&mut self, generation: GenerationNumber, now: Time) {
        if self.missing.len() >= MISSING {
            self.missing.remove(0);
        }
        self.missing.push((generation, now + LOOK_AGAIN));
    }

    pub(crate) fn is_missing(&self, generation: GenerationNumber, now: Time) -> bool {
        self.missing.iter().any(|(missing, until)| *missing == generation && now < *until)
    }

    /// A generation is looked for again.
    pub(crate) fn forget_missing(&mut self, generation: GenerationNumber, now: Time) {
        self.missing.retain(|(missing, until)| *missing != generation && now < *until);
    }

    /// Counts a refused request; returns whether the host is informed.
    pub(crate) fn refuse(&mut self, host: HostRef, request: &Request, now: Time) -> bool {
        let before = self.refused.get(&host);
        let mut informed = before.map_or_else(Window::default, |before| before.informed);
        let informs = informed.take(INFORMED, Span::secs(1), now);
        let refused = Unjustified {
            count: before.map_or(0, |before| before.count).saturating_add(1),
            at: now,
            asker: request.asker.clone(),
            asked: request.asked.clone(),
            states: request.set.clone(),
            generation: request.generation,
            informed,
        };
        self.refused.insert(host, refused);
        informs
    }

    pub(crate) fn refused(&self) -> impl Iterator<Item = (HostRef, &Unjustified)> {
        self.refused.iter().map(|(host, refused)| (*host, refused))
    }
}

#[cfg(test)]
impl Justification {
    /// The number of stored requests, their bytes, the other generations, and the missing generations.
    pub(crate) fn sizes(&self) -> [usize; 4] {
        let requests = self.waiting.values().map(|w| w.requests.len()).sum();
        let bytes = self.waiting.values().map(|w| w.bytes).sum();
        [requests, bytes, self.others.len(), self.missing.len()]
    }

    pub(crate) fn forget_others(&mut self) {
        self.others.clear();
    }
}
