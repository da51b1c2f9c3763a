//! The reason of each transition, the interrupted services, and the irreversible transitions.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use cob_types::cob::Fingerprint;
use cob_types::{CobId, StateName, SwitchOrder, canonical};

use crate::order::Act;
use crate::plan::{Interrupted, Irreversible, Moved, NeededBy, Planned, PointOfNoReturn, Why};
use crate::scope::route;
use crate::sides::Sides;

/// The most transitions that are named as the reason of a transition.
const NAMED: usize = 8;
/// The most sets that are tried to find out which change objects another relies on.
const MOST_SETS: usize = 20_000;

/// The reason for the transitions of each change object that makes any.
pub(crate) fn whys(acts: &[Act<'_>], sides: &Sides<'_>, order: &SwitchOrder) -> BTreeMap<CobId, Why> {
    let mut needed: HashMap<&CobId, Vec<NeededBy>> = HashMap::new();
    let moving: BTreeSet<&CobId> = acts.iter().map(|act| &act.step.cob).collect();
    for (at, act) in acts.iter().enumerate() {
        let side = if act.step.generation == order.to { &sides.to } else { &sides.from };
        let Some(known) = side.find(&act.step.cob) else { continue };
        let transition = known.cob.transitions.iter().filter(|t| t.from == *act.from && t.to == *act.to);
        for need in transition.flat_map(|t| &t.needs) {
            let Some(id) = moving.get(&need.cob) else { continue };
            let home = sides.home_before(id).is_some_and(|home| need.states.contains(home))
                && sides.home_after(id).is_some_and(|home| need.states.contains(home));
            let named = needed.entry(id).or_default();
            if !home && named.len() < NAMED {
                let (cob, states) = (act.step.cob.clone(), need.states.clone());
                named.push(NeededBy { transition: at, cob, states });
            }
        }
    }
    let why = |id: &CobId| {
        let (old, new) = (sides.from.find(id), sides.to.find(id));
        match (old, new) {
            (_, None) => Why::Leaves,
            (None, Some(_)) => Why::New,
            (Some(old), Some(new)) if !new.kind.continues(old.kind) => Why::Kind,
            (Some(old), Some(new)) if old.cob.fingerprint != new.cob.fingerprint => {
                let same = old.cob.content == new.cob.content && old.cob.files == new.cob.files && old.kind == new.kind;
                let on = if same && old.cob.rests_on != new.cob.rests_on { rests_on(id, sides) } else { Vec::new() };
                if on.is_empty() { Why::Content } else { Why::RestsOn { on } }
            }
            (Some(old), Some(new)) if old.cob.preferred != new.cob.preferred => Why::Preferred,
            (Some(_), Some(_)) => match needed.get(id) {
                Some(moves) if !moves.is_empty() => Why::NeededBy { moves: moves.clone() },
                Some(_) | None => Why::Astray,
            },
        }
    };
    moving.into_iter().map(|id| (id.clone(), why(id))).collect()
}

/// The change objects with different content among the objects that it relies on (`restarts_on`). It may require others
/// that differ too, which is no reason: the relied-on objects are identified by the hash over their fingerprints.
fn rests_on(id: &CobId, sides: &Sides<'_>) -> Vec<CobId> {
    let (Some(old), Some(new)) = (sides.from.find(id), sides.to.find(id)) else { return Vec::new() };
    let all: Vec<(&CobId, &Fingerprint)> = new.cob.expects.iter().collect();
    let named = new.cob.rests_on.and_then(|print| hashed_in(&all, print)).unwrap_or(all);
    let differs = |(other, print): &(&CobId, &Fingerprint)| old.cob.expects.get(*other) != Some(*print);
    named.into_iter().filter(differs).map(|(other, _)| other.clone()).collect()
}

/// The members, in the order of their ids, whose hash is `print`; `None`: too many sets to try.
fn hashed_in<'c>(
    all: &[(&'c CobId, &'c Fingerprint)],
    print: Fingerprint,
) -> Option<Vec<(&'c CobId, &'c Fingerprint)>> {
    let is_it = |some: &[(&CobId, &Fingerprint)]| {
        let parts: Vec<&[u8]> = some.iter().map(|(_, print)| &print.0[..]).collect();
        canonical::fingerprint(&parts) == print
    };
    if is_it(all) {
        return Some(all.to_vec());
    }
    // Sets of size 1, then 2, and so on, each in the order of ids, within the bound.
    let mut sets: VecDeque<(Vec<(&CobId, &Fingerprint)>, usize)> = VecDeque::from([(Vec::new(), 0)]);
    let mut tried = 0;
    while let Some((some, next)) = sets.pop_front() {
        for (at, one) in all.iter().enumerate().skip(next) {
            let mut more = some.clone();
            more.push(*one);
            if is_it(&more) {
                return Some(more);
            }
            tried += 1;
            if tried > MOST_SETS {
                return None;
            }
            sets.push_back((more, at + 1));
        }
    }
    None
}

