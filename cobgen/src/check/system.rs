//! A generation prepared for graph walks: names resolved to numbers, routes computed.
//!
//! Goals are numbered by change object (in the order of ids), then by state. Unresolved names, which `structure`
//! reports, are left out.

use std::collections::{BTreeMap, HashMap};

use cob_types::{Cob, CobId, Generation, Kind, KindName, Need, StateName};
use rayon::prelude::*;

use crate::provenance::Provenance;

/// The data that the conditions are about.
pub(super) struct System<'a> {
    pub(super) provenance: Option<&'a Provenance>,
    pub(super) kinds: Vec<KindView<'a>>,
    pub(super) cobs: Vec<CobView<'a>>,
    /// The change object of each goal.
    owners: Vec<usize>,
    /// For each goal the states that every need for it also accepts: there, no need makes the change object move to it.
    content: Vec<Vec<usize>>,
}

/// A kind with its routes.
pub(super) struct KindView<'a> {
    pub(super) kind: &'a Kind,
    places: BTreeMap<&'a StateName, usize>,
    /// `next[from * states + to]`: the state after the first transition of the shortest route.
    next: Vec<Option<usize>>,
    /// States that a successful transition enters.
    pub(super) completed: Vec<bool>,
    /// States that a failed transition ends in.
    pub(super) failed: Vec<bool>,
    /// States that some transition starts from.
    pub(super) left: Vec<bool>,
    /// States that routes from all other states reach.
    always: Vec<bool>,
}

/// A change object with its dependencies resolved.
pub(super) struct CobView<'a> {
    pub(super) cob: &'a Cob,
    pub(super) kind: usize,
    /// The number of its first goal.
    pub(super) first: usize,
    pub(super) preferred: Option<usize>,
    pub(super) guards: Vec<Guard<'a>>,
}

/// An entry of dependencies.
pub(super) struct Guard<'a> {
    pub(super) moment: Moment,
    pub(super) wants: Vec<Want<'a>>,
}

/// The event that an entry guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// A transition, by states.
    Transition { from: usize, to: usize },
    /// The grant of a state.
    Grant(usize),
}

/// A resolved need: at least one of its states exists.
pub(super) struct Want<'a> {
    pub(super) on: usize,
    pub(super) states: Vec<usize>,
    pub(super) need: &'a Need,
}

/// The start states of transitions that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transitions {
    /// Any state: checks can find every state.
    Any,
    /// States that a transition or its failure enters.
    Entered,
    /// States that a successful transition enters.
    Completed,
}

/// The states from which a change object starts towards a goal that other change objects need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetsOut {
    /// States that some need for the goal does not accept.
    FromDiscontent,
    /// All states.
    FromAnywhere,
}

impl<'a> System<'a> {
    pub(super) fn of(generation: &'a Generation, provenance: Option<&'a Provenance>) -> Self {
        let mut system =
            Self { provenance, kinds: Vec::new(), cobs: Vec::new(), owners: Vec::new(), content: Vec::new() };
        let mut known: BTreeMap<&KindName, Vec<usize>> = BTreeMap::new();
        let mut all: Vec<(&CobId, &Cob, usize)> = Vec::new();
        for bundle in generation.bundles.values() {
            let mut here: BTreeMap<&KindName, usize> = BTreeMap::new();
            for (name, kind) in &bundle.kinds {
                // Bundles should agree on a kind; if they do not, each bundle uses its own definition.
                let same = known.get(name).and_then(|views| views.iter().find(|v| system.kinds[**v].kind == kind));
                let view = same.copied().unwrap_or_else(|| {
                    system.kinds.push(KindView::of(kind));
                    known.entry(name).or_default().push(system.kinds.len() - 1);
                    system.kinds.len() - 1
                });
                here.insert(name, view);
            }
            let resolved = bundle.cobs.iter().filter_map(|(id, cob)| Some((id, &**cob, *here.get(&cob.kind)?)));
            all.extend(resolved);
        }
        // The list is nearly sorted. If a change object is in two bundles, the later bundle counts.
        all.reverse();
        all.sort_by_key(|(a, ..)| *a);
        all.dedup_by(|(a, ..), (b, ..)| a == b);
        let mut first = 0;
        for (i, (_, cob, kind)) in all.into_iter().enumerate() {
            let view = &system.kinds[kind];
            let preferred = view.place(&cob.preferred);
            let states = view.states();
            system.cobs.push(CobView { cob, kind, first, preferred, guards: Vec::new() });
            system.owners.extend(std::iter::repeat_n(i, states));
            first += states;
        }
        let numbers: HashMap<&CobId, usize> = system.cobs.iter().enumerate().map(|(i, c)| (&c.cob.id, i)).collect();
        let guards: Vec<Vec<Guard<'a>>> = system.cobs.par_iter().map(|cob| system.guards(cob, &numbers)).collect();
        for (cob, guards) in system.cobs.iter_mut().zip(guards) {
            cob.guards = guards;
        }
        system.content = system.contents();
        system
    }

