//! Check rounds: an operator asks for the present state of the host; only checks that start afterwards count.
//!
//! ```text
//!   asked ---- each change object: a check is wanted ---- its end counts --------------+
//!                |  a check ran already: its end does not count, the next does          |---- ended
//!                +- it is in transition, starts one, or departs: not checked -----------+
//! ```
//!
//! The engine handles the results as always: a round only requests checks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cob_engine::Event;
use cob_engine::event::CheckOutcome;
use cob_types::check_round::{CheckRound, Differing, LISTED, Unknown};
use cob_types::words::count;
use cob_types::{CobId, GenerationNumber};
use tokio::sync::watch;

use super::{Daemon, job_id};
use crate::run::JobId;
use crate::web::{Refusal, RefusalKind};

/// The number of rounds that are kept.
const KEPT: usize = 8;
/// The most unknown names in a refusal.
const NAMED: usize = 6;

/// The last check rounds.
#[derive(Default)]
pub(super) struct Rounds {
    /// The number of rounds in this incarnation.
    begun: u32,
    kept: VecDeque<Round>,
}

struct Round {
    told: CheckRound,
    /// Change objects still to be checked, each with the check that was running when the round started.
    awaited: BTreeMap<CobId, Option<JobId>>,
    end: watch::Sender<bool>,
}

/// The result of a check, compared with the desired state.
#[derive(Clone)]
enum Seen {
    AsWanted,
    Differing(Differing),
    Unknown(Unknown),
}

/// Appends to a bounded list.
fn list<T>(to: &mut Vec<T>, one: T) {
    if to.len() < LISTED {
        to.push(one);
    }
}

impl Round {
    fn end_if_complete(&mut self) {
        if self.awaited.is_empty() && !self.told.ended {
            self.told.ended = true;
            self.end.send_replace(true);
        }
    }

    /// This number of awaited change objects will not be checked.
    fn not_looked_at(&mut self, many: usize) {
        self.told.moving += many as u64;
        self.end_if_complete();
    }

    /// An awaited change object was checked.
    fn looked(&mut self, seen: Seen) {
        let told = &mut self.told;
        told.looked += 1;
        match seen {
            Seen::AsWanted => told.as_wanted += 1,
            Seen::Differing(differing) => {
                told.differ += 1;
                list(&mut told.differing, differing);
            }
            Seen::Unknown(unknown) => {
                told.not_known += 1;
                list(&mut told.unknown, unknown);
            }
        }
        self.end_if_complete();
    }
}

impl Rounds {
    /// The progress of a round, and a channel that reports its end.
    pub(super) fn standing(&self, number: u64) -> Option<(CheckRound, watch::Receiver<bool>)> {
        let round = self.kept.iter().find(|round| round.told.round == number)?;
        Some((round.told.clone(), round.end.subscribe()))
    }

    /// Whether no round is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.kept.iter().all(|round| round.told.ended)
    }

    fn is_full(&self) -> bool {
        self.kept.len() >= KEPT && self.kept.iter().all(|round| !round.told.ended)
    }

    fn add(&mut self, told: CheckRound, awaited: BTreeMap<CobId, Option<JobId>>) {
        if self.kept.len() >= KEPT {
            let oldest = self.kept.iter().position(|round| round.told.ended);
            oldest.and_then(|at| self.kept.remove(at));
        }
        let mut round = Round { told, awaited, end: watch::Sender::new(false) };
        round.end_if_complete();
        self.kept.push_back(round);
    }

    /// The rounds for which the end of this check counts. They do not await it any more.
    pub(super) fn awaiting(&mut self, cob: &CobId, check: JobId) -> Vec<u64> {
        let mut rounds = Vec::new();
        for round in &mut self.kept {
            match round.awaited.get_mut(cob) {
                Some(before) if *before == Some(check) => *before = None,
                Some(_) => {
                    round.awaited.remove(cob);
                    rounds.push(round.told.round);
                }
                None => {}
            }
        }
        rounds
    }

    /// The change object is in transition: it was not checked.
    pub(super) fn moved(&mut self, cob: &CobId) {
        for round in &mut self.kept {
            let awaited = round.awaited.remove(cob).is_some();
            round.not_looked_at(usize::from(awaited));
        }
    }

    /// Forgets change objects that are not on the host any more.
    pub(super) fn only(&mut self, stays: impl Fn(&CobId) -> bool) {
        for round in &mut self.kept {
            let before = round.awaited.len();
            round.awaited.retain(|cob, _| stays(cob));
            round.not_looked_at(before - round.awaited.len());
        }
    }
}

impl Daemon {
    /// Starts a round; returns its number.
    pub(super) fn begin_round(&mut self, cobs: &[CobId]) -> Result<u64, Refusal> {
        if self.rounds.is_full() {
            let what = format!("{} of checks are under way already", count(KEPT, "round"));
            return Err(Refusal::new(RefusalKind::Unavailable, what, "wait until a round has ended"));
        }
        let known = |cob: &CobId| self.present.active().is_some_and(|active| active.has(cob));
        let unknown: Vec<&str> = cobs.iter().filter(|cob| !known(cob)).map(CobId::as_str).collect();
        if !unknown.is_empty() {
            let more = if unknown.len() > NAMED { " and others" } else { "" };
            let names = unknown[..unknown.len().min(NAMED)].join(", ");
            let what = format!("the active generation of this host has no {names}{more}");
            return Err(Refusal::new(RefusalKind::NotFound, what, "`cobctl status` lists the change objects"));
        }
        // Results from before the question do not answer it.
        self.ahead.forget_what_counts();
        let all: BTreeSet<CobId> = match (self.present.active(), cobs) {
            (Some(active), []) => active.bundle.ids().cloned().collect(),
            (_, cobs) => cobs.iter().cloned().collect(),
        };
        self.rounds.begun += 1;
        let number = (u64::from(self.engine.incarnation().start) << 32) | u64::from(self.rounds.begun);
        let generation = self.present.manifest().map_or(GenerationNumber(0), |manifest| manifest.generation);
        let mut told = CheckRound::new(self.config.host.clone(), number, generation);
        told.asked = all.len() as u64;
        let mut awaited = BTreeMap::new();
        for cob in all {
            self.feed(Event::CheckWanted(cob.clone()));
            let Some(check) = self.engine.check_of(&cob).map(job_id) else {
                told.moving += 1;
                continue;
            };
            let begun = self.jobs.job_of(&cob) == Some(check);
            awaited.insert(cob, begun.then_some(check));
        }
        self.rounds.add(told, awaited);
        Ok(number)
    }

