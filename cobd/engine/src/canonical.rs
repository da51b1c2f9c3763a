//! A canonical form of all data that decides the engine's behaviour, for the exhaustive explorer.
//!
//! Two states of a cluster with the same future have the same form. For this, numbers are renamed in their order within
//! each pair (the engine only compares them), interned names are replaced by indices in a shared list, and times are
//! reduced to whether a deadline is due: the explorer lets time pass only when no other step is possible.

use std::collections::{BTreeSet, HashMap};

use cob_types::cob::Fingerprint;
use cob_types::message::{About, DepartureReport, Grant};
use cob_types::{Batch, CobId, HostName, Item, Number, Rank, StateName};

use crate::engine::Engine;
use crate::names::{CobRef, StateId};
use crate::object::{Activity, Lock, Object, Request, has_waited_since};
use crate::peers::Peer;
use crate::record::{Durable, DurableCob, HeldLock};
use crate::spec::{NeedSpec, Spec, StateIx};
use crate::time::Time;

/// The list whose indices replace interned names. Looked up, never iterated.
#[derive(Debug, Clone, Default)]
pub struct Places {
    cob_places: HashMap<CobId, u64>,
    state_places: HashMap<StateName, u64>,
    /// In the order of their indices.
    all: Vec<CobId>,
}

impl Places {
    /// Adds a change object with its states, unless it is there.
    pub fn add<'a>(&mut self, cob: &CobId, states: impl Iterator<Item = &'a StateName>) {
        if !self.cob_places.contains_key(cob) {
            self.cob_places.insert(cob.clone(), self.all.len() as u64);
            self.all.push(cob.clone());
        }
        for state in states {
            let place = self.state_places.len() as u64;
            self.state_places.entry(state.clone()).or_insert(place);
        }
    }

    fn cob(&self, cob: &CobId) -> u64 {
        self.cob_places.get(cob).copied().unwrap_or(u64::MAX)
    }

    fn state(&self, state: &StateName) -> u64 {
        self.state_places.get(state).copied().unwrap_or(u64::MAX)
    }
}

/// A dependent and the change object that it depends on, by index.
type Pair = (u64, u64);

#[derive(Debug, Clone, Copy)]
enum Token {
    Word(u64),
    /// A number of a pair.
    Number(Pair, Number),
    /// A revision of a number of a pair.
    Revision(Pair, Number, u64),
    /// A probe under way.
    Probe(u64, Number),
    /// The highest probe of an initiator that a change object has seen: only probes under way matter.
    Seen(u64, Number),
    /// The probe that its initiator waits for, and whether it has returned.
    Awaited(u64, Number, bool),
}

/// A form under construction.
#[derive(Debug)]
pub struct Form<'a> {
    places: &'a Places,
    tokens: Vec<Token>,
    /// The ranges of parts whose order does not matter.
    unordered: Vec<(usize, usize)>,
}

impl<'a> Form<'a> {
    /// An empty form.
    #[must_use]
    pub fn new(places: &'a Places) -> Self {
        Self { places, tokens: Vec::new(), unordered: Vec::new() }
    }

    /// Adds a plain value.
    pub fn word(&mut self, word: u64) {
        self.tokens.push(Token::Word(word));
    }

    /// Adds the index of a state.
    pub fn state(&mut self, state: &StateName) {
        self.word(self.places.state(state));
    }

    /// Adds the index of a state, if there is a state.
    pub fn some_state(&mut self, state: Option<&StateName>) {
        self.word(state.map_or(u64::MAX, |s| self.places.state(s)));
    }

    /// Adds the index of a change object.
    pub fn cob(&mut self, cob: &CobId) {
        self.word(self.places.cob(cob));
    }

