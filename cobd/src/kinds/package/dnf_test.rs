//! Packages with a real rpm and dnf, in a root folder of the test: the machine's own packages are never touched.

use std::fs;

use super::rpm_world::World;
use super::tests::package;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::Bench;

#[tokio::test]
async fn a_package_is_installed_changed_and_removed_with_its_dependencies() {
    let Some(world) = World::filled("dnf") else { return };
    let mut bench = Bench::new();
    world.changes_versions(&mut bench).await;
    assert_eq!(fs::read_dir(bench.path("cobs/n1+a+b")).expect("there").count(), 0, "nothing of ours is left");
}

#[tokio::test]
async fn a_failed_installation_gives_its_reason() {
    let Some(world) = World::filled("dnf") else { return };
    let mut bench = Bench::new();
    world.gives_reasons(&mut bench, &[]).await;
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
