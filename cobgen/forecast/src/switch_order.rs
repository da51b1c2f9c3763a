//! The order of a switch: which change objects depart before which others, and which hosts wait for departures.
//!
//! Decision 0008 has the reasons. The *closure* of a departing change object m is all that `(m, off)` needs under the
//! old generation, over all transitions and grants. A goal of the closure is *faithful* if its change object is the
//! same in both generations and all its needs are faithful. A goal of a departing change object is faithful if its
//! state is the pre-remove state. A host waits for m if it has a goal in m's closure that is not faithful: after the
//! host's activation m could not depart any more. If change object x needs a departing change object in a state other
//! than the pre-remove state, the departing change object departs after x.
//!
//! Only departing change objects and their needs are examined: the work grows with these, not with the cluster.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use cob_depot::{Depot, DepotError};
use cob_types::{
    Bundle, Cob, CobId, Generation, GenerationNumber, HostName, Kind, KindName, Manifest, Need, StateName, SwitchOrder,
};

use crate::requested_states::{RequestedStates, State};
use crate::routes::Routes;

/// A generation of the two. Bundles are read on demand.
#[derive(Debug)]
pub struct Side<'a> {
    manifest: &'a Manifest,
    bundles: Bundles<'a>,
}

#[derive(Debug)]
enum Bundles<'a> {
    Here(&'a BTreeMap<HostName, Bundle>),
    Depot {
        depot: &'a Depot,
        read: RefCell<BTreeMap<HostName, Arc<Bundle>>>,
        /// A generation in memory that may have the same bundles.
        near: Option<&'a Generation>,
    },
}

/// The reason why a switch has no order.
#[derive(Debug)]
pub enum NoOrder {
    /// Each of these must depart before the next, and the last before the first.
    Circle(Vec<CobId>),
    /// A bundle can't be read.
    Depot(DepotError),
}

impl From<DepotError> for NoOrder {
    fn from(error: DepotError) -> Self {
        Self::Depot(error)
    }
}

impl<'a> Side<'a> {
    /// A generation in memory.
    #[must_use]
    pub fn of(generation: &'a Generation) -> Self {
        Self { manifest: &generation.manifest, bundles: Bundles::Here(&generation.bundles) }
    }

    /// A generation in a depot; only needed parts are read.
    #[must_use]
    pub fn in_depot(depot: &'a Depot, manifest: &'a Manifest) -> Self {
        Self::partly_read(depot, manifest, BTreeMap::new())
    }

    /// Like [`Side::in_depot`], for the order of the switch to `after`: bundles that differ from `after` are read at
    /// once, except bundles that `near` has too.
    ///
    /// # Errors
    /// When the depot can't be read.
    pub fn near(
        depot: &'a Depot,
        manifest: &'a Manifest,
        near: &'a Generation,
        after: &Manifest,
    ) -> Result<Self, DepotError> {
        let hash = |manifest: &Manifest, host: &HostName| manifest.hosts.get(host).map(|entry| entry.bundle);
        let here = manifest.hosts.keys().filter(|host| {
            let own = hash(manifest, host);
            own != hash(after, host) && own != hash(&near.manifest, host)
        });
        let read = depot.read_bundles(manifest.generation, &here.cloned().collect())?;
        let read = read.into_iter().map(|(host, bundle)| (host, Arc::new(bundle))).collect();
        Ok(Self { manifest, bundles: Bundles::Depot { depot, read: RefCell::new(read), near: Some(near) } })
    }

