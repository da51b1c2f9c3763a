//! Tests of the askers of a bundle.

use std::collections::BTreeMap;

use proptest::prelude::*;
use thin_vec::ThinVec;

use super::*;
use crate::cob::{Cob, LockNeeds, Need, TransitionNeeds};
use crate::testing::{cob, kind, state};
use crate::{Packed, codec};

fn id(text: &str) -> CobId {
    CobId::new(text).expect("an id")
}

fn states(text: &str) -> Vec<StateName> {
    text.split('|').map(state).collect()
}

/// A change object with needs: on its transition, for its lock, and a token.
fn needing(text: &str, transition: &[&str], lock: &[&str], token: Option<&str>) -> Arc<Cob> {
    let need = |text: &&str| {
        let (cob, set) = text.split_once('@').expect("a need");
        Need { cob: id(cob), states: states(set) }
    };
    let transition =
        TransitionNeeds { from: state("down"), to: state("up"), needs: transition.iter().map(need).collect() };
    let lock = LockNeeds { state: state("up"), needs: lock.iter().map(need).collect() };
    let (transitions, locks) = (ThinVec::from([transition].as_slice()), ThinVec::from([lock].as_slice()));
    let budget = token.map(|token| Box::new(need(&token)));
    Arc::new(Cob { id: id(text), transitions, locks, budget, ..cob(1, 1) })
}

fn bundles(cobs: Vec<Arc<Cob>>) -> BTreeMap<HostName, Bundle> {
    let mut bundles = BTreeMap::new();
    for cob in cobs {
        let host = cob.id.host();
        let bundle = bundles.entry(host.clone()).or_insert_with(|| Bundle::empty(host));
        bundle.kinds.insert(kind("k").name, kind("k"));
        bundle.cobs.insert(cob.id.clone(), cob);
    }
    Askers::fill(&mut bundles);
    bundles
}

fn of<'a>(bundles: &'a BTreeMap<HostName, Bundle>, host: &str) -> &'a Askers {
    bundles[&HostName::new(host).expect("a name")].askers.as_deref().expect("filled")
}

#[test]
fn only_a_dependency_of_the_asker_justifies_a_request() {
    let all = bundles(vec![
        needing("a/x", &["b/y@up", "a/z@up"], &["b/y@up|degraded"], Some("b/budget@open")),
        needing("a/z", &[], &["b/w@down"], None),
        needing("b/y", &["a/x@down"], &[], None),
    ]);
    let b = of(&all, "b");
    let justify = |asker: &str, asked: &str, set: &str| b.justify(&id(asker), &id(asked), &states(set));
    assert!(justify("a/x", "b/y", "up") && justify("a/x", "b/y", "up|degraded") && justify("a/x", "b/budget", "open"));
    assert!(justify("a/z", "b/w", "down"));
    // Another state, part of a set, another order; another asker; another object; an object without dependents.
    for (asker, asked, set) in [
        ("a/x", "b/y", "down"),
        ("a/x", "b/y", "degraded"),
        ("a/x", "b/y", "degraded|up"),
        ("a/z", "b/y", "up"),
        ("c/x", "b/y", "up"),
        ("a/x", "b/w", "down"),
        ("a/x", "b/other", "up"),
    ] {
        assert!(!justify(asker, asked, set), "{asker} {asked} {set}");
    }
    assert!(!b.justify(&id("a/x"), &id("b/y"), &[]));
    assert_eq!((b.len(), of(&all, "a").len()), (4, 1), "dependencies within a host need no word");
    assert!(b.name(&id("a/z"), &id("b/w")) && !b.name(&id("a/z"), &id("b/y")));
}

#[test]
fn two_dependencies_may_narrow_each_other() {
    let all = bundles(vec![needing("a/x", &["b/y@2|0|1"], &["b/y@1|2|3"], None), needing("b/y", &[], &[], None)]);
    let justify = |set: &str| of(&all, "b").justify(&id("a/x"), &id("b/y"), &states(set));
    assert!(justify("2|0|1") && justify("1|2|3") && justify("1|2") && justify("2|1"));
    assert!(!justify("1") && !justify("2") && !justify("0|1") && !justify("3"));
}

#[test]
fn askers_with_a_broken_structure_are_refused() {
    let all = bundles(vec![needing("a/x", &["b/y@up"], &[], None), needing("b/y", &[], &[], None)]);
    let bundle = &all[&HostName::new("b").expect("a name")];
    let judge = |change: &dyn Fn(&mut Askers)| {
        let mut bundle = bundle.clone();
        change(Arc::make_mut(bundle.askers.as_mut().expect("filled")));
        (bundle.validate().is_ok(), Packed::read(&codec::encode(&bundle).expect("CBOR"), None).is_ok())
    };
    assert_eq!(judge(&|_| {}), (true, true));
    let changes: [&dyn Fn(&mut Askers); 5] = [
        &|askers| askers.ids.push(id("a/a")),
        &|askers| askers.ids = vec![id("b/x")],
        &|askers| askers.sets[0].clear(),
        &|askers| askers.asked.get_mut("y").expect("asked")[0].0 = 1,
        &|askers| askers.asked.get_mut("y").expect("asked")[0].1 = vec![0, 1],
    ];
    for (at, change) in changes.iter().enumerate() {
        assert_eq!(judge(change), (false, false), "{at}");
    }
}

