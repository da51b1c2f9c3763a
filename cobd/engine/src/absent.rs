//! The grants, releases and requests of missing change objects of this host: departed, or not in the model yet.
//!
//! A departed change object counts as locked in its last state. Its grants are recorded like all others. If it comes
//! back (with a later generation, or in a rollback), these grants still count, and it moves only after their release.

use std::collections::BTreeMap;

use cob_types::Number;

use crate::mail::{Asked, Mail};
use crate::names::{CobRef, StateId};
use crate::object::Request;
use crate::repeat::Repeat;
use crate::time::Time;

/// The departed change objects, and the requests for change objects that are not there yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct AbsentObjects {
    /// The states of the departed change objects.
    states: BTreeMap<CobRef, ExitState>,
    /// Their grants, by grantor and holder.
    grants: BTreeMap<CobRef, BTreeMap<CobRef, Request>>,
    /// Their releases to change objects of other hosts, by releaser and grantor: this host repeats each until it is
    /// acknowledged.
    releases: BTreeMap<(CobRef, CobRef), Number>,
    /// The unanswered messages of departed change objects.
    repeat: Repeat,
    /// Requests for change objects that this host does not have yet: their generation may come.
    early: BTreeMap<(CobRef, CobRef), Mail>,
}

/// The state in which a departed change object counts as locked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExitState {
    pub(crate) state: StateId,
    /// Its pre-remove state, if it was kept in another state.
    pub(crate) kept_from: Option<StateId>,
}

impl AbsentObjects {
    /// A change object has departed, or counts as departed.
    pub(crate) fn depart(&mut self, cob: CobRef, state: StateId, kept_from: Option<StateId>) {
        self.states.insert(cob, ExitState { state, kept_from });
    }

    pub(crate) fn has_departed(&self, cob: CobRef) -> bool {
        self.states.contains_key(&cob)
    }

    pub(crate) fn exit_states(&self) -> impl Iterator<Item = (CobRef, ExitState)> {
        self.states.iter().map(|(cob, exit)| (*cob, *exit))
    }

    /// The requested state in which a departed change object counts as locked. For departing askers, a kept change
    /// object also counts as being in its pre-remove state.
    pub(crate) fn locked_as(&self, cob: CobRef, asked: &Asked) -> Option<StateId> {
        let ExitState { state, kept_from } = *self.states.get(&cob)?;
        let kept_from = kept_from.filter(|_| asked.rank.phase.is_departure());
        [Some(state), kept_from].into_iter().flatten().find(|state| asked.set.contains(state))
    }

    /// A change object departs with these grants out.
    pub(crate) fn put(&mut self, cob: CobRef, requests: impl IntoIterator<Item = Request>) {
        let out = requests.into_iter().filter(|r| !r.is_open());
        // If it comes back, it queries whether they are still needed.
        let as_left = |r: Request| {
            if r.broken.is_some() { r } else { Request { restored: true, recalled: false, ..r } }
        };
        let out: BTreeMap<_, _> = out.map(|r| (r.asker, as_left(r))).collect();
        if !out.is_empty() {
            self.grants.insert(cob, out);
        }
    }

    /// It is back: it gets its grants, sorted by holder, and its unacknowledged releases, sorted by grantor.
    pub(crate) fn take(&mut self, cob: CobRef) -> (impl Iterator<Item = Request> + use<>, Vec<(CobRef, Number)>) {
        self.states.remove(&cob);
        let of = (cob, CobRef(0))..=(cob, CobRef(u32::MAX));
        let releases: Vec<_> = self.releases.range(of).map(|((_, asked), number)| (*asked, *number)).collect();
        releases.iter().for_each(|(asked, _)| _ = self.releases.remove(&(cob, *asked)));
        (self.grants.remove(&cob).unwrap_or_default().into_values(), releases)
    }

    /// The grant of a departed change object to an asker.
    pub(crate) fn find(&self, cob: CobRef, asker: CobRef) -> Option<&Request> {
        self.grants.get(&cob)?.get(&asker)
    }

    /// The grants of departed change objects.
    pub(crate) fn grants(&self) -> impl Iterator<Item = (CobRef, &Request)> {
        self.grants.iter().flat_map(|(cob, all)| all.values().map(move |r| (*cob, r)))
    }