    /// Like [`Side::in_depot`], with the bundles read so far.
    #[must_use]
    pub fn partly_read(depot: &'a Depot, manifest: &'a Manifest, read: BTreeMap<HostName, Arc<Bundle>>) -> Self {
        Self { manifest, bundles: Bundles::Depot { depot, read: RefCell::new(read), near: None } }
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> GenerationNumber {
        self.manifest.generation
    }

    fn has(&self, host: &HostName) -> bool {
        self.manifest.hosts.contains_key(host)
    }

    /// Whether a host has the same bundle, byte for byte, in both.
    fn same_bundle(&self, other: &Side<'_>, host: &HostName) -> bool {
        let hash = |side: &Side<'_>| side.manifest.hosts.get(host).map(|h| h.bundle);
        hash(self).is_some() && hash(self) == hash(other)
    }

    fn with<R>(&self, host: &HostName, look: impl FnOnce(Option<&Bundle>) -> R) -> Result<R, DepotError> {
        match &self.bundles {
            Bundles::Here(bundles) => Ok(look(bundles.get(host))),
            Bundles::Depot { .. } if !self.has(host) => Ok(look(None)),
            Bundles::Depot { depot, read, near } => {
                let entry = |manifest: &Manifest| manifest.hosts.get(host).map(|entry| entry.bundle);
                if let Some(near) = near.filter(|near| entry(&near.manifest) == entry(self.manifest)) {
                    return Ok(look(near.bundles.get(host)));
                }
                let known = read.borrow().get(host).cloned();
                let bundle = match known {
                    Some(bundle) => bundle,
                    None => {
                        let bundle = Arc::new(depot.read_bundle(self.manifest.generation, host)?);
                        read.borrow_mut().insert(host.clone(), bundle.clone());
                        bundle
                    }
                };
                Ok(look(Some(&bundle)))
            }
        }
    }
}

/// The order of the switch from `before` to `after`. `is_back`: `before` was made after `after`, and its transitions
/// are reverted if their kind has reverts.
///
/// # Errors
/// [`NoOrder`] when some departing change objects would have to depart before each other.
pub fn switch_order(before: &Side<'_>, after: &Side<'_>, is_back: bool) -> Result<SwitchOrder, NoOrder> {
    let mut order = SwitchOrder::free(before.number(), after.number());
    let mut leaving = BTreeMap::new();
    for host in before.manifest.hosts.keys().filter(|host| !before.same_bundle(after, host)) {
        let found = before.with(host, |old| after.with(host, |new| leaving_of(old, new, is_back)))??;
        for (id, left) in found {
            if left == Left::TakenBack {
                order.taken_back.insert(id.clone());
            }
            leaving.insert(id, left);
        }
    }
    let mut walk = Walk {
        before,
        after,
        leaving: &leaving,
        kinds: HashMap::new(),
        requests: HashMap::new(),
        local: HashMap::new(),
        goals: Goals::default(),
    };
    let roots = walk.roots()?;
    let Walk { goals, .. } = walk;
    goals.order(&roots, &mut order);
    thin(&mut order);
    match circle(&order.after) {
        Some(circle) => Err(NoOrder::Circle(circle)),
        None => Ok(order),
    }
}

/// The way in which a change object departs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// In its pre-remove state.
    Goes,
    /// Without a change.
    Stays,
    /// It comes again: as another kind, or with other content during a rollback.
    TakenBack,
}

fn leaving_of(old: Option<&Bundle>, new: Option<&Bundle>, is_back: bool) -> Vec<(CobId, Left)> {
    let Some(old) = old else { return Vec::new() };
    let left = |id: &CobId, cob: &Cob| match new.and_then(|new| new.cobs.get(id)) {
        None if cob.leaves_as_it_is() => Some(Left::Stays),
        None => Some(Left::Goes),
        Some(next) if next.fingerprint == cob.fingerprint || cob.leaves_as_it_is() => None,
        Some(next) => {
            let kind = old.kinds.get(&cob.kind)?;
            let continues = new.and_then(|new| new.kinds.get(&next.kind)).is_some_and(|next| next.continues(kind));
            (!continues || is_back && has_reverts(kind)).then_some(Left::TakenBack)
        }
    };
    old.cobs.iter().filter_map(|(id, cob)| Some((id.clone(), left(id, cob)?))).collect()
}