#[test]
fn no_more_dependencies_are_taken_than_a_daemon_serves() {
    let room = |pairs: usize, ids: usize, hosts: usize, sets: usize| {
        let mut ids: Vec<CobId> = (0..ids).map(|n| id(&format!("a{}/x{n}", n % hosts))).collect();
        ids.sort_unstable();
        let all = ids.len();
        let by = |n: usize| (0..sets as u32).map(|set| (set, (0..all.min(pairs - n * all) as u32).collect())).collect();
        let asked = (0..pairs.div_ceil(all)).map(|n| (format!("y{n:06}"), by(n))).collect();
        let sets = vec![vec![state("down")], vec![state("up")]];
        let askers = Askers { ids, sets, asked };
        let bundle = Bundle { askers: Some(Arc::new(askers)), ..Bundle::empty(HostName::new("b").expect("a name")) };
        let found = bundle.check_room();
        let validated = bundle.validate_askers().map_err(|fault| fault.what);
        assert_eq!(validated, found.as_ref().map_err(ToString::to_string).copied());
        found
    };
    let host = HostName::new("a0").expect("a name");
    assert_eq!(room(MAX_OF_HOST, MAX_OF_HOST, 1, 2), Ok(()), "a pair counts once");
    assert_eq!(room(MAX_OF_HOST, 100, 1, 1), Ok(()));
    assert_eq!(room(MAX_OF_HOST + 1, 100, 1, 1), Err(TooMany::OfHost { host, pairs: MAX_OF_HOST + 1 }));
    assert_eq!(room(MAX_OF_ONE, MAX_OF_ONE, 10, 1), Ok(()));
    let one = TooMany::OfOne { asked: "y000000".to_owned(), dependents: MAX_OF_ONE + 1 };
    assert_eq!(room(MAX_OF_ONE + 1, MAX_OF_ONE + 1, 10, 1), Err(one.clone()));
    // Dependents on the same host count as well.
    let cobs = (0..MAX_OF_ONE).map(|n| needing(&format!("b/x{n}"), &["b/y000000@up"], &["b/y000000@up"], None));
    let here = |more: Vec<Arc<Cob>>| {
        bundles(cobs.clone().chain(more).collect())[&HostName::new("b").expect("a name")].check_room()
    };
    assert_eq!(here(Vec::new()), Ok(()));
    assert_eq!(here(vec![needing("a/x", &["b/y000000@up"], &[], None)]), Err(one.clone()));
    assert_eq!(here(vec![needing("b/z", &["b/y000000@up"], &[], None)]), Err(one));
}

#[test]
fn bundles_with_and_without_askers_are_compatible() {
    #[derive(Deserialize)]
    struct Before {
        host: HostName,
    }
    let all = bundles(vec![needing("a/x", &["b/y@up"], &[], None), needing("b/y", &[], &[], None)]);
    let bundle = &all[&HostName::new("b").expect("a name")];
    let bytes = codec::encode(bundle).expect("CBOR");
    let before: Before = codec::decode(&bytes, bytes.len()).expect("what is new is skipped");
    assert_eq!(before.host, bundle.host);
    let old = codec::encode(&Bundle { askers: None, ..bundle.clone() }).expect("CBOR");
    assert_eq!(Packed::read(&old, None).expect("in order").askers(), None);
    assert_eq!(Packed::read(&bytes, None).expect("in order").askers(), bundle.askers.as_ref());
}

/// A popular change object with many askers costs some bytes for each asker, and each name once.
#[test]
fn the_size_is_linear_in_the_dependencies() {
    let size = |askers: usize, asked: usize| {
        let needs: Vec<String> = (0..asked).map(|n| format!("b/database-{n:04}@up")).collect();
        let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
        let cobs = (0..askers).map(|n| needing(&format!("web-{n:05}/application"), &needs, &needs, None));
        let mut all = bundles(cobs.chain([needing("b/database-0000", &[], &[], None)]).collect());
        let bundle = all.remove(&HostName::new("b").expect("a name")).expect("there");
        codec::encode(&bundle.askers).expect("CBOR").len()
    };
    let (one, more) = (size(1000, 1), size(2000, 1));
    assert!(more - one < 1000 * 28, "{one}, {more}");
    assert!(size(1000, 10) - one < 9 * 1000 * 4, "each further dependency of a known asker takes at most four bytes");
}

proptest! {
    /// For any dependencies, exactly the declared sets are justified.
    #[test]
    fn only_declared_state_sets_are_justified(
        edges in prop::collection::btree_set((0_u8..6, 0_u8..4, 0_u8..3), 0..20),
        probe in (0_u8..6, 0_u8..4, 0_u8..3),
    ) {
        const SETS: [&str; 3] = ["up", "down", "down|up"];
        let need = |edge: &(u8, u8, u8)| format!("b/y{}@{}", edge.1, SETS[usize::from(edge.2)]);
        let cobs: Vec<Arc<Cob>> = (0..6)
            .flat_map(|n| edges.iter().filter(move |edge| edge.0 == n))
            .map(|edge| (format!("a{}/x", edge.0), need(edge)))
            .fold(BTreeMap::<String, Vec<String>>::new(), |mut all, (asker, need)| {
                all.entry(asker).or_default().push(need);
                all
            })
            .into_iter()
            .map(|(asker, needs)| needing(&asker, &needs.iter().map(String::as_str).collect::<Vec<_>>(), &[], None))
            .chain([needing("b/y0", &[], &[], None)])
            .collect();
        let all = bundles(cobs);
        let (asker, asked, set) = (id(&format!("a{}/x", probe.0)), id(&format!("b/y{}", probe.1)), SETS[usize::from(probe.2)]);
        let has = |set: u8| edges.contains(&(probe.0, probe.1, set));
        // The intersection of `down|up` with either of its states is that state.
        let expected = has(probe.2);
        prop_assert_eq!(of(&all, "b").justify(&asker, &asked, &states(set)), expected);
    }
}