/// Change objects that leave the state in which they serve: until they are back in it, or forever if their preferred
/// state changes.
pub(crate) fn interrupted(transitions: &[Planned], sides: &Sides<'_>) -> Vec<Interrupted> {
    let mut away: BTreeMap<&CobId, usize> = BTreeMap::new();
    let mut found: Vec<Interrupted> = Vec::new();
    for step in transitions {
        let (Some(old), Some(new)) = (sides.from.find(&step.cob), sides.to.find(&step.cob)) else { continue };
        let stays = Some(&new.cob.preferred).filter(|home| **home != old.cob.preferred);
        let back = step.to == new.cob.preferred && stays.is_none();
        match away.get(&step.cob).copied() {
            Some(at) if found[at].end_us.is_none() => {
                found[at].in_place = false;
                found[at].end_us = back.then_some(step.end_us);
            }
            Some(_) | None if step.from == old.cob.preferred || step.from == StateName::OUTDATED => {
                away.insert(&step.cob, found.len());
                found.push(Interrupted {
                    cob: step.cob.clone(),
                    begin_us: step.begin_us,
                    end_us: back.then_some(step.end_us),
                    in_place: back,
                    to: stays.cloned(),
                    why: step.why.clone(),
                });
            }
            Some(_) | None => {}
        }
    }
    found
}

/// Whether a transition is irreversible: `None` if it is reversible, else whether its author marked it.
pub(crate) fn irreversible(act: &Act<'_>, sides: &Sides<'_>, order: &SwitchOrder) -> Option<bool> {
    let side = if act.step.generation == order.to { &sides.to } else { &sides.from };
    let kind = side.find(&act.step.cob)?.kind;
    let marked = kind.transitions.iter().any(|t| t.from == *act.from && t.to == *act.to && t.irreversible);
    // A transition out of `outdated` is undone by the other content's transitions, from the state at that time.
    let no_way = *act.from != StateName::OUTDATED && route(kind, act.to, act.from).is_empty();
    (marked || no_way).then_some(marked)
}

/// The first irreversible transition, and the number of transitions that need not come after it.
pub(crate) fn point_of_no_return(transitions: &[Planned], marks: &[(usize, bool)]) -> Option<PointOfNoReturn> {
    let first = &transitions[marks.iter().map(|(at, _)| *at).min()?];
    let mut behind = vec![false; transitions.len()];
    for (at, _) in marks {
        behind[*at] = true;
    }
    for step in transitions {
        behind[step.id] |= step.after.iter().any(|before| behind[*before]);
    }
    let behind = behind.into_iter().filter(|behind| *behind).count();
    let latest = marks.iter().map(|(at, _)| latest(&transitions[*at])).min().unwrap_or(first.begin_us);
    Some(PointOfNoReturn {
        transition: first.id,
        at_us: first.begin_us,
        latest_us: latest,
        before: transitions.len() - behind,
        behind,
    })
}

pub(crate) fn latest(step: &Planned) -> u64 {
    step.begin_us.saturating_add(step.slack_us)
}

pub(crate) fn told_irreversible(transitions: &[Planned], marks: &[(usize, bool)]) -> Vec<Irreversible> {
    let tell = |(at, marked): &(usize, bool)| Irreversible {
        transition: *at,
        marked: *marked,
        latest_us: latest(&transitions[*at]),
    };
    marks.iter().map(tell).collect()
}

/// Moved change objects: the same name and kind, removed on a host and new on another; each at most once.
pub(crate) fn moved(sides: &Sides<'_>, seeds: &BTreeSet<CobId>) -> Vec<Moved> {
    let mut gone: BTreeMap<(&str, &str), Vec<&CobId>> = BTreeMap::new();
    let mut new: BTreeMap<(&str, &str), Vec<&CobId>> = BTreeMap::new();
    for id in seeds {
        match (sides.from.find(id), sides.to.find(id)) {
            (Some(old), None) => gone.entry((id.name(), old.cob.kind.as_str())).or_default().push(id),
            (None, Some(cob)) => new.entry((id.name(), cob.cob.kind.as_str())).or_default().push(id),
            (Some(_) | None, _) => {}
        }
    }
    let pairs = gone.iter().filter_map(|(name, from)| Some((from, new.get(name)?)));
    let all = pairs.flat_map(|(from, to)| from.iter().zip(to));
    all.map(|(from, to)| Moved { from: (*from).clone(), to: (*to).clone() }).collect()
}