/// Whether some transition of a kind has a revert (decision 0013: the revert is then a transition of its own).
fn has_reverts(kind: &Kind) -> bool {
    let leads_back = |revert, from: &StateName, to: &StateName| {
        kind.transitions.iter().any(|t| t.from == *to && t.to == *from && t.run.as_ref() == Some(revert))
    };
    kind.transitions.iter().any(|t| t.revert.as_ref().is_some_and(|revert| leads_back(revert, &t.from, &t.to)))
}

/// The goals with their numbers.
#[derive(Default)]
struct Goals {
    numbers: HashMap<Wanted, u32>,
    list: Vec<Goal>,
}

/// A goal of a change object: any of these states, the first if there is a choice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wanted {
    cob: CobId,
    states: Vec<StateName>,
}

struct Goal {
    wanted: Wanted,
    breaks: bool,
    /// It departs, but for this goal it takes another way than for its departure.
    holds_back: bool,
    /// It departs, and this goal needs no more than its departure.
    leaves: bool,
    needs: Vec<u32>,
}

/// Walks from the goals of departing change objects to all their needs.
struct Walk<'w, 's> {
    before: &'w Side<'s>,
    after: &'w Side<'s>,
    leaving: &'w BTreeMap<CobId, Left>,
    kinds: HashMap<KindName, Rc<Ways>>,
    requests: HashMap<CobId, Option<Rc<RequestedStates>>>,
    local: HashMap<HostName, Rc<Local>>,
    goals: Goals,
}

/// The needs between the change objects of a host, in either generation.
type Local = HashMap<CobId, BTreeSet<Vec<StateName>>>;

/// A kind's routes, without the kind: the first transition from each state to each.
struct Ways {
    states: Vec<StateName>,
    first: Vec<Vec<Option<usize>>>,
    pre_remove: StateName,
}

impl Walk<'_, '_> {
    /// Finds the goals of departures and all goals that they need; returns the former.
    fn roots(&mut self) -> Result<Vec<u32>, NoOrder> {
        let mut roots = Vec::new();
        let mut open = Vec::new();
        for (id, _) in self.leaving.iter().filter(|(_, left)| **left != Left::Stays) {
            let Some(ways) = self.ways(id)? else { continue };
            let wanted = Wanted { cob: id.clone(), states: vec![ways.pre_remove.clone()] };
            roots.push(self.goal(wanted, &mut open)?);
        }
        while let Some(goal) = open.pop() {
            let wanted = self.goals.list[goal as usize].wanted.clone();
            let mut needs = Vec::new();
            for wanted in self.needs_of(&wanted)? {
                needs.push(self.goal(wanted, &mut open)?);
            }
            needs.sort_unstable();
            needs.dedup();
            self.goals.list[goal as usize].needs = needs;
        }
        Ok(roots)
    }

    /// The number of a goal; a new goal is put into `open`.
    fn goal(&mut self, wanted: Wanted, open: &mut Vec<u32>) -> Result<u32, NoOrder> {
        if let Some(number) = self.goals.numbers.get(&wanted) {
            return Ok(*number);
        }
        let cob = &wanted.cob;
        let is_leaving = self.leaving.contains_key(cob);
        let leaves = is_leaving && self.leaves_on_the_way(&wanted)?;
        let holds_back = is_leaving && !leaves;
        let breaks = holds_back || !leaves && !self.is_same(cob)?;
        let number = u32::try_from(self.goals.list.len()).unwrap_or(u32::MAX);
        self.goals.list.push(Goal { wanted: wanted.clone(), breaks, holds_back, leaves, needs: Vec::new() });
        self.goals.numbers.insert(wanted, number);
        open.push(number);
        Ok(number)
    }

    /// Whether a departing change object reaches a wanted state on its way out, from every state, and may depart then.
    fn leaves_on_the_way(&mut self, wanted: &Wanted) -> Result<bool, NoOrder> {
        let Some(ways) = self.ways(&wanted.cob)? else { return Ok(false) };
        let Some(off) = ways.place(&ways.pre_remove) else { return Ok(false) };
        let led = self.led(wanted)?;
        Ok(wanted.states.contains(&ways.pre_remove)
            && led.iter().all(|(from, to)| ways.first[*from][*to] == ways.first[*from][off]))
    }