    /// For each goal the states that all needs for this goal accept. Empty for the preferred and the pre-remove state:
    /// a change object goes there by itself, from any state.
    fn contents(&self) -> Vec<Vec<usize>> {
        let mut found: Vec<Option<Vec<usize>>> = vec![None; self.goals()];
        let wants = self.cobs.iter().flat_map(|cob| &cob.guards).flat_map(|guard| &guard.wants);
        for want in wants {
            for goal in self.wanted(want) {
                match &mut found[goal] {
                    Some(states) => states.retain(|state| want.states.contains(state)),
                    none => *none = Some(want.states.clone()),
                }
            }
        }
        for (number, cob) in self.cobs.iter().enumerate() {
            let leaves = self.kind_of(number).place(&self.kind_of(number).kind.pre_remove);
            for state in [cob.preferred, leaves].into_iter().flatten() {
                found[cob.first + state] = None;
            }
        }
        found.into_iter().map(Option::unwrap_or_default).collect()
    }

    fn guards(&self, cob: &CobView<'a>, numbers: &HashMap<&CobId, usize>) -> Vec<Guard<'a>> {
        let kind = &self.kinds[cob.kind];
        let wants = |needs: &'a [Need]| -> Vec<Want<'a>> {
            let mut wants = Vec::with_capacity(needs.len());
            for need in needs {
                let Some(on) = numbers.get(&need.cob).copied() else { continue };
                let of = &self.kinds[self.cobs[on].kind];
                let mut states = Vec::with_capacity(need.states.len());
                states.extend(need.states.iter().filter_map(|state| of.place(state)));
                if !states.is_empty() && need.cob != cob.cob.id {
                    wants.push(Want { on, states, need });
                }
            }
            wants
        };
        let transitions = cob.cob.transitions.iter().filter_map(|t| {
            let moment = Moment::Transition { from: kind.place(&t.from)?, to: kind.place(&t.to)? };
            Some(Guard { moment, wants: wants(&t.needs) })
        });
        let grants = cob
            .cob
            .locks
            .iter()
            .filter_map(|l| Some(Guard { moment: Moment::Grant(kind.place(&l.state)?), wants: wants(&l.needs) }));
        // Exact capacity: in a large model these lists take most of the memory.
        let mut guards = Vec::with_capacity(cob.cob.transitions.len() + cob.cob.locks.len());
        guards.extend(transitions.chain(grants));
        guards
    }

    /// The host of a change object.
    pub(super) fn host_of(&self, cob: usize) -> &str {
        self.cobs[cob].cob.id.host_str()
    }

    pub(super) fn goals(&self) -> usize {
        self.owners.len()
    }

    pub(super) fn kind_of(&self, cob: usize) -> &KindView<'a> {
        &self.kinds[self.cobs[cob].kind]
    }

    /// The change object and the state of a goal.
    pub(super) fn goal(&self, goal: usize) -> (usize, usize) {
        let cob = self.owners[goal];
        (cob, goal - self.cobs[cob].first)
    }

    pub(super) fn goal_of(&self, cob: usize, state: usize) -> usize {
        self.cobs[cob].first + state
    }

    pub(super) fn state(&self, cob: usize, state: usize) -> &'a StateName {
        &self.kind_of(cob).kind.states[state]
    }

    /// The entries on which a goal depends.
    pub(super) fn guards_of(&self, goal: usize, transitions: Transitions) -> impl Iterator<Item = &Guard<'a>> {
        self.guards_from(goal, transitions, SetsOut::FromDiscontent)
    }

    /// The same, with a choice of start states.
    pub(super) fn guards_from(
        &self,
        goal: usize,
        transitions: Transitions,
        sets_out: SetsOut,
    ) -> impl Iterator<Item = &Guard<'a>> {
        let (cob, target) = self.goal(goal);
        let kind = self.kind_of(cob);
        self.cobs[cob].guards.iter().filter(move |guard| match guard.moment {
            Moment::Grant(state) => state == target,
            Moment::Transition { from, to } => {
                let goes = sets_out == SetsOut::FromAnywhere || !self.content[goal].contains(&from);
                goes && kind.next(from, target) == Some(to) && kind.counts(from, transitions)
            }
        })
    }

    /// The needs of a change object's entries for this moment.
    pub(super) fn wants(&self, cob: usize, moment: Moment) -> impl Iterator<Item = &Want<'a>> {
        let guards = self.cobs[cob].guards.iter().filter(move |guard| guard.moment == moment);
        guards.flat_map(|guard| &guard.wants)
    }

    /// All needs of all change objects.
    pub(super) fn wants_of_all(&self) -> impl Iterator<Item = &Want<'a>> {
        self.cobs.iter().flat_map(|cob| &cob.guards).flat_map(|guard| &guard.wants)
    }

    /// The needs that the wanted change object certainly has on its way to any state of a want, from every other state:
    /// it stops at the first accepted state. If several states can always be reached, the state with the fewest needs
    /// counts: if another state is requested and lies in a circle, an order of transitions leads out.
    pub(super) fn needed_by(&self, want: &Want<'_>, transitions: Transitions) -> impl Iterator<Item = &Want<'a>> {
        let (cob, choice) = self.goal(self.choice(want));
        let kind = self.kind_of(cob);
        let on_the_way = |target: usize| {
            let moves = move |guard: &&Guard<'a>| match guard.moment {
                Moment::Grant(_) => false,
                Moment::Transition { from, to } => {
                    !want.states.contains(&from)
                        && kind.next(from, target) == Some(to)
                        && kind.counts(from, transitions)
                }
            };
            self.cobs[cob].guards.iter().filter(moves).flat_map(|guard| &guard.wants).collect::<Vec<_>>()
        };
        let others = want.states.iter().copied().filter(|state| *state != choice && kind.always_reached(*state));
        let ways = std::iter::once(choice).chain(others).map(on_the_way);
        ways.min_by_key(Vec::len).into_iter().flatten()
    }

    /// The goals of a want's states.
    pub(super) fn wanted(&self, want: &Want<'_>) -> impl Iterator<Item = usize> {
        let first = self.cobs[want.on].first;
        want.states.iter().map(move |state| first + state)
    }

    /// The state of a set that is requested if there is a choice: the first state that can be reached from everywhere,
    /// else the first state.
    pub(super) fn choice(&self, want: &Want<'_>) -> usize {
        let kind = self.kind_of(want.on);
        let state = want.states.iter().copied().find(|state| kind.always_reached(*state)).unwrap_or(want.states[0]);
        self.goal_of(want.on, state)
    }
}

