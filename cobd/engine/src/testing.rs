//! An engine on a test bench: the test plays the other hosts, writes messages as text, and gets all effects as text.
//!
//! ```text
//! h/b: 0 1, is 1, prefers 0, transition 0 1 <- d/d@1 e/e@0|1, lock 1 <- d/d@1, retries 2, budget d/b
//! h/b: open, prefers open, at most 1
//! ```
//! States in the order of their priority; transitions between each two, both ways; 0 is the pre-remove state. Messages:
//! `request a/a of h/b@1|2 #1.7 rev 2 rank 5 from c/c by 2`, `grant d/d@1 to h/b #1.4 rev 0`,
//! `release a/a of h/b #1.7` (as `released`, `recall`, `query`, `invalidated`), `hello a/a of h/b #1.7`,
//! `hello-ack 1 d/d@1 to h/b #1.4`, `probe of a/a to h/b #1.9 via a/a`, `ask-final 1 -> 2 turn 0: h/b` (as `final`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use cob_types::cob::Fingerprint;
use cob_types::kind::KindCheck;
use cob_types::message::{About, DepartureReport, Grant, Hello, HelloAck, Probe, RankPhase, Request, Values};
use cob_types::{
    Askers, Batch, Bundle, Cob, CobId, GenerationNumber, HostName, Incarnation, Item, Kind, KindName, LockNeeds, Need,
    Number, Packed, Rank, StateName, SwitchOrder, Transition, TransitionNeeds,
};

use crate::effect::{Effects, Run};
use crate::engine::Engine;
use crate::engine::RestartInput;
use crate::engine::invariants;
use crate::event::{ActionOutcome, CheckOutcome, Event};
use crate::record::{Body, Durable, LockRecord, Note};
use crate::time::{Span, Time};

/// The fingerprint of all contents, unless a test sets another.
pub(crate) const CONTENT: Fingerprint = Fingerprint([7; 16]);

/// The engine of host `h`, and the bench's knowledge of it.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) now: Time,
    bundle: Arc<Packed>,
    going: Option<Arc<Packed>>,
    order: Arc<SwitchOrder>,
    jobs: BTreeMap<CobId, Number>,
    pub(crate) durable: Durable,
    lives: BTreeMap<HostName, Incarnation>,
}

impl Bench {
    /// An engine whose change objects have been checked, and which has exchanged hellos with all hosts.
    pub(crate) fn new(cobs: &[&str]) -> Self {
        Self::of(bundle(cobs), cobs)
    }

    /// As [`new`](Self::new), with the bundle that has these change objects.
    pub(crate) fn of(bundle: Bundle, cobs: &[&str]) -> Self {
        let packed = Arc::new(Packed::decoded(&bundle));
        let life = Incarnation { id: 1, start: 1 };
        let host = bundle.host.clone();
        let mut bench = Self {
            engine: Engine::new(&host, life),
            now: Time(1_000_000_000),
            bundle: packed.clone(),
            going: None,
            order: free(1),
            jobs: BTreeMap::new(),
            durable: Durable::default(),
            lives: BTreeMap::new(),
        };
        bench.event(Event::Switch {
            rollback: false,
            generation: GenerationNumber(1),
            bundle: packed.clone(),
            in_process: Vec::new(),
            order: free(1),
        });
        let met: BTreeSet<String> = others(&bundle).into_iter().chain(["a".to_owned()]).collect();
        for host in met {
            bench.meet(&host);
        }
        for text in cobs {
            let (id, rest) = text.split_once(": ").expect("a change object");
            let is = rest.split(", ").find_map(|p| p.strip_prefix("is ")).unwrap_or("0");
            bench.found(id, is);
        }
        bench
    }

    /// Exchanges hellos with a host.
    pub(crate) fn meet(&mut self, host: &str) -> Vec<String> {
        let life = *self.lives.entry(name(host)).or_insert(Incarnation { id: 99, start: 1 });
        let ack = HelloAck { incarnation: self.engine.incarnation(), granted: Vec::new() };
        let items = vec![Item::Hello(Hello { kept: Vec::new() }), Item::HelloAck(ack)];
        self.event(Event::Received(Batch { from: name(host), incarnation: life, lamport: 0, under_way: None, items }))
    }