    /// The pairs of states, from and to, between which these requests lead the change object.
    fn led(&mut self, wanted: &Wanted) -> Result<BTreeSet<(State, State)>, NoOrder> {
        let Wanted { cob, states } = wanted;
        let Some(ways) = self.ways(cob)? else { return Ok(BTreeSet::new()) };
        let asked: Vec<State> = states.iter().filter_map(|state| ways.place(state)).collect();
        if let Some(requests) = self.requests(cob)? {
            return Ok(requests.led(&asked, ways.states.len(), |from, to| ways.reaches(from, to)));
        }
        let from = (0..ways.states.len()).filter(|state| !asked.contains(state));
        let all = from.flat_map(|from| asked.iter().map(move |to| (from, *to)));
        Ok(all.filter(|(from, to)| ways.reaches(*from, *to)).collect())
    }

    /// Whether a change object has the same content and the same dependencies in both.
    fn is_same(&self, cob: &CobId) -> Result<bool, NoOrder> {
        let host = cob.host();
        if self.before.same_bundle(self.after, &host) {
            return Ok(true);
        }
        let same = self.before.with(&host, |old| {
            self.after.with(&host, |new| {
                let both = old.and_then(|old| old.cobs.get(cob)).zip(new.and_then(|new| new.cobs.get(cob)));
                both.is_some_and(|(old, new)| {
                    old.fingerprint == new.fingerprint
                        && old.rests_on == new.rests_on
                        && old.transitions == new.transitions
                        && old.locks == new.locks
                })
            })
        })??;
        Ok(same)
    }

    fn ways(&mut self, cob: &CobId) -> Result<Option<Rc<Ways>>, NoOrder> {
        let (kinds, before) = (&mut self.kinds, self.before);
        let ways = before.with(&cob.host(), |bundle| {
            let bundle = bundle?;
            let name = &bundle.cobs.get(cob)?.kind;
            if let Some(known) = kinds.get(name) {
                return Some(known.clone());
            }
            let kind = bundle.kinds.get(name)?;
            let first = Routes::of(kind).first;
            let (states, pre_remove) = (kind.states.clone(), kind.pre_remove.clone());
            let ways = Rc::new(Ways { states, first, pre_remove });
            kinds.insert(name.clone(), ways.clone());
            Some(ways)
        })?;
        Ok(ways)
    }

    /// The requests for a change object, in either generation; `None`: a bundle does not list its requests.
    fn requests(&mut self, cob: &CobId) -> Result<Option<Rc<RequestedStates>>, NoOrder> {
        if let Some(known) = self.requests.get(cob) {
            return Ok(known.clone());
        }
        let (host, ways) = (cob.host(), self.ways(cob)?);
        let local = self.local(&host)?;
        let mut sets: BTreeSet<Vec<StateName>> = local.get(cob).cloned().unwrap_or_default();
        let mut is_told = ways.is_some();
        for side in [self.before, self.after] {
            is_told &= side.with(&host, |bundle| {
                let Some(bundle) = bundle.filter(|bundle| bundle.cobs.contains_key(cob)) else { return true };
                let Some(askers) = &bundle.askers else { return false };
                sets.extend(askers.sets_of(cob).map(<[_]>::to_vec));
                true
            })?;
        }
        let requests = ways.filter(|_| is_told).map(|ways| {
            let places = |set: &Vec<StateName>| set.iter().filter_map(|state| ways.place(state)).collect();
            Rc::new(RequestedStates::of(sets.iter().map(places)))
        });
        self.requests.insert(cob.clone(), requests.clone());
        Ok(requests)
    }

