//! The order of the check's parts, and its two answers: findings for people, four booleans for simulations.

use cob_types::Generation;

use super::demand::Demand;
use super::finding::{Finding, Findings};
use super::system::{System, Transitions};
use super::{budgets, gates, goals, holds, leaving, lints, observed, order, rest, structure, traps};
use crate::provenance::Provenance;

/// Whether each condition of progress holds to the letter, independent of the severity of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preconditions {
    /// Every demanded state can be reached from every state.
    pub p1: bool,
    /// The goals have no circle.
    pub p2: bool,
    /// No transition has needs that contradict themselves.
    pub p3: bool,
    /// No change objects undo each other's transitions.
    pub p4: bool,
}

impl Preconditions {
    /// Whether all four conditions hold: then every change object comes to its preferred state.
    #[must_use]
    pub fn all(self) -> bool {
        self.p1 && self.p2 && self.p3 && self.p4
    }
}

/// Checks a finished generation; errors come first. With provenance, findings have places.
#[must_use]
pub fn check(generation: &Generation, provenance: Option<&Provenance>) -> Vec<Finding> {
    let forms = || gathered(|findings| structure::report(generation, provenance, findings));
    let ((mut findings, ()), conditions) = rayon::join(forms, || conditions(generation, provenance));
    findings.append(conditions);
    findings.finish()
}

/// Findings about routes and goals. Independent parts run at the same time; the order of findings is always the same.
fn conditions(generation: &Generation, provenance: Option<&Provenance>) -> Findings {
    let system = &System::of(generation, provenance);
    let demand = &Demand::of(system, Transitions::Any);
    let goals = || {
        gathered(|findings| {
            order::report_ranks(system, findings);
            order::report_expects(system, findings);
            traps::report(system, demand, findings);
            goals::report(system, demand, findings)
        })
    };
    let holds = || gathered(|findings| holds::report(system, &Demand::with_all_transitions(system), findings));
    let ((mut findings, told), (held, ())) = rayon::join(goals, holds);
    let rest = || gathered(|findings| rest::report(system, demand, &told, findings));
    let leaving =
        || gathered(|findings| leaving::report(system, demand, &Demand::with_leaving(system), &told, findings));
    let others = || {
        gathered(|findings| {
            budgets::report(system, findings);
            gates::report(generation, system, findings);
            observed::report(system, findings);
            lints::report_unreachable(system, demand, findings);
            if let Some(provenance) = provenance {
                lints::report_redundant(provenance, findings);
            }
        })
    };
    let (((resting, ()), (others, ())), (leaving, ())) = rayon::join(|| (rest(), others()), leaving);
    for more in [held, resting, leaving, others] {
        findings.append(more);
    }
    findings
}

/// The findings of a part of the check, and its answer.
fn gathered<T>(report: impl FnOnce(&mut Findings) -> T) -> (Findings, T) {
    let mut findings = Findings::default();
    let answer = report(&mut findings);
    (findings, answer)
}

/// The four conditions of progress, each to the letter.
#[must_use]
pub fn preconditions(generation: &Generation) -> Preconditions {
    let system = System::of(generation, None);
    let demand = Demand::of(&system, Transitions::Any);
    Preconditions {
        p1: traps::hold(&system, &demand),
        p2: goals::hold(&system, &demand),
        p3: holds::hold(&system, &Demand::with_all_transitions(&system)),
        p4: rest::hold(&system),
    }
}
