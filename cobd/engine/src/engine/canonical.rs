//! The canonical form of an engine: see [`crate::canonical`].

use std::collections::BTreeSet;

use cob_types::{CobId, HostName, Number};

use crate::canonical::{Form, Pair};
use crate::engine::Engine;
use crate::names::{CobRef, HostRef, StateId};
use crate::object::{Activity, Lock, Object, Request};
use crate::peers::Peer;
use crate::spec::{NeedSpec, Spec, StateIx};
use crate::time::Time;

impl Engine {
    /// Adds all data that decides the behaviour of this engine.
    pub fn canonical(&self, form: &mut Form<'_>, now: Time) {
        form.word(u64::from(self.incarnation.start));
        form.word(self.generation().0);
        self.canonical_switch(form);
        self.canonical_absent(form, now);
        // Messages of a tick are sent in this order.
        let mut mentioned: Vec<_> = form.all().iter().map(|cob| (self.names.find_cob(cob), form.place(cob))).collect();
        mentioned.sort_unstable();
        mentioned.into_iter().for_each(|(_, place)| form.word(place));
        let (slots, free) = self.objects.layout();
        for object in slots {
            form.word(object.map_or(u64::MAX, |o| form.place(self.names.cob_id(o.me))));
        }
        free.iter().for_each(|slot| form.word(u64::from(*slot)));
        for cob in form.all() {
            if let Some(object) = self.names.find_cob(cob).and_then(|r| self.objects.get(r)) {
                self.canonical_object(form, object, now);
            }
        }
        for (host, peer) in self.canonical_peers() {
            form.host(host);
            form.word(peer.incarnation().map_or(0, |l| u64::from(l.start)));
            form.flags(&[peer.is_acked(), peer.is_greeted()]);
            // Only change objects with a lock or request between them and that host matter in these lists.
            let away = |cob: CobRef| self.names.host_name(self.names.host_of(cob)) == host;
            let asks = |o: &&Object| o.locks.iter().any(|l| away(l.asked));
            let is_asked = |o: &&Object| o.requests.iter().any(|r| away(r.asker));
            let listed = |list: &BTreeSet<CobRef>| -> Vec<&Object> {
                list.iter().filter_map(|c| self.objects.get(*c)).collect()
            };
            form.cobs(listed(&peer.dependents).into_iter().filter(asks).map(|o| self.names.cob_id(o.me)));
            form.cobs(listed(&peer.asked).into_iter().filter(is_asked).map(|o| self.names.cob_id(o.me)));
            let mut restored: Vec<_> = peer.restored.clone();
            restored.sort_by(|a, b| self.names.cmp(a.0, b.0).then_with(|| self.names.cmp(a.1, b.1)));
            for (asker, asked, number) in restored {
                let pair = self.pair(form, asker, asked);
                form.number(pair, number);
            }
        }
    }

    fn canonical_peers(&self) -> Vec<(&HostName, &Peer)> {
        let met = |p: &(HostRef, &Peer)| p.1.incarnation().is_some() || p.1.is_acked() || p.1.is_greeted();
        let met = self.peers.iter().filter(met);
        let mut all: Vec<_> = met.map(|(host, peer)| (self.names.host_name(host), peer)).collect();
        all.sort_unstable_by_key(|p| p.0);
        all
    }

    fn pair(&self, form: &Form<'_>, asker: CobRef, asked: CobRef) -> Pair {
        form.pair(self.names.cob_id(asker), self.names.cob_id(asked))
    }

