//! Change objects without an exit state (dead ends): no transition leads from the present state to the desired one.
//!
//! Only people or the environment can change that, as with a file tree in conflict, or a custom check that reports
//! `broken`. With the policy `hold`, a switch waits. With `rollback`, perhaps no operator is there to decide: a lasting
//! dead end is a failure. A dead end from before the switch does not count: a rollback would not help.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::CobId;

use crate::record::{Body, Record};
use crate::time::{Span, Time};

/// After this time, a further check decides whether a dead end is a failure: some states end without a transition (a
/// service that starts by itself), and some checks came before another change object had finished its part.
const LASTS: Span = Span::secs(3);

/// The change objects in dead ends in the present switch.
#[derive(Debug, Clone, Default)]
pub struct NoExitStates {
    /// In a dead end at the start of the switch, and never seen outside it since: also if the switch has changed them.
    before: BTreeSet<CobId>,
    /// Found in a state in this tick.
    found: BTreeSet<CobId>,
    come: BTreeMap<CobId, Come>,
}

/// The progress of a change object in a dead end.
#[derive(Debug, Clone)]
struct Come {
    since: Time,
    /// A further check was made or is running.
    looked: bool,
}

/// The result of a look at dead ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lasting {
    /// To be checked again.
    pub look: Vec<CobId>,
    /// Still in a dead end after the further check.
    pub failed: Vec<CobId>,
}

/// Whether a change object is in a dead end now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoExitCheck {
    /// It is in a dead end.
    InOne,
    /// Its state is unknown.
    Unknown,
    /// It is in another state.
    Elsewhere,
}

impl NoExitStates {
    /// Starts with the change objects that are in dead ends at the start of a switch.
    pub fn begin(&mut self, before: BTreeSet<CobId>) {
        *self = Self { before, ..Self::default() };
    }

    /// Notes a change object whose state was found by a check or after an action.
    pub fn hear(&mut self, record: &Record) {
        if let Body::Checked { cob, state: Some(_), unclear: false, .. }
        | Body::Ended { cob, state: Some(_), failed: false, ok: Some(false), .. } = &record.body
        {
            self.found.insert(cob.clone());
        }
    }

    /// Adds change objects that reached dead ends in an earlier incarnation, whose records are not repeated.
    pub fn suspect(&mut self, cobs: impl Iterator<Item = CobId>) {
        self.found.extend(cobs);
    }

    /// The change objects that have been in dead ends for long. A running check counts as the further check.
    pub fn look(
        &mut self,
        now: Time,
        stands: impl Fn(&CobId) -> NoExitCheck,
        is_checked: impl Fn(&CobId) -> bool,
    ) -> Lasting {
        self.before.retain(|cob| stands(cob) != NoExitCheck::Elsewhere);
        for cob in std::mem::take(&mut self.found).difference(&self.before).cloned() {
            self.come.entry(cob).or_insert(Come { since: now, looked: false });
        }
        self.come.retain(|cob, _| stands(cob) == NoExitCheck::InOne);
        let mut lasting = Lasting::default();
        for (cob, come) in self.come.iter_mut().filter(|(_, come)| come.since + LASTS <= now) {
            match (is_checked(cob), come.looked) {
                (true, _) => {}
                (false, true) => lasting.failed.push(cob.clone()),
                (false, false) => lasting.look.push(cob.clone()),
            }
            come.looked = true;
        }
        lasting
    }

    /// When the next look is due.
    #[must_use]
    pub fn due(&self) -> Time {
        let waits = self.come.values().filter(|come| !come.looked);
        waits.map(|come| come.since + LASTS).min().unwrap_or(Time::NEVER)
    }

    /// Forgets the found dead ends.
    pub fn forget(&mut self) {
        self.found.clear();
        self.come.clear();
    }
}

#[cfg(test)]
mod tests {
    use cob_types::GenerationNumber;
    use cob_types::message::Values;

    use super::*;

    fn id(text: &str) -> CobId {
        CobId::new(text).expect("an id")
    }

    fn at(secs: u64) -> Time {
        Time(0) + Span::secs(secs)
    }

    fn checked(cob: &str, state: Option<&str>) -> Record {
        let state = state.map(|state| cob_types::StateName::new(state).expect("a name"));
        let body = Body::Checked {
            cob: id(cob),
            state,
            drift: false,
            failed: false,
            values: Values::new(),
            rests_on: None,
            detail: String::new(),
            unclear: false,
            renewed: false,
        };
        Record { at: at(0), lamport: 1, generation: GenerationNumber(1), body, by: None }
    }