    /// Adds a content, if there is a content.
    pub fn fingerprint(&mut self, content: Option<Fingerprint>) {
        let Fingerprint(bytes) = content.unwrap_or(Fingerprint([0; 16]));
        let word = bytes.iter().fold(u64::from(content.is_some()), |word, byte| {
            (word ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        self.word(word);
    }

    /// Adds up to 64 flags.
    pub fn flags(&mut self, flags: &[bool]) {
        self.word(flags.iter().fold(0, |word, flag| word << 1 | u64::from(*flag)));
    }

    fn host(&mut self, host: &HostName) {
        self.word(host.as_str().bytes().fold(0, |h, b| h << 8 | u64::from(b)));
    }

    /// Adds change objects whose order does not matter.
    fn cobs<'b>(&mut self, cobs: impl Iterator<Item = &'b CobId>) {
        let mut all: Vec<u64> = cobs.map(|c| self.places.cob(c)).collect();
        all.sort_unstable();
        self.word(all.len() as u64);
        all.into_iter().for_each(|place| self.word(place));
    }

    /// Adds batches under way; sorted, if their order does not matter.
    pub fn batches<'b>(&mut self, batches: impl Iterator<Item = &'b Batch>, in_order: bool) {
        for batch in batches {
            let begin = self.tokens.len();
            self.word(u64::from(batch.incarnation.start));
            batch.items.iter().for_each(|item| self.item(item));
            if !in_order {
                self.unordered.push((begin, self.tokens.len()));
            }
        }
        self.word(u64::MAX);
    }

    /// The form in words: equal for states with the same future.
    #[must_use]
    pub fn finish(&self) -> Vec<u64> {
        let renamed = Renamed::of(&self.tokens);
        let words = |tokens: &[Token]| {
            let mut words = Vec::with_capacity(tokens.len() * 2);
            tokens.iter().for_each(|t| renamed.write(*t, &mut words));
            words
        };
        let mut result = Vec::with_capacity(self.tokens.len() * 2);
        let mut at = 0;
        let mut parts: Vec<Vec<u64>> = Vec::new();
        for (begin, end) in &self.unordered {
            if at != *begin {
                parts.sort_unstable();
                result.extend(parts.drain(..).flatten());
                result.extend(words(&self.tokens[at..*begin]));
            }
            parts.push(words(&self.tokens[*begin..*end]));
            at = *end;
        }
        parts.sort_unstable();
        result.extend(parts.into_iter().flatten());
        result.extend(words(&self.tokens[at..]));
        result
    }

    fn pair(&self, asker: &CobId, asked: &CobId) -> Pair {
        (self.places.cob(asker), self.places.cob(asked))
    }

    fn set(&mut self, set: &[StateName]) {
        self.word(set.len() as u64);
        set.iter().for_each(|s| self.state(s));
    }

    fn rank(&mut self, rank: Rank) {
        self.word(u64::from(u8::from(rank.phase)) << 32 | rank.generation.0.min(u64::from(u32::MAX)));
        self.word(rank.rank);
    }

    fn about(&mut self, about: &About) {
        let pair = self.pair(&about.asker, &about.asked);
        self.tokens.push(Token::Number(pair, about.number));
    }

    fn grant(&mut self, grant: &Grant) {
        let pair = self.pair(&grant.asker, &grant.asked);
        self.tokens.push(Token::Number(pair, grant.number));
        self.tokens.push(Token::Revision(pair, grant.number, grant.rev));
        self.state(&grant.state);
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Request(r) => {
                self.word(1);
                let pair = self.pair(&r.asker, &r.asked);
                self.tokens.push(Token::Number(pair, r.number));
                self.tokens.push(Token::Revision(pair, r.number, r.rev));
                self.set(&r.set);
                self.rank(r.rank);
                self.cob(&r.origin);
                self.fingerprint(r.fingerprint);
            }
            Item::Grant(g) => {
                self.word(2);
                self.grant(g);
            }
            Item::Release(a) => self.coded(3, a),
            Item::Released(a) => self.coded(4, a),
            Item::Recall(a) => self.coded(5, a),
            Item::Query(a) => self.coded(6, a),
            Item::Lapsed(a) => self.coded(7, a),
            Item::Refused(r) => self.coded(8, &r.about),
            Item::Probe(p) => {
                self.word(9);
                self.cob(&p.to);
                self.tokens.push(Token::Probe(self.places.cob(&p.initiator), p.number));
                self.flags(&[p.wide]);
            }
            Item::Hello(h) => {
                self.word(10 | (h.kept.len() as u64) << 8);
                h.kept.iter().for_each(|a| self.about(a));
            }
            Item::AskFinal(f) => self.finals(12, f),
            Item::Final(f) => self.finals(13, f),
            Item::HelloAck(a) => {
                self.word(11 | (a.granted.len() as u64) << 8);
                self.word(u64::from(a.incarnation.start));
                a.granted.iter().for_each(|g| self.grant(g));
            }
            // Only between daemons: no engine sends them.
            Item::Going(going) => self.word(12 | going.generation.0 << 8),
            Item::Withdrawn(withdrawn) => self.word(13 | withdrawn.generation.0 << 8),
            Item::Through(generation) => self.word(14 | generation.0 << 8),
        }
    }

