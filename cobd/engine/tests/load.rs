//! The largest state that a member host may cause on another host: no message of the member, and no event caused by it,
//! takes the loop more than a fraction of its time budget.
//!
//! Measured in processor time of the thread, so that other work of the machine does not count. Both tests do the same;
//! the second has as many dependencies as a large host has change objects, and needs a program compiled with
//! optimization: `cargo test --release -p cob-engine --test load -- --ignored --nocapture` prints the steps' times.

#![expect(clippy::print_stdout, reason = "figures are what it is for")]

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::sync::Arc;

use cob_engine::event::CheckOutcome;
use cob_engine::{Durable, Effects, Engine, Event, RestartInput, Run, Time};
use cob_types::askers::{MAX_OF_HOST, MAX_OF_ONE};
use cob_types::kind::KindCheck;
use cob_types::message::{About, DepartureReport, Grant, Hello, HelloAck, Probe, RankPhase, Refused, Request, Values};
use cob_types::{
    Askers, Batch, Bundle, Cob, CobId, GenerationNumber, HostName, Incarnation, Item, Kind, KindName, LockNeeds, Need,
    Number, Packed, Rank, StateName, SwitchOrder, Transition, canonical, codec,
};

/// The number of items that the daemon hands over at once.
const ITEMS: u64 = 256;
/// The number of pairs that fit into a list in a batch.
const LISTED: u64 = 20_000;
/// The number of items that the daemon puts into a batch.
const AT_ONCE: usize = 4096;
/// The time that the loop may spend on an event, in milliseconds.
const MAY: u64 = 100;
/// The factor for programs compiled without optimization, on slow machines.
const SLOW: u64 = 20;

/// The size of the load.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Change objects of the host `h0`.
    own: u64,
    /// Pairs of a change object of the member `h1` and a change object of `h0` that it may ask.
    pairs: u64,
    /// Each of ours needs a change object of the member, too.
    needs: bool,
    /// Each of ours needs the first of ours.
    hub: bool,
}

/// The processor time of this thread in nanoseconds.
fn spent() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel keeps account of threads");
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

fn state(text: &str) -> StateName {
    StateName::new(text).expect("a state")
}

fn on_off() -> Kind {
    let transition = |from: &str, to: &str| Transition {
        from: state(from),
        to: state(to),
        run: None,
        timeout_ms: 60_000,
        grace_ms: 1000,
        retries: 2,
        retry_delay_ms: 100,
        failure: None,
        revert: None,
        irreversible: false,
    };
    Kind {
        name: KindName::new("noop").expect("a name"),
        backend: "noop".to_owned(),
        states: vec![state("down"), state("up")],
        preferred: state("up"),
        pre_remove: state("down"),
        priority: vec![state("down"), state("up")],
        check: KindCheck { run: None, timeout_ms: 60_000, interval_ms: None },
        transitions: vec![transition("down", "up"), transition("up", "down")],
        files: BTreeMap::new(),
    }
}

fn asked(n: u64) -> CobId {
    CobId::new(&format!("h0/c{n:07}")).expect("an id")
}

fn asker(n: u64) -> CobId {
    CobId::new(&format!("h1/n{n:07}")).expect("an id")
}

fn about(size: Size, n: u64, counter: u64) -> About {
    About { asker: asker(n / size.own), asked: asked(n % size.own), number: Number { start: 1, counter } }
}

/// The bundle of the host `h0`; change object `n % own` may be asked by `n / own` of the member's, to be up or down.
fn bundle(size: Size) -> Bundle {
    let host = HostName::new("h0").expect("a name");
    let kind = on_off();
    let cob = |id: CobId, needs: Option<CobId>| {
        let up = |cob| vec![Need { cob, states: vec![state("up")] }];
        let lock = needs.map(|cob| LockNeeds { state: state("up"), needs: up(cob) });
        let cob = Cob {
            id: id.clone(),
            kind: kind.name.clone(),
            preferred: state("up"),
            content: "{}".to_owned(),
            fingerprint: canonical::fingerprint(&[b"noop"]),
            rests_on: None,
            transitions: Default::default(),
            locks: lock.into_iter().collect(),
            ranks: [(state("up"), 5), (state("down"), 5)].into(),
            expects: BTreeMap::new(),
            budget: None,
            at_most: None,
            keep: false,
            observe: false,
            files: BTreeMap::new(),
        };
        (id, Arc::new(cob))
    };
    let hub = |n: u64| Some(asked(0)).filter(|_| size.hub && n > 0);
    let cobs = (0..size.own).map(|n| cob(asked(n), if size.needs { Some(asker(n)) } else { hub(n) })).collect();
    let askers = size.pairs.div_ceil(size.own);
    let by: Vec<u64> = (0..askers).collect();
    let asked: serde_json::Map<_, _> =
        (0..size.own).map(|n| (asked(n).name().to_owned(), serde_json::json!([[0, by], [1, by]]))).collect();
    let ids: Vec<CobId> = (0..askers).map(asker).collect();
    let askers = serde_json::json!({ "ids": ids, "sets": [["down"], ["up"]], "asked": asked });
    let askers: Askers = serde_json::from_value(askers).expect("askers");
    let mut bundle = Bundle::empty(host);
    bundle.kinds.insert(kind.name.clone(), kind);
    bundle.askers = Some(Arc::new(askers));
    Bundle { cobs, ..bundle }
}

