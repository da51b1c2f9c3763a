//! The largest state that a member may make a host keep: no message of its, and no event, costs more than a fraction of what
//! the loop may be busy with. Measured in processor time of the thread, so that other work of the machine does not count;
//! what grows with the square of the state takes a hundred times as long as is allowed here.

use std::fs;

use cob_engine::sim::Random;
use cob_engine::{Engine, Event, Time};
use cob_types::message::{About, Hello, Probe, Request};
use cob_types::{Batch, CobId, GenerationNumber, HostName, Incarnation, Item, Number, Rank, StateName, SwitchOrder};

/// Change objects of the member that ask for the same one of ours.
const ASKERS: u64 = 50_000;
/// As many items as the daemon hands over at once.
const ITEMS: u64 = 256;
/// In nanoseconds: a tenth of a second, for a program that is compiled without optimization on a slow machine.
const ALLOWED: u64 = 20 * 100_000_000;

/// The processor time of this thread in nanoseconds.
fn spent() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel keeps account of threads");
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

/// A host whose one change object very many of the member `h1` ask for a lock.
struct Loaded {
    engine: Engine,
    now: Time,
    incarnation: Incarnation,
}

impl Loaded {
    fn new() -> Self {
        let large = cob_tests::large::Large { hosts: 2, per_host: 1, dependencies: 0, across: 0, seed: 1 };
        let (bundles, _) = cob_tests::large::bundles(&large);
        let host = HostName::new("h0").expect("a name");
        let engine = Engine::new(&host, Incarnation { id: 1, start: 1 });
        let incarnation = Incarnation { id: 9, start: 1 };
        let mut loaded = Self { engine, now: Time(1_000_000_000_000), incarnation };
        let (generation, order) = (GenerationNumber(1), SwitchOrder::free(GenerationNumber(0), GenerationNumber(1)));
        let bundle = bundles[&host].clone().into();
        loaded.handle(Event::Go { generation, bundle, in_process: Vec::new(), order: order.into() });
        loaded.says(vec![Item::Hello(Hello { kept: Vec::new() })]);
        for from in (0..ASKERS).step_by(5000) {
            loaded.says((from..from + 5000).map(|n| request(n, 1)).collect());
        }
        loaded
    }

    fn handle(&mut self, event: Event) -> cob_engine::Effects {
        self.engine.handle(event, self.now)
    }

    fn says(&mut self, items: Vec<Item>) -> cob_engine::Effects {
        let from = HostName::new("h1").expect("a name");
        let batch = Batch { from, incarnation: self.incarnation, lamport: 0, items, under_way: None };
        self.handle(Event::Received(batch))
    }

    /// The member says something, and that takes no longer than it may.
    fn says_in_time(&mut self, what: &str, items: Vec<Item>) {
        let before = spent();
        self.says(items);
        let took = spent() - before;
        assert!(took < ALLOWED, "{what}: {} ms", took / 1_000_000);
    }
}

fn asker(n: u64) -> CobId {
    CobId::new(&format!("h1/n{n}")).expect("an id")
}

fn asked() -> CobId {
    CobId::new("h0/c0").expect("an id")
}

fn about(n: u64, counter: u64) -> About {
    About { asker: asker(n), asked: asked(), number: Number { start: 1, counter } }
}

fn request(n: u64, counter: u64) -> Item {
    let About { asker, asked, number } = about(n, counter);
    Item::Request(Request {
        origin: asker.clone(),
        asker,
        asked,
        number,
        rev: 0,
        set: vec![StateName::new("up").expect("a state")],
        rank: Rank { phase: 1, generation: GenerationNumber(1), rank: n },
        fingerprint: None,
        generation: Some(GenerationNumber(1)),
        failed: false,
    })
}

fn probe(n: u64, counter: u64) -> Item {
    Item::Probe(Probe {
        to: asked(),
        initiator: asker(n),
        number: Number { start: 1, counter },
        generation: GenerationNumber(1),
        path: vec![asker(n)],
        more: false,
        wide: true,
    })
}

#[test]
fn no_message_of_a_member_stops_the_loop() {
    let mut loaded = Loaded::new();
    let front = || 0..ITEMS;
    loaded.says_in_time("the same again", front().map(|n| request(n, 1)).collect());
    loaded.says_in_time("under higher numbers", front().map(|n| request(n, 2)).collect());
    loaded.says_in_time("given back", front().map(|n| Item::Release(about(n, 2))).collect());
    loaded.says_in_time("asked for from behind", front().rev().map(|n| request(n, 3)).collect());
    loaded.says_in_time("queries", front().map(|n| Item::Query(about(n, 3))).collect());
    loaded.says_in_time("wide probes", front().map(|n| probe(n, 4)).collect());
    let mut random = Random::new(7);
    let mixed = |random: &mut Random| {
        let n = random.below(ASKERS);
        if random.permille(500) { request(n, 5) } else { Item::Release(about(n, 5)) }
    };
    loaded.says_in_time("anything", front().map(|_| mixed(&mut random)).collect());
    loaded.incarnation.start = 2;
    let kept = (0..20_000).map(|n| about(n, 3)).collect();
    loaded.says_in_time("the next incarnation, with locks of the one before", vec![Item::Hello(Hello { kept })]);
    loaded.incarnation.start = 3;
    loaded.says_in_time("the next incarnation, without any", vec![Item::Hello(Hello { kept: Vec::new() })]);
    assert!(!loaded.engine.is_busy_with(&HostName::new("h1").expect("a name")), "all is forgotten");
}
