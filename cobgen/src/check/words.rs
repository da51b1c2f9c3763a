//! Arrows in words: which change object needs which other for which purpose, with the place in the user's files.

use crate::draft::{Place, When};
use crate::provenance::Provenance;

use super::finding::Step;
use super::system::{Guard, Moment, System, Want};

/// The most arrows of a circle that are shown.
const MOST_STEPS: usize = 30;

/// The steps of a circle; for a very long circle only the first.
pub(super) fn abridged(circle: usize, steps: impl Iterator<Item = Step>) -> Vec<Step> {
    let mut told: Vec<Step> = steps.take(MOST_STEPS).collect();
    if let Some(more) = circle.checked_sub(MOST_STEPS).filter(|more| *more > 0) {
        told.push(Step { text: format!("and {more} more, back to the first"), words: None, place: None });
    }
    told
}

impl System<'_> {
    /// `a/app, which prefers up, needs b/db up to go down -> up`.
    pub(super) fn step(&self, goal: usize, guard: &Guard<'_>, want: &Want<'_>) -> Step {
        let (cob, target) = self.goal(goal);
        let role = if self.cobs[cob].preferred == Some(target) { "which prefers" } else { "asked to be" };
        let subject = format!("{}, {role} {},", self.cobs[cob].cob.id, self.state(cob, target));
        self.step_of(cob, &subject, guard, want)
    }

    /// `a/app needs b/db up to go down -> up`.
    pub(super) fn bare_step(&self, cob: usize, guard: &Guard<'_>, want: &Want<'_>) -> Step {
        let subject = self.cobs[cob].cob.id.to_string();
        self.step_of(cob, &subject, guard, want)
    }

    fn step_of(&self, cob: usize, subject: &str, guard: &Guard<'_>, want: &Want<'_>) -> Step {
        let (when, purpose) = match guard.moment {
            Moment::Transition { from, to } => {
                let (from, to) = (self.state(cob, from).clone(), self.state(cob, to).clone());
                let purpose = format!("to go {from} -> {to}");
                (When::Transition { from, to }, purpose)
            }
            Moment::Grant(state) => {
                let state = self.state(cob, state).clone();
                let purpose = format!("to grant {state}");
                (When::Lock { state }, purpose)
            }
        };
        let states: Vec<&str> = want.need.states.iter().map(cob_types::StateName::as_str).collect();
        let text = format!("{subject} needs {} {} {purpose}", want.need.cob, states.join("|"));
        let id = &self.cobs[cob].cob.id;
        let source = self.provenance.and_then(|p| p.sources(id, &when, &want.need.cob).first());
        Step { text, words: source.map(|s| s.said.words.to_string()), place: source.map(|s| s.said.place.clone()) }
    }

    /// A plain statement about a change object, with its place.
    pub(super) fn statement(&self, cob: usize, text: String) -> Step {
        Step { text, words: None, place: self.place_of(cob) }
    }

    /// The place of a change object in the model.
    pub(super) fn place_of(&self, cob: usize) -> Option<Place> {
        self.provenance.and_then(|p: &Provenance| p.cob(&self.cobs[cob].cob.id)).cloned()
    }

    pub(super) fn id(&self, cob: usize) -> &str {
        self.cobs[cob].cob.id.as_str()
    }

    /// `a/app, b/db and 3 more`.
    pub(super) fn names(&self, cobs: &[usize]) -> String {
        const SHOWN: usize = 5;
        let shown: Vec<&str> = cobs.iter().take(SHOWN).map(|cob| self.id(*cob)).collect();
        match (cobs.len().saturating_sub(SHOWN), shown.split_last()) {
            (0, Some((last, rest))) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            (0, _) => shown.join(", "),
            (more, _) => format!("{} and {more} more", shown.join(", ")),
        }
    }
}
