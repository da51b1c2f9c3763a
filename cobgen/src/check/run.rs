//! The order of the check's parts, and its two answers: findings for people, four truths for
//! simulations.

use cob_types::Generation;

use super::demand::Demand;
use super::finding::{Finding, Findings};
use super::system::{Hops, System};
use super::{budgets, goals, holds, leaving, lints, observed, order, rest, structure, traps};
use crate::provenance::Provenance;

/// Whether each condition of progress holds to the letter, whatever the findings make of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preconditions {
    /// Every state asked for can be reached from every state.
    pub p1: bool,
    /// The goals have no circle.
    pub p2: bool,
    /// No hop's needs contradict themselves.
    pub p3: bool,
    /// No change objects undo each other's moves.
    pub p4: bool,
}

impl Preconditions {
    /// Whether all four hold: then every change object comes to its preferred state.
    #[must_use]
    pub fn all(self) -> bool {
        self.p1 && self.p2 && self.p3 && self.p4
    }
}

/// Checks a finished generation; errors come first. With provenance, findings say where.
#[must_use]
pub fn check(generation: &Generation, provenance: Option<&Provenance>) -> Vec<Finding> {
    let forms = || {
        let mut findings = Findings::default();
        structure::report(generation, provenance, &mut findings);
        findings
    };
    let (mut findings, conditions) = rayon::join(forms, || conditions(generation, provenance));
    findings.append(conditions);
    findings.finish()
}

/// What is found by walking.
fn conditions(generation: &Generation, provenance: Option<&Provenance>) -> Findings {
    let mut findings = Findings::default();
    let system = System::of(generation, provenance);
    order::report_ranks(&system, &mut findings);
    order::report_expects(&system, &mut findings);
    let demand = Demand::of(&system, Hops::Any);
    traps::report(&system, &demand, &mut findings);
    let told = goals::report(&system, &demand, &mut findings);
    holds::report(&system, &Demand::with_all_hops(&system), &mut findings);
    rest::report(&system, &demand, &told, &mut findings);
    leaving::report(&system, &demand, &Demand::with_leaving(&system), &told, &mut findings);
    budgets::report(&system, &mut findings);
    observed::report(&system, &mut findings);
    lints::report_unreachable(&system, &demand, &mut findings);
    if let Some(provenance) = provenance {
        lints::report_redundant(provenance, &mut findings);
    }
    findings
}

/// The four conditions of progress, each to the letter.
#[must_use]
pub fn preconditions(generation: &Generation) -> Preconditions {
    let system = System::of(generation, None);
    let demand = Demand::of(&system, Hops::Any);
    Preconditions {
        p1: traps::hold(&system, &demand),
        p2: goals::hold(&system, &demand),
        p3: holds::hold(&system, &Demand::with_all_hops(&system)),
        p4: rest::hold(&system),
    }
}