    /// The other host's daemon has restarted: its later messages are of its next incarnation.
    pub(crate) fn restarted(&mut self, host: &str) {
        self.lives.get_mut(host).expect("it was met").start += 1;
    }

    /// A daemon with another state folder sends for the other host.
    pub(crate) fn replaced(&mut self, host: &str, id: u64) {
        self.lives.get_mut(host).expect("it was met").id = id;
    }

    /// The other host is reinstalled: its daemon begins with an empty state folder.
    pub(crate) fn reinstalled(&mut self, host: &str, id: u64) {
        *self.lives.get_mut(host).expect("it was met") = Incarnation { id, start: 1 };
    }

    /// A message of another host arrives.
    pub(crate) fn hears(&mut self, text: &str) -> Vec<String> {
        let said = self.said(text);
        self.event(said)
    }

    /// The state folders in the grants that answer a message of another host.
    pub(crate) fn grants_folders(&mut self, text: &str) -> Vec<Option<u64>> {
        let said = self.said(text);
        let effects = self.engine.handle(said, self.now);
        let folder =
            |(_, item): &(HostName, Item)| if let Item::Grant(grant) = item { Some(grant.folder) } else { None };
        let folders = effects.send.iter().filter_map(folder).collect();
        self.told(effects);
        folders
    }

    fn said(&self, text: &str) -> Event {
        let item = read(text, self.engine.incarnation());
        let from = speaker(&item, text);
        let incarnation = self.lives.get(&from).copied().unwrap_or(Incarnation { id: 99, start: 1 });
        Event::Received(Batch { from, incarnation, lamport: 0, under_way: None, items: vec![item] })
    }

    /// A message of the other host's previous incarnation arrives.
    pub(crate) fn hears_late(&mut self, text: &str) -> Vec<String> {
        let item = read(text, self.engine.incarnation());
        let from = speaker(&item, text);
        let mut incarnation = self.lives[&from];
        incarnation.start -= 1;
        self.event(Event::Received(Batch { from, incarnation, lamport: 0, under_way: None, items: vec![item] }))
    }

    /// Messages of a host arrive together.
    pub(crate) fn hears_together(&mut self, from: &str, texts: &[&str]) -> Vec<String> {
        let items = texts.iter().map(|t| read(t, self.engine.incarnation())).collect();
        let incarnation = self.lives[&name(from)];
        self.event(Event::Received(Batch { from: name(from), incarnation, lamport: 0, under_way: None, items }))
    }

    /// The running check finds this state.
    pub(crate) fn found(&mut self, cob: &str, state: &str) -> Vec<String> {
        let (cob, state) = (id(cob), label(state));
        let job = self.jobs[&cob];
        let found = CheckOutcome::Found { state, values: Values::new(), detail: String::new(), fresh: false };
        self.event(Event::CheckEnded { cob, job, found })
    }

    /// The running check cannot determine the state.
    pub(crate) fn not_told(&mut self, cob: &str) -> Vec<String> {
        let cob = id(cob);
        let job = self.jobs[&cob];
        self.event(Event::CheckEnded { cob, job, found: CheckOutcome::Failed("no idea".to_owned()) })
    }

    /// The running action has ended.
    pub(crate) fn ended(&mut self, cob: &str, ok: bool) -> Vec<String> {
        let cob = id(cob);
        let job = self.jobs[&cob];
        let outcome = if ok {
            ActionOutcome::Done { values: Values::new() }
        } else {
            ActionOutcome::Failed { error: "no".to_owned(), conflict: false }
        };
        self.event(Event::ActionEnded { cob, job, outcome, span: (0, 0) })
    }

    /// This span of time passes in a single step.
    pub(crate) fn after(&mut self, span: Span) -> Vec<String> {
        self.now = self.now + span;
        self.event(Event::Tick)
    }