    /// Whether a change object that `of` picks holds a grant of a departed change object.
    pub(crate) fn has_granted(&self, of: impl Fn(CobRef) -> bool) -> bool {
        self.grants().any(|(_, r)| of(r.asker))
    }

    pub(crate) fn add(&mut self, cob: CobRef, request: Request) {
        self.grants.entry(cob).or_default().insert(request.asker, request);
    }

    pub(crate) fn remove(&mut self, cob: CobRef, asker: CobRef) -> Option<Request> {
        let all = self.grants.get_mut(&cob)?;
        let request = all.remove(&asker);
        if all.is_empty() {
            self.grants.remove(&cob);
        }
        request
    }

    /// Their unacknowledged releases: from, to, and the number.
    pub(crate) fn releases(&self) -> impl Iterator<Item = (CobRef, CobRef, Number)> {
        self.releases.iter().map(|((cob, asked), number)| (*cob, *asked, *number))
    }

    /// A departing change object releases locks of other hosts.
    pub(crate) fn release(&mut self, cob: CobRef, all: impl IntoIterator<Item = (CobRef, Number)>) {
        for (asked, number) in all {
            let known = self.releases.entry((cob, asked)).or_insert(number);
            *known = number.max(*known);
            self.repeat = Repeat::default();
        }
    }

    /// A grantor has acknowledged the release of a departed change object.
    pub(crate) fn acknowledged(&mut self, cob: CobRef, asked: CobRef, number: Number) {
        if self.releases.get(&(cob, asked)).is_some_and(|n| *n <= number) {
            self.releases.remove(&(cob, asked));
        }
    }

    /// Drops the releases to these change objects: their host cannot receive them.
    pub(crate) fn forget_releases(&mut self, to: impl Fn(CobRef) -> bool) {
        self.releases.retain(|(_, asked), _| !to(*asked));
    }

    /// A repeat is scheduled.
    #[cfg(feature = "explored")]
    pub(crate) fn repeats(&self) -> bool {
        self.repeat.is_scheduled()
    }

    /// Schedules a repeat if a message must be repeated until it is answered; returns its time if it is new.
    pub(crate) fn schedule_repeat(&mut self, now: Time) -> Option<Time> {
        if self.is_open() { self.repeat.schedule(now) } else { None }
    }

    /// A timer has fired; returns whether messages are repeated now.
    pub(crate) fn is_due(&mut self, at: Time) -> bool {
        if self.repeat.at() != at {
            return false;
        }
        let open = self.is_open();
        if open {
            self.repeat.count();
        } else {
            self.repeat.stop();
        }
        open
    }

    fn is_open(&self) -> bool {
        !self.releases.is_empty() || self.grants().any(|(_, r)| r.broken.is_some())
    }

    /// The request of an asker for a change object that is not there yet.
    pub(crate) fn early(&self, asked: CobRef, asker: CobRef) -> Option<&Mail> {
        self.early.get(&(asked, asker))
    }

    pub(crate) fn all_early(&self) -> impl Iterator<Item = &Mail> {
        self.early.values()
    }

    /// Stores a request for a change object that is not there yet; the newest of each asker.
    pub(crate) fn wait(&mut self, mail: Mail) {
        let known = self.early.get(&(mail.to, mail.from));
        if known.is_none_or(|known| mail.number() >= known.number()) {
            self.early.insert((mail.to, mail.from), mail);
        }
    }

    /// An asker has released its requests up to this number.
    pub(crate) fn release_early(&mut self, asked: CobRef, asker: CobRef, number: Number) {
        if self.early(asked, asker).is_some_and(|early| early.number().is_none_or(|early| early <= number)) {
            self.early.remove(&(asked, asker));
        }
    }

    pub(crate) fn retain_early(&mut self, stays: impl Fn(&Mail) -> bool) {
        self.early.retain(|_, mail| stays(mail));
    }

    /// The requests that came before a change object was here, or before it departed.
    pub(crate) fn take_early(&mut self, cob: CobRef) -> Vec<Mail> {
        let all = self.early.range((cob, CobRef(0))..=(cob, CobRef(u32::MAX)));
        let waiting: Vec<_> = all.map(|(key, _)| *key).collect();
        waiting.into_iter().filter_map(|key| self.early.remove(&key)).collect()
    }
}
