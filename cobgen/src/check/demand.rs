//! Γ: all preferred goals and the goals that they need, transitively.

use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;

use super::circles::Arrows;
use super::system::{Moment, SetsOut, System, Transitions, Want};

/// The demanded goals and their arrows.
pub(super) struct Demand {
    /// For each goal of the system, whether it is demanded.
    pub(super) asked: Vec<bool>,
    /// The demanded goals, in ascending order.
    pub(super) goals: Vec<usize>,
    /// For each goal the goal that first needs it; `None` for preferred goals.
    pub(super) asker: Vec<Option<u32>>,
    transitions: Transitions,
    sets_out: SetsOut,
    /// Computed on first use.
    arrows: OnceLock<Arrows>,
    chosen: OnceLock<Chosen>,
}

/// Arrows to the goals that are needed for certain, in every state that a check may find. Nodes are goals, followed by
/// the needs that accept several states: a change object that must be in any of several states moves only from a state
/// outside this set, and stops at the first state of the set.
pub(super) struct Chosen {
    arrows: Arrows,
    /// The goal that represents each node in messages.
    goals: Vec<usize>,
}

impl Chosen {
    /// The sets of goals that lie in circles together.
    pub(super) fn components(&self) -> Vec<Component> {
        let of = |nodes: Vec<usize>| {
            let mut goals: Vec<usize> = nodes.iter().map(|node| self.goals[*node]).collect();
            goals.sort_unstable();
            goals.dedup();
            Component { nodes, goals }
        };
        self.arrows.components().into_iter().map(of).collect()
    }

    /// Whether arrows lead from a goal to another.
    pub(super) fn reaches(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.goals.len()];
        let mut pending = vec![from];
        while let Some(node) = pending.pop() {
            if self.goals[node] == to {
                return true;
            }
            if !std::mem::replace(&mut seen[node], true) {
                pending.extend(self.arrows.from(node).iter().map(|next| *next as usize));
            }
        }
        false
    }

    /// The goals of a smallest circle of a component.
    pub(super) fn smallest_circle(&self, component: &Component) -> Vec<usize> {
        let mut circle: Vec<usize> =
            self.arrows.smallest_circle(&component.nodes).into_iter().map(|node| self.goals[node]).collect();
        circle.dedup();
        if circle.len() > 1 && circle.first() == circle.last() {
            circle.pop();
        }
        circle
    }
}

/// Nodes that lie in circles together.
pub(super) struct Component {
    nodes: Vec<usize>,
    /// Their goals, in the order of numbers.
    pub(super) goals: Vec<usize>,
}

impl Demand {
    pub(super) fn of(system: &System<'_>, transitions: Transitions) -> Self {
        Self::from_roots(system, transitions, preferred_goals(system), SetsOut::FromDiscontent)
    }

    /// The same, with transitions from states that satisfy every need, for checks of single transitions.
    pub(super) fn with_all_transitions(system: &System<'_>) -> Self {
        Self::from_roots(system, Transitions::Any, preferred_goals(system), SetsOut::FromAnywhere)
    }

    /// The goals that are demanded if every change object must also be able to depart.
    pub(super) fn with_leaving(system: &System<'_>) -> Self {
        let leavers = (0..system.cobs.len()).filter(|cob| !system.cobs[*cob].cob.leaves_as_it_is());
        let off = leavers.filter_map(|cob| Some(system.goal_of(cob, super::leaving::off(system, cob)?)));
        Self::from_roots(system, Transitions::Any, preferred_goals(system).chain(off), SetsOut::FromDiscontent)
    }

    fn from_roots(
        system: &System<'_>,
        transitions: Transitions,
        roots: impl Iterator<Item = usize>,
        sets_out: SetsOut,
    ) -> Self {
        let guards_of = |goal: usize| system.guards_from(goal, transitions, sets_out);
        let mut asked = vec![false; system.goals()];
        let mut asker = vec![None; system.goals()];
        let mut queue = VecDeque::new();
        for goal in roots {
            if !std::mem::replace(&mut asked[goal], true) {
                queue.push_back(goal);
            }
        }
        while let Some(goal) = queue.pop_front() {
            for want in guards_of(goal).flat_map(|guard| &guard.wants) {
                for needed in system.wanted(want) {
                    if !std::mem::replace(&mut asked[needed], true) {
                        asker[needed] = u32::try_from(goal).ok();
                        queue.push_back(needed);
                    }
                }
            }
        }
        let goals: Vec<usize> = (0..system.goals()).filter(|goal| asked[*goal]).collect();
        Self { asked, goals, asker, transitions, sets_out, arrows: OnceLock::new(), chosen: OnceLock::new() }
    }