    fn canonical_object(&self, form: &mut Form<'_>, o: &Object, now: Time) {
        form.word(o.state.map_or(u64::MAX, |s| u64::from(s.0)));
        form.word(o.recorded.map_or(u64::MAX, |s| u64::from(s.0)));
        let action = if let Activity::Acting(action) = &o.activity { Some(action) } else { None };
        let checks = matches!(o.activity, Activity::Checking { .. });
        form.word(action.map_or(u64::from(checks), |action| 2 + u64::from(action.transition)));
        let due = |at: Time| [at <= now, at == Time::NEVER];
        let [check_due, check_never] = due(o.check_at);
        let resting = o.livelock.next_end(now).is_some();
        let suspect = action.is_some_and(|action| action.suspect);
        form.flags(&[o.failed, o.ordered, suspect, check_due, check_never, o.troubles.retry_at > now, resting]);
        let (lifecycle, outlived) = (o.lifecycle, action.is_some_and(|action| action.outlived));
        form.flags(&[lifecycle.is_departing(), lifecycle.is_departed(), lifecycle.is_held_back()]);
        form.flags(&[lifecycle.is_declared(), outlived, o.later_needs_granted]);
        let restarts = o.stopped.as_ref().map(|stopped| stopped.restart);
        form.flags(&[restarts.is_some(), restarts == Some(true)]);
        form.word(u64::from(o.troubles.failures));
        // The target of its failed attempts: if a check finds that state, it has not failed.
        let failed_to = o.last.as_ref().filter(|_| o.failed).map(|last| last.to);
        form.word(failed_to.map_or(u64::MAX, |s| u64::from(s.0)));
        form.fingerprint(o.applied);
        form.fingerprint(o.rested_on);
        if let Some(next) = action.and_then(|action| action.next_spec.as_ref()) {
            self.canonical_spec(form, &o.spec);
            self.canonical_spec(form, next);
        }
        let mut requests: Vec<&Request> = o.requests.iter().map(AsRef::as_ref).collect();
        requests.sort_by(|a, b| self.names.cmp(a.asker, b.asker));
        form.word(requests.len() as u64);
        requests.into_iter().for_each(|r| self.canonical_request(form, o.me, r, now));
        let mut locks: Vec<&Lock> = o.locks.iter().collect();
        locks.sort_by(|a, b| self.names.cmp(a.asked, b.asked));
        form.word(locks.len() as u64);
        locks.into_iter().for_each(|l| self.canonical_lock(form, o.me, l));
        self.canonical_memory(form, &o.given_back, |form, other| self.pair(form, o.me, other));
        self.canonical_memory(form, &o.returned, |form, other| self.pair(form, other, o.me));
        self.canonical_probe(form, o, now);
    }

    fn canonical_request(&self, form: &mut Form<'_>, me: CobRef, r: &Request, now: Time) {
        let pair = self.pair(form, r.asker, me);
        form.number(pair, r.number);
        form.revision(pair, r.number, r.rev);
        self.canonical_set(form, &r.set);
        form.rank(r.rank);
        form.cob(self.names.cob_id(r.origin));
        form.some_state(r.granted.map(|s| self.names.state_name(s)));
        form.flags(&[
            r.recalled,
            r.lapsed,
            r.restored,
            r.refused,
            r.beyond,
            r.broken.is_some(),
            r.has_waited(now),
            r.failed,
        ]);
        form.fingerprint(r.fingerprint);
    }

    fn canonical_lock(&self, form: &mut Form<'_>, me: CobRef, l: &Lock) {
        let pair = self.pair(form, me, l.asked);
        form.number(pair, l.number);
        form.revision(pair, l.number, l.rev);
        form.revision(pair, l.number, l.rev_known);
        self.canonical_set(form, &l.set);
        form.rank(l.rank);
        form.cob(self.names.cob_id(l.origin));
        form.some_state(l.held.map(|s| self.names.state_name(s)));
        form.flags(&[
            l.recalled,
            l.confirmed,
            l.needed,
            l.kept,
            l.unsent,
            l.sent_leaving,
            l.sent_failed,
            l.refused().is_some(),
        ]);
        form.fingerprint(l.fingerprint);
    }

    /// A content that is not the active generation's, or not yet.
    fn canonical_spec(&self, form: &mut Form<'_>, spec: &Spec) {
        form.fingerprint(Some(spec.fingerprint));
        form.state(self.names.state_name(spec.kind.id(spec.preferred)));
        form.flags(&[spec.keep, spec.observe]);
        for (at, state) in spec.kind.states.iter().enumerate() {
            form.state(self.names.state_name(*state));
            self.canonical_needs(form, spec.lock_needs(StateIx(at as u16)));
        }
        for at in 0..spec.kind.transitions.len() {
            self.canonical_needs(form, spec.transition_needs(at as u16));
        }
    }

    fn canonical_needs(&self, form: &mut Form<'_>, needs: &[NeedSpec]) {
        form.word(needs.len() as u64);
        let mut needs: Vec<_> = needs.iter().collect();
        needs.sort_by(|a, b| self.names.cmp(a.cob, b.cob));
        for need in needs {
            form.cob(self.names.cob_id(need.cob));
            self.canonical_set(form, &need.set);
        }
    }