/// A host with very many requests from, and grants to, the member `h1`.
struct Loaded {
    size: Size,
    engine: Engine,
    now: Time,
    incarnation: Incarnation,
    /// The numbers of our change objects' requests.
    asks: BTreeMap<CobId, Number>,
    /// The records.
    durable: Durable,
    /// The limit of a step, in milliseconds.
    may: u64,
    /// The longest step: its duration in nanoseconds, and its name.
    longest: (u64, String),
}

impl Loaded {
    fn new(size: Size, may: u64) -> Self {
        let host = HostName::new("h0").expect("a name");
        let engine = Engine::new(&host, Incarnation { id: 1, start: 1 });
        let mut loaded = Self {
            size,
            engine,
            now: Time(1_000_000_000_000),
            incarnation: Incarnation { id: 9, start: 1 },
            asks: BTreeMap::new(),
            durable: Durable::default(),
            may,
            longest: Default::default(),
        };
        let (generation, order) = (GenerationNumber(1), SwitchOrder::free(GenerationNumber(0), GenerationNumber(1)));
        let bundle = Arc::new(Packed::decoded(&bundle(size)));
        let mut runs = VecDeque::from(
            loaded
                .handle(Event::Switch {
                    rollback: false,
                    generation,
                    bundle,
                    in_process: Vec::new(),
                    order: order.into(),
                })
                .run,
        );
        while let Some(run) = runs.pop_front() {
            let Run::Check { cob, job } = run else { panic!("everything is up: {run:?}") };
            let found =
                CheckOutcome::Found { state: state("up"), values: Values::new(), detail: String::new(), fresh: false };
            runs.extend(loaded.handle(Event::CheckEnded { cob, job, found }).run);
        }
        loaded.says(vec![Item::Hello(Hello { kept: Vec::new() })]);
        loaded.is_asked_for_all(1);
        loaded
    }

    fn handle(&mut self, event: Event) -> Effects {
        self.now.0 += 1000;
        let effects = self.engine.handle(event, self.now);
        self.note(&effects);
        effects
    }

    fn note(&mut self, effects: &Effects) {
        effects.persist.iter().for_each(|record| self.durable.apply(record));
        for (_, item) in &effects.send {
            if let Item::Request(request) = item {
                self.asks.insert(request.asker.clone(), request.number);
            }
        }
    }

    fn says(&mut self, items: Vec<Item>) -> Effects {
        self.handle(Event::Received(self.batch(items)))
    }

    /// The member sends all permitted requests, in parts, and grants all of ours; most requests must be granted.
    fn is_asked_for_all(&mut self, counter: u64) {
        let Size { own, pairs, needs, .. } = self.size;
        let parts = |all: u64| (0..all).step_by(ITEMS as usize).map(move |first| first..(first + ITEMS).min(all));
        let mut granted = 0;
        let mut count = |said: Effects| {
            granted += said.send.iter().filter(|(_, item)| matches!(item, Item::Grant(_))).count() as u64;
        };
        for part in parts(pairs) {
            count(self.says(part.map(|n| self.request(n, counter, "up")).collect()));
        }
        for part in parts(own).filter(|_| needs) {
            count(self.says(part.map(|n| Item::Grant(self.grant(n))).collect()));
        }
        // Some requests wait for other requests to the same change object.
        assert!(granted > pairs / 2, "what a dependency justifies is granted: {granted} of {pairs}");
    }

    fn grant(&self, n: u64) -> Grant {
        let About { asker, asked, number } = self.own(n);
        Grant { asker, asked, number, rev: 0, state: state("up"), values: Values::new(), folder: None }
    }

