//! A bundle compiled for the rules: dense states, routes computed once per kind, sorted needs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use cob_types::cob::Fingerprint;
use cob_types::{Cob, Kind, KindName, Need};
use thin_vec::ThinVec;

use crate::names::{CobRef, Names, StateId};
use crate::time::Span;

/// A state of a kind, by its index in the kind's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StateIx(pub(crate) u16);

/// Acceptable states, in order. Shared through a thin pointer: sets are copied into needs, locks and requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set(Arc<Box<[StateId]>>);

impl Deref for Set {
    type Target = [StateId];

    fn deref(&self) -> &[StateId] {
        &self.0
    }
}

impl FromIterator<StateId> for Set {
    fn from_iter<I: IntoIterator<Item = StateId>>(states: I) -> Self {
        Self(Arc::new(states.into_iter().collect()))
    }
}

const NO_TRANSITION: u16 = u16::MAX;

/// A kind as the rules use it.
#[derive(Debug)]
pub(crate) struct KindTable {
    pub(crate) name: KindName,
    pub(crate) states: Vec<StateId>,
    /// The index of each state in the kind's priority.
    priority: Vec<u16>,
    pub(crate) pre_remove: StateIx,
    /// The state when an operator has stopped it.
    pub(crate) stopped: Option<StateIx>,
    pub(crate) outdated: Option<StateIx>,
    pub(crate) transitions: Vec<TransitionTable>,
    /// `next[from * n + to]`: the first transition of the shortest route.
    next: Vec<u16>,
    /// Its actions are processes that outlive the daemon.
    pub(crate) process: bool,
    pub(crate) recheck: Option<Span>,
}

/// A transition.
#[derive(Debug)]
pub(crate) struct TransitionTable {
    pub(crate) from: StateIx,
    pub(crate) to: StateIx,
    pub(crate) retries: u32,
    pub(crate) retry_delay: Span,
    pub(crate) failure: Option<StateIx>,
}

impl KindTable {
    pub(crate) fn new(kind: &Kind, process: bool, names: &mut Names) -> Self {
        let ix = |state| StateIx(kind.states.iter().position(|s| s == state).unwrap_or(0) as u16);
        let transitions: Vec<_> = kind
            .transitions
            .iter()
            .map(|t| TransitionTable {
                from: ix(&t.from),
                to: ix(&t.to),
                retries: t.retries,
                retry_delay: Span::millis(t.retry_delay_ms),
                failure: t.failure.as_ref().map(ix),
            })
            .collect();
        let next = routes(kind.states.len(), &transitions);
        Self {
            name: kind.name.clone(),
            states: kind.states.iter().map(|s| names.state(s)).collect(),
            priority: kind
                .states
                .iter()
                .map(|s| kind.priority.iter().position(|p| p == s).unwrap_or(usize::from(u16::MAX)) as u16)
                .collect(),
            pre_remove: ix(&kind.pre_remove),
            stopped: kind.stopped().map(ix),
            outdated: kind.outdated().map(ix),
            transitions,
            next,
            process,
            recheck: kind.check.interval_ms.map(Span::millis),
        }
    }

    pub(crate) fn ix(&self, state: StateId) -> Option<StateIx> {
        self.states.iter().position(|s| *s == state).map(|i| StateIx(i as u16))
    }

    pub(crate) fn id(&self, state: StateIx) -> StateId {
        self.states[usize::from(state.0)]
    }

    pub(crate) fn priority(&self, state: StateIx) -> u16 {
        self.priority[usize::from(state.0)]
    }

    /// The first transition of the shortest route, if there is a route.
    pub(crate) fn next_transition(&self, from: StateIx, to: StateIx) -> Option<u16> {
        let transition = self.next[usize::from(from.0) * self.states.len() + usize::from(to.0)];
        (transition != NO_TRANSITION).then_some(transition)
    }

    pub(crate) fn reaches(&self, from: StateIx, to: StateIx) -> bool {
        from == to || self.next_transition(from, to).is_some()
    }
}

/// Shortest routes between all states. Among equally short routes, the first transition decides: the earliest in the
/// kind's list.
fn routes(n: usize, transitions: &[TransitionTable]) -> Vec<u16> {
    let mut next = vec![NO_TRANSITION; n * n];
    let mut distance = vec![u32::MAX; n];
    for to in 0..n {
        // Backwards from the target; then each state takes its first transition that comes nearer.
        distance.fill(u32::MAX);
        distance[to] = 0;
        let mut queue = VecDeque::from([to]);
        while let Some(at) = queue.pop_front() {
            for t in transitions.iter().filter(|t| usize::from(t.to.0) == at) {
                let from = usize::from(t.from.0);
                if distance[from] == u32::MAX {
                    distance[from] = distance[at] + 1;
                    queue.push_back(from);
                }
            }
        }
        for (i, t) in transitions.iter().enumerate() {
            let (from, via) = (usize::from(t.from.0), usize::from(t.to.0));
            let nearer = distance[via] != u32::MAX && distance[from] == distance[via] + 1;
            let slot = &mut next[from * n + to];
            if from != to && nearer && *slot == NO_TRANSITION {
                *slot = i as u16;
            }
        }
    }
    next
}

