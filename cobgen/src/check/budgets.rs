//! Budgets that the daemons cannot keep, because members can only be disturbed together.
//!
//! A change object *takes another along* if it can't leave its preferred state (or `outdated`) before the other has
//! left its own preferred state: `requires`, read backwards. A member that takes another member along contradicts the
//! budget and is an error. A change object that is no member and takes more members along than the budget allows is a
//! warning: during its transition the daemons grant tokens beyond the limit, since there is no other way to continue.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::CobId;

use super::finding::{Finding, Findings, Step};
use super::system::{Guard, Moment, System, Want};
use crate::diagnostic::Severity;
use crate::draft::Place;

/// The code of all findings of this module.
const CODE: &str = "budget";
/// The most names that a message lists.
const MOST_NAMES: usize = 4;

/// Reports budgets that the daemons cannot keep.
pub(super) fn report(system: &System<'_>, findings: &mut Findings) {
    let mut budgets: BTreeMap<&CobId, Vec<usize>> = BTreeMap::new();
    for (cob, view) in system.cobs.iter().enumerate() {
        if let Some(token) = &view.cob.budget {
            budgets.entry(&token.cob).or_default().push(cob);
        }
    }
    if budgets.is_empty() {
        return;
    }
    let along = Along::of(system);
    let at_most: BTreeMap<&CobId, u32> =
        system.cobs.iter().filter_map(|view| Some((&view.cob.id, view.cob.at_most?))).collect();
    for (budget, members) in budgets {
        let taken = along.taking(&members);
        report_contradictions(system, &along, budget, &members, &taken, findings);
        if let Some(at_most) = at_most.get(budget) {
            report_overdrawn(system, &along, (budget, *at_most), &members, &taken, findings);
        }
    }
}

/// The relation "takes along", backwards.
struct Along<'s, 'a> {
    /// Indexed by the change object that is taken along: the change objects that take it along, each with its need.
    by: Vec<Vec<Taking<'s, 'a>>>,
}

#[derive(Clone, Copy)]
struct Taking<'s, 'a> {
    cob: usize,
    guard: &'s Guard<'a>,
    want: &'s Want<'a>,
}

/// For each change object the members that it takes along, and for each of these the next change object on the path.
type Taken = BTreeMap<usize, BTreeMap<usize, usize>>;

impl<'s, 'a> Along<'s, 'a> {
    fn of(system: &'s System<'a>) -> Self {
        let mut by: Vec<Vec<Taking<'s, 'a>>> = system.cobs.iter().map(|_| Vec::new()).collect();
        for (cob, view) in system.cobs.iter().enumerate() {
            let kind = system.kind_of(cob);
            let outdated = kind.kind.outdated().and_then(|state| kind.place(state));
            let serves = |state| Some(state) == view.preferred || Some(state) == outdated;
            for guard in &view.guards {
                let Moment::Transition { from, .. } = guard.moment else { continue };
                for want in guard.wants.iter().filter(|_| serves(from)) {
                    let stays = system.cobs[want.on].preferred.is_none_or(|at| want.states.contains(&at));
                    if !stays {
                        by[want.on].push(Taking { cob, guard, want });
                    }
                }
            }
        }
        Self { by }
    }

    /// All change objects that take some of these members along, directly or indirectly.
    fn taking(&self, members: &[usize]) -> Taken {
        let mut taken = Taken::new();
        for member in members {
            let mut front = vec![*member];
            let mut seen = BTreeSet::from([*member]);
            while let Some(at) = front.pop() {
                for taking in self.by[at].iter().filter(|t| seen.insert(t.cob)) {
                    taken.entry(taking.cob).or_default().insert(*member, at);
                    front.push(taking.cob);
                }
            }
        }
        taken
    }

    /// The needs through which a change object takes a member along.
    fn steps(&self, system: &System<'_>, taken: &Taken, from: usize, member: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = from;
        while at != member {
            let Some(next) = taken.get(&at).and_then(|on| on.get(&member)).copied() else { break };
            if let Some(taking) = self.by[next].iter().find(|t| t.cob == at) {
                steps.push(system.bare_step(at, taking.guard, taking.want));
            }
            at = next;
        }
        steps
    }
}

/// Reports members that take other members along.
fn report_contradictions(
    system: &System<'_>,
    along: &Along<'_, '_>,
    budget: &CobId,
    members: &[usize],
    taken: &Taken,
    findings: &mut Findings,
) {
    for member in members {
        let Some(other) = taken.get(member).and_then(|others| others.keys().next()) else { continue };
        let (one, other_id) = (system.id(*member), system.id(*other));
        findings.push(Finding {
            severity: Severity::Error,
            code: CODE,
            message: format!(
                "{one} and {other_id} are members of the same budget, {budget}, but {one} can't be disturbed without \
                 {other_id}"
            ),
            place: place(system, *member),
            steps: along.steps(system, taken, *member, *other),
            help: "remove `budget` from either member, or write `after` instead of `requires` if the dependent can \
                go on without the other"
                .to_owned(),
        });
    }
}

/// Reports change objects that are no members and take more members along than there are tokens.
fn report_overdrawn(
    system: &System<'_>,
    along: &Along<'_, '_>,
    (budget, at_most): (&CobId, u32),
    members: &[usize],
    taken: &Taken,
    findings: &mut Findings,
) {
    let too_many = |cob: usize| taken.get(&cob).is_some_and(|on| on.len() > at_most as usize);
    for (cob, on) in taken {
        // Of several in a row, only the change object nearest to the members is reported.
        let nearer = on.values().any(|next| too_many(*next));
        if !too_many(*cob) || nearer || members.contains(cob) {
            continue;
        }
        let names: Vec<&str> = on.keys().take(MOST_NAMES).map(|m| system.id(*m)).collect();
        let more = on.len().saturating_sub(MOST_NAMES);
        let and_more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let id = system.id(*cob);
        findings.push(Finding {
            severity: Severity::Warning,
            code: CODE,
            message: format!(
                "a restart of {id} also restarts {} members of the budget {budget}, but the budget allows {at_most} \
                 at a time: {}{and_more}",
                on.len(),
                names.join(", ")
            ),
            place: place(system, *cob),
            steps: on.keys().take(2).flat_map(|member| along.steps(system, taken, *cob, *member)).collect(),
            help: "the members will be disturbed together, and the history will record `overdrawn`; raise `at_most`, \
                or write `after` instead of `requires` if the members can go on without it"
                .to_owned(),
        });
    }
}

fn place(system: &System<'_>, cob: usize) -> Option<Place> {
    system.provenance.and_then(|p| p.cob(&system.cobs[cob].cob.id)).cloned()
}
