//! Packages with a real rpm and dnf, in a root folder of the test: the machine's own packages are never touched.

use std::fs;

use super::rpm_world::World;
use super::tests::{found, moved, package};
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

#[tokio::test]
async fn a_package_is_installed_changed_and_removed_with_its_dependencies() {
    let Some(world) = World::filled("dnf") else { return };
    let mut bench = Bench::new();
    let old = bench.context(&package(), &world.content(r#","version":"1.0-1""#));
    assert_eq!(found(&mut bench, &old).await, ("absent".to_owned(), String::new()));
    moved(&mut bench, &old, "absent", "present").await;
    assert_eq!(world.installed(), ["cobdep 1.0", "cobtest 1.0"]);
    let new = bench.context(&package(), &world.content(r#","version":"2*""#));
    let (state, difference) = found(&mut bench, &new).await;
    assert_eq!((state.as_str(), difference.as_str()), ("outdated", "wanted 2*, found 1.0-1, available 2.0-1 1.0-1"));
    // A configuration file changed by a user stays, without a question.
    fs::write(world.root().join("etc/cobtest/conf"), "mine\n").expect("written");
    moved(&mut bench, &new, "outdated", "present").await;
    assert_eq!(fs::read_to_string(world.root().join("etc/cobtest/conf")).expect("read"), "mine\n");
    let latest = bench.context(&package(), &world.content(r#","version":"latest""#));
    assert_eq!(found(&mut bench, &latest).await.0, "present");
    // And a downgrade.
    moved(&mut bench, &old, "outdated", "present").await;
    assert_eq!(world.installed(), ["cobdep 1.0", "cobtest 1.0"]);
    assert_eq!(found(&mut bench, &latest).await.0, "outdated");
    moved(&mut bench, &old, "present", "absent").await;
    assert_eq!(world.installed(), [""; 0]);
    assert_eq!(fs::read_dir(bench.path("cobs/n1+a+b")).expect("there").count(), 0, "nothing of ours is left");
}

#[tokio::test]
async fn a_failed_installation_gives_its_reason() {
    let Some(world) = World::filled("dnf") else { return };
    let mut bench = Bench::new();
    let needy = world.content("").replace("\"cobtest\"", "\"needy\"");
    let unknown = world.content("").replace("\"cobtest\"", "\"unknown-package\"");
    let nowhere = world.content("").replace("/repository\"", "/nowhere\"");
    let suite = world.content("").replace("/repository\"", "/repository bookworm main\"");
    for (content, word) in [
        (world.content(r#","version":"3.0-1""#).as_str(), "has no version that fits 3.0-1; it has 2.0-1 1.0-1"),
        (&unknown, "it has no version at all"),
        (&needy, "nothing provides nobody-has-this"),
        (&nowhere, "is it there, with a folder repodata"),
        (&suite, "no suite and no components"),
        (&world.content(r#","hold":true"#), "`hold` is known for apt alone"),
    ] {
        let context = bench.context(&package(), content);
        let (outcome, lines) = bench.transition_with_lines(&context, "absent", "present").await;
        let why = reason(outcome);
        assert!(why.contains(word) || lines.contains(word), "{content}: {why}\n{lines}");
    }
}

#[tokio::test]
async fn dnf_packages_keep_the_contract() {
    let Some(world) = World::filled("dnf") else { return };
    let [old, new] = ["1.0-1", "2.0-1"].map(|v| world.content(&format!(r#","version":"{v}""#)));
    let mut kind = package();
    kind.states.retain(|s| *s != "held");
    kind.transitions.retain(|t| t.from != *"held");
    let usr = world.root().join("usr");
    fs::create_dir_all(usr.join("share")).expect("made");
    // Each transition runs dnf about six times, which takes seconds.
    holds(&Case::new(kind, &new).other(&old).kills(2).watching(usr), &[]).await;
}