    /// The daemon dies and restarts from its records, and its first checks find the recorded states.
    pub(crate) fn returns(&mut self) -> Vec<String> {
        let (checks, mut said): (Vec<_>, Vec<_>) = self.comes_back().into_iter().partition(|t| t.starts_with("check "));
        for check in checks {
            let cob = check.trim_start_matches("check ").to_owned();
            match self.durable.cobs[&id(&cob)].state.clone() {
                Some(state) => said.extend(self.found(&cob, state.as_str())),
                None => said.push(check),
            }
        }
        said
    }

    /// The daemon dies and restarts from its records; no check has ended yet.
    pub(crate) fn comes_back(&mut self) -> Vec<String> {
        let mut life = self.engine.incarnation();
        life.start += 1;
        let host = name("h");
        let back = RestartInput {
            host: &host,
            incarnation: life,
            durable: &self.durable.clone(),
            active: Some(self.bundle.clone()),
            pending: self.going.clone(),
            order: self.order.clone(),
            in_process: &[],
            same_boot: true,
        };
        let (engine, effects) = Engine::recover(&back, self.now);
        self.engine = engine;
        self.told(effects)
    }

    /// Any other event.
    pub(crate) fn event(&mut self, event: Event) -> Vec<String> {
        if let Event::Switch { bundle, order, .. } = &event {
            (self.going, self.order) = (Some(bundle.clone()), order.clone());
        }
        let effects = self.engine.handle(event, self.now);
        if effects.activated {
            self.bundle = self.going.take().unwrap_or_else(|| self.bundle.clone());
        }
        self.told(effects)
    }

    /// Performs the effects of the engine, and returns them as text.
    pub(crate) fn told(&mut self, effects: Effects) -> Vec<String> {
        invariants::check(&self.engine).expect("the invariants hold");
        for record in &effects.persist {
            self.durable.apply(record);
        }
        invariants::agrees(&self.engine, &self.durable).expect("the records add up to what the engine has");
        for run in effects.run_first.iter().chain(&effects.run) {
            let (Run::Check { cob, job } | Run::Action { cob, job, .. }) = run;
            self.jobs.insert(cob.clone(), *job);
        }
        tell(&effects)
    }
}

/// An order without waits.
pub(crate) fn free(to: u64) -> Arc<SwitchOrder> {
    Arc::new(SwitchOrder::free(GenerationNumber(to.saturating_sub(1)), GenerationNumber(to)))
}

/// A switch of the host to this bundle, by this order.
pub(crate) fn switch(bundle: Bundle, order: Arc<SwitchOrder>, rollback: bool) -> Event {
    Event::Switch {
        generation: order.to,
        bundle: Arc::new(Packed::decoded(&bundle)),
        in_process: Vec::new(),
        order,
        rollback,
    }
}

/// Every effect, a line each, in the order of execution.
pub(crate) fn tell(effects: &Effects) -> Vec<String> {
    let persist = effects.persist.iter().map(|r| tell_record(&r.body));
    let send = effects.send.iter().map(|(host, item)| format!("{host}: {}", tell_item(item)));
    let run = effects.run_first.iter().chain(&effects.run).map(|run| match run {
        Run::Check { cob, .. } => format!("check {cob}"),
        Run::Action { cob, from, to, attempt, .. } => format!("act {cob} {from} -> {to}, attempt {attempt}"),
    });
    persist.chain(send).chain(run).collect()
}

