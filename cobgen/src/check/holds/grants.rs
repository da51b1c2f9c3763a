//! Data about all grants together: which transitions cannot meet a contradiction.
//!
//! Lock dependencies lead from goals to goals. If these arrows run in no circle, a single walk gives every goal a level
//! and an interval of finishing numbers. A goal can be reached only from a goal with a higher level whose interval
//! encloses its own. The same is true for levels over all needs, which include the needs of grants. That excludes
//! nearly all pairs without a walk; only the remaining pairs are walked.

use super::super::circles::Arrows;
use super::super::demand::Demand;
use super::super::system::{Guard, Moment, System};

/// Levels and intervals of goals, and the states that grants need of each change object.
pub(super) struct GrantedLevels {
    marks: Option<Marks>,
}

struct Marks {
    /// The level by grants alone, and the level by all needs.
    level: Vec<(u32, u32)>,
    /// Needs run in circles, so the second level has no meaning.
    circular: bool,
    /// The least finishing number below a goal, and the goal's own number.
    interval: Vec<(u32, u32)>,
    /// The states of each change object that all grants accept; `None`: no grant names it.
    common: Vec<Option<Vec<usize>>>,
    /// Goals that some grant names.
    named: Vec<bool>,
    /// Goals whose grants, or the grants below, name a change object without a state that satisfies all.
    doubtful: Vec<bool>,
}

impl GrantedLevels {
    pub(super) fn of(system: &System<'_>, demand: &Demand) -> Self {
        let grants = |goal: usize| {
            let (cob, state) = system.goal(goal);
            let guards = system.cobs[cob].guards.iter();
            guards.filter(move |guard| guard.moment == Moment::Grant(state)).flat_map(|guard| &guard.wants)
        };
        let arrows = Arrows::of(system.goals(), |goal, heads| {
            if demand.asked[goal] {
                let needed = grants(goal).flat_map(|want| system.wanted(want));
                heads.extend(needed.filter_map(|goal| u32::try_from(goal).ok()));
            }
        });
        let Some(order) = below_first(&arrows) else { return Self { marks: None } };
        let mut common: Vec<Option<Vec<usize>>> = vec![None; system.cobs.len()];
        let mut named = vec![false; system.goals()];
        for want in demand.goals.iter().flat_map(|goal| grants(*goal)) {
            let states = common[want.on].get_or_insert_with(|| want.states.clone());
            states.retain(|state| want.states.contains(state));
            system.wanted(want).for_each(|goal| named[goal] = true);
        }
        let needs = below_first(demand.arrows(system)).map(|order| levels(demand.arrows(system), &order));
        let promised = levels(&arrows, &order);
        let circular = needs.is_none();
        let level = promised.into_iter().zip(needs.unwrap_or_else(|| vec![0; system.goals()])).collect();
        let mut interval = vec![(0, 0); system.goals()];
        let mut doubtful = vec![false; system.goals()];
        for (finished, goal) in order.into_iter().enumerate() {
            let finished = u32::try_from(finished).unwrap_or(u32::MAX);
            let mut least = finished;
            for below in arrows.from(goal) {
                let below = *below as usize;
                least = least.min(interval[below].0);
                doubtful[goal] |= doubtful[below];
            }
            interval[goal] = (least, finished);
            if demand.asked[goal] {
                doubtful[goal] |= grants(goal).any(|want| common[want.on].as_ref().is_some_and(Vec::is_empty));
            }
        }
        Self { marks: Some(Marks { level, circular, interval, common, named, doubtful }) }
    }

    /// Whether the closure of a transition's needs certainly has no contradiction.
    pub(super) fn harmless(&self, system: &System<'_>, mover: usize, transition: &Guard<'_>) -> bool {
        let Some(marks) = &self.marks else { return false };
        // Only goals whose grants rely on other grants: a change object with many dependents needs all dependents off,
        // and an off state mostly relies on no grant.
        let begin =
            transition.wants.iter().flat_map(|want| system.wanted(want)).filter(|goal| marks.level[*goal].0 > 0);
        let begin: Vec<usize> = begin.collect();
        if begin.iter().any(|goal| marks.doubtful[*goal]) || marks.may_reach(system, &begin, mover) {
            return false;
        }
        transition.wants.iter().all(|want| {
            let agree = marks.common[want.on]
                .as_ref()
                .is_none_or(|common| want.states.iter().any(|state| common.contains(state)));
            agree || !marks.may_reach(system, &begin, want.on)
        })
    }
}

impl Marks {
    /// Whether a grant below the goals may name the change object.
    fn may_reach(&self, system: &System<'_>, begin: &[usize], cob: usize) -> bool {
        let states = 0..system.kind_of(cob).states();
        let mut goals = states.map(|state| system.goal_of(cob, state)).filter(|goal| self.named[*goal]);
        goals.any(|goal| {
            begin.iter().any(|from| {
                let ((low, high), (own_low, own_high)) = (self.interval[*from], self.interval[goal]);
                let ((promised, needed), (own_promised, own_needed)) = (self.level[*from], self.level[goal]);
                let above = promised > own_promised && (needed > own_needed || self.circular);
                above && low <= own_low && own_high <= high
            })
        })
    }
}

/// The longest chain below each node.
fn levels(arrows: &Arrows, below_first: &[usize]) -> Vec<u32> {
    let mut levels = vec![0; arrows.nodes()];
    for node in below_first {
        let below = arrows.from(*node).iter().map(|head| levels[*head as usize] + 1);
        levels[*node] = below.max().unwrap_or(0);
    }
    levels
}

/// All nodes in depth-first order, each after the heads of its arrows; `None` if the arrows run in circles.
fn below_first(arrows: &Arrows) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Begun,
        Done,
    }
    let mut marks = vec![Mark::New; arrows.nodes()];
    let mut order = Vec::with_capacity(arrows.nodes());
    let mut walk: Vec<(usize, usize)> = Vec::new();
    for root in 0..arrows.nodes() {
        if marks[root] == Mark::New {
            marks[root] = Mark::Begun;
            walk.push((root, 0));
        }
        while let Some((node, next)) = walk.last_mut() {
            match arrows.from(*node).get(*next).map(|head| *head as usize) {
                Some(head) => {
                    *next += 1;
                    match marks[head] {
                        Mark::New => {
                            marks[head] = Mark::Begun;
                            walk.push((head, 0));
                        }
                        Mark::Begun => return None,
                        Mark::Done => {}
                    }
                }
                None => {
                    marks[*node] = Mark::Done;
                    order.push(*node);
                    walk.pop();
                }
            }
        }
    }
    Some(order)
}