/// A need: a depended-on change object and its acceptable states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NeedSpec {
    pub(crate) cob: CobRef,
    pub(crate) set: Set,
}

/// A transition or a grant that requires locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Dependency {
    /// This transition of the kind.
    Transition(u16),
    /// Grants of this state.
    Lock(StateIx),
}

/// A dependency and the range of its needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Needing {
    what: Dependency,
    begin: u32,
    end: u32,
}

/// A change object as the rules use it.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) kind: Arc<KindTable>,
    pub(crate) preferred: StateIx,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) rests_on: Option<Fingerprint>,
    /// Sorted. Shared: most change objects of a kind have the same.
    dependencies: Arc<[Needing]>,
    /// The needs of all dependencies, each range sorted by change object. Equal ranges are stored once.
    needs: ThinVec<NeedSpec>,
    ranks: ThinVec<u64>,
    expects: ThinVec<(CobRef, Fingerprint)>,
    /// The state lock that it takes before it leaves its preferred state, or `outdated`.
    pub(crate) budget: Option<Box<NeedSpec>>,
    /// The most holders of its state at a time.
    pub(crate) at_most: Option<u32>,
    /// It departs in its present state.
    pub(crate) keep: bool,
    /// It is checked and never moved.
    pub(crate) observe: bool,
}

impl Spec {
    fn new(cob: &Cob, kind: Arc<KindTable>, names: &mut Names, shared: &mut Shared) -> Self {
        let ix = |names: &Names, state| names.find_state(state).and_then(|s| kind.ix(s)).unwrap_or(StateIx(0));
        let mut found: BTreeMap<Dependency, Vec<NeedSpec>> = BTreeMap::new();
        for t in &cob.transitions {
            let (from, to) = (ix(names, &t.from), ix(names, &t.to));
            let needs = shared.needs(&t.needs, names);
            for (i, _) in kind.transitions.iter().enumerate().filter(|(_, k)| k.from == from && k.to == to) {
                merge(found.entry(Dependency::Transition(i as u16)).or_default(), needs.clone());
            }
        }
        for l in &cob.locks {
            let needs = shared.needs(&l.needs, names);
            merge(found.entry(Dependency::Lock(ix(names, &l.state))).or_default(), needs);
        }
        let mut expects: Vec<_> = cob.expects.iter().map(|(id, f)| (names.cob(id), *f)).collect();
        expects.sort_unstable_by_key(|e| e.0);
        let (mut dependencies, mut needs) = (Vec::new(), Vec::new());
        // Longer lists first, so that a shorter list can be a range within a stored list.
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_by_key(|(_, own)| Reverse(own.len()));
        for (what, own) in found {
            let begin = stands_in(&needs, &own).unwrap_or(needs.len());
            let end = begin + own.len();
            if end > needs.len() {
                needs.extend(own);
            }
            dependencies.push(Needing { what, begin: begin as u32, end: end as u32 });
        }
        dependencies.sort_unstable();
        Self {
            preferred: ix(names, &cob.preferred),
            fingerprint: cob.fingerprint,
            rests_on: cob.rests_on,
            dependencies: shared.dependencies(dependencies),
            needs: exact(needs),
            ranks: exact(kind.states.iter().map(|s| cob.ranks.get(names.state_name(*s)).copied().unwrap_or(u64::MAX))),
            expects: exact(expects),
            budget: cob.budget.as_deref().map(|token| {
                let mut needs = shared.needs(std::slice::from_ref(token), names);
                Box::new(needs.remove(0))
            }),
            at_most: cob.at_most,
            keep: cob.leaves_as_it_is(),
            observe: cob.observe,
            kind,
        }
    }

    pub(crate) fn transition_needs(&self, transition: u16) -> &[NeedSpec] {
        self.needs_of(Dependency::Transition(transition))
    }

    pub(crate) fn lock_needs(&self, state: StateIx) -> &[NeedSpec] {
        self.needs_of(Dependency::Lock(state))
    }