    /// Handles the end of an awaited check, after the engine has its result.
    pub(super) fn looked_in(&mut self, rounds: &[u64], cob: &CobId, found: &CheckOutcome) {
        if rounds.is_empty() {
            return;
        }
        let seen = self.seen_as(cob, found);
        for round in self.rounds.kept.iter_mut().filter(|round| rounds.contains(&round.told.round)) {
            round.looked(seen.clone());
        }
    }

    fn seen_as(&self, cob: &CobId, found: &CheckOutcome) -> Seen {
        let unknown = |why: &str| Seen::Unknown(Unknown { cob: cob.clone(), why: why.to_owned() });
        let (state, detail) = match found {
            CheckOutcome::Failed(why) => return unknown(why),
            CheckOutcome::Found { state, detail, .. } => (state, detail),
        };
        let Some(status) = self.cob_status(cob) else { return unknown("it has left") };
        // The engine's view counts: a change object with changed dependencies is outdated.
        let (found, wanted) = (status.state.unwrap_or_else(|| state.clone()), status.preferred);
        let detail = match status.drift.first() {
            None if found == wanted => return Seen::AsWanted,
            Some(file) if detail.is_empty() => format!("{} was changed by others", file.path),
            Some(_) | None => detail.clone(),
        };
        Seen::Differing(Differing { cob: cob.clone(), found, wanted, detail })
    }
}

#[cfg(test)]
mod tests {
    use cob_types::HostName;

    use super::*;

    fn cob(name: &str) -> CobId {
        CobId::new(&format!("h/{name}")).expect("an id")
    }

    fn begun(rounds: &mut Rounds, number: u64, awaited: &[(&str, Option<u64>)]) {
        let mut told = CheckRound::new(HostName::new("h").expect("a name"), number, GenerationNumber(1));
        told.asked = awaited.len() as u64;
        rounds.add(told, awaited.iter().map(|(name, before)| (cob(name), before.map(JobId))).collect());
    }

    fn told(rounds: &Rounds, number: u64) -> (u64, u64, bool) {
        let (told, end) = rounds.standing(number).expect("it is kept");
        assert_eq!(told.ended, *end.borrow());
        (told.looked, told.moving, told.ended)
    }

    #[test]
    fn a_check_that_was_already_under_way_is_not_counted_for_a_round() {
        let mut rounds = Rounds::default();
        begun(&mut rounds, 1, &[("a", Some(7)), ("b", None)]);
        begun(&mut rounds, 2, &[("a", None)]);
        assert_eq!(rounds.awaiting(&cob("a"), JobId(7)), [2]);
        assert_eq!(rounds.awaiting(&cob("a"), JobId(9)), [1]);
        assert_eq!(rounds.awaiting(&cob("a"), JobId(10)), [0; 0]);
        assert_eq!(rounds.awaiting(&cob("c"), JobId(11)), [0; 0]);
    }

    #[test]
    fn a_round_ends_without_change_objects_that_transition_or_depart() {
        let mut rounds = Rounds::default();
        begun(&mut rounds, 1, &[("a", None), ("b", None), ("c", Some(3))]);
        rounds.moved(&cob("a"));
        assert_eq!(told(&rounds, 1), (0, 1, false));
        assert_eq!(rounds.awaiting(&cob("b"), JobId(4)), [1]);
        rounds.kept[0].looked(Seen::AsWanted);
        assert_eq!(told(&rounds, 1), (1, 1, false));
        rounds.only(|cob| cob.as_str() != "h/c");
        assert_eq!(told(&rounds, 1), (1, 2, true));
        assert!(!rounds.standing(1).expect("kept").0.is_well(), "the state of a moving object is not known");
    }

    #[test]
    fn an_empty_round_has_ended_and_is_not_well_without_a_generation() {
        let mut rounds = Rounds::default();
        begun(&mut rounds, 1, &[]);
        assert_eq!(told(&rounds, 1), (0, 0, true));
        assert!(rounds.is_idle());
        let (mut told, _) = rounds.standing(1).expect("kept");
        assert!(told.is_well());
        told.generation = GenerationNumber(0);
        assert!(!told.is_well());
    }

    #[test]
    fn the_oldest_ended_round_makes_room() {
        let mut rounds = Rounds::default();
        for number in 0..KEPT as u64 {
            begun(&mut rounds, number, &[("a", None)]);
        }
        assert!(rounds.is_full());
        assert_eq!(rounds.awaiting(&cob("a"), JobId(1)).len(), KEPT);
        rounds.kept[2].looked(Seen::AsWanted);
        assert!(!rounds.is_full());
        begun(&mut rounds, 100, &[("a", None)]);
        assert!(rounds.standing(2).is_none() && rounds.standing(0).is_some() && rounds.standing(100).is_some());
    }
}
