//! Random sets of packages with dependencies and conflicts, on a real apt: a transition of a change object leaves the
//! packages of all others unchanged, or fails without changes.
//!
//! `COB_SEED` and `COB_ROUNDS` repeat and lengthen the runs.

use std::collections::{BTreeMap, BTreeSet};

use cob_engine::sim::Random;

use super::tests::{World, about, leaving};
use crate::kinds::Outcome;
use crate::kinds::testing::Bench;

const NAMES: [&str; 5] = ["pa", "pb", "pc", "pd", "pe"];
const MOVES: u64 = 8;

/// The installed packages with their versions.
fn installed(world: &World) -> BTreeMap<String, String> {
    let told = world.installed();
    let words = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let there = words.filter(|words| words.first().is_some_and(|status| status.ends_with('i')));
    there.map(|words| (words[1].to_owned(), words[2].to_owned())).collect()
}

/// Builds two versions of each package, with dependencies and conflicts, and returns the description.
fn fill(world: &World, random: &mut Random) -> String {
    let mut said = String::new();
    for (at, name) in NAMES.iter().enumerate() {
        for version in ["1.0", "2.0"] {
            let other = *random.pick(&NAMES);
            let relation = match random.below(6) {
                0 if at > 0 => format!("Depends: {} (= {version})\n", NAMES[at - 1]),
                1 if at > 0 => format!("Depends: {}\n", NAMES[at - 1]),
                2 | 3 if other != *name => format!("Conflicts: {other}\n"),
                4 if other != *name => format!("Breaks: {other} (<< 2.0)\n"),
                _ => String::new(),
            };
            world.add(name, version, &relation);
            said += &format!("{name} {version} {}; ", relation.trim_end());
        }
    }
    said
}

#[tokio::test]
async fn a_transition_does_not_change_packages_of_others() {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (first, rounds): (u64, u64) = (number("COB_SEED", 1), number("COB_ROUNDS", 5));
    let (mut made, mut refused) = (0, 0);
    for seed in first..first + rounds {
        let mut random = Random::new(seed);
        let Some(world) = World::new() else { return };
        let mut said = format!("seed {seed}: {}", fill(&world, &mut random));
        let mut bench = Bench::new();
        // The companions that transitions have installed and may remove again.
        let mut along: BTreeSet<String> = BTreeSet::new();
        for _ in 0..MOVES {
            let name = *random.pick(&NAMES);
            let keys = *random.pick(&["", r#","version":"1.0""#, r#","version":"2.0""#, r#","purge":true"#]);
            let context = about(&bench, &world, &format!("n1/{name}"), name, keys);
            let before = installed(&world);
            let is_there = before.contains_key(name);
            let goes = is_there && random.permille(400);
            let leaves = goes && random.permille(500);
            said += &format!("{name}{keys}{}; ", if goes { " goes" } else { "" });
            let context = if leaves { leaving(&context) } else { context };
            let (from, to) = match (is_there, goes) {
                (_, true) => ("present", "absent"),
                (true, false) => ("outdated", "present"),
                (false, false) => ("absent", "present"),
            };
            let outcome = bench.transition(&context, from, to).await;
            let after = installed(&world);
            match &outcome {
                Outcome::Failed { reason } if reason.contains("no package was changed") => {
                    refused += 1;
                    assert_eq!(after, before, "{said}: {reason}");
                }
                Outcome::Done { .. } => made += 1,
                // The model asks for a state that apt can't reach.
                Outcome::Failed { reason } => assert_eq!(after, before, "{said}: {reason}"),
                Outcome::Conflict { .. } | Outcome::Cancelled | Outcome::Lost => panic!("{said}: {outcome:?}"),
            }
            for (other, version) in before.iter().filter(|(other, _)| *other != name) {
                let now = after.get(other);
                assert!(now.is_some() || goes && along.contains(other), "{said}: {other} is gone; {outcome:?}");
                assert!(now.is_none_or(|now| now >= version), "{said}: {other} {version} has become {now:?}");
            }
            along.extend(after.into_keys().filter(|other| other != name && !before.contains_key(other)));
        }
    }
    eprintln!("COB_SEED={first} COB_ROUNDS={rounds}: {made} moves made, {refused} refused");
    assert!(made >= 3 * rounds && refused >= rounds, "{made} made, {refused} refused: these packages try nothing");
}
