//! Change objects that this host does not have: those that have left, and those that have not come yet.
//!
//! One that has left counts as locked in the state in which it left. Who counts on that is remembered, on record as
//! every promise: should it come back (with a later generation, or on the way back), it finds these promises out
//! and moves only when they are given back.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_types::Number;

use crate::engine::Engine;
use crate::names::{CobRef, StateId};
use crate::object::{Mail, Msg, Request};
use crate::record::{Body, DurableCob};
use crate::spec::Set;

/// The most requests that are kept for change objects which this host does not have yet.
const EARLY_MAX: usize = 100_000;

/// Promises of those that have left, by these and then by who holds them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Left(BTreeMap<CobRef, BTreeMap<CobRef, Request>>);

impl Left {
    /// One leaves with these promises out.
    pub(crate) fn put(&mut self, cob: CobRef, requests: Vec<Request>) {
        let granted = requests.into_iter().filter(|r| r.granted.is_some());
        // Whoever it comes back to asks whether they are still meant.
        let granted: BTreeMap<_, _> =
            granted.map(|r| (r.asker, Request { restored: true, recalled: false, ..r })).collect();
        if !granted.is_empty() {
            self.0.insert(cob, granted);
        }
    }

    /// It is back: its promises are its own again, sorted by who holds them.
    pub(crate) fn take(&mut self, cob: CobRef) -> Vec<Request> {
        self.0.remove(&cob).unwrap_or_default().into_values().collect()
    }

    fn find(&self, cob: CobRef, asker: CobRef) -> Option<&Request> {
        self.0.get(&cob)?.get(&asker)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (CobRef, &Request)> {
        self.0.iter().flat_map(|(cob, all)| all.values().map(move |r| (*cob, r)))
    }

    fn add(&mut self, cob: CobRef, request: Request) {
        self.0.entry(cob).or_default().insert(request.asker, request);
    }

    fn remove(&mut self, cob: CobRef, asker: CobRef) -> Option<Request> {
        let all = self.0.get_mut(&cob)?;
        let request = all.remove(&asker);
        if all.is_empty() {
            self.0.remove(&cob);
        }
        request
    }
}

impl Engine {
    /// Speaks for a change object that this host does not have: one that has left counts as locked in
    /// its last state; one that has not come yet is waited for.
    pub(crate) fn answer_for_absent(&mut self, mail: Mail) {
        let Mail { from, to, ref msg } = mail;
        let answer = match msg {
            Msg::Request { number, rev, set, rank, origin, fingerprint } => {
                let known = self.left.find(to, from).map(|r| r.number);
                if known.is_some_and(|k| *number < k) {
                    Some(Msg::Released(*number))
                } else if let Some(state) = self.as_left(to, set, rank.phase) {
                    let fresh = Request {
                        asker: from,
                        number: *number,
                        rev: *rev,
                        set: Set::clone(set),
                        rank: *rank,
                        origin: *origin,
                        fingerprint: *fingerprint,
                        granted: Some(state),
                        recalled: false,
                        lapsed: false,
                        restored: true,
                        refused: false,
                        beyond: false,
                        since: crate::time::Time(0),
                    };
                    self.grant_as_left(to, fresh, known);
                    Some(Msg::Grant { number: *number, rev: *rev, state, values: Arc::default() })
                } else {
                    // A higher number stands for the release of the one before.
                    self.returned_to_left(to, from, *number);
                    if self.early.len() < EARLY_MAX {
                        self.early.insert((to, from), mail);
                    }
                    return;
                }
            }
            Msg::Release(number) => {
                self.early.remove(&(to, from));
                self.returned_to_left(to, from, *number);
                Some(Msg::Released(*number))
            }
            Msg::Grant { number, .. } | Msg::Recall(number) | Msg::Query(number) | Msg::Lapsed(number) => {
                Some(Msg::Release(*number))
            }
            Msg::Released(_) | Msg::Refused { .. } | Msg::Probe { .. } => None,
        };
        if let Some(msg) = answer {
            self.out.mail.push_back(Mail { from: to, to: from, msg });
        }
    }

    /// What was asked of one before it was here, or before it had left, is asked again.
    pub(crate) fn deliver_early(&mut self, cob: CobRef) {
        let from = (cob, CobRef(0));
        let waiting: Vec<_> = self.early.range(from..).take_while(|(k, _)| k.0 == cob).map(|(k, _)| *k).collect();
        for key in waiting {
            self.out.mail.extend(self.early.remove(&key));
        }
    }

    /// The state of a set in which one that has left counts as locked. One that was kept is for whoever leaves, too,
    /// as good as in its pre-remove state.
    fn as_left(&self, cob: CobRef, set: &[StateId], phase: u8) -> Option<StateId> {
        let kept_from = self.kept_from.get(&cob).filter(|_| phase == 0);
        self.gone.get(&cob).into_iter().chain(kept_from).copied().find(|state| set.contains(state))
    }

    /// Writes down a promise for one that has left, unless it is a repeat of one that stands.
    fn grant_as_left(&mut self, cob: CobRef, request: Request, known: Option<Number>) {
        if known != Some(request.number)
            && let Some(state) = request.granted
        {
            let grant = request.grant_out(state, &self.names, Vec::new());
            let (cob, to) = (self.names.cob_id(cob).clone(), self.names.cob_id(request.asker).clone());
            self.out.records.push(Body::Granted { cob, to, grant });
        }
        self.left.add(cob, request);
    }

    /// A promise of one that has left is back, up to this number.
    fn returned_to_left(&mut self, cob: CobRef, asker: CobRef, number: Number) {
        if self.left.find(cob, asker).is_some_and(|r| r.number <= number) {
            self.forget_left(cob, asker);
        }
    }

    pub(crate) fn forget_left(&mut self, cob: CobRef, asker: CobRef) {
        if let Some(request) = self.left.remove(cob, asker) {
            let (cob, from) = (self.names.cob_id(cob).clone(), self.names.cob_id(asker).clone());
            self.out.records.push(Body::Returned { cob, from, number: request.number });
        }
    }

    /// The promise of one that has left, if it stands under this number.
    pub(crate) fn left_as(&self, asker: CobRef, asked: CobRef, number: Number) -> Option<StateId> {
        self.left.find(asked, asker).filter(|r| r.number == number)?.granted
    }

    /// What is durable of it, told by the living engine.
    pub(crate) fn durable_left(&self, cobs: &mut BTreeMap<cob_types::CobId, DurableCob>) {
        for (cob, request) in self.left.iter() {
            let Some(state) = request.granted else { continue };
            let grant = request.grant_out(state, &self.names, Vec::new());
            let of = cobs.entry(self.names.cob_id(cob).clone()).or_default();
            of.grants.insert(self.names.cob_id(request.asker).clone(), grant);
        }
    }
}
