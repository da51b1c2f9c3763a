//! Change objects that are where no transition leads on from: only people, or the world, bring them to where they should be.
//!
//! A file tree in conflict is one of them, or whatever a check of one's own calls `broken`. With the policy `hold` a switch
//! waits for them as for everybody else. With `rollback` nobody may be there to decide: what lasts is a failure. Who was
//! there before the switch began is not of it: going back would not help.

use std::collections::{BTreeMap, BTreeSet};

use cob_engine::Time;
use cob_engine::record::{Body, Record};
use cob_engine::time::Span;
use cob_types::CobId;

/// What lasts so long is a failure, if a look after that finds it so still: some states are left without a transition (a
/// service that comes up by itself), and some were seen before another one had done its part.
const LASTS: Span = Span::secs(3);

/// Those that are in a dead end in the switch under way.
#[derive(Debug, Default)]
pub(super) struct DeadEnds {
    /// Known to be in one when the switch began, and never seen out of it since: also where the switch has changed them.
    before: BTreeSet<CobId>,
    /// Found somewhere in this turn.
    found: BTreeSet<CobId>,
    come: BTreeMap<CobId, Come>,
}

/// How it stands with one.
#[derive(Debug)]
struct Come {
    since: Time,
    /// It was looked at once more, or is being.
    looked: bool,
}

/// What came of a look at those in dead ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lasting {
    /// To be looked at once more.
    pub(super) look: Vec<CobId>,
    /// That was done, and found them there still.
    pub(super) failed: Vec<CobId>,
}

/// How it stands with one now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    InOne,
    /// Nobody knows where it is.
    Unknown,
    Elsewhere,
}

impl DeadEnds {
    /// A switch begins, and these are in one.
    pub(super) fn begin(&mut self, before: BTreeSet<CobId>) {
        *self = Self { before, ..Self::default() };
    }

    /// Takes up where somebody was found, or was left by an action.
    pub(super) fn hear(&mut self, record: &Record) {
        if let Body::Checked { cob, state: Some(_), unclear: false, .. }
        | Body::Ended { cob, state: Some(_), failed: false, ok: Some(false), .. } = &record.body
        {
            self.found.insert(cob.clone());
        }
    }

    /// Those that have come to one in an earlier life, of which no record is told any more.
    pub(super) fn suspect(&mut self, cobs: impl Iterator<Item = CobId>) {
        self.found.extend(cobs);
    }

    /// Those that have been in one for long. A check that runs then is the look that counts: its end is waited for.
    pub(super) fn look(
        &mut self,
        now: Time,
        stands: impl Fn(&CobId) -> Stands,
        is_checked: impl Fn(&CobId) -> bool,
    ) -> Lasting {
        self.before.retain(|cob| stands(cob) != Stands::Elsewhere);
        for cob in std::mem::take(&mut self.found).difference(&self.before).cloned() {
            self.come.entry(cob).or_insert(Come { since: now, looked: false });
        }
        self.come.retain(|cob, _| stands(cob) == Stands::InOne);
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
    pub(super) fn due(&self) -> Time {
        let waits = self.come.values().filter(|come| !come.looked);
        waits.map(|come| come.since + LASTS).min().unwrap_or(Time::NEVER)
    }

    /// It does not matter who has come to one.
    pub(super) fn forget(&mut self) {
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

    /// A look: who is to be looked at once more, and who has failed.
    fn look(ends: &mut DeadEnds, secs: u64, in_one: &[&str], checked: &[&str]) -> (Vec<String>, Vec<String>) {
        let names = |all: Vec<CobId>| all.into_iter().map(|cob| cob.to_string()).collect();
        let is = |of: &[&str], cob: &CobId| of.contains(&cob.as_str());
        let stands = |cob: &CobId| if is(in_one, cob) { Stands::InOne } else { Stands::Elsewhere };
        let Lasting { look, failed } = ends.look(at(secs), stands, |cob| is(checked, cob));
        (names(look), names(failed))
    }

    fn told(look: &[&str], failed: &[&str]) -> (Vec<String>, Vec<String>) {
        let names = |all: &[&str]| all.iter().map(|cob| (*cob).to_owned()).collect();
        (names(look), names(failed))
    }

    #[test]
    fn what_lasts_and_is_found_once_more_has_failed() {
        let mut ends = DeadEnds::default();
        for record in [checked("n1/a", Some("conflict")), checked("n1/b", Some("starting")), checked("n1/c", None)] {
            ends.hear(&record);
        }
        assert_eq!(look(&mut ends, 10, &["n1/a", "n1/b", "n1/c"], &[]), told(&[], &[]));
        assert_eq!(ends.due(), at(13));
        // One has gone on by itself; what was found again is in it since it was found first.
        assert_eq!(look(&mut ends, 12, &["n1/a", "n1/c"], &[]), told(&[], &[]));
        ends.hear(&checked("n1/a", Some("conflict")));
        ends.suspect([id("n1/d")].into_iter());
        assert_eq!(look(&mut ends, 13, &["n1/a", "n1/d"], &["n1/a"]), told(&[], &[]), "it is just being looked at");
        assert_eq!(ends.due(), at(16), "its end is heard of: nobody has to be woken for it");
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
    fn who_was_in_one_before_is_not_of_the_switch_until_he_is_seen_elsewhere() {
        let mut ends = DeadEnds::default();
        ends.begin([id("n1/a")].into());
        // The switch has changed it: nobody knows where it is until it is looked at anew.
        let unknown = ends.look(at(0), |_| Stands::Unknown, |_| true);
        assert_eq!(unknown, Lasting::default());
        ends.hear(&checked("n1/a", Some("conflict")));
        ends.hear(&checked("n1/b", Some("conflict")));
        assert_eq!(look(&mut ends, 1, &["n1/a", "n1/b"], &[]), told(&[], &[]));
        assert_eq!(look(&mut ends, 4, &["n1/a", "n1/b"], &[]), told(&["n1/b"], &[]));
        ends.forget();
        ends.suspect([id("n1/a")].into_iter());
        assert_eq!(look(&mut ends, 5, &["n1/a"], &[]), told(&[], &[]), "whatever the policy is meanwhile");
        assert_eq!(look(&mut ends, 6, &[], &[]), told(&[], &[]), "somebody has decided");
        ends.hear(&checked("n1/a", Some("conflict")));
        assert_eq!(look(&mut ends, 7, &["n1/a"], &[]), told(&[], &[]));
        assert_eq!(look(&mut ends, 10, &["n1/a"], &[]), told(&["n1/a"], &[]), "once more is another time");
    }
}