    /// Looks at the dead ends: change objects to check again, and failures.
    fn look(ends: &mut NoExitStates, secs: u64, in_one: &[&str], checked: &[&str]) -> (Vec<String>, Vec<String>) {
        let names = |all: Vec<CobId>| all.into_iter().map(|cob| cob.to_string()).collect();
        let is = |of: &[&str], cob: &CobId| of.contains(&cob.as_str());
        let stands = |cob: &CobId| if is(in_one, cob) { NoExitCheck::InOne } else { NoExitCheck::Elsewhere };
        let Lasting { look, failed } = ends.look(at(secs), stands, |cob| is(checked, cob));
        (names(look), names(failed))
    }

    fn told(look: &[&str], failed: &[&str]) -> (Vec<String>, Vec<String>) {
        let names = |all: &[&str]| all.iter().map(|cob| (*cob).to_owned()).collect();
        (names(look), names(failed))
    }

    #[test]
    fn a_missing_exit_state_that_lasts_and_is_confirmed_is_a_failure() {
        let mut ends = NoExitStates::default();
        for record in [checked("n1/a", Some("conflict")), checked("n1/b", Some("starting")), checked("n1/c", None)] {
            ends.hear(&record);
        }
        assert_eq!(look(&mut ends, 10, &["n1/a", "n1/b", "n1/c"], &[]), told(&[], &[]));
        assert_eq!(ends.due(), at(13));
        // A change object has left its dead end by itself; the time of another counts from its first discovery.
        assert_eq!(look(&mut ends, 12, &["n1/a", "n1/c"], &[]), told(&[], &[]));
        ends.hear(&checked("n1/a", Some("conflict")));
        ends.suspect([id("n1/d")].into_iter());
        assert_eq!(look(&mut ends, 13, &["n1/a", "n1/d"], &["n1/a"]), told(&[], &[]), "it is just being looked at");
        assert_eq!(ends.due(), at(16), "its end is reported: no wake-up is needed");
        assert_eq!(look(&mut ends, 14, &["n1/a", "n1/d"], &["n1/a"]), told(&[], &[]));
        assert_eq!(look(&mut ends, 15, &["n1/a", "n1/d"], &[]), told(&[], &["n1/a"]));
        assert_eq!(look(&mut ends, 16, &["n1/d"], &[]), told(&["n1/d"], &[]));
        assert_eq!(ends.due(), Time::NEVER);
        assert_eq!(look(&mut ends, 17, &["n1/d"], &["n1/d"]), told(&[], &[]));
        assert_eq!(look(&mut ends, 18, &[], &[]), told(&[], &[]), "the look has found it elsewhere");
        ends.suspect([id("n1/d")].into_iter());
        ends.forget();
        assert_eq!((ends.due(), look(&mut ends, 30, &["n1/d"], &[])), (Time::NEVER, told(&[], &[])));
    }

    #[test]
    fn a_missing_exit_state_before_the_switch_is_no_failure_of_it() {
        let mut ends = NoExitStates::default();
        ends.begin([id("n1/a")].into());
        // The switch has changed it: its state is unknown until the next check.
        let unknown = ends.look(at(0), |_| NoExitCheck::Unknown, |_| true);
        assert_eq!(unknown, Lasting::default());
        ends.hear(&checked("n1/a", Some("conflict")));
        ends.hear(&checked("n1/b", Some("conflict")));
        assert_eq!(look(&mut ends, 1, &["n1/a", "n1/b"], &[]), told(&[], &[]));
        assert_eq!(look(&mut ends, 4, &["n1/a", "n1/b"], &[]), told(&["n1/b"], &[]));
        ends.forget();
        ends.suspect([id("n1/a")].into_iter());
        assert_eq!(look(&mut ends, 5, &["n1/a"], &[]), told(&[], &[]), "independent of a later policy");
        assert_eq!(look(&mut ends, 6, &[], &[]), told(&[], &[]), "an operator has decided");
        ends.hear(&checked("n1/a", Some("conflict")));
        assert_eq!(look(&mut ends, 7, &["n1/a"], &[]), told(&[], &[]));
        assert_eq!(look(&mut ends, 10, &["n1/a"], &[]), told(&["n1/a"], &[]), "once more is another time");
    }
}