    fn finals(&mut self, code: u64, finals: &DepartureReport) {
        self.word(code | (finals.cobs.len() as u64) << 8);
        self.word(finals.from.0 << 32 | finals.to.0 << 16 | finals.turn);
        finals.cobs.iter().for_each(|c| self.cob(c));
    }

    fn coded(&mut self, code: u64, about: &About) {
        self.word(code);
        self.about(about);
    }
}

/// All occurring numbers, in their order.
struct Renamed {
    numbers: Vec<(Pair, Number)>,
    revisions: Vec<(Pair, Number, u64)>,
    /// Probes under way.
    probes: Vec<(u64, Number)>,
}

impl Renamed {
    fn of(tokens: &[Token]) -> Self {
        let mut all = Self { numbers: Vec::new(), revisions: Vec::new(), probes: Vec::new() };
        for token in tokens {
            match *token {
                Token::Number(pair, number) => all.numbers.push((pair, number)),
                Token::Revision(pair, number, rev) => all.revisions.push((pair, number, rev)),
                Token::Probe(initiator, number) => all.probes.push((initiator, number)),
                Token::Word(_) | Token::Seen(..) | Token::Awaited(..) => {}
            }
        }
        all.numbers.sort_unstable();
        all.numbers.dedup();
        all.revisions.sort_unstable();
        all.revisions.dedup();
        all.probes.sort_unstable();
        all.probes.dedup();
        all
    }

    fn write(&self, token: Token, words: &mut Vec<u64>) {
        match token {
            Token::Word(word) => words.push(word),
            Token::Number(pair, number) => {
                let first = self.numbers.partition_point(|n| n.0 < pair);
                let at = self.numbers.partition_point(|n| *n < (pair, number));
                // Only the order of the start matters, but hellos compare it across pairs.
                words.push((pair.0 << 16 | pair.1) << 32 | u64::from(number.start) << 16 | (at - first) as u64);
            }
            Token::Revision(pair, number, rev) => {
                let first = self.revisions.partition_point(|r| (r.0, r.1) < (pair, number));
                let at = self.revisions.partition_point(|r| *r < (pair, number, rev));
                words.push((at - first) as u64);
            }
            Token::Probe(initiator, number) => {
                words.push(initiator << 32 | self.probes_up_to(initiator, number));
            }
            Token::Seen(initiator, number) => words.push(self.probes_up_to(initiator, number)),
            Token::Awaited(initiator, number, home) => {
                let under_way = self.probes.binary_search(&(initiator, number)).is_ok();
                let at = if under_way { self.probes_up_to(initiator, number) } else { 0 };
                words.push(at << 1 | u64::from(under_way && home));
            }
        }
    }

    /// The number of probes of this initiator under way, up to and including this number.
    fn probes_up_to(&self, initiator: u64, number: Number) -> u64 {
        let first = self.probes.partition_point(|p| p.0 < initiator);
        (self.probes.partition_point(|p| *p <= (initiator, number)) - first) as u64
    }
}

impl Engine {
    /// Adds all data that decides the behaviour of this engine.
    pub fn canonical(&self, form: &mut Form<'_>, now: Time) {
        form.word(u64::from(self.life.start));
        form.word(self.generation().0);
        self.canonical_switch(form);
        self.canonical_left(form, now);
        let places = form.places;
        // Messages of a tick are sent in this order.
        let mut mentioned: Vec<_> = places.all.iter().map(|cob| (self.names.find_cob(cob), places.cob(cob))).collect();
        mentioned.sort_unstable();
        mentioned.into_iter().for_each(|(_, place)| form.word(place));
        for slot in &self.slots {
            form.word(slot.as_ref().map_or(u64::MAX, |o| places.cob(self.names.cob_id(o.me))));
        }
        self.free.iter().for_each(|slot| form.word(u64::from(*slot)));
        for cob in &places.all {
            if let Some(object) = self.names.find_cob(cob).and_then(|r| self.object(r)) {
                self.canonical_object(form, object, now);
            }
        }
        for (host, peer) in self.canonical_peers() {
            form.host(host);
            form.word(peer.life.map_or(0, |l| u64::from(l.start)));
            form.flags(&[peer.is_acked(), peer.is_greeted()]);
            // Only change objects with a lock or request between them and that host matter in these lists.
            let away = |cob: CobRef| self.names.host_name(self.names.host_of(cob)) == host;
            let asks = |o: &&Object| o.locks.iter().any(|l| away(l.asked));
            let is_asked = |o: &&Object| o.requests.iter().any(|r| away(r.asker));
            let listed =
                |list: &BTreeSet<CobRef>| -> Vec<&Object> { list.iter().filter_map(|c| self.object(*c)).collect() };
            form.cobs(listed(&peer.dependents).into_iter().filter(asks).map(|o| self.names.cob_id(o.me)));
            form.cobs(listed(&peer.asked).into_iter().filter(is_asked).map(|o| self.names.cob_id(o.me)));
            let mut restored: Vec<_> = peer.restored.clone();
            restored.sort_by(|a, b| self.names.cmp(a.0, b.0).then_with(|| self.names.cmp(a.1, b.1)));
            for (asker, asked, number) in restored {
                form.tokens.push(Token::Number(self.pair(form, asker, asked), number));
            }
        }
    }

