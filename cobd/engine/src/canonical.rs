//! A form of everything that decides what an engine will do, for the exhaustive explorer.
//!
//! Two states of a cluster that go on alike have the same form. To that end numbers are renamed, for
//! each pair in their order (only "higher" and "the same" is ever asked of them), small names are
//! replaced by places in a list that all share, and times are left out but for whether something is
//! due: the explorer lets time pass only when nothing else can happen.

use std::collections::HashMap;

use cob_types::message::{About, Finals, Grant};
use cob_types::{Batch, CobId, HostName, Item, Number, Rank, StateName};

use crate::engine::Engine;
use crate::names::{CobRef, StateId};
use crate::object::{Activity, Lock, Object, Request};
use crate::peers::Peer;
use crate::record::{Durable, DurableCob, HeldLock};
use crate::time::Time;

/// The list that small names are replaced by. Looked up, never iterated.
#[derive(Debug, Clone, Default)]
pub struct Places {
    cob_places: HashMap<CobId, u64>,
    state_places: HashMap<StateName, u64>,
    /// In the order of their places.
    all: Vec<CobId>,
}

impl Places {
    /// Adds a change object with its states.
    pub fn add<'a>(&mut self, cob: &CobId, states: impl Iterator<Item = &'a StateName>) {
        if self.cob_places.insert(cob.clone(), self.all.len() as u64).is_none() {
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

/// A dependent and the change object that it depends on, by place.
type Pair = (u64, u64);

#[derive(Debug, Clone, Copy)]
enum Token {
    Word(u64),
    /// A number of a pair.
    Number(Pair, Number),
    /// A revision of a number of a pair.
    Revision(Pair, Number, u64),
    /// A probe that is on its way.
    Probe(u64, Number),
    /// The highest probe of an initiator that somebody has seen: of interest are those on their way.
    Seen(u64, Number),
    /// The probe that its initiator waits for, and whether it has come home.
    Awaited(u64, Number, bool),
}

/// A form as it is put together.
#[derive(Debug)]
pub struct Form<'a> {
    places: &'a Places,
    tokens: Vec<Token>,
    /// Where parts begin whose order means nothing.
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

    /// Adds the place of a state.
    pub fn state(&mut self, state: &StateName) {
        self.word(self.places.state(state));
    }

    /// Adds batches that are on their way; in any order, if their order means nothing.
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

    /// The form in words: equal for states that go on alike.
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
        self.word(u64::from(rank.phase) << 32 | rank.generation.0.min(u64::from(u32::MAX)));
        self.word(rank.rank);
    }

    fn flags(&mut self, flags: &[bool]) {
        self.word(flags.iter().fold(0, |word, flag| word << 1 | u64::from(*flag)));
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
                self.word(self.places.cob(&r.origin));
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
                self.word(self.places.cob(&p.to));
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
            // Between daemons alone: no engine sends them.
            Item::Going(going) => self.word(12 | going.generation.0 << 8),
            Item::Withdrawn(withdrawn) => self.word(13 | withdrawn.generation.0 << 8),
        }
    }

    fn finals(&mut self, code: u64, finals: &Finals) {
        self.word(code | (finals.cobs.len() as u64) << 8);
        self.word(finals.from.0 << 32 | finals.to.0 << 16 | finals.turn);
        finals.cobs.iter().for_each(|c| self.word(self.places.cob(c)));
    }

    fn coded(&mut self, code: u64, about: &About) {
        self.word(code);
        self.about(about);
    }
}

/// All numbers that occur, in their order.
struct Renamed {
    numbers: Vec<(Pair, Number)>,
    revisions: Vec<(Pair, Number, u64)>,
    /// Probes on their way.
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
                // Of the start only its order is asked, but hellos ask it across pairs.
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

    /// How many probes of this initiator are on their way, up to and with this number.
    fn probes_up_to(&self, initiator: u64, number: Number) -> u64 {
        let first = self.probes.partition_point(|p| p.0 < initiator);
        (self.probes.partition_point(|p| *p <= (initiator, number)) - first) as u64
    }
}