    /// The request of a local change object.
    fn own(&self, n: u64) -> About {
        About {
            asker: asked(n),
            asked: asker(n),
            number: self.asks.get(&asked(n)).copied().unwrap_or(Number { start: 1, counter: 1 }),
        }
    }

    fn request(&self, n: u64, counter: u64, wanted: &str) -> Item {
        let About { asker, asked, number } = about(self.size, n, counter);
        Item::Request(Request {
            origin: asker.clone(),
            asker,
            asked,
            number,
            rev: 0,
            set: vec![state(wanted)],
            rank: Rank { phase: RankPhase::STAY, generation: GenerationNumber(1), rank: n },
            fingerprint: None,
            generation: Some(GenerationNumber(1)),
            failed: false,
        })
    }

    fn probe(&self, n: u64, counter: u64) -> Item {
        let About { asker, asked, number } = about(self.size, n, counter);
        Item::Probe(Probe {
            to: asked,
            initiator: asker.clone(),
            number,
            generation: GenerationNumber(1),
            path: vec![asker],
            more: false,
            wide: true,
        })
    }

    /// Measures a step that the member causes.
    fn step(&mut self, what: &str, event: Event) {
        self.now.0 += 1000;
        let before = spent();
        let effects = self.engine.handle(event, self.now);
        let alone = spent() - before;
        // As the daemon writes and sends it.
        for record in &effects.persist {
            codec::encode_packed(record).expect("encodes");
            self.durable.apply(record);
        }
        let (records, messages) = (effects.persist.len(), effects.send.len());
        for items in effects.send.chunks(AT_ONCE) {
            let items = items.iter().map(|(_, item)| item.clone()).collect();
            self.batch(items).encode().expect("encodes");
        }
        let took = spent() - before;
        let [of_engine, all] = [alone, took].map(|ns| ns as f64 / 1e6);
        println!("{all:8.1} ms, of these {of_engine:.1} of the engine: {what}; {records} records, {messages} messages");
        if took > self.longest.0 {
            self.longest = (took, what.to_owned());
        }
    }

    fn batch(&self, items: Vec<Item>) -> Batch {
        let from = HostName::new("h1").expect("a name");
        Batch { from, incarnation: self.incarnation, lamport: 0, items, under_way: None }
    }

    fn says_in_time(&mut self, what: &str, items: Vec<Item>) {
        self.step(what, Event::Received(self.batch(items)));
    }

    /// Messages about permitted pairs: the first, the last, and some here and there.
    fn says_of_some(&mut self, what: &str, item: impl Fn(&Self, u64) -> Item) {
        let (all, step) = (self.size.pairs, (self.size.pairs / ITEMS).max(1));
        let places: [Vec<u64>; 3] = [
            (0..ITEMS.min(all)).collect(),
            (all - ITEMS.min(all)..all).rev().collect(),
            (0..ITEMS.min(all)).map(|n| (n * step * 7 + n) % all).collect(),
        ];
        for (place, places) in ["in front", "at the end", "anywhere"].iter().zip(places) {
            let items = places.into_iter().map(|n| item(self, n)).collect();
            self.says_in_time(&format!("{what} {place}"), items);
        }
    }

    fn begins_anew(&mut self, what: &str, incarnation: Incarnation, kept: u64) {
        self.incarnation = incarnation;
        let kept = (0..kept.min(self.size.pairs)).map(|n| about(self.size, n, 1)).collect();
        self.says_in_time(what, vec![Item::Hello(Hello { kept })]);
    }

    /// The daemon of this host restarts; it has to ask whether its locks are still valid.
    fn returns(&mut self) {
        let (generation, order) = (GenerationNumber(1), SwitchOrder::free(GenerationNumber(0), GenerationNumber(1)));
        let back = RestartInput {
            host: &HostName::new("h0").expect("a name"),
            incarnation: Incarnation { id: 1, start: 2 },
            durable: &self.durable,
            active: Some(Arc::new(Packed::decoded(&bundle(self.size)))),
            pending: None,
            order: order.into(),
            in_process: &[],
            same_boot: true,
        };
        assert_eq!(self.durable.active, generation);
        let (engine, effects) = Engine::recover(&back, self.now);
        self.engine = engine;
        self.note(&effects);
        self.says(vec![Item::Hello(Hello {
            kept: (0..LISTED.min(self.size.pairs)).map(|n| about(self.size, n, 1)).collect(),
        })]);
    }

