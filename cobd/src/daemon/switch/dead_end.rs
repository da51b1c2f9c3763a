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

/// What lasts so long is a failure: some states are left without a transition (a service that comes up by itself).
pub(super) const LASTS: Span = Span::secs(3);

/// Those that are in a dead end in the switch under way.
#[derive(Debug, Default)]
pub(super) struct DeadEnds {
    /// Found somewhere in this turn.
    found: BTreeSet<CobId>,
    since: BTreeMap<CobId, Time>,
}

impl DeadEnds {
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

    /// Those that have been in one for long.
    pub(super) fn look(&mut self, now: Time, is_in_one: impl Fn(&CobId) -> bool) -> Vec<CobId> {
        for cob in std::mem::take(&mut self.found) {
            self.since.entry(cob).or_insert(now);
        }
        self.since.retain(|cob, _| is_in_one(cob));
        self.since.iter().filter(|(_, since)| **since + LASTS <= now).map(|(cob, _)| cob.clone()).collect()
    }

    /// When the next look is due.
    pub(super) fn due(&self) -> Time {
        self.since.values().map(|since| *since + LASTS).min().unwrap_or(Time::NEVER)
    }

    /// It does not matter who is.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
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

    #[test]
    fn what_lasts_is_told_and_what_passes_is_not() {
        let mut ends = DeadEnds::default();
        for record in [checked("n1/a", Some("conflict")), checked("n1/b", Some("starting")), checked("n1/c", None)] {
            ends.hear(&record);
        }
        let in_one = |cobs: &'static [&str]| move |cob: &CobId| cobs.contains(&cob.as_str());
        assert_eq!(ends.look(at(10), in_one(&["n1/a", "n1/b", "n1/c"])), <[CobId; 0]>::default());
        assert_eq!(ends.due(), at(13));
        assert_eq!(ends.look(at(12), in_one(&["n1/a", "n1/c"])), <[CobId; 0]>::default(), "one has gone on by itself");
        // What was found again is in it since it was found first.
        ends.hear(&checked("n1/a", Some("conflict")));
        ends.suspect([id("n1/d")].into_iter());
        assert_eq!(ends.look(at(13), in_one(&["n1/a", "n1/d"])), [id("n1/a")]);
        assert_eq!(ends.look(at(14), in_one(&["n1/d"])), <[CobId; 0]>::default());
        assert_eq!(ends.due(), at(16));
        ends.forget();
        assert_eq!((ends.due(), ends.look(at(20), |_| true)), (Time::NEVER, Vec::new()));
    }
}
