//! Tests of each rule of admission, and floods in simulated time.

use std::net::Ipv4Addr;

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

fn small() -> PendingLimits {
    PendingLimits {
        waiting: 6,
        waiting_per_source: 4,
        slots: 3,
        slots_per_source: 2,
        grace: Duration::from_millis(100),
        source_rate: Rate { per_second: 10, burst: 4 },
        total_rate: Rate { per_second: 100, burst: 100 },
        ..PendingLimits::default()
    }
}

fn pending() -> (Pending, Instant) {
    let now = Instant::now();
    (Pending::new(small(), now, 1), now)
}

fn address(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(number))
}

#[test]
fn a_full_source_makes_room_for_its_own_newcomers() {
    let (mut pending, now) = pending();
    let ids: Vec<_> = (0..4).map(|_| pending.arrive(HERE, now)).collect();
    assert!(ids.iter().all(|(_, evicted)| evicted.is_none()));
    pending.spoke(ids[0].0, true);
    assert_eq!(pending.arrive(HERE, now).1, Some(ids[1].0), "of the older half the silent one");
    assert_eq!(pending.arrive(THERE, now).1, None);
}

#[test]
fn a_crowd_makes_room_for_other_sources() {
    let limits = PendingLimits { waiting: NO_CROWD + 3, waiting_per_source: 64, ..small() };
    let now = Instant::now();
    let mut pending = Pending::new(limits, now, 1);
    let crowd: Vec<_> = (0..=NO_CROWD).map(|_| pending.arrive(THERE, now).0).collect();
    let alone = pending.arrive(HERE, now).0;
    pending.arrive(address(1), now);
    assert_eq!(pending.arrive(address(2), now).1, Some(crowd[0]));
    // Now no source has a crowd, and the older half is evicted.
    let evicted = pending.arrive(address(3), now).1.expect("one makes room");
    assert!(evicted <= alone, "{evicted}");
}

#[test]
fn a_full_source_does_not_keep_another_out() {
    let (mut pending, now) = pending();
    for _ in 0..3 {
        let (id, _) = pending.arrive(HERE, now);
        pending.spoke(id, true);
    }
    let (other, _) = pending.arrive(THERE, now);
    pending.spoke(other, true);
    let mut placed: Vec<_> = std::iter::from_fn(|| pending.place(now)).map(|p| p.id).collect();
    assert!(placed.len() == 3 && placed.contains(&other), "{placed:?}");
    placed.retain(|id| *id != other);
    let last = (1..=3).find(|id| !placed.contains(id)).expect("one waits");
    // It gets a slot when the first connection of its source has had its time.
    assert_eq!(pending.place(now + Duration::from_millis(99)), None);
    let evicted = placed.iter().min().copied();
    assert_eq!(pending.place(now + Duration::from_millis(100)), Some(Placed { id: last, evicted }));
}

#[test]
fn handshakes_are_held_to_their_rate() {
    let (mut pending, start) = pending();
    let mut placed = 0;
    for millisecond in 0..2000 {
        let now = start + Duration::from_millis(millisecond);
        let (id, _) = pending.arrive(HERE, now);
        pending.spoke(id, true);
        while let Some(next) = pending.place(now) {
            placed += 1;
            pending.leave(next.id);
        }
    }
    assert!((23..=24).contains(&placed), "4 at once and 10 a second: {placed}");
    let now = start + Duration::from_millis(1999);
    let (id, _) = pending.arrive(HERE, now);
    pending.spoke(id, false);
    assert_eq!(pending.place(now).map(|p| p.id), Some(id), "without a handshake it needs no rate");
}

#[test]
fn addresses_made_up_at_will_do_not_fill_the_memory() {
    let (mut pending, now) = pending();
    pending.limits.total_rate = Rate { per_second: 1_000_000, burst: 1_000_000 };
    for n in 0..10_000_u32 {
        let (id, _) = pending.arrive(address(n + 1), now);
        pending.spoke(id, true);
        while let Some(placed) = pending.place(now) {
            pending.leave(placed.id);
        }
        pending.expected().proved(PublicKey([1; 32]), address(n));
    }
    assert!(pending.accounts.len() <= MAX_ACCOUNTS && pending.len() <= 9 + pending.limits.reserved);
    assert_eq!(pending.expected.all.len(), ADDRESSES_OF_KEY);
    let source = |text: &str| Source::from(text.parse::<IpAddr>().expect("address"));
    assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
    assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
}

#[test]
fn an_expected_address_has_room_while_all_else_is_taken() {
    let (mut pending, now) = pending();
    pending.expected().set([THERE], |_| true);
    for n in 0..100 {
        let (id, _) = pending.arrive(address(n + 1), now);
        pending.spoke(id, true);
        pending.place(now);
    }
    let (host, evicted) = pending.arrive(THERE, now);
    assert_eq!(evicted, None);
    for n in 0..100 {
        assert_ne!(pending.arrive(address(n + 1), now).1, Some(host), "no other address takes what is in reserve");
    }
    pending.spoke(host, true);
    assert_eq!(pending.place(now), Some(Placed { id: host, evicted: None }));
    // Connections of the address beyond its reserve count as those of any other.
    for _ in 0..pending.limits.reserved_per_source {
        pending.arrive(THERE, now);
    }
    assert_eq!(pending.connections.values().filter(|c| c.reserved).count(), pending.limits.reserved_per_source);
}