fn tell_record(body: &Body) -> String {
    let state = |s: &Option<StateName>| s.as_ref().map_or("unknown".to_owned(), ToString::to_string);
    match body {
        Body::Granted { cob, to, grant } => {
            let rests_on = tell_held(&grant.rests_on);
            format!("write: {cob}@{} granted to {to} {}{rests_on}", grant.state, num(grant.number))
        }
        Body::Returned { cob, from, number } => format!("write: {cob} back from {from} {}", num(*number)),
        Body::Begun { cob, begun } => {
            let locks = tell_held(&begun.locks);
            format!("write: {cob} begins {} -> {}{locks}{}", begun.from, begun.to, tell_token(begun.token.as_deref()))
        }
        Body::Ended { cob, ok, state: now, failed, token, .. } => {
            let how = match ok {
                Some(true) => "well",
                Some(false) => "badly",
                None => "nobody knows how",
            };
            let gave_up = if *failed { ", gave up" } else { "" };
            format!("write: {cob} ended {how}, is {}{gave_up}{}", state(now), tell_token(token.as_deref()))
        }
        Body::Checked { cob, unclear: true, .. } => format!("write: {cob} can't be told"),
        Body::Checked { cob, state: now, drift, renewed, .. } => {
            let drifted = if *drift { ", drifted" } else { "" };
            let renewed = if *renewed { ", and begins anew" } else { "" };
            format!("write: {cob} found {}{drifted}{renewed}", state(now))
        }
        Body::Invalidated { cob, from, number } => format!("write: {cob} lets {from} {} lapse", num(*number)),
        Body::Note { cob, note } => tell_note(cob, note),
        Body::Unknown { cob, .. } => format!("write: {cob} unknown"),
        Body::Incarnation(life) => format!("write: life {}", life.start),
        Body::Departed { cob } => format!("write: {cob} is final"),
        Body::DeparturesAnnounced { cobs } => {
            format!("write: told that {} is final", cobs.iter().map(CobId::as_str).collect::<Vec<_>>().join(" "))
        }
        Body::Epoch(turn) => format!("write: turn {turn}"),
        Body::SwitchStarted(_)
        | Body::Activated(_)
        | Body::Removed { .. }
        | Body::Ordered(_)
        | Body::Snapshot(_)
        | Body::Settled(_)
        | Body::Switch(_) => format!("write: {body:?}"),
    }
}

fn tell_note(cob: &CobId, note: &Note) -> String {
    match note {
        Note::Requested { of, set } => format!("note: {cob} asks {of}@{}", join(set)),
        Note::Released { of } => format!("note: {cob} gives {of} back"),
        Note::Holds { of, state } => format!("note: {cob} holds {of}@{state}"),
        Note::Recalled { from } => format!("note: {cob} wants it back from {from}"),
        Note::Invalidated { from } => format!("note: {cob} breaks its grant to {from}"),
        Note::Broken { of } => format!("note: {cob} hears that the promise of {of} is broken"),
        Note::Stuck { circle, .. } => {
            format!("note: {cob} is stuck: {}", circle.iter().map(CobId::as_str).collect::<Vec<_>>().join(" "))
        }
        Note::Chase { of, times } => format!("note: {cob} has asked {of} {times} times"),
        Note::Flap { state, times, .. } => format!("note: {cob} has left {state} {times} times"),
        Note::Ordered => format!("note: {cob} goes by rank"),
        Note::Overdrawn { by, .. } => format!("note: {cob} is overdrawn by {by}"),
    }
}

fn tell_token(token: Option<&LockRecord>) -> String {
    token.map(|t| format!(", with a token of {} {}", t.cob, num(t.number))).unwrap_or_default()
}

fn tell_held(locks: &[LockRecord]) -> String {
    let mut text = String::new();
    for (at, lock) in locks.iter().enumerate() {
        let _ = write!(text, "{} {}@{} {}", if at == 0 { ", on" } else { "" }, lock.cob, lock.state, num(lock.number));
    }
    text
}