impl Engine {
    /// Adds everything that decides what this engine will do.
    pub fn canonical(&self, form: &mut Form<'_>, now: Time) {
        form.word(u64::from(self.life.start));
        form.word(self.generation().0);
        let places = form.places;
        for cob in &places.all {
            if let Some(object) = self.names.find_cob(cob).and_then(|r| self.object(r)) {
                self.canonical_object(form, object, now);
            }
        }
        for (host, peer) in self.canonical_peers() {
            form.word(host.as_str().bytes().fold(0, |h, b| h << 8 | u64::from(b)));
            form.word(peer.life.map_or(0, |l| u64::from(l.start)));
            form.flags(&[peer.is_acked(), peer.is_greeted()]);
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
        form.word(match o.activity {
            Activity::Idle => 0,
            Activity::Checking { .. } => 1,
            Activity::Acting { transition, .. } => 2 + u64::from(transition),
        });
        let due = |at: Time| [at <= now, at == Time::NEVER];
        let [check_due, check_never] = due(o.check_at);
        let resting = o.resting_until(now).is_some();
        form.flags(&[o.failed, o.ordered, o.suspect, check_due, check_never, o.retry_at > now, resting]);
        form.word(u64::from(o.failures));
        let mut requests: Vec<&Request> = o.requests.iter().collect();
        requests.sort_by(|a, b| self.names.cmp(a.asker, b.asker));
        form.word(requests.len() as u64);
        requests.into_iter().for_each(|r| self.canonical_request(form, o.me, r));
        let mut locks: Vec<&Lock> = o.locks.iter().collect();
        locks.sort_by(|a, b| self.names.cmp(a.asked, b.asked));
        form.word(locks.len() as u64);
        locks.into_iter().for_each(|l| self.canonical_lock(form, o.me, l));
        self.canonical_memory(form, &o.given_back, |form, other| self.pair(form, o.me, other));
        self.canonical_memory(form, &o.returned, |form, other| self.pair(form, other, o.me));
        self.canonical_probe(form, o);
    }

    fn canonical_request(&self, form: &mut Form<'_>, me: CobRef, r: &Request) {
        let pair = self.pair(form, r.asker, me);
        form.tokens.push(Token::Number(pair, r.number));
        form.tokens.push(Token::Revision(pair, r.number, r.rev));
        self.canonical_set(form, &r.set);
        form.rank(r.rank);
        form.word(form.places.cob(self.names.cob_id(r.origin)));
        form.word(r.granted.map_or(u64::MAX, |s| form.places.state(self.names.state_name(s))));
        form.flags(&[r.recalled, r.lapsed, r.restored, r.refused, r.broken.is_some()]);
    }

    fn canonical_lock(&self, form: &mut Form<'_>, me: CobRef, l: &Lock) {
        let pair = self.pair(form, me, l.asked);
        form.tokens.push(Token::Number(pair, l.number));
        form.tokens.push(Token::Revision(pair, l.number, l.rev));
        form.tokens.push(Token::Revision(pair, l.number, l.rev_known));
        self.canonical_set(form, &l.set);
        form.rank(l.rank);
        form.word(form.places.cob(self.names.cob_id(l.origin)));
        form.word(l.held.map_or(u64::MAX, |s| form.places.state(self.names.state_name(s))));
        form.flags(&[l.recalled, l.confirmed, l.needed, l.kept, l.untold, l.told_leaving, l.refused.is_some()]);
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
            form.word(form.places.state(self.names.state_name(*state)));
        }
    }

    fn canonical_probe(&self, form: &mut Form<'_>, o: &Object) {
        let me = form.places.cob(self.names.cob_id(o.me));
        match o.probe.awaited() {
            Some((number, home)) => form.tokens.push(Token::Awaited(me, number, home)),
            None => form.word(0),
        }
        let places = form.places;
        for (at, cob) in places.all.iter().enumerate() {
            match self.names.find_cob(cob).and_then(|c| o.probe.seen_of(c)) {
                Some(number) => form.tokens.push(Token::Seen(at as u64, number)),
                None => form.word(0),
            }
        }
    }
}

impl Durable {
    /// Adds what a return would find.
    pub fn canonical(&self, form: &mut Form<'_>) {
        form.word(self.active.0);
        form.word(self.going_to.map_or(u64::MAX, |g| g.0));
        let places = form.places;
        for id in &places.all {
            if let Some(cob) = self.cobs.get(id) {
                canonical_durable_cob(form, id, cob);
            }
        }
    }
}

fn canonical_durable_cob(form: &mut Form<'_>, id: &CobId, cob: &DurableCob) {
    form.word(cob.state.as_ref().map_or(u64::MAX, |s| form.places.state(s)));
    form.flags(&[cob.failed]);
    form.word(u64::from(cob.failures));
    if let Some(action) = &cob.action {
        form.state(&action.to);
        canonical_held(form, id, &action.locks);
    }
    form.word(cob.grants.len() as u64);
    for (asker, grant) in &cob.grants {
        let pair = form.pair(asker, id);
        form.tokens.push(Token::Number(pair, grant.number));
        form.set(&grant.set);
        form.state(&grant.state);
        form.rank(grant.rank);
        form.word(form.places.cob(&grant.origin));
        canonical_held(form, id, &grant.rests_on);
    }
}

fn canonical_held(form: &mut Form<'_>, asker: &CobId, locks: &[HeldLock]) {
    form.word(locks.len() as u64);
    for lock in locks {
        let pair = form.pair(asker, &lock.cob);
        form.tokens.push(Token::Number(pair, lock.number));
        form.state(&lock.state);
    }
}