#[test]
fn an_address_is_expected_after_a_key_was_proved_and_until_the_key_is_unknown() {
    let mut expected = Expected::default();
    let key = PublicKey([1; 32]);
    expected.proved(key, THERE);
    expected.set([HERE], |_| true);
    assert_eq!(expected.all, [HERE, THERE].into());
    expected.set([HERE], |_| false);
    assert_eq!(expected.all, [HERE].into());
}

/// How the attackers of a flood choose their addresses.
#[derive(Debug, Clone, Copy)]
enum Choice {
    /// This many addresses below, or above, the honest caller's address.
    Below(u32),
    Above(u32),
    /// The honest caller's own address.
    Same,
}

/// A flood in simulated time.
#[derive(Debug, Clone, Copy)]
struct Flood {
    per_second: u32,
    choice: Choice,
    /// Whether an attacker starts a handshake, or is silent.
    speaks: bool,
}

const HONEST: u32 = 0x0A63_8000;
/// How long an honest caller needs for its part of a handshake, in ms.
const HONEST_TIME: u64 = 40;
/// When attackers are cut, in ms.
const SETUP: u64 = 3000;

/// The share of honest connections (of a single address, ten a second) that complete their handshake.
fn share(flood: Flood, is_expected: bool, seed: u64) -> f64 {
    let start = Instant::now();
    let mut pending = Pending::new(PendingLimits::default(), start, seed);
    let honest = address(HONEST);
    if is_expected {
        pending.expected().set([honest], |_| true);
    }
    let mut ends: BTreeMap<(u64, Id), ()> = BTreeMap::new();
    let mut speaks: BTreeMap<(u64, Id), ()> = BTreeMap::new();
    let (mut ours, mut tried, mut through) = (BTreeSet::new(), 0_u32, 0_u32);
    let mut strangers = 0_u64;
    for ms in 0..4_000_u64 {
        let now = start + Duration::from_millis(ms);
        while strangers < ms * u64::from(flood.per_second) / 1000 {
            let nth = u32::try_from(strangers).expect("few");
            let from = match flood.choice {
                Choice::Below(many) => HONEST - 1 - nth % many,
                Choice::Above(many) => HONEST + 1 + nth % many,
                Choice::Same => HONEST,
            };
            strangers += 1;
            let (id, evicted) = pending.arrive(address(from), now);
            evicted.map(|evicted| ours.remove(&evicted));
            if flood.speaks {
                pending.spoke(id, true);
            }
            ends.insert((ms + SETUP, id), ());
        }
        // The flood reaches its full height first.
        if ms >= 2000 && ms % 100 == 0 {
            let (id, evicted) = pending.arrive(honest, now);
            evicted.map(|evicted| ours.remove(&evicted));
            tried += 1;
            ours.insert(id);
            speaks.insert((ms + 1, id), ());
            ends.insert((ms + SETUP, id), ());
        }
        while let Some((at, id)) = speaks.keys().next().copied().filter(|(at, _)| *at <= ms) {
            speaks.remove(&(at, id));
            pending.spoke(id, true);
        }
        while let Some(placed) = pending.place(now) {
            placed.evicted.map(|evicted| ours.remove(&evicted));
            if ours.contains(&placed.id) {
                ends.insert((ms + HONEST_TIME, placed.id), ());
            }
        }
        while let Some((at, id)) = ends.keys().next().copied().filter(|(at, _)| *at <= ms) {
            ends.remove(&(at, id));
            // Placed for long enough, or out of time.
            let placed = pending.connections.get(&id).is_some_and(|c| c.stage == Stage::Placed);
            through += u32::from(ours.remove(&id) && placed);
            pending.leave(id);
        }
        assert!(pending.len() <= 256 + 192 + 64);
    }
    f64::from(through) / f64::from(tried)
}

#[test]
fn no_choice_of_source_addresses_keeps_an_honest_caller_out() {
    for speaks in [false, true] {
        for choice in [2000, 24].into_iter().flat_map(|n| [Choice::Below(n), Choice::Above(n)]) {
            let flood = Flood { per_second: 950, choice, speaks };
            let (stranger, expected) = (share(flood, false, 7), share(flood, true, 7));
            println!("{flood:?}: {stranger:.2} of an unknown address, {expected:.2} of an expected one");
            assert!(expected >= 1.0, "{flood:?}: {expected}");
            assert!(stranger >= 0.95, "{flood:?}: {stranger}");
        }
    }
}

#[test]
fn a_flood_does_not_affect_expected_addresses() {
    for choice in [Choice::Below(2000), Choice::Above(2000)] {
        let flood = Flood { per_second: 4000, choice, speaks: true };
        let (stranger, expected) = (share(flood, false, 7), share(flood, true, 7));
        println!("{flood:?}: {stranger:.2} of an unknown address, {expected:.2} of an expected one");
        assert!(expected >= 1.0, "{flood:?}: {expected}");
        assert!(stranger >= 0.05, "{flood:?}: {stranger}");
    }
}

#[test]
fn a_flood_from_the_very_address_of_a_host_leaves_the_host_a_share() {
    for is_expected in [false, true] {
        let flood = Flood { per_second: 500, choice: Choice::Same, speaks: true };
        let share = share(flood, is_expected, 3);
        println!("{flood:?}, expected {is_expected}: {share:.2}");
        assert!(share >= 0.15, "{share}");
    }
}
