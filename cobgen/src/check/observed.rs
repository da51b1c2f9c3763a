//! Needs for a state of an observed change object other than its preferred state: only people bring it there.

use std::collections::BTreeSet;

use super::finding::{Finding, Findings};
use super::system::System;
use crate::diagnostic::Severity;

/// Reports change objects that may wait for an action of people.
pub(super) fn report(system: &System<'_>, findings: &mut Findings) {
    for (cob, view) in system.cobs.iter().enumerate().filter(|(_, view)| !view.cob.observe) {
        let mut told = BTreeSet::new();
        for (guard, want) in view.guards.iter().flat_map(|guard| guard.wants.iter().map(move |want| (guard, want))) {
            let on = &system.cobs[want.on];
            let rests = on.preferred.is_none_or(|rest| want.states.contains(&rest));
            if !on.cob.observe || rests || !told.insert(want.on) {
                continue;
            }
            let (id, other) = (&view.cob.id, &on.cob.id);
            findings.push(Finding {
                severity: Severity::Warning,
                code: "observed",
                message: format!("{id} may wait for {other}, which is observed: COB never changes it"),
                place: None,
                steps: vec![
                    system.bare_step(cob, guard, want),
                    system.statement(want.on, format!("{other} prefers {}, and is observed", on.cob.preferred)),
                ],
                help: format!(
                    "observe {id} too until {other} is managed, or bring {other} into that state by hand when {id} \
                     waits"
                ),
            });
        }
    }
}