    fn acknowledges(&mut self, what: &str, granted: u64) {
        let incarnation = Incarnation { id: 1, start: 2 };
        let granted = (0..granted.min(self.size.own)).map(|n| self.grant(n)).collect();
        self.says_in_time(what, vec![Item::HelloAck(HelloAck { incarnation, granted })]);
    }

    /// All possible messages of a member.
    fn play(&mut self) {
        let member = HostName::new("h1").expect("a name");
        let finals = |size: Size| DepartureReport {
            from: GenerationNumber(1),
            to: GenerationNumber(2),
            epoch: 0,
            cobs: (0..cob_types::message::MAX_DEPARTURES as u64).map(|n| asker(n % size.own)).collect(),
        };
        self.says_of_some("requests, the same again", |l, n| l.request(n, 1, "up"));
        self.says_of_some("requests under higher numbers", |l, n| l.request(n, 2, "up"));
        self.says_of_some("requests that nothing justifies", |l, n| {
            let Item::Request(mut request) = l.request(n, 3, "up") else { unreachable!("it is one") };
            request.asker = asker(n + 50_000_000);
            Item::Request(request)
        });
        self.says_of_some("queries", |l, n| Item::Query(about(l.size, n, 2)));
        self.says_of_some("releases", |l, n| Item::Release(about(l.size, n, 2)));
        self.says_of_some("requests for the other state", |l, n| l.request(n, 3, "down"));
        self.says_of_some("probes", |l, n| l.probe(n, 4));
        self.says_of_some("releases of that", |l, n| Item::Release(about(l.size, n, 3)));
        self.says_in_time("final change objects", vec![Item::Departures(finals(self.size)); 16]);
        self.says_in_time("questions for final change objects", vec![Item::AskDepartures(finals(self.size)); 16]);
        if self.size.needs {
            let of = |l: &Self, n: u64| l.own(n % l.size.own);
            self.says_of_some("recalls", |l, n| Item::Recall(of(l, n)));
            self.says_of_some("lapses", |l, n| Item::Invalidated(of(l, n)));
            self.says_of_some("grants", |l, n| Item::Grant(l.grant(n % l.size.own)));
            self.says_of_some("refusals", |l, n| {
                Item::Refused(Refused { about: of(l, n), reason: "x".repeat(500), from: None })
            });
            self.says_of_some("confirmed releases", |l, n| Item::Released(of(l, n)));
        }
        self.step("a new link", Event::LinkUp(member.clone()));
        self.begins_anew("the next incarnation, with locks of the one before", Incarnation { id: 9, start: 2 }, LISTED);
        self.begins_anew("the next incarnation, without any", Incarnation { id: 9, start: 3 }, 0);
        self.is_asked_for_all(5);
        self.begins_anew("another state folder", Incarnation { id: 10, start: 1 }, 0);
        self.is_asked_for_all(6);
        self.step("a link after that", Event::LinkUp(member));
        if self.size.needs {
            self.returns();
            self.acknowledges("the answer to our hello", LISTED);
            self.acknowledges("the same, with nothing granted", 0);
        }
        let (took, what) = (self.longest.0 / 1_000_000, &self.longest.1);
        println!("{:?}: {took} ms at most, {what}\n", self.size);
        assert!(took < self.may, "{what}: {took} ms");
    }
}

#[test]
fn no_message_of_a_member_stops_the_loop() {
    for size in [
        Size { own: 1, pairs: 20_000, needs: false, hub: false },
        Size { own: 2000, pairs: 20_000, needs: false, hub: false },
        Size { own: 5000, pairs: 5000, needs: true, hub: false },
    ] {
        Loaded::new(size, SLOW * MAY).play();
    }
}

/// The largest states that a signed generation allows: by pairs of a member and this host, and by dependents of a
/// single change object.
#[test]
#[ignore = "for a program that is compiled with optimization: it measures the largest state"]
fn no_message_of_a_member_stops_the_loop_at_the_largest_state() {
    let (of_host, of_one) = (MAX_OF_HOST as u64, MAX_OF_ONE as u64);
    for size in [
        Size { own: 1, pairs: of_host, needs: false, hub: false },
        Size { own: of_host / 20, pairs: of_host, needs: false, hub: false },
        Size { own: of_host, pairs: of_host, needs: true, hub: false },
        Size { own: of_host, pairs: of_host, needs: false, hub: true },
        Size { own: 1, pairs: of_one, needs: false, hub: false },
    ] {
        Loaded::new(size, MAY).play();
    }
}