    fn local(&mut self, host: &HostName) -> Result<Rc<Local>, NoOrder> {
        if let Some(known) = self.local.get(host) {
            return Ok(known.clone());
        }
        let mut local = Local::new();
        for side in [self.before, self.after] {
            side.with(host, |bundle| {
                let needs = bundle.into_iter().flat_map(|bundle| bundle.cobs.values()).flat_map(|cob| cob.needs());
                for need in needs.filter(|need| need.cob.host_str() == host.as_str()) {
                    local.entry(need.cob.clone()).or_default().insert(need.states.clone());
                }
            })?;
        }
        let local = Rc::new(local);
        self.local.insert(host.clone(), local.clone());
        Ok(local)
    }

    /// The needs of a goal: of the transitions that start towards its states, and of the grants of these states.
    fn needs_of(&mut self, wanted: &Wanted) -> Result<Vec<Wanted>, NoOrder> {
        let Wanted { cob, states } = wanted;
        let Some(ways) = self.ways(cob)? else { return Ok(Vec::new()) };
        let led = self.led(wanted)?;
        let transitions: BTreeSet<(State, State)> =
            led.into_iter().filter_map(|(from, to)| Some((from, ways.first[from][to]?))).collect();
        let on_the_way = |from: &StateName, to: &StateName| {
            let transition = ways.place(from).zip(ways.place(to));
            transition.is_some_and(|transition| transitions.contains(&transition))
        };
        let needs = self.before.with(&cob.host(), |bundle| {
            let Some(cob) = bundle.and_then(|bundle| bundle.cobs.get(cob)) else { return Vec::new() };
            let transitions = cob.transitions.iter().filter(|t| on_the_way(&t.from, &t.to)).flat_map(|t| &t.needs);
            let grants = cob.locks.iter().filter(|l| states.contains(&l.state)).flat_map(|l| &l.needs);
            let wanted = |need: &Need| Wanted { cob: need.cob.clone(), states: need.states.clone() };
            transitions.chain(grants).map(wanted).collect()
        })?;
        Ok(needs)
    }
}

impl Ways {
    fn place(&self, state: &StateName) -> Option<State> {
        self.states.iter().position(|s| s == state)
    }

    fn reaches(&self, from: State, to: State) -> bool {
        from != to && self.first[from][to].is_some()
    }
}

/// The effects of the goals below a goal: hosts that must wait, and change objects that depart later.
#[derive(Default)]
struct Below {
    hosts: BTreeSet<HostName>,
    later: BTreeSet<CobId>,
}

impl Goals {
    /// The goals that are not faithful, and all goals from which these are reached.
    fn faithless(&self) -> (Vec<bool>, Vec<bool>) {
        let mut users: Vec<Vec<u32>> = vec![Vec::new(); self.list.len()];
        for (goal, number) in self.list.iter().zip(0..) {
            goal.needs.iter().for_each(|need| users[*need as usize].push(number));
        }
        // A departing change object is faithful in its pre-remove state, with any needs on the way.
        let breaks: Vec<bool> = self.list.iter().map(|goal| goal.breaks).collect();
        let faithless = spread(breaks, &users, |goal| !self.list[goal].leaves);
        let reached = spread(faithless.clone(), &users, |_| true);
        (faithless, reached)
    }

    fn order(&self, roots: &[u32], order: &mut SwitchOrder) {
        let (faithless, reached) = self.faithless();
        let mut seen = vec![u32::MAX; self.list.len()];
        // Many departing change objects need the same goals: the load balancer that they are removed from.
        let mut known: HashMap<Vec<u32>, Rc<Below>> = HashMap::new();
        for root in roots {
            let me = &self.list[*root as usize].wanted.cob;
            let first = |goal: &Goal| goal.needs.iter().copied().filter(|g| reached[*g as usize]).collect::<Vec<_>>();
            let begin = first(&self.list[*root as usize]);
            if begin.is_empty() {
                continue;
            }
            let below = known.entry(begin.clone()).or_insert_with(|| {
                let mut below = Below::default();
                let mut open = begin;
                while let Some(number) = open.pop() {
                    if std::mem::replace(&mut seen[number as usize], *root) == *root {
                        continue;
                    }
                    let goal = &self.list[number as usize];
                    if faithless[number as usize] {
                        below.hosts.insert(goal.wanted.cob.host());
                    }
                    if goal.holds_back {
                        below.later.insert(goal.wanted.cob.clone());
                    }
                    open.extend(first(goal));
                }
                Rc::new(below)
            });
            for host in below.hosts.iter().filter(|host| **host != me.host()) {
                order.waits.entry(host.clone()).or_default().insert(me.clone());
            }
            for later in below.later.iter().filter(|later| *later != me) {
                order.after.entry(later.clone()).or_default().insert(me.clone());
            }
        }
    }
}

