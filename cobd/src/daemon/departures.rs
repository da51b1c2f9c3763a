//! Departed change objects whose previous state is still being restored: the switch ends only afterwards, and a failure
//! counts like that of a transition.

use std::collections::BTreeMap;

use cob_engine::Time;
use cob_types::status::{ActionStatus, CobStatus, Phase, Wait};
use cob_types::{CobId, StateName};
use tracing::error;

use super::Daemon;
use crate::kinds::{Departure, Progress};

/// The states that are reported for a departure, as if it were a transition.
const FROM: &str = "down";
const TO: &str = "restored";

/// All departures under way.
#[derive(Debug, Default)]
pub(super) struct Departures(BTreeMap<CobId, Vec<Going>>);

#[derive(Debug)]
struct Going {
    departure: Departure,
    since: Time,
    /// Its failure was reported.
    told: bool,
}

impl Departures {
    pub(super) fn add(&mut self, departures: Vec<Departure>, now: Time) {
        for departure in departures {
            let going = Going { since: now, told: false, departure };
            self.0.entry(going.departure.cob().clone()).or_default().push(going);
        }
    }

    /// Ends the departures of a change object that is back.
    pub(super) fn end(&mut self, cob: &CobId) {
        self.0.remove(cob);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets finished departures; returns new failures with their reasons.
    fn take_failed(&mut self) -> Vec<(CobId, String)> {
        let mut failed = Vec::new();
        self.0.retain(|cob, all| {
            all.retain_mut(|going| {
                let progress = going.departure.progress();
                if progress.has_failed() && !going.told {
                    going.told = true;
                    failed.push((cob.clone(), progress.error.clone()));
                }
                !progress.done
            });
            !all.is_empty()
        });
        failed
    }

    /// Retries at once. Returns whether a departure had failed; absent: the change object has no departure.
    pub(super) fn retry(&self, cob: &CobId) -> Option<bool> {
        let all = self.0.get(cob)?;
        all.iter().for_each(|going| going.departure.retry());
        Some(all.iter().any(|going| going.departure.progress().has_failed()))
    }

    pub(super) fn status_of(&self, cob: &CobId) -> Option<CobStatus> {
        self.0.get(cob)?.first().map(Going::status)
    }

    pub(super) fn status(&self) -> impl Iterator<Item = CobStatus> {
        self.0.values().flatten().map(Going::status)
    }
}

impl Going {
    fn status(&self) -> CobStatus {
        let state = |name| StateName::new(name).expect("a well-formed name");
        let progress @ Progress { failures, runs, .. } = &self.departure.progress();
        let of = crate::kinds::DEPARTURE_ATTEMPTS;
        let action = ActionStatus {
            from: Some(state(FROM)),
            to: Some(state(TO)),
            attempt: (failures + u32::from(*runs)).clamp(1, of.max(*failures)),
            of,
            running: *runs,
            since_ns: self.since.0,
            error: progress.error.clone(),
            last_line: String::new(),
            earlier_content: false,
            conflict: false,
        };
        CobStatus {
            id: self.departure.cob().clone(),
            kind: "departure".to_owned(),
            state: Some(state(FROM)),
            target: Some(state(TO)),
            preferred: state(TO),
            phase: if *runs { Phase::Moving } else { Phase::Waiting },
            since_ns: self.since.0,
            failed: progress.has_failed(),
            retiring: true,
            waits_for: if progress.has_failed() { vec![Wait::Failed] } else { Vec::new() },
            action: Some(action),
            trouble: Vec::new(),
            held_by: Vec::new(),
            observed: false,
            drift: Vec::new(),
            stopped: None,
        }
    }
}

impl Daemon {
    /// Whether every change object is in its desired state, and no departure is under way.
    pub(super) fn is_converged(&self) -> bool {
        self.engine.is_converged() && self.departures.is_empty()
    }

    /// Handles a step of a departure.
    pub(super) fn look_at_departures(&mut self) {
        for (cob, why) in self.departures.take_failed() {
            error!(%cob, why, "the original state can't be restored");
            self.departure_failed(format!("{cob} has departed, and its original state can't be restored: {why}"));
        }
        // The engine may have no change in this tick.
        self.tell_change();
    }
}