    fn needs_of(&self, dependency: Dependency) -> &[NeedSpec] {
        let Ok(at) = self.dependencies.binary_search_by_key(&dependency, |d| d.what) else { return &[] };
        let Needing { begin, end, .. } = self.dependencies[at];
        &self.needs[begin as usize..end as usize]
    }

    pub(crate) fn rank(&self, state: StateIx) -> u64 {
        self.ranks[usize::from(state.0)]
    }

    pub(crate) fn expects(&self, cob: CobRef) -> Option<Fingerprint> {
        self.expects.binary_search_by_key(&cob, |e| e.0).ok().map(|i| self.expects[i].1)
    }

    /// Whether a dependency names this change object with these states, or two dependencies have exactly these states
    /// in common, or a dependency names the held state.
    pub(crate) fn lets_ask(&self, cob: CobRef, set: &Set, held: Option<StateId>) -> bool {
        let needs = || self.needs.iter().chain(self.budget.as_deref()).filter(|need| need.cob == cob);
        let narrowed = |own: &NeedSpec| {
            let common = |other: &NeedSpec| own.set.iter().filter(|state| other.set.contains(state)).eq(set.iter());
            own.set.len() > set.len() && needs().any(common)
        };
        needs().any(|own| own.set == *set || held.is_some_and(|held| own.set.contains(&held)) || narrowed(own))
    }

    /// Every depended-on change object of any dependency.
    pub(crate) fn depended_on(&self) -> impl Iterator<Item = CobRef> + '_ {
        self.needs.iter().chain(self.budget.as_deref()).map(|need| need.cob)
    }
}

/// The index at which these needs are already stored in sequence.
fn stands_in(needs: &[NeedSpec], own: &[NeedSpec]) -> Option<usize> {
    if own.is_empty() { Some(0) } else { needs.windows(own.len()).position(|there| there == own) }
}

/// A vector without spare capacity.
fn exact<T>(all: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>) -> ThinVec<T> {
    let all = all.into_iter();
    let mut exact = ThinVec::with_capacity(all.len());
    exact.extend(all);
    exact
}

/// Merges `more` into the sorted `needs`; for the same change object only the common states remain.
fn merge(needs: &mut Vec<NeedSpec>, more: Vec<NeedSpec>) {
    for need in more {
        match needs.binary_search_by_key(&need.cob, |n| n.cob) {
            Ok(i) => needs[i].set = needs[i].set.iter().copied().filter(|s| need.set.contains(s)).collect(),
            Err(i) => needs.insert(i, need),
        }
    }
}

/// Values that many change objects share.
#[derive(Default)]
struct Shared {
    sets: BTreeMap<Vec<StateId>, Set>,
    dependencies: BTreeSet<Arc<[Needing]>>,
}

impl Shared {
    fn dependencies(&mut self, all: Vec<Needing>) -> Arc<[Needing]> {
        if let Some(known) = self.dependencies.get(all.as_slice()) {
            return known.clone();
        }
        let all: Arc<[Needing]> = all.into();
        self.dependencies.insert(all.clone());
        all
    }

    fn needs(&mut self, needs: &[Need], names: &mut Names) -> Vec<NeedSpec> {
        let mut result = Vec::new();
        for need in needs {
            let ids: Vec<_> = need.states.iter().map(|s| names.state(s)).collect();
            let set = self.sets.entry(ids).or_insert_with_key(|ids| ids.iter().copied().collect()).clone();
            merge(&mut result, vec![NeedSpec { cob: names.cob(&need.cob), set }]);
        }
        result
    }
}

/// Compiles the requested change objects of a bundle.
pub(crate) struct Compiler<'a> {
    known: &'a BTreeMap<KindName, Kind>,
    in_process: &'a [String],
    kinds: BTreeMap<&'a KindName, Arc<KindTable>>,
    shared: Shared,
}

impl<'a> Compiler<'a> {
    pub(crate) fn new(known: &'a BTreeMap<KindName, Kind>, in_process: &'a [String]) -> Self {
        Self { known, in_process, kinds: BTreeMap::new(), shared: Shared::default() }
    }

    /// `None`: its kind is missing, which `Bundle::validate` rules out.
    pub(crate) fn spec(&mut self, cob: &Cob, names: &mut Names) -> Option<Arc<Spec>> {
        let (name, kind) = self.known.get_key_value(&cob.kind)?;
        let table = self.kinds.entry(name).or_insert_with(|| {
            let process = !self.in_process.contains(&kind.backend);
            Arc::new(KindTable::new(kind, process, names))
        });
        Some(Arc::new(Spec::new(cob, table.clone(), names, &mut self.shared)))
    }
}
