//! P3: no transition whose needs contradict themselves.
//!
//! A change object makes a transition while it holds grants for all its needs and all needs that these grants have. So
//! the needs, closed under the lock dependencies of each state of each set, must not contain the mover itself and must
//! leave each change object a state that all its sets accept.
//!
//! A walk over the whole closure of every transition would be quadratic in long chains. So [`GrantedLevels`] first excludes,
//! with data about all grants together, the transitions whose closures can't hold a contradiction: nearly all.

use std::collections::BTreeMap;

use super::demand::Demand;
use super::finding::{Finding, Findings, Step};
use super::leaving::{CODE, because};
use super::system::{Guard, Moment, System, Want};
use crate::diagnostic::Severity;

mod grants;
use grants::GrantedLevels;

/// The most choices that the search for a set of locks makes for a transition.
const MOST_CHOICES: usize = 20_000;
/// The most entries of a closure for which that search starts.
const MOST_ENTRIES: usize = 500;
/// The most entries walked in all closures together, where circles keep [`GrantedLevels`] from excluding transitions.
const MOST_WALKED: usize = 20_000_000;

/// Whether P3 holds to the letter.
pub(super) fn hold(system: &System<'_>, demand: &Demand) -> bool {
    each_contradiction(system, demand, |_, _, _| false) == Walked::All
}

/// Reports every transition that no set of locks allows, and the transitions that only some sets allow.
pub(super) fn report(system: &System<'_>, demand: &Demand, findings: &mut Findings) {
    let walked = each_contradiction(system, demand, |cob, guard, closure| {
        findings.push(finding(system, cob, guard, closure));
        true
    });
    report_rest(walked, findings);
}

/// Reports the same for transitions that are made only when a change object departs.
pub(super) fn report_gained(system: &System<'_>, staying: &Demand, leaving: &Demand, findings: &mut Findings) {
    each_contradiction(system, leaving, |cob, guard, closure| {
        if !staying.uses(system, cob, guard.moment) {
            let mut finding = finding(system, cob, guard, closure);
            finding.code = CODE;
            finding.steps.push(because(system, cob));
            findings.push(finding);
        }
        true
    });
}

fn report_rest(walked: Walked, findings: &mut Findings) {
    if walked == Walked::NotAll {
        findings.push(Finding {
            severity: Severity::Warning,
            code: "P3",
            message: "too many transitions: not all were searched for contradictory needs".to_owned(),
            place: None,
            steps: Vec::new(),
            help: "remove the circular lock dependencies first, or run `cobgen verify`".to_owned(),
        });
    }
}

/// How far the search for contradictions came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walked {
    All,
    NotAll,
}

/// Calls `found` for every transition whose closure contradicts itself, until it returns false.
fn each_contradiction<'s, 'a>(
    system: &'s System<'a>,
    demand: &Demand,
    mut found: impl FnMut(usize, &'s Guard<'a>, &Closure<'s, 'a>) -> bool,
) -> Walked {
    let grants = GrantedLevels::of(system, demand);
    let mut walked = 0;
    for (number, cob) in system.cobs.iter().enumerate() {
        for guard in &cob.guards {
            let Moment::Transition { .. } = guard.moment else { continue };
            if guard.wants.is_empty() || !demand.uses(system, number, guard.moment) {
                continue;
            }
            if grants.harmless(system, number, guard) {
                continue;
            }
            if walked > MOST_WALKED {
                return Walked::NotAll;
            }
            let closure = Closure::of(system, number, guard);
            walked += closure.entries.len();
            if closure.contradiction.is_some() && !found(number, guard, &closure) {
                return Walked::NotAll;
            }
        }
    }
    Walked::All
}

/// The needs of a transition and of the grants that it relies on, up to the first contradiction.
struct Closure<'s, 'a> {
    entries: Vec<Entry<'s, 'a>>,
    contradiction: Option<Contradiction>,
}

struct Entry<'s, 'a> {
    /// The change object that has the need: the mover, or a grantor.
    cob: usize,
    guard: &'s Guard<'a>,
    want: &'s Want<'a>,
    /// The entry whose grant has this need.
    below: Option<usize>,
}

enum Contradiction {
    /// The index of an entry that names the mover.
    NeedsItself(usize),
    /// Indexes of entries that name the same change object and share no state.
    NoCommonState(Vec<usize>),
}

impl<'s, 'a> Closure<'s, 'a> {
    fn of(system: &'s System<'a>, mover: usize, transition: &'s Guard<'a>) -> Self {
        let mut closure = Self { entries: Vec::new(), contradiction: None };
        let mut common: BTreeMap<usize, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        let mut promised = std::collections::BTreeSet::new();
        closure.extend(mover, std::slice::from_ref(&transition), None);
        let mut next = 0;
        while next < closure.entries.len() {
            let Entry { want, .. } = closure.entries[next];
            if want.on == mover {
                closure.contradiction = Some(Contradiction::NeedsItself(next));
                return closure;
            }
            let (states, by) = common.entry(want.on).or_insert_with(|| (want.states.clone(), Vec::new()));
            states.retain(|state| want.states.contains(state));
            by.push(next);
            if states.is_empty() {
                let disjoint = |other: &&usize| {
                    let other = &closure.entries[**other].want.states;
                    !other.iter().any(|state| want.states.contains(state))
                };
                let by = by.iter().find(disjoint).map_or_else(|| by.clone(), |other| vec![*other, next]);
                closure.contradiction = Some(Contradiction::NoCommonState(by));
                return closure;
            }
            for state in &want.states {
                if promised.insert((want.on, *state)) {
                    let guards: Vec<&Guard<'a>> = grant_guards(system, want.on, *state).collect();
                    closure.extend(want.on, &guards, Some(next));
                }
            }
            next += 1;
        }
        closure
    }