fn tell_item(item: &Item) -> String {
    let about = |a: &About| format!("{} {} of {} {}", item.name(), a.asker, a.asked, num(a.number));
    match item {
        Item::Request(r) => {
            let rank = if r.rank == Rank::LAST { "last".to_owned() } else { r.rank.rank.to_string() };
            let (set, number, rev) = (join(&r.set), num(r.number), r.rev & 0xffff_ffff);
            let any = if r.rank.phase.is_departure() && r.fingerprint.is_none() { " of any content" } else { "" };
            let failed = if r.failed { " failed" } else { "" };
            let of = format!("request {} of {}@{set} {number}", r.asker, r.asked);
            format!("{of} rev {rev} rank {rank} from {}{any}{failed}", r.origin)
        }
        Item::Grant(g) => tell_grant(g),
        Item::Release(a) | Item::Released(a) | Item::Recall(a) | Item::Query(a) | Item::Invalidated(a) => about(a),
        Item::Refused(r) => format!("{}: {}", about(&r.about), r.reason),
        Item::Probe(p) => {
            let path: Vec<_> = p.path.iter().map(CobId::as_str).collect();
            let wide = if p.wide { " wide" } else { "" };
            format!("probe of {} to {} {} via {}{wide}", p.initiator, p.to, num(p.number), path.join(" "))
        }
        Item::Hello(h) => {
            let kept = h.kept.iter().map(|a| format!(" {} of {} {}", a.asker, a.asked, num(a.number)));
            format!("hello{}", kept.collect::<String>())
        }
        Item::AskDepartures(f) | Item::Departures(f) => {
            let cobs: Vec<_> = f.cobs.iter().map(CobId::as_str).collect();
            format!("{} {} -> {} turn {}: {}", item.name(), f.from, f.to, f.epoch, cobs.join(" ")).trim_end().to_owned()
        }
        Item::HelloAck(a) => {
            let granted = a.granted.iter().map(|g| format!(" {}", tell_grant(g)));
            format!("hello-ack {}{}", a.incarnation.start, granted.collect::<String>())
        }
        Item::Going(_) | Item::Withdrawn(_) | Item::Through(_) => format!("{item:?}"),
    }
}

fn tell_grant(g: &Grant) -> String {
    format!("grant {}@{} to {} {} rev {}", g.asked, g.state, g.asker, num(g.number), g.rev)
}

fn join(set: &[StateName]) -> String {
    set.iter().map(StateName::as_str).collect::<Vec<_>>().join("|")
}

fn num(Number { start, counter }: Number) -> String {
    format!("#{start}.{counter}")
}

pub(crate) fn read(text: &str, here: Incarnation) -> Item {
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |word: &str| words.iter().position(|w| *w == word).map(|at| words[at + 1]);
    let about =
        |at: usize| About { asker: id(words[at]), asked: id(words[at + 2]), number: read_number(words[at + 3]) };
    match words[0] {
        "request" => {
            let (asked, set) = words[3].split_once('@').expect("a set");
            let rank = after("rank").map_or(9, |r| r.parse().expect("a rank"));
            Item::Request(Request {
                asker: id(words[1]),
                asked: id(asked),
                number: read_number(words[4]),
                rev: after("rev").map_or(0, |r| r.parse().expect("a revision")),
                set: set.split('|').map(label).collect(),
                rank: Rank {
                    phase: if after("phase") == Some("0") { RankPhase::DEPARTURE } else { RankPhase::STAY },
                    generation: GenerationNumber(after("in").map_or(1, |n| n.parse().expect("a generation"))),
                    rank,
                },
                origin: id(after("from").unwrap_or(words[1])),
                fingerprint: match after("expects") {
                    None => Some(CONTENT),
                    Some("anything") => None,
                    Some(_) => Some(Fingerprint([8; 16])),
                },
                generation: after("by").map(|n| GenerationNumber(n.parse().expect("a generation"))),
                failed: words.contains(&"failed"),
            })
        }
        "grant" => Item::Grant(read_grant(&words[1..])),
        "release" => Item::Release(about(1)),
        "released" => Item::Released(about(1)),
        "recall" => Item::Recall(about(1)),
        "query" => Item::Query(about(1)),
        "lapsed" => Item::Invalidated(about(1)),
        "ask-final" | "final" => {
            let number = |word: &str| word.trim_end_matches(':').parse().expect("a number");
            let (from, to) = (GenerationNumber(number(words[1])), GenerationNumber(number(words[3])));
            let finals =
                DepartureReport { from, to, epoch: number(words[5]), cobs: words[6..].iter().map(|w| id(w)).collect() };
            if words[0] == "final" { Item::Departures(finals) } else { Item::AskDepartures(finals) }
        }
        "hello" => Item::Hello(Hello { kept: (1..words.len()).step_by(4).map(about).collect() }),
        "hello-ack" => {
            let granted = (2..words.len()).step_by(4).map(|at| read_grant(&words[at..])).collect();
            let start = words[1].parse().expect("a start");
            Item::HelloAck(HelloAck { incarnation: Incarnation { start, ..here }, granted })
        }
        "probe" => {
            let via = words.iter().position(|w| *w == "via").expect("a path");
            Item::Probe(Probe {
                to: id(words[4]),
                initiator: id(words[2]),
                number: read_number(words[5]),
                generation: GenerationNumber(1),
                path: words[via + 1..].iter().map(|w| id(w)).collect(),
                more: false,
                wide: true,
            })
        }
        other => panic!("no such message: {other}"),
    }
}

