//! Idle change objects: the majority, nearly always. Work that concerns a whole host (a switch, a pause, a status)
//! visits only the active ones.
//!
//! The invariants check that skipping an idle change object makes no difference ([`Engine::is_unmoved`]).

use cob_types::GenerationNumber;

use crate::engine::Engine;
use crate::object::budget::Watch;
use crate::object::decide::Scratch;
use crate::object::{Activity, CHECKS_UNTIL_FAILED, Cx, Lifecycle, Object, Out, View};
use crate::repeat::Repeat;
use crate::time::Time;

impl Object {
    /// In its preferred state, not about to leave it, without a running change. An observed change object has converged
    /// as soon as its state is known.
    pub(crate) fn is_settled(&self) -> bool {
        let there = self.state == Some(self.prefers()) && self.view.target == self.state;
        (there || self.spec.observe && self.state.is_some())
            && !self.acting()
            && self.lifecycle == Lifecycle::Present
            && !self.failed
            && self.troubles.check_failures < CHECKS_UNTIL_FAILED
    }

    /// It is in its preferred state, has no requests in either direction, and no pending data: a further decision, or a
    /// generation that does not change it, has no effect.
    pub(crate) fn is_at_rest(&self) -> bool {
        let home = Some(self.spec.preferred);
        self.state == home
            && self.view == View { target: home, ..View::default() }
            && matches!(self.activity, Activity::Idle)
            && self.lifecycle == Lifecycle::Present
            && self.stopped.is_none()
            && !(self.failed || self.ordered)
            && self.requests.is_empty()
            && self.locks.is_empty()
            && self.given_back.is_empty()
            && self.resend == Repeat::default()
            && (self.troubles.failures, self.troubles.check_failures, self.troubles.retry_at) == (0, 0, Time(0))
            && self.livelock.is_slack()
            && self.probe.is_at_rest()
            && self.watch == Watch::default()
    }
}

impl Engine {
    /// The active change objects.
    pub(crate) fn restless(&self) -> impl Iterator<Item = &Object> {
        self.restless.iter().filter_map(|slot| self.slots[*slot as usize].as_ref())
    }

    /// The number of change objects of this host.
    pub(crate) fn object_count(&self) -> usize {
        self.active.as_ref().map_or(0, |active| active.bundle.len())
    }

    /// Updates the set of active change objects after a decision.
    pub(crate) fn note_rest(&mut self, slot: usize) {
        let Some(object) = self.slots[slot].as_mut() else { return };
        let restless = !object.is_at_rest();
        if restless != std::mem::replace(&mut object.restless, restless) {
            if restless {
                self.restless.insert(slot as u32);
            } else {
                self.restless.remove(&(slot as u32));
                object.give_room_back();
            }
        }
    }

    /// Queues all active change objects for a decision; it would change no idle change object.
    pub(crate) fn touch_all(&mut self) {
        let all: Vec<_> = self.restless().map(|o| o.me).collect();
        all.into_iter().for_each(|o| self.touch(o));
    }

    /// Whether an idle change object would stay idle under any switch: it resets and decides under the next generation,
    /// forward and back, paused and not, without an effect.
    pub(crate) fn is_unmoved(&self, object: &Object) -> bool {
        let now = if object.check_at == Time::NEVER { object.since } else { Time(object.check_at.0.saturating_sub(1)) };
        [false, true].into_iter().all(|other| {
            let mut object = object.clone();
            let (mut out, mut scratch) = (Out::default(), Scratch::default());
            let (mut probing, mut counter) = (self.probing.clone(), self.counter);
            let mut cx = Cx {
                now,
                names: &self.names,
                here: self.here,
                generation: GenerationNumber(self.generation.0 + 1),
                paused: other,
                goes_back: other,
                limited: other,
                tokens: &self.limited,
                peers: &self.peers,
                raised: &self.raised,
                unsettled: self.unsettled(),
                probing: &mut probing,
                activations: self.activations + 1,
                start: self.life.start,
                counter: &mut counter,
                faults: &self.faults,
                out: &mut out,
                scratch: &mut scratch,
            };
            let deadline = object.deadline(&cx);
            object.renew();
            object.decide(&mut cx);
            let same = object.is_at_rest() && object.deadline(&cx) == deadline;
            let quiet = out.mail.is_empty() && out.records.is_empty() && out.runs.is_empty() && out.ready.is_empty();
            same && quiet && counter == self.counter
        })
    }
}