    /// The switch of this host, and the questions of other hosts about it.
    fn canonical_switch(&self, form: &mut Form<'_>) {
        form.word(self.departures.epoch());
        form.word(self.departures.highest().0);
        form.word(self.pending_generation().map_or(u64::MAX, |g| g.0));
        let ids = |cobs: &BTreeSet<CobRef>| -> Vec<&CobId> { cobs.iter().map(|c| self.names.cob_id(*c)).collect() };
        if let Some(pending) = &self.departures.pending {
            for cobs in [&pending.departing, pending.open(), pending.announced(), pending.declared()] {
                form.cobs(ids(cobs).into_iter());
            }
            let before = |cob: &CobRef| (self.names.cob_id(*cob), pending.before(*cob).collect::<BTreeSet<_>>());
            let mut before: Vec<_> = pending.departing.iter().map(before).filter(|(_, b)| !b.is_empty()).collect();
            before.sort_by_key(|(cob, _)| *cob);
            form.word(before.len() as u64);
            for (cob, before) in before {
                form.cob(cob);
                form.cobs(ids(&before).into_iter());
            }
            let questions = pending.questions().map(|(host, cobs, _)| (self.names.host_name(host), cobs));
            let mut questions: Vec<_> = questions.collect();
            questions.sort_by_key(|q| q.0);
            form.word(questions.len() as u64);
            for (host, cobs) in questions {
                form.host(host);
                form.cobs(ids(cobs).into_iter());
            }
        }
        let mut owed: Vec<_> = self.departures.owed().map(|(h, o)| (self.names.host_name(h), o)).collect();
        owed.sort_by_key(|o| o.0);
        form.word(owed.len() as u64);
        for (host, owed) in owed {
            form.host(host);
            form.word(owed.from.0 << 32 | owed.to.0);
            form.cobs(owed.cobs.iter());
        }
    }

    /// The departed and missing change objects of this host.
    fn canonical_absent(&self, form: &mut Form<'_>, now: Time) {
        let mut exits: Vec<_> = self.absent.exit_states().map(|(cob, exit)| (self.names.cob_id(cob), exit)).collect();
        exits.sort_unstable_by_key(|e| e.0);
        form.word(exits.len() as u64);
        for (cob, exit) in exits {
            form.cob(cob);
            form.state(self.names.state_name(exit.state));
            form.some_state(exit.kept_from.map(|state| self.names.state_name(state)));
        }
        let mut grants: Vec<(CobRef, &Request)> = self.absent.grants().collect();
        grants.sort_by(|a, b| self.names.cmp(a.0, b.0).then_with(|| self.names.cmp(a.1.asker, b.1.asker)));
        form.word(grants.len() as u64);
        for (cob, request) in grants {
            self.canonical_request(form, cob, request, now);
        }
        let mut releases: Vec<_> = self.absent.releases().collect();
        releases.sort_by(|a, b| self.names.cmp(a.0, b.0).then_with(|| self.names.cmp(a.1, b.1)));
        form.word(releases.len() as u64);
        for (cob, asked, number) in releases {
            let pair = self.pair(form, cob, asked);
            form.number(pair, number);
        }
        form.flags(&[self.absent.repeats()]);
        let mut early: Vec<_> = self.absent.all_early().collect();
        early.sort_by(|a, b| self.names.cmp(a.to, b.to).then_with(|| self.names.cmp(a.from, b.from)));
        form.word(early.len() as u64);
        for mail in early {
            if let Some(asked) = mail.request() {
                form.flags(&[asked.failed]);
                let pair = self.pair(form, mail.from, mail.to);
                form.number(pair, asked.number);
                form.revision(pair, asked.number, asked.rev);
                self.canonical_set(form, &asked.set);
                form.rank(asked.rank);
                form.cob(self.names.cob_id(asked.origin));
                form.fingerprint(asked.fingerprint);
            }
        }
    }

    fn canonical_memory(
        &self,
        form: &mut Form<'_>,
        memory: &[(CobRef, Number)],
        pair: impl Fn(&Form<'_>, CobRef) -> Pair,
    ) {
        let mut memory = memory.to_vec();
        memory.sort_by(|a, b| self.names.cmp(a.0, b.0));
        form.word(memory.len() as u64);
        for (other, number) in memory {
            let pair = pair(form, other);
            form.number(pair, number);
        }
    }

    fn canonical_set(&self, form: &mut Form<'_>, set: &[StateId]) {
        form.word(set.len() as u64);
        for state in set {
            form.state(self.names.state_name(*state));
        }
    }

    fn canonical_probe(&self, form: &mut Form<'_>, o: &Object, now: Time) {
        match o.probe.awaited() {
            Some((number, home)) => form.awaited(self.names.cob_id(o.me), number, home),
            None => form.word(0),
        }
        form.flags(&o.probe.turns());
        for (at, cob) in form.all().iter().enumerate() {
            match self.names.find_cob(cob).and_then(|c| o.probe.seen_of(c, now)) {
                Some(number) => form.seen(at, number),
                None => form.word(0),
            }
        }
    }
}