/// Marks all users of marked goals, as far as `passes` allows.
fn spread(mut marked: Vec<bool>, users: &[Vec<u32>], passes: impl Fn(usize) -> bool) -> Vec<bool> {
    let mut open: Vec<usize> = (0..marked.len()).filter(|goal| marked[*goal]).collect();
    while let Some(goal) = open.pop() {
        for user in users[goal].iter().map(|user| *user as usize).filter(|user| passes(*user)) {
            if !std::mem::replace(&mut marked[user], true) {
                open.push(user);
            }
        }
    }
    marked
}

/// Removes redundant waits: a wait for a change object includes all that must depart before it.
fn thin(order: &mut SwitchOrder) {
    for waits in order.waits.values_mut() {
        let entailed: BTreeSet<CobId> =
            waits.iter().flat_map(|cob| order.after.get(cob).into_iter().flatten()).cloned().collect();
        // In a circle this would remove all waits; an order with a circle is refused.
        if entailed.len() < waits.len() {
            waits.retain(|cob| !entailed.contains(cob));
        }
    }
}

/// A smallest circle, each before the next.
fn circle(after: &BTreeMap<CobId, BTreeSet<CobId>>) -> Option<Vec<CobId>> {
    // A change object without unplaced predecessors can't be in a circle.
    let mut left: BTreeMap<&CobId, BTreeSet<&CobId>> =
        after.iter().map(|(cob, before)| (cob, before.iter().filter(|b| after.contains_key(*b)).collect())).collect();
    let mut users: BTreeMap<&CobId, Vec<&CobId>> = BTreeMap::new();
    for (cob, before) in &left {
        before.iter().for_each(|b| users.entry(b).or_default().push(cob));
    }
    let mut open: Vec<&CobId> = left.iter().filter(|(_, before)| before.is_empty()).map(|(cob, _)| *cob).collect();
    while let Some(cob) = open.pop() {
        left.remove(cob);
        for user in users.get(cob).into_iter().flatten() {
            if let Some(before) = left.get_mut(user)
                && before.remove(cob)
                && before.is_empty()
            {
                open.push(user);
            }
        }
    }
    left.keys().take(TRIED).filter_map(|start| circle_through(start, &left)).min_by_key(Vec::len)
}

/// The most starts for the search for a smallest circle; any circle is good enough for a report.
const TRIED: usize = 200;

/// The shortest circle through `start` among the rest, breadth first.
fn circle_through(start: &CobId, left: &BTreeMap<&CobId, BTreeSet<&CobId>>) -> Option<Vec<CobId>> {
    let mut came_from: BTreeMap<&CobId, &CobId> = BTreeMap::new();
    let mut open = std::collections::VecDeque::from([start]);
    while let Some(cob) = open.pop_front() {
        for before in left.get(cob)? {
            if *before == start {
                // From the start over its predecessors; a later change object comes first here.
                let mut circle = vec![cob.clone()];
                let mut at = cob;
                while at != start {
                    at = came_from.get(at)?;
                    circle.push(at.clone());
                }
                return Some(circle);
            }
            if left.contains_key(before) && !came_from.contains_key(before) {
                came_from.insert(before, cob);
                open.push_back(before);
            }
        }
    }
    None
}
