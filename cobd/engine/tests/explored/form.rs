//! A canonical form of all data that decides the engine's behaviour, for the exhaustive explorer.
//!
//! Two states of a cluster with the same future have the same form. For this, numbers are renamed in their order within
//! each pair (the engine only compares them), interned names are replaced by indices in a shared list, and times are
//! reduced to whether a deadline is due: the explorer lets time pass only when no other step is possible.

use std::collections::HashMap;

use cob_types::cob::Fingerprint;
use cob_types::message::{About, DepartureReport, Grant};
use cob_types::{Batch, CobId, HostName, Item, Number, Rank, StateName};

use crate::object::has_waited_since;
use crate::record::{Durable, DurableCob, LockRecord};
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
pub(crate) type Pair = (u64, u64);

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

    pub(crate) fn host(&mut self, host: &HostName) {
        self.word(host.as_str().bytes().fold(0, |h, b| h << 8 | u64::from(b)));
    }

    /// Adds change objects whose order does not matter.
    pub(crate) fn cobs<'b>(&mut self, cobs: impl Iterator<Item = &'b CobId>) {
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

    /// Adds a number of a pair.
    pub(crate) fn number(&mut self, pair: Pair, number: Number) {
        self.tokens.push(Token::Number(pair, number));
    }

    /// Adds a revision of a number of a pair.
    pub(crate) fn revision(&mut self, pair: Pair, number: Number, rev: u64) {
        self.tokens.push(Token::Revision(pair, number, rev));
    }

    /// Adds the probe that an initiator waits for, and whether it has returned.
    pub(crate) fn awaited(&mut self, initiator: &CobId, number: Number, returned: bool) {
        self.tokens.push(Token::Awaited(self.places.cob(initiator), number, returned));
    }

    /// Adds the highest probe of the initiator at an index that a change object has seen.
    pub(crate) fn seen(&mut self, initiator: usize, number: Number) {
        self.tokens.push(Token::Seen(initiator as u64, number));
    }

    /// All change objects, in the order of their indices.
    pub(crate) fn all(&self) -> &'a [CobId] {
        &self.places.all
    }

    /// The index of a change object.
    pub(crate) fn place(&self, cob: &CobId) -> u64 {
        self.places.cob(cob)
    }

    pub(crate) fn pair(&self, asker: &CobId, asked: &CobId) -> Pair {
        (self.places.cob(asker), self.places.cob(asked))
    }

    pub(crate) fn set(&mut self, set: &[StateName]) {
        self.word(set.len() as u64);
        set.iter().for_each(|s| self.state(s));
    }

    pub(crate) fn rank(&mut self, rank: Rank) {
        self.word(u64::from(u8::from(rank.phase)) << 32 | rank.generation.0.min(u64::from(u32::MAX)));
        self.word(rank.rank);
    }

    fn about(&mut self, about: &About) {
        let pair = self.pair(&about.asker, &about.asked);
        self.number(pair, about.number);
    }

    fn grant(&mut self, grant: &Grant) {
        let pair = self.pair(&grant.asker, &grant.asked);
        self.number(pair, grant.number);
        self.revision(pair, grant.number, grant.rev);
        self.state(&grant.state);
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Request(r) => {
                self.word(1);
                let pair = self.pair(&r.asker, &r.asked);
                self.number(pair, r.number);
                self.revision(pair, r.number, r.rev);
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
            Item::Invalidated(a) => self.coded(7, a),
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
            Item::AskDepartures(f) => self.report(12, f),
            Item::Departures(f) => self.report(13, f),
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

    fn report(&mut self, code: u64, finals: &DepartureReport) {
        self.word(code | (finals.cobs.len() as u64) << 8);
        self.word(finals.from.0 << 32 | finals.to.0 << 16 | finals.epoch);
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
            Token::Awaited(initiator, number, returned) => {
                let under_way = self.probes.binary_search(&(initiator, number)).is_ok();
                let at = if under_way { self.probes_up_to(initiator, number) } else { 0 };
                words.push(at << 1 | u64::from(under_way && returned));
            }
        }
    }

    /// The number of probes of this initiator under way, up to and including this number.
    fn probes_up_to(&self, initiator: u64, number: Number) -> u64 {
        let first = self.probes.partition_point(|p| p.0 < initiator);
        (self.probes.partition_point(|p| *p <= (initiator, number)) - first) as u64
    }
}

impl Durable {
    /// Adds the data that a restart at this moment would find.
    pub fn canonical(&self, form: &mut Form<'_>, now: Time) {
        form.word(self.active.0);
        form.word(self.pending.map_or(u64::MAX, |g| g.0));
        form.word(self.epoch);
        form.word(self.highest.0);
        for facts in [&self.departed, &self.announced, &self.declared] {
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
    form.word((cob.grants.len() as u64) << 32 | cob.invalidated.len() as u64);
    for (asker, kept) in cob.grants.iter().chain(cob.invalidated.iter()) {
        let grant = kept.get();
        let pair = form.pair(asker, id);
        form.number(pair, grant.number);
        form.set(&grant.set);
        form.state(&grant.state);
        form.rank(grant.rank);
        form.cob(&grant.origin);
        form.fingerprint(grant.fingerprint);
        form.flags(&[grant.failed, grant.at != Time(0) && has_waited_since(grant.at, now)]);
        canonical_held(form, id, &grant.rests_on);
    }
}

fn canonical_held(form: &mut Form<'_>, asker: &CobId, locks: &[LockRecord]) {
    form.word(locks.len() as u64);
    for lock in locks {
        let pair = form.pair(asker, &lock.cob);
        form.number(pair, lock.number);
        form.state(&lock.state);
        form.fingerprint(lock.fingerprint);
    }
}