/// `D@S to A #n`, perhaps with `rev r` or `for` the id of a state folder.
fn read_grant(words: &[&str]) -> Grant {
    let (asked, state) = words[0].split_once('@').expect("a state");
    let rev = words.get(5).filter(|_| words[4] == "rev").map_or(0, |r| r.parse().expect("a revision"));
    let folder = words.get(5).filter(|_| words[4] == "for").map(|id| id.parse().expect("an id"));
    let (asker, asked, state) = (id(words[2]), id(asked), label(state));
    Grant { asker, asked, number: read_number(words[3]), state, values: Values::new(), rev, folder }
}

/// The host that sends this: a hello `of A to H` does not say, so the first foreign name decides.
fn speaker(item: &Item, text: &str) -> HostName {
    match item {
        Item::Probe(p) => p.path.last().expect("a path").host(),
        Item::Request(_)
        | Item::Grant(_)
        | Item::Release(_)
        | Item::Released(_)
        | Item::Recall(_)
        | Item::Query(_)
        | Item::Invalidated(_)
        | Item::Hello(_)
        | Item::HelloAck(_)
        | Item::AskDepartures(_)
        | Item::Departures(_)
        | Item::Refused(_)
        | Item::Going(_)
        | Item::Withdrawn(_)
        | Item::Through(_) => {
            let names = text.split(|c: char| c.is_whitespace() || c == '@').filter_map(|w| CobId::new(w).ok());
            names.map(|c| c.host()).find(|h| h.as_str() != "h").expect("somebody of another host")
        }
    }
}

fn read_number(text: &str) -> Number {
    let (start, counter) = text.trim_start_matches('#').split_once('.').expect("a number");
    Number { start: start.parse().expect("a start"), counter: counter.parse().expect("a counter") }
}

pub(crate) fn bundle(cobs: &[&str]) -> Bundle {
    bundle_of("h", cobs)
}

/// The bundle of `h` in a generation that has change objects of other hosts, too.
pub(crate) fn bundle_among(cobs: &[&str], others: &[&str]) -> Bundle {
    let here = bundle(cobs);
    let mut bundles = BTreeMap::from([(here.host.clone(), here)]);
    for text in others {
        let host = text.split('/').next().expect("a host");
        let other = bundle_of(host, &[text]);
        match bundles.get_mut(&other.host) {
            Some(bundle) => bundle.cobs.extend(other.cobs),
            None => drop(bundles.insert(other.host.clone(), other)),
        }
    }
    Askers::fill(&mut bundles);
    bundles.remove("h").expect("it is there")
}

/// The bundle of another host.
pub(crate) fn bundle_of(host: &str, cobs: &[&str]) -> Bundle {
    let mut bundle = Bundle::empty(name(host));
    for text in cobs {
        let (kind, cob) = read_cob(text);
        bundle.kinds.insert(kind.name.clone(), kind);
        bundle.cobs.insert(cob.id.clone(), Arc::new(cob));
    }
    bundle.validate().expect("well formed");
    bundle
}