    fn canonical_peers(&self) -> Vec<(&HostName, &Peer)> {
        let met = |p: &(&HostName, &Peer)| p.1.life.is_some() || p.1.is_acked() || p.1.is_greeted();
        let mut all: Vec<_> = self.known_peers().filter(met).collect();
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
        let resting = o.resting_until(now).is_some();
        let suspect = action.is_some_and(|action| action.suspect);
        form.flags(&[o.failed, o.ordered, suspect, check_due, check_never, o.troubles.retry_at > now, resting]);
        let (lifecycle, outlived) = (o.lifecycle, action.is_some_and(|action| action.outlived));
        form.flags(&[lifecycle.is_departing(), lifecycle.is_departed(), lifecycle.is_held_back()]);
        form.flags(&[lifecycle.is_declared(), outlived, o.seen_ahead]);
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
        form.tokens.push(Token::Number(pair, r.number));
        form.tokens.push(Token::Revision(pair, r.number, r.rev));
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
        form.tokens.push(Token::Number(pair, l.number));
        form.tokens.push(Token::Revision(pair, l.number, l.rev));
        form.tokens.push(Token::Revision(pair, l.number, l.rev_known));
        self.canonical_set(form, &l.set);
        form.rank(l.rank);
        form.cob(self.names.cob_id(l.origin));
        form.some_state(l.held.map(|s| self.names.state_name(s)));
        form.flags(&[
            l.recalled,
            l.confirmed,
            l.needed,
            l.kept,
            l.untold,
            l.told_leaving,
            l.told_failed,
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
            self.canonical_needs(form, spec.hop_needs(at as u16));
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
        form.word(self.turn);
        form.word(self.highest.0);
        form.word(self.going_to().map_or(u64::MAX, |g| g.0));
        let ids = |cobs: &BTreeSet<CobRef>| -> Vec<&CobId> { cobs.iter().map(|c| self.names.cob_id(*c)).collect() };
        if let Some(going) = &self.going {
            for cobs in [&going.leaving, &going.open, &going.told, &going.declared] {
                form.cobs(ids(cobs).into_iter());
            }
            let before = going.before.iter().filter(|(_, before)| !before.is_empty());
            let mut before: Vec<_> = before.collect();
            before.sort_by(|a, b| self.names.cmp(*a.0, *b.0));
            form.word(before.len() as u64);
            for (cob, before) in before {
                form.cob(self.names.cob_id(*cob));
                form.cobs(ids(before).into_iter());
            }
            let mut questions: Vec<_> = going.questions.iter().map(|(h, q)| (self.names.host_name(*h), q)).collect();
            questions.sort_by_key(|q| q.0);
            form.word(questions.len() as u64);
            for (host, question) in questions {
                form.host(host);
                form.cobs(ids(&question.cobs).into_iter());
            }
        }
        let mut owed: Vec<_> = self.owed.iter().map(|(h, o)| (self.names.host_name(*h), o)).collect();
        owed.sort_by_key(|o| o.0);
        form.word(owed.len() as u64);
        for (host, owed) in owed {
            form.host(host);
            form.word(owed.from.0 << 32 | owed.to.0);
            form.cobs(owed.cobs.iter());
        }
    }

    /// The departed and missing change objects of this host.
    fn canonical_left(&self, form: &mut Form<'_>, now: Time) {
        for states in [&self.gone, &self.kept_from] {
            let mut states: Vec<_> = states.iter().map(|(cob, state)| (self.names.cob_id(*cob), *state)).collect();
            states.sort_unstable_by_key(|s| s.0);
            form.word(states.len() as u64);
            for (cob, state) in states {
                form.cob(cob);
                form.state(self.names.state_name(state));
            }
        }
        let mut promised: Vec<(CobRef, &Request)> = self.left.iter().collect();
        promised.sort_by(|a, b| self.names.cmp(a.0, b.0).then_with(|| self.names.cmp(a.1.asker, b.1.asker)));
        form.word(promised.len() as u64);
        for (cob, request) in promised {
            self.canonical_request(form, cob, request, now);
        }
        let mut given_back: Vec<_> = self.left.given_back().collect();
        given_back.sort_by(|a, b| self.names.cmp(a.0, b.0).then_with(|| self.names.cmp(a.1, b.1)));
        form.word(given_back.len() as u64);
        for (cob, asked, number) in given_back {
            form.tokens.push(Token::Number(self.pair(form, cob, asked), number));
        }
        form.flags(&[self.left.repeats()]);
        let mut early: Vec<_> = self.early.values().collect();
        early.sort_by(|a, b| self.names.cmp(a.to, b.to).then_with(|| self.names.cmp(a.from, b.from)));
        form.word(early.len() as u64);
        for mail in early {
            if let Some(asked) = mail.request() {
                form.flags(&[asked.failed]);
                let pair = self.pair(form, mail.from, mail.to);
                form.tokens.push(Token::Number(pair, asked.number));
                form.tokens.push(Token::Revision(pair, asked.number, asked.rev));
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
            form.tokens.push(Token::Number(pair(form, other), number));
        }
    }

    fn canonical_set(&self, form: &mut Form<'_>, set: &[StateId]) {
        form.word(set.len() as u64);
        for state in set {
            form.state(self.names.state_name(*state));
        }
    }

    fn canonical_probe(&self, form: &mut Form<'_>, o: &Object, now: Time) {
        let me = form.places.cob(self.names.cob_id(o.me));
        match o.probe.awaited() {
            Some((number, home)) => form.tokens.push(Token::Awaited(me, number, home)),
            None => form.word(0),
        }
        form.flags(&o.probe.turns());
        let places = form.places;
        for (at, cob) in places.all.iter().enumerate() {
            match self.names.find_cob(cob).and_then(|c| o.probe.seen_of(c, now)) {
                Some(number) => form.tokens.push(Token::Seen(at as u64, number)),
                None => form.word(0),
            }
        }
    }
}

impl Durable {
    /// Adds the data that a restart at this moment would find.
    pub(crate) fn canonical(&self, form: &mut Form<'_>, now: Time) {
        form.word(self.active.0);
        form.word(self.going_to.map_or(u64::MAX, |g| g.0));
        form.word(self.turn);
        form.word(self.highest.0);
        for facts in [&self.finals, &self.told, &self.declared] {
            form.cobs(facts.iter());
        }
        for states in [&self.gone, &self.kept_from] {
            form.word(states.len() as u64);
            for (cob, state) in states {
                form.cob(cob);
                form.state(state);
            }
        }
        let places = form.places;
        for id in &places.all {
            if let Some(cob) = self.cobs.get(id) {
                canonical_durable_cob(form, id, cob, now);
            }
        }
    }
}

fn canonical_durable_cob(form: &mut Form<'_>, id: &CobId, cob: &DurableCob, now: Time) {
    form.cob(id);
    form.some_state(cob.state.as_ref());
    form.flags(&[cob.failed, cob.action.is_some()]);
    form.word(u64::from(cob.failures));
    form.fingerprint(cob.applied);
    form.fingerprint(cob.rests_on);
    if let Some(action) = &cob.action {
        form.state(&action.from);
        form.state(&action.to);
        form.word(action.generation.0);
        canonical_held(form, id, &action.locks);
    }
    form.word((cob.grants.len() as u64) << 32 | cob.lapsed.len() as u64);
    for (asker, kept) in cob.grants.iter().chain(cob.lapsed.iter()) {
        let grant = kept.get();
        let pair = form.pair(asker, id);
        form.tokens.push(Token::Number(pair, grant.number));
        form.set(&grant.set);
        form.state(&grant.state);
        form.rank(grant.rank);
        form.cob(&grant.origin);
        form.fingerprint(grant.fingerprint);
        form.flags(&[grant.failed, grant.at != Time(0) && has_waited_since(grant.at, now)]);
        canonical_held(form, id, &grant.rests_on);
    }
}

fn canonical_held(form: &mut Form<'_>, asker: &CobId, locks: &[HeldLock]) {
    form.word(locks.len() as u64);
    for lock in locks {
        let pair = form.pair(asker, &lock.cob);
        form.tokens.push(Token::Number(pair, lock.number));
        form.state(&lock.state);
        form.fingerprint(lock.fingerprint);
    }
}