    fn extend(&mut self, cob: usize, guards: &[&'s Guard<'a>], below: Option<usize>) {
        for guard in guards {
            self.entries.extend(guard.wants.iter().map(|want| Entry { cob, guard, want, below }));
        }
    }

    /// The chain of needs from the transition to an entry.
    fn chain(&self, entry: usize) -> Vec<usize> {
        let mut chain = vec![entry];
        while let Some(below) = chain.last().and_then(|entry| self.entries[*entry].below) {
            chain.push(below);
        }
        chain.reverse();
        chain
    }
}

fn grant_guards<'s, 'a>(system: &'s System<'a>, cob: usize, state: usize) -> impl Iterator<Item = &'s Guard<'a>> {
    system.cobs[cob].guards.iter().filter(move |guard| guard.moment == Moment::Grant(state))
}

fn finding(system: &System<'_>, mover: usize, transition: &Guard<'_>, closure: &Closure<'_, '_>) -> Finding {
    let (last, what) = match &closure.contradiction {
        Some(Contradiction::NeedsItself(entry)) => {
            (vec![*entry], format!("{} itself in its present state", system.id(mover)))
        }
        Some(Contradiction::NoCommonState(entries)) => {
            let on = entries.first().map_or("", |entry| system.id(closure.entries[*entry].want.on));
            (entries.clone(), format!("{on} in states that exclude each other"))
        }
        None => (Vec::new(), String::new()),
    };
    let mut steps: Vec<Step> = Vec::new();
    for entry in last.into_iter().flat_map(|entry| closure.chain(entry)) {
        let Entry { cob, guard, want, .. } = closure.entries[entry];
        let step = system.bare_step(cob, guard, want);
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    let transition_name = match transition.moment {
        Moment::Transition { from, to } => format!("{} -> {}", system.state(mover, from), system.state(mover, to)),
        Moment::Grant(state) => system.state(mover, state).to_string(),
    };
    let possible = possible(system, mover, transition);
    let (severity, message, help) = match possible {
        Some(true) | None => (
            Severity::Warning,
            format!("{} may be unable to go {transition_name}: some choices need {what}", system.id(mover)),
            "name fewer acceptable states, or check by simulation with `cobgen verify`",
        ),
        Some(false) => (
            Severity::Error,
            format!("{} can never go {transition_name}: that needs {what}", system.id(mover)),
            "remove a dependency of this chain",
        ),
    };
    Finding { severity, code: "P3", message, place: system.place_of(mover), steps, help: help.to_owned() }
}

/// Whether some choice of states, a state for each change object, satisfies the transition and all grants that it
/// relies on; `None` if the search would be too long.
fn possible(system: &System<'_>, mover: usize, transition: &Guard<'_>) -> Option<bool> {
    let mut choices = 0;
    // Each branch has the pending needs and the chosen states.
    let mut branches: Vec<(Vec<&Want<'_>>, BTreeMap<usize, usize>)> =
        vec![(transition.wants.iter().collect(), BTreeMap::new())];
    while let Some((mut pending, chosen)) = branches.pop() {
        choices += 1;
        if choices > MOST_CHOICES || pending.len() > MOST_ENTRIES {
            return None;
        }
        let Some(want) = pending.pop() else { return Some(true) };
        if want.on == mover {
            continue;
        }
        match chosen.get(&want.on) {
            Some(state) if want.states.contains(state) => branches.push((pending, chosen)),
            Some(_) => {}
            // The first state must be tried first: the branch pushed last is popped first.
            None => branches.extend(want.states.iter().rev().map(|state| {
                let mut pending = pending.clone();
                pending.extend(grant_guards(system, want.on, *state).flat_map(|guard| &guard.wants));
                let mut chosen = chosen.clone();
                chosen.insert(want.on, *state);
                (pending, chosen)
            })),
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::random;

    proptest! {
        /// A transition excluded without a walk has no contradiction in its closure.
        #[test]
        fn a_harmless_transition_has_no_contradiction_in_its_closure(sketch in random::any_sketch()) {
            let Ok(assembled) = sketch.assemble() else { return Ok(()) };
            let system = System::of(&assembled.generation, None);
            let demand = Demand::with_all_transitions(&system);
            let grants = GrantedLevels::of(&system, &demand);
            for (number, cob) in system.cobs.iter().enumerate() {
                for guard in cob.guards.iter().filter(|guard| demand.uses(&system, number, guard.moment)) {
                    if matches!(guard.moment, Moment::Transition { .. }) && grants.harmless(&system, number, guard) {
                        prop_assert!(Closure::of(&system, number, guard).contradiction.is_none());
                    }
                }
            }
        }
    }
}