fn others(bundle: &Bundle) -> BTreeSet<String> {
    let needs = bundle.cobs.values().flat_map(|cob| cob.needs());
    needs.map(|n| n.cob.host_str().to_owned()).filter(|h| h != "h").collect()
}

fn read_cob(text: &str) -> (Kind, Cob) {
    let (cob, rest) = text.split_once(": ").expect("a name");
    let parts: Vec<&str> = rest.split(", ").collect();
    let states: Vec<StateName> = parts[0].split(' ').map(label).collect();
    let part = |word: &str| parts.iter().find_map(|p| p.strip_prefix(word)).map(str::trim);
    let preferred = part("prefers").map_or_else(|| states[0].clone(), label);
    let no_way: Vec<StateName> = part("no way").map_or_else(Vec::new, |ends| ends.split(' ').map(label).collect());
    let pairs = states.iter().flat_map(|a| states.iter().map(move |b| (a, b)));
    let pairs = pairs.filter(|(a, b)| a != b && no_way != [(*a).clone(), (*b).clone()]);
    let transition = |(from, to): (&StateName, &StateName)| Transition {
        from: from.clone(),
        to: to.clone(),
        run: None,
        timeout_ms: 1000,
        grace_ms: 1000,
        retries: part("retries").map_or(0, |r| r.parse().expect("a number")),
        retry_delay_ms: 1000,
        failure: part("fails in").map(label),
        revert: None,
        irreversible: false,
    };
    let kind = Kind {
        name: KindName::new(&cob.replace('/', ".")).expect("a kind's name"),
        backend: "command".to_owned(),
        preferred: preferred.clone(),
        pre_remove: states.iter().find(|s| **s == *"0").unwrap_or(&states[0]).clone(),
        priority: states.clone(),
        check: KindCheck { run: None, timeout_ms: 1000, interval_ms: None },
        transitions: pairs.map(transition).collect(),
        files: BTreeMap::new(),
        states,
    };
    let mut expects = BTreeMap::new();
    let mut needs = |text: &str| -> Vec<Need> {
        let read = |need: &str| {
            let (cob, set) = need.split_once('@').expect("a set");
            expects.insert(id(cob), CONTENT);
            Need { cob: id(cob), states: set.split('|').map(label).collect() }
        };
        text.split_whitespace().map(read).collect()
    };
    let dependencies = parts.iter().filter_map(|p| p.split_once(" <- "));
    let (mut transitions, mut locks) = (Vec::new(), Vec::new());
    for (of, text) in dependencies {
        match of.split(' ').collect::<Vec<_>>().as_slice() {
            ["transition", from, to] => {
                transitions.push(TransitionNeeds { from: label(from), to: label(to), needs: needs(text) });
            }
            ["lock", state] => locks.push(LockNeeds { state: label(state), needs: needs(text) }),
            other => panic!("no such dependency: {other:?}"),
        }
    }
    let budget = part("budget").map(|cob| Need { cob: id(cob), states: vec![label("open")] });
    let ranks = kind.states.iter().zip(0u64..).map(|(s, r)| (s.clone(), 10 + r)).collect();
    let cob = Cob {
        id: id(cob),
        kind: kind.name.clone(),
        preferred,
        content: "{}".to_owned(),
        fingerprint: CONTENT,
        rests_on: None,
        transitions: transitions.into(),
        locks: locks.into(),
        ranks,
        expects,
        budget: budget.map(Box::new),
        at_most: part("at most").map(|n| n.parse().expect("a number")),
        keep: parts.contains(&"kept"),
        observe: parts.contains(&"observed"),
        files: BTreeMap::new(),
    };
    (kind, cob)
}

fn id(text: &str) -> CobId {
    CobId::new(text).expect("a name")
}

fn name(text: &str) -> HostName {
    HostName::new(text).expect("a host")
}

fn label(text: &str) -> StateName {
    StateName::new(text).expect("a state")
}