impl<'a> KindView<'a> {
    fn of(kind: &'a Kind) -> Self {
        let states = kind.states.len();
        let places: BTreeMap<&StateName, usize> = kind.states.iter().enumerate().map(|(i, s)| (s, i)).collect();
        let mut view = Self {
            kind,
            next: vec![None; states * states],
            completed: vec![false; states],
            failed: vec![false; states],
            left: vec![false; states],
            always: Vec::new(),
            places,
        };
        let mut transitions = Vec::new();
        for t in &kind.transitions {
            if let Some(failure) = t.failure.as_ref().and_then(|state| view.place(state)) {
                view.failed[failure] = true;
            }
            if let (Some(from), Some(to)) = (view.place(&t.from), view.place(&t.to)) {
                view.completed[to] = true;
                view.left[from] = true;
                transitions.push((from, to));
            }
        }
        for target in 0..states {
            view.route_to(target, &transitions);
        }
        view.always = (0..states).map(|to| (0..states).all(|from| view.reaches(from, to))).collect();
        view
    }

    /// Computes distances to `target` backwards, level by level; then for each state the first listed transition that
    /// comes nearer.
    fn route_to(&mut self, target: usize, transitions: &[(usize, usize)]) {
        let states = self.states();
        let mut far = vec![usize::MAX; states];
        far[target] = 0;
        for round in 0..states {
            let mut grown = false;
            for (from, to) in transitions {
                if far[*to] == round && far[*from] == usize::MAX {
                    far[*from] = round + 1;
                    grown = true;
                }
            }
            if !grown {
                break;
            }
        }
        for (from, to) in transitions {
            let next = &mut self.next[from * states + target];
            if next.is_none() && *from != target && far[*from] != usize::MAX && far[*from] == far[*to].saturating_add(1)
            {
                *next = Some(*to);
            }
        }
    }

    /// Whether its states and transitions are written in the model, so that a person can add more.
    pub(super) fn is_written_by_user(&self) -> bool {
        self.kind.backend == "command"
    }

    pub(super) fn states(&self) -> usize {
        self.kind.states.len()
    }

    pub(super) fn place(&self, state: &StateName) -> Option<usize> {
        self.places.get(state).copied()
    }

    pub(super) fn next(&self, from: usize, to: usize) -> Option<usize> {
        self.next[from * self.states() + to]
    }

    /// The number of transitions on the route.
    pub(super) fn far(&self, from: usize, to: usize) -> Option<usize> {
        let (mut at, mut transitions) = (from, 0);
        while at != to {
            (at, transitions) = (self.next(at, to)?, transitions + 1);
        }
        Some(transitions)
    }

    /// The target states of transitions from a state, in the kind's order.
    pub(super) fn transitions_from(&self, from: usize) -> impl Iterator<Item = usize> {
        let transitions = self.kind.transitions.iter().filter(move |t| self.place(&t.from) == Some(from));
        transitions.filter_map(|t| self.place(&t.to))
    }

    /// Whether a route leads from `from` to `to`, or both are the same state.
    pub(super) fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || self.next(from, to).is_some()
    }

    /// Whether routes lead to the state from all other states.
    pub(super) fn always_reached(&self, to: usize) -> bool {
        self.always[to]
    }

    fn counts(&self, from: usize, transitions: Transitions) -> bool {
        match transitions {
            Transitions::Any => true,
            Transitions::Entered => self.completed[from] || self.failed[from],
            Transitions::Completed => self.completed[from],
        }
    }
}
