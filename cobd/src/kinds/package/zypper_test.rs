//! Packages with a real rpm and zypper, in a root folder of the test: the machine's own packages are never touched.

use std::fs;
use std::process::Command;

use super::rpm_world::World;
use super::tests::{found, moved, package};
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, cob_id, reason};

/// The list of automatically installed packages.
fn automatic(world: &World) -> String {
    fs::read_to_string(world.root().join("var/lib/zypp/AutoInstalled")).unwrap_or_default()
}

fn lock(world: &World, text: &str) {
    fs::write(world.root().join("etc/zypp/locks"), text).expect("written");
}

#[tokio::test]
async fn a_package_is_installed_changed_and_removed_with_its_dependencies() {
    let Some(world) = World::filled("zypper") else { return };
    let mut bench = Bench::new();
    world.changes_versions(&mut bench).await;
    assert_eq!(fs::read_dir(bench.path("cobs/n1+a+b")).expect("there").count(), 0, "the own folder is empty");
    let stray = world.root().join(bench.path("").strip_prefix("/").expect("absolute"));
    assert!(!stray.exists(), "{}: no cache below the root folder", stray.display());
}

#[tokio::test]
async fn a_failed_installation_gives_its_reason() {
    let Some(world) = World::filled("zypper") else { return };
    let mut bench = Bench::new();
    let override_hold = (r#","override_hold":true"#, "`zypper removelock cobtest`");
    world.gives_reasons(&mut bench, &[override_hold]).await;
}

#[tokio::test]
async fn other_packages_are_removed_only_if_the_model_allows_it() {
    let Some(world) = World::filled("zypper") else { return };
    world.build("cobfoe", "1.0", "Conflicts: cobtest\n");
    world.index();
    let mut bench = Bench::new();
    let test = bench.context(&package(), &world.content(r#","version":"1.0-1""#));
    moved(&mut bench, &test, "absent", "present").await;
    let foe = |keys: &str| world.content(keys).replace("\"cobtest\",\"repo", "\"cobfoe\",\"repo");
    let mut denied = bench.context(&package(), &foe(""));
    std::sync::Arc::make_mut(&mut denied.cob).id = cob_id("n1/foe");
    let why = reason(bench.transition(&denied, "absent", "present").await);
    assert!(why.contains("would remove cobtest; no package was changed"), "{why}");
    assert_eq!(world.installed(), ["cobdep 1.0", "cobtest 1.0"]);
    let mut allowed = bench.context(&package(), &foe(r#","may_remove":["cobtest"]"#));
    std::sync::Arc::make_mut(&mut allowed.cob).id = cob_id("n1/foe");
    moved(&mut bench, &allowed, "absent", "present").await;
    assert_eq!(world.installed(), ["cobdep 1.0", "cobfoe 1.0"]);
}

#[tokio::test]
async fn a_package_that_others_need_or_that_was_there_stays() {
    let Some(world) = World::filled("zypper") else { return };
    let mut bench = Bench::new();
    let of = |bench: &Bench, id: &str, name: &str| {
        let content = world.content("").replace("\"cobtest\"", &format!("\"{name}\""));
        let mut context = bench.context(&package(), &content);
        std::sync::Arc::make_mut(&mut context.cob).id = cob_id(id);
        context
    };
    let (dep, test) = (of(&bench, "n1/dep", "cobdep"), of(&bench, "n1/test", "cobtest"));
    moved(&mut bench, &dep, "absent", "present").await;
    assert!(!automatic(&world).contains("cobdep"));
    moved(&mut bench, &test, "absent", "present").await;
    // A desired absence is refused, and a departure leaves the package to the other change object.
    let why = reason(bench.transition(&dep, "present", "absent").await);
    assert!(why.contains("would remove cobtest") && why.contains("may_remove"), "{why}");
    let mut leaving = dep.clone();
    leaving.leaving = true;
    assert!(matches!(bench.transition(&leaving, "present", "absent").await, crate::kinds::Outcome::Done { .. }));
    assert_eq!(world.installed(), ["cobdep 1.0", "cobtest 2.0"]);
    assert!(automatic(&world).lines().any(|line| line == "cobdep"), "{}", automatic(&world));
    moved(&mut bench, &test, "present", "absent").await;
    assert_eq!(world.installed(), [""; 0]);
}

#[tokio::test]
async fn a_lock_of_an_administrator_counts_as_a_hold() {
    let Some(world) = World::filled("zypper") else { return };
    let mut bench = Bench::new();
    let old = bench.context(&package(), &world.content(r#","version":"1.0-1""#));
    let new = bench.context(&package(), &world.content(r#","version":"2.0-1""#));
    moved(&mut bench, &old, "absent", "present").await;
    lock(&world, "\ntype: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: cobt*\n");
    assert_eq!(found(&mut bench, &old).await.0, "present");
    let (state, difference) = found(&mut bench, &new).await;
    assert_eq!(state, "held");
    assert!(difference.contains("1.0-1, on hold"), "{difference}");
    for to in ["present", "absent"] {
        let why = reason(bench.transition(&new, "held", to).await);
        assert!(why.contains("is on hold") && why.contains("`zypper removelock cobtest`"), "{why}");
    }
    assert_eq!(world.installed(), ["cobdep 1.0", "cobtest 1.0"]);
    lock(&world, "");
    moved(&mut bench, &new, "outdated", "present").await;
}

#[tokio::test]
async fn two_versions_after_a_killed_upgrade_become_one() {
    let Some(world) = World::filled("zypper") else { return };
    let mut bench = Bench::new();
    let old = bench.context(&package(), &world.content(r#","version":"1.0-1""#));
    moved(&mut bench, &old, "absent", "present").await;
    let second = world.folder.path().join("repository/noarch/cobtest-2.0-1.noarch.rpm");
    let ran = world.rpm().args(["-i", "--force"]).arg(second).output().expect("rpm");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    // A state that others have left is for an operator to repair; our own mark allows a repair.
    let why = reason(bench.transition(&old, "outdated", "present").await);
    assert!(why.contains("two versions at once, 1.0-1 and 2.0-1") && why.contains("`zypper verify`"), "{why}");
    fs::write(bench.path("cobs/n1+a+b/under-way"), "").expect("written");
    moved(&mut bench, &old, "outdated", "present").await;
    assert_eq!(world.installed(), ["cobdep 1.0", "cobtest 1.0"]);
}

#[tokio::test]
async fn zypper_packages_keep_the_contract() {
    let Some(world) = World::filled("zypper") else { return };
    let [old, new] = ["1.0-1", "2.0-1"].map(|v| world.content(&format!(r#","version":"{v}""#)));
    let mut kind = package();
    kind.states.retain(|s| *s != "held");
    kind.transitions.retain(|t| t.from != *"held");
    let usr = world.root().join("usr");
    fs::create_dir_all(usr.join("share")).expect("made");
    holds(&Case::new(kind, &new).other(&old).kills(3).watching(usr), &[]).await;
}

#[tokio::test]
async fn only_a_repository_with_a_known_signature_is_used() {
    let Some(world) = World::filled("zypper") else { return };
    let folder = world.folder.path();
    let gpg = |arguments: &[&str]| {
        let mut command = Command::new("gpg");
        command
            .env("GNUPGHOME", folder)
            .args(["--batch", "--yes", "--armor", "--passphrase", ""])
            .args(arguments)
            .output()
    };
    if gpg(&["--version"]).is_err() {
        eprintln!("skipped: there is no gpg");
        return;
    }
    let made = |arguments: &[&str]| {
        let ran = gpg(arguments).expect("gpg");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    let [key, list] = ["key.asc", "repository/repodata/repomd.xml"].map(|name| folder.join(name));
    let [key, list] = [&key, &list].map(|path| path.to_str().expect("UTF-8"));
    made(&["--quick-gen-key", "cob@test", "rsa2048", "sign", "never"]);
    made(&["--output", key, "--export", "cob@test"]);
    made(&["--detach-sign", list]);
    let trusted = world.content("");
    let unknown = trusted.replace(r#","trusted":true"#, "");
    let known = trusted.replace(r#""trusted":true"#, &format!(r#""signed_by":"{key}""#));
    let mut bench = Bench::new();
    let unknown = bench.context(&package(), &unknown);
    let why = reason(bench.transition(&unknown, "absent", "present").await);
    assert!(why.contains("signed or `trusted: true`"), "{why}");
    assert_eq!(world.installed(), [""; 0]);
    let known = bench.context(&package(), &known);
    moved(&mut bench, &known, "absent", "present").await;
    assert_eq!(world.installed()[..2], ["cobdep 1.0", "cobtest 2.0"]);
    // A changed list does not fit the signature.
    fs::write(list, fs::read_to_string(list).expect("read") + "<!-- changed -->\n").expect("written");
    let latest =
        world.content(&format!(r#","version":"latest","signed_by":"{key}""#)).replace(r#""trusted":true,"#, "");
    let latest = bench.context(&package(), &latest);
    let why = reason(bench.transition(&latest, "outdated", "present").await);
    assert!(why.contains("signed or `trusted: true`"), "{why}");
}
