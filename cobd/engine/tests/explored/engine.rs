//! The canonical form of an engine: see [`crate::canonical`].

use std::collections::BTreeSet;

use cob_types::{CobId, HostName};

use crate::canonical::Form;
use crate::engine::Engine;
use crate::names::{CobRef, HostRef};
use crate::object::canonical::Canonical;
use crate::object::{Object, Request};
use crate::peers::Peer;
use crate::time::Time;

impl Engine {
    /// Adds all data that decides the behaviour of this engine.
    pub fn canonical(&self, form: &mut Form<'_>, now: Time) {
        form.word(u64::from(self.incarnation.start));
        form.word(self.generation().0);
        self.canonical_switch(form);
        let of = Canonical { names: &self.names, now };
        self.canonical_absent(form, &of);
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
                of.object(form, object);
            }
        }
        for (host, peer) in self.canonical_peers() {
            form.host(host);
            form.word(peer.incarnation().map_or(0, |l| u64::from(l.start)));
            form.flags(&[peer.is_acked(), peer.is_greeted()]);
            // Only change objects with a lock or request between them and that host matter in these lists.
            let away = |cob: CobRef| self.names.host_name(self.names.host_of(cob)) == host;
            let asks = |o: &&Object| o.locks().iter().any(|l| away(l.asked));
            let is_asked = |o: &&Object| o.requests().iter().any(|r| away(r.asker));
            let listed = |list: &BTreeSet<CobRef>| -> Vec<&Object> {
                list.iter().filter_map(|c| self.objects.get(*c)).collect()
            };
            form.cobs(listed(&peer.dependents).into_iter().filter(asks).map(|o| self.names.cob_id(o.me)));
            form.cobs(listed(&peer.asked).into_iter().filter(is_asked).map(|o| self.names.cob_id(o.me)));
            let mut restored: Vec<_> = peer.restored.clone();
            restored.sort_by(|a, b| self.names.cmp(a.0, b.0).then_with(|| self.names.cmp(a.1, b.1)));
            for (asker, asked, number) in restored {
                let pair = of.pair(form, asker, asked);
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

    /// The switch of this host, and the questions of other hosts about it.
    fn canonical_switch(&self, form: &mut Form<'_>) {
        form.word(self.departures.epoch);
        form.word(self.departures.highest.0);
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
    fn canonical_absent(&self, form: &mut Form<'_>, of: &Canonical<'_>) {
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
            of.request(form, cob, request);
        }
        let mut releases: Vec<_> = self.absent.releases().collect();
        releases.sort_by(|a, b| self.names.cmp(a.0, b.0).then_with(|| self.names.cmp(a.1, b.1)));
        form.word(releases.len() as u64);
        for (cob, asked, number) in releases {
            let pair = of.pair(form, cob, asked);
            form.number(pair, number);
        }
        form.flags(&[self.absent.repeats()]);
        let mut early: Vec<_> = self.absent.all_early().collect();
        early.sort_by(|a, b| self.names.cmp(a.to, b.to).then_with(|| self.names.cmp(a.from, b.from)));
        form.word(early.len() as u64);
        for mail in early {
            if let Some(asked) = mail.request() {
                form.flags(&[asked.failed]);
                let pair = of.pair(form, mail.from, mail.to);
                form.number(pair, asked.number);
                form.revision(pair, asked.number, asked.rev);
                of.set(form, &asked.set);
                form.rank(asked.rank);
                form.cob(self.names.cob_id(asked.origin));
                form.fingerprint(asked.fingerprint);
            }
        }
    }
}
