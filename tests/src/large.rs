//! Large systems for measurements: many hosts, one kind, and acyclic `requires` among change objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_engine::sim::Random;
use cob_types::kind::KindCheck;
use cob_types::{
    Bundle, Cob, CobId, HostName, Kind, KindName, LockNeeds, Need, StateName, Transition, TransitionNeeds, canonical,
};

/// The parameters of a large system.
#[derive(Debug, Clone, Copy)]
pub struct Large {
    /// Hosts.
    pub hosts: usize,
    /// Change objects on each.
    pub per_host: usize,
    /// The most dependencies of each change object.
    pub dependencies: u64,
    /// Dependencies across hosts, per thousand.
    pub across: u32,
    /// The seed of the dependencies.
    pub seed: u64,
}

fn name(text: &str) -> StateName {
    StateName::new(text).expect("well formed")
}

/// The kind of all change objects: down and up.
#[must_use]
pub fn on_off(backend: &str) -> Kind {
    let transition = |from: &str, to: &str| Transition {
        from: name(from),
        to: name(to),
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
        name: KindName::new(backend).expect("well formed"),
        backend: backend.to_owned(),
        states: vec![name("down"), name("up")],
        preferred: name("up"),
        pre_remove: name("down"),
        priority: vec![name("down"), name("up")],
        check: KindCheck { run: None, timeout_ms: 60_000, interval_ms: None },
        transitions: vec![transition("down", "up"), transition("up", "down")],
        files: BTreeMap::new(),
    }
}

/// The bundles of a large system, and the number of its dependencies.
#[must_use]
pub fn bundles(large: &Large) -> (BTreeMap<HostName, Arc<Bundle>>, usize) {
    let mut random = Random::new(large.seed);
    let n = large.hosts * large.per_host;
    let host = |i: usize| i % large.hosts;
    let ids: Vec<CobId> = (0..n).map(|i| CobId::new(&format!("h{}/c{i}", host(i))).expect("well formed")).collect();
    let mut requires: Vec<Vec<usize>> = vec![Vec::new(); n];
    let mut required_by: Vec<Vec<usize>> = vec![Vec::new(); n];
    let mut count = 0;
    for (i, required) in requires.iter_mut().enumerate().skip(large.hosts) {
        for _ in 0..large.dependencies {
            // On an earlier change object: on the same host, or anywhere.
            let on = if random.permille(large.across) {
                random.below((i - i % large.hosts) as u64) as usize
            } else {
                host(i) + large.hosts * random.below((i / large.hosts) as u64) as usize
            };
            if on != i && !required.contains(&on) {
                required.push(on);
                required_by[on].push(i);
                count += 1;
            }
        }
    }
    let kind = on_off("noop");
    let needs = |of: &[usize], state: &str| -> Vec<Need> {
        of.iter().map(|o| Need { cob: ids[*o].clone(), states: vec![name(state)] }).collect()
    };
    let mut bundles: BTreeMap<HostName, Bundle> = BTreeMap::new();
    for (i, id) in ids.iter().enumerate() {
        let bundle = bundles.entry(id.host()).or_insert_with(|| Bundle::empty(id.host()));
        bundle.kinds.insert(kind.name.clone(), kind.clone());
        let mut transitions = Vec::new();
        let mut locks = Vec::new();
        if !requires[i].is_empty() {
            let up = needs(&requires[i], "up");
            transitions.push(TransitionNeeds { from: name("down"), to: name("up"), needs: up.clone() });
            locks.push(LockNeeds { state: name("up"), needs: up });
        }
        if !required_by[i].is_empty() {
            let down = needs(&required_by[i], "down");
            transitions.push(TransitionNeeds { from: name("up"), to: name("down"), needs: down });
        }
        let cob = Cob {
            id: id.clone(),
            kind: kind.name.clone(),
            preferred: name("up"),
            content: "{}".to_owned(),
            fingerprint: canonical::fingerprint(&[b"noop"]),
            rests_on: None,
            transitions: transitions.into(),
            locks: locks.into(),
            ranks: [(name("up"), (n + i) as u64), (name("down"), (n - i) as u64)].into(),
            expects: BTreeMap::new(),
            budget: None,
            at_most: None,
            keep: false,
            observe: false,
            files: BTreeMap::new(),
        };
        bundle.cobs.insert(id.clone(), Arc::new(cob));
    }
    (bundles.into_iter().map(|(h, b)| (h, Arc::new(b))).collect(), count)
}

/// A chain: each change object is started after its predecessor on another host. The first takes a second, so that all
/// others have been found, and wait for it, when it is up.
#[must_use]
pub fn chain(hosts: usize, length: usize) -> BTreeMap<HostName, Arc<Bundle>> {
    let id = |i: usize| CobId::new(&format!("h{}/c{i}", i % hosts)).expect("well formed");
    let mut bundles: BTreeMap<HostName, Bundle> = BTreeMap::new();
    for i in 0..length {
        let (kind, content) = if i == 0 { (on_off("wait"), "{\"ms\":1000}") } else { (on_off("noop"), "{}") };
        let host = id(i).host();
        let bundle = bundles.entry(host.clone()).or_insert_with(|| Bundle::empty(host));
        bundle.kinds.insert(kind.name.clone(), kind.clone());
        let needs = if i == 0 { Vec::new() } else { vec![Need { cob: id(i - 1), states: vec![name("up")] }] };
        let before = TransitionNeeds { from: name("down"), to: name("up"), needs };
        let cob = Cob {
            id: id(i),
            kind: kind.name.clone(),
            preferred: name("up"),
            content: content.to_owned(),
            fingerprint: canonical::fingerprint(&[kind.name.as_str().as_bytes()]),
            rests_on: None,
            transitions: (i != 0).then_some(before).into_iter().collect(),
            locks: Default::default(),
            ranks: [(name("up"), i as u64), (name("down"), 0)].into(),
            expects: BTreeMap::new(),
            budget: None,
            at_most: None,
            keep: false,
            observe: false,
            files: BTreeMap::new(),
        };
        bundle.cobs.insert(id(i), Arc::new(cob));
    }
    bundles.into_iter().map(|(h, b)| (h, Arc::new(b))).collect()
}