    /// Arrows from each goal to the goals that it needs, for all states of every set.
    pub(super) fn arrows(&self, system: &System<'_>) -> &Arrows {
        self.arrows.get_or_init(|| self.to(system, |want, heads| heads.extend(system.wanted(want).filter_map(short))))
    }

    /// The same, but of each set only the goals that are needed to reach any of its states.
    pub(super) fn chosen(&self, system: &System<'_>) -> &Chosen {
        self.chosen.get_or_init(|| {
            let several = || system.wants_of_all().filter(|want| want.states.len() > 1);
            let mut sets: HashMap<(usize, &[usize]), usize> = HashMap::new();
            let mut goals: Vec<usize> = (0..system.goals()).collect();
            let mut wants = Vec::new();
            for want in several() {
                sets.entry((want.on, &want.states)).or_insert_with(|| {
                    goals.push(system.choice(want));
                    wants.push(want);
                    goals.len() - 1
                });
            }
            let node = |want: &Want<'_>| match sets.get(&(want.on, &want.states[..])) {
                Some(node) => *node,
                None => system.choice(want),
            };
            // Sets that no demanded goal needs have no arrows.
            let mut reached = vec![false; wants.len()];
            let mut open = Vec::new();
            let asked = self.goals.iter().flat_map(|goal| system.guards_from(*goal, self.transitions, self.sets_out));
            let mut next: Vec<usize> = asked.flat_map(|guard| &guard.wants).map(node).collect();
            loop {
                for at in next.drain(..).filter_map(|node| node.checked_sub(system.goals())) {
                    if !std::mem::replace(&mut reached[at], true) {
                        open.push(at);
                    }
                }
                let Some(at) = open.pop() else { break };
                next.extend(system.needed_by(wants[at], self.transitions).map(node));
            }
            let arrows = Arrows::of(goals.len(), |from, heads| match wants.get(from.wrapping_sub(system.goals())) {
                Some(_) if !reached[from - system.goals()] => {}
                Some(want) => heads.extend(system.needed_by(want, self.transitions).map(node).filter_map(short)),
                None if self.asked[from] => {
                    let guards = system.guards_from(from, self.transitions, self.sets_out);
                    heads.extend(guards.flat_map(|guard| &guard.wants).map(node).filter_map(short));
                }
                None => {}
            });
            Chosen { arrows, goals }
        })
    }

    fn to(&self, system: &System<'_>, heads_of: impl Fn(&Want<'_>, &mut Vec<u32>)) -> Arrows {
        Arrows::of(system.goals(), |goal, heads| {
            if self.asked[goal] {
                for want in system.guards_from(goal, self.transitions, self.sets_out).flat_map(|guard| &guard.wants) {
                    heads_of(want, heads);
                }
            }
        })
    }

    /// Whether a demanded goal of the change object is reached over this transition.
    pub(super) fn uses_transition(&self, system: &System<'_>, cob: usize, from: usize, to: usize) -> bool {
        let kind = system.kind_of(cob);
        (0..kind.states()).any(|t| self.asked[system.goal_of(cob, t)] && kind.next(from, t) == Some(to))
    }

    /// Whether a dependency entry of the change object ever matters.
    pub(super) fn uses(&self, system: &System<'_>, cob: usize, moment: Moment) -> bool {
        match moment {
            Moment::Transition { from, to } => self.uses_transition(system, cob, from, to),
            Moment::Grant(state) => self.asked[system.goal_of(cob, state)],
        }
    }
}

fn short(goal: usize) -> Option<u32> {
    u32::try_from(goal).ok()
}

fn preferred_goals(system: &System<'_>) -> impl Iterator<Item = usize> {
    system.cobs.iter().enumerate().filter_map(|(i, cob)| Some(system.goal_of(i, cob.preferred?)))
}
