//! Packages with a real dpkg and apt, in a root folder of the test: the machine's own packages are never touched.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cob_types::Kind;

use super::mover::UNDER_WAY;
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::Turn;
use crate::kinds::testing::{Bench, reason, state};
use crate::kinds::{Context, Outcome};

/// A root folder, a repository, and tools to fill both.
pub(super) struct World {
    folder: tempfile::TempDir,
}

impl World {
    /// Returns `None` without dpkg and apt, or without root.
    pub(super) fn new() -> Option<Self> {
        let there = ["dpkg-deb", "dpkg", "apt-get"].iter().all(|p| Path::new("/usr/bin").join(p).exists());
        if !there || !rustix::process::geteuid().is_root() {
            eprintln!("skipped: it takes dpkg, apt and root");
            return None;
        }
        let world = Self { folder: tempfile::tempdir().expect("folder") };
        for folder in [
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/lib/dpkg/triggers",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "var/log/apt",
            "etc/apt/apt.conf.d",
            "etc/apt/preferences.d",
        ] {
            fs::create_dir_all(world.root().join(folder)).expect("made");
        }
        fs::write(world.root().join("var/lib/dpkg/status"), "").expect("written");
        fs::create_dir(world.repository()).expect("made");
        Some(world)
    }

    /// Adds two versions of cobtest, which needs cobdep.
    fn filled() -> Option<Self> {
        let world = Self::new()?;
        world.add("cobdep", "1.0", "");
        world.add("cobtest", "1.0", "Depends: cobdep\n");
        world.add("cobtest", "2.0", "Depends: cobdep\n");
        Some(world)
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn repository(&self) -> PathBuf {
        self.folder.path().join("repository")
    }

    /// Adds a shell to the root folder, for scripts of packages.
    fn has_a_shell(&self) {
        let told = Command::new("ldd").args(["/bin/sh", "/bin/rm"]).output().expect("ldd");
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        for file in told
            .split_whitespace()
            .filter(|word| word.starts_with('/') && !word.ends_with(':'))
            .chain(["/bin/sh", "/bin/rm"])
        {
            let to = self.root().join(file.trim_start_matches('/'));
            fs::create_dir_all(to.parent().expect("below")).expect("made");
            fs::copy(file, to).expect("copied");
        }
    }

    /// Builds a package into the repository.
    pub(super) fn add(&self, name: &str, version: &str, more: &str) {
        self.add_with(name, version, more, None);
    }

    /// Builds a package into the repository, with an optional script: the configuration script, or `NAME: SCRIPT`.
    fn add_with(&self, name: &str, version: &str, more: &str, script: Option<&str>) {
        let build = self.folder.path().join("build");
        let _ = fs::remove_dir_all(&build);
        let share = build.join("usr/share").join(name);
        let etc = build.join("etc").join(name);
        for folder in [&build.join("DEBIAN"), &share, &etc] {
            fs::create_dir_all(folder).expect("made");
        }
        fs::write(share.join("version"), version).expect("written");
        fs::write(etc.join("conf"), format!("setting of {version}\n")).expect("written");
        fs::write(build.join("DEBIAN/conffiles"), format!("/etc/{name}/conf\n")).expect("written");
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: T <t@example.invalid>\n{more}Description: a test\n"
        );
        fs::write(build.join("DEBIAN/control"), &control).expect("written");
        if let Some(script) = script {
            let (name, script) = script.split_once(": ").unwrap_or(("postinst", script));
            let path = build.join("DEBIAN").join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
        }
        let file = format!("{name}_{version}_all.deb");
        let path = self.repository().join(&file);
        let built =
            Command::new("dpkg-deb").args(["-Znone", "--root-owner-group", "-b"]).arg(&build).arg(&path).output();
        assert!(built.expect("dpkg-deb").status.success());
        let bytes = fs::read(&path).expect("built");
        let sum = cob_types::canonical::blob_hash(&bytes);
        let entry = format!("{control}Filename: ./{file}\nSize: {}\nSHA256: {sum}\n\n", bytes.len());
        let list = self.repository().join("Packages");
        let before = fs::read_to_string(&list).unwrap_or_default();
        fs::write(list, before + &entry).expect("written");
    }

    /// Builds version 0.9 of a package for another architecture, beside the repository.
    fn foreign(&self, name: &str, architecture: &str) -> PathBuf {
        let (build, path) = (self.folder.path().join("foreign"), self.folder.path().join("foreign.deb"));
        fs::create_dir_all(build.join("DEBIAN")).expect("made");
        let control = format!(
            "Package: {name}\nVersion: 0.9\nArchitecture: {architecture}\nMulti-Arch: same\n\
             Maintainer: T <t@example.invalid>\nDescription: a test\n"
        );
        fs::write(build.join("DEBIAN/control"), control).expect("written");
        let built =
            Command::new("dpkg-deb").args(["-Znone", "--root-owner-group", "-b"]).arg(&build).arg(&path).output();
        assert!(built.expect("dpkg-deb").status.success());
        path
    }

    fn content(&self, keys: &str) -> String {
        let (root, repository) = (self.root(), self.repository());
        let (root, repository) = (root.display(), repository.display());
        format!(r#"{{"name":"cobtest","repository":"{repository}","root":"{root}","trusted":true{keys}}}"#)
    }

    fn dpkg(&self, arguments: &[&str]) -> String {
        let root = format!("--root={}", self.root().display());
        let ran = Command::new("dpkg").arg(root).args(arguments).output().expect("dpkg");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// Like `apt-mark hold`.
    fn hold(&self, name: &str) {
        let line = format!("echo {name} hold | dpkg --root={} --set-selections", self.root().display());
        assert!(Command::new("sh").args(["-c", &line]).status().expect("run").success());
    }

    /// Installed packages with their versions.
    pub(super) fn installed(&self) -> String {
        let database = format!("--admindir={}", self.root().join("var/lib/dpkg").display());
        let format = "${db:Status-Abbrev}${Package} ${Version}\n";
        let ran = Command::new("dpkg-query").arg(database).args(["-W", "-f", format]).output().expect("dpkg-query");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }
}

pub(super) fn package() -> Kind {
    let mut kind = Package::KIND.kind();
    kind.check.timeout_ms = 10_000;
    kind.transitions.iter_mut().for_each(|transition| transition.timeout_ms = 120_000);
    kind
}

/// State and difference.
pub(super) async fn found(bench: &mut Bench, context: &Context) -> (String, String) {
    let outcome = bench.check(context).await;
    (outcome.state.map_or_else(|why| format!("unknown: {why}"), |s| s.to_string()), outcome.difference)
}

pub(super) async fn moved(bench: &mut Bench, context: &Context, from: &str, to: &str) {
    let outcome = bench.transition(context, from, to).await;
    assert!(matches!(outcome, Outcome::Done { .. }), "{from} -> {to}: {outcome:?}");
    assert_eq!(found(bench, context).await.0, to);
}

#[tokio::test]
async fn a_package_is_installed_changed_and_removed_with_its_dependencies() {
    let Some(world) = World::filled() else { return };
    let mut bench = Bench::new();
    let old = bench.context(&package(), &world.content(r#","version":"1.0""#));
    assert_eq!(found(&mut bench, &old).await, ("absent".to_owned(), String::new()));
    moved(&mut bench, &old, "absent", "present").await;
    assert_eq!(world.installed(), "ii cobdep 1.0\nii cobtest 1.0\n");
    let new = bench.context(&package(), &world.content(r#","version":"2*""#));
    let (state, difference) = found(&mut bench, &new).await;
    assert_eq!((state.as_str(), difference.as_str()), ("outdated", "wanted 2*, found 1.0, available 2.0 1.0"));
    // A configuration file changed by a user stays, without a question.
    fs::write(world.root().join("etc/cobtest/conf"), "mine\n").expect("written");
    moved(&mut bench, &new, "outdated", "present").await;
    assert_eq!(fs::read_to_string(world.root().join("etc/cobtest/conf")).expect("read"), "mine\n");
    let latest = bench.context(&package(), &world.content(r#","version":"latest""#));
    assert_eq!(found(&mut bench, &latest).await.0, "present");
    // And a downgrade.
    moved(&mut bench, &old, "outdated", "present").await;
    assert_eq!(found(&mut bench, &latest).await.0, "outdated");
    moved(&mut bench, &old, "present", "absent").await;
    assert_eq!(world.installed(), "rc cobdep 1.0\nrc cobtest 1.0\n");
    assert_eq!(fs::read_dir(bench.path("cobs/n1+a+b")).expect("there").count(), 0, "nothing of ours is left");
    let purged = bench.context(&package(), &world.content(r#","purge":true"#));
    assert_eq!(found(&mut bench, &purged).await.0, "outdated");
    moved(&mut bench, &purged, "outdated", "absent").await;
    assert_eq!(world.installed(), "rc cobdep 1.0\n");
}

#[tokio::test]
async fn apt_packages_keep_the_contract() {
    let Some(world) = World::filled() else { return };
    let [old, new] = ["1.0", "2.0"].map(|v| world.content(&format!(r#","version":"{v}","purge":true"#)));
    let mut kind = package();
    kind.states.retain(|s| *s != "held");
    kind.transitions.retain(|t| t.from != *"held");
    let case = Case::new(kind, &new)
        .other(&old)
        .kills(3)
        .watching(world.root().join("usr"))
        .watching(world.root().join("etc"));
    holds(&case, &[]).await;
}

#[tokio::test]
async fn a_hold_is_set_kept_and_respected() {
    let Some(world) = World::filled() else { return };
    let mut bench = Bench::new();
    let pinned = bench.context(&package(), &world.content(r#","version":"1*","hold":true"#));
    moved(&mut bench, &pinned, "absent", "present").await;
    assert_eq!(world.installed(), "ii cobdep 1.0\nhi cobtest 1.0\n");
    // The change object lifts its own hold.
    let loose = bench.context(&package(), &world.content(r#","version":"1*""#));
    moved(&mut bench, &loose, "outdated", "present").await;
    assert_eq!(world.installed(), "ii cobdep 1.0\nii cobtest 1.0\n");
    // A user's hold stays as long as the version fits, and blocks another version.
    world.hold("cobtest");
    assert_eq!(found(&mut bench, &loose).await, ("present".to_owned(), String::new()));
    let other = bench.context(&package(), &world.content(r#","version":"2.0""#));
    let (state, difference) = found(&mut bench, &other).await;
    assert_eq!(state, "held", "{difference}");
    let why = reason(bench.transition(&other, "held", "present").await);
    assert!(why.contains("apt-mark unhold cobtest"), "{why}");
    assert!(reason(bench.transition(&other, "held", "absent").await).contains("on hold"));
    let over = bench.context(&package(), &world.content(r#","version":"2.0","override_hold":true"#));
    moved(&mut bench, &over, "outdated", "present").await;
    assert_eq!(world.installed(), "ii cobdep 1.0\nii cobtest 2.0\n");
    // Only the hold is missing.
    let hold = bench.context(&package(), &world.content(r#","version":"2.0","hold":true"#));
    assert!(found(&mut bench, &hold).await.1.contains("not on hold"));
    moved(&mut bench, &hold, "outdated", "present").await;
    moved(&mut bench, &hold, "present", "absent").await;
}

#[tokio::test]
async fn a_failed_installation_gives_its_reason() {
    let Some(world) = World::filled() else { return };
    let mut bench = Bench::new();
    world.add("needy", "1", "Depends: nobody-has-this\n");
    let unsigned = world.content(r#","x":0"#).replace(r#","trusted":true,"x":0"#, "");
    let needy = world.content("").replace("\"cobtest\"", "\"needy\"");
    let unknown = world.content("").replace("\"cobtest\"", "\"unknown-package\"");
    let nowhere = world.content("").replace("/repository\"", "/nowhere\"");
    for (content, word) in [
        (world.content(r#","version":"3.0""#).as_str(), "has no version that fits 3.0; it has 2.0 1.0"),
        (&unknown, "it has no version at all"),
        (&needy, "needy : Depends: nobody-has-this"),
        (&unsigned, "signed or `trusted: true`"),
        (&nowhere, "is it there, with a file Packages"),
    ] {
        let context = bench.context(&package(), content);
        let (outcome, lines) = bench.transition_with_lines(&context, "absent", "present").await;
        let why = reason(outcome);
        assert!(why.contains(word) || lines.contains(word), "{content}: {why}\n{lines}");
    }
    assert_eq!(world.installed(), "");
}

#[tokio::test]
async fn a_package_database_broken_by_others_is_left_to_a_person() {
    let Some(world) = World::filled() else { return };
    let mut bench = Bench::new();
    let deb = world.repository().join("cobtest_1.0_all.deb");
    world.dpkg(&["--force-depends", "--unpack", deb.to_str().expect("text")]);
    let context = bench.context(&package(), &world.content(""));
    let (state, difference) = found(&mut bench, &context).await;
    assert!(state == "outdated" && difference.contains("half of it (unpacked)"), "{state}: {difference}");
    let why = reason(bench.transition(&context, "outdated", "present").await);
    assert!(why.contains("no package was changed: half-done: cobtest") && why.contains("dpkg --configure -a"), "{why}");
    // Leftovers of our own are repaired.
    fs::write(bench.path("cobs/n1+a+b").join(UNDER_WAY), "").expect("written");
    moved(&mut bench, &context, "outdated", "present").await;
}

#[tokio::test]
async fn a_package_with_pending_triggers_is_present() {
    let Some(world) = World::filled() else { return };
    world.add("other", "1", "");
    world.dpkg(&["--install", world.repository().join("other_1_all.deb").to_str().expect("text")]);
    // As `dpkg --no-triggers` leaves it.
    let status = world.root().join("var/lib/dpkg/status");
    let pending = || {
        let text = fs::read_to_string(&status).expect("read");
        let whole = "Package: other\nStatus: install ok installed\n";
        let waits = "Package: other\nStatus: install ok triggers-pending\n";
        let text = text.replace(whole, waits).replace("Version: 1\n", "Version: 1\nTriggers-Pending: /usr/share/x\n");
        fs::write(&status, text).expect("written");
        assert!(world.installed().contains("it other 1"), "{}", world.installed());
    };
    pending();
    let mut bench = Bench::new();
    let context = bench.context(&package(), &world.content(""));
    moved(&mut bench, &context, "absent", "present").await;
    // The package itself waits.
    let other = world.content("").replace("\"cobtest\"", "\"other\"");
    let mut bench = Bench::new();
    let mut context = bench.context(&package(), &other);
    std::sync::Arc::make_mut(&mut context.cob).observe = true;
    if !world.installed().contains("it other") {
        pending();
    }
    assert_eq!(found(&mut bench, &context).await, ("present".to_owned(), String::new()));
}

#[tokio::test]
async fn a_package_whose_script_fails_can_depart_or_return() {
    let Some(world) = World::new() else { return };
    world.has_a_shell();
    world.add_with("cobdep", "1.0", "", Some("[ ! -e /no-port ] || { echo no port >&2; exit 1; }"));
    world.add("cobtest", "1.0", "Depends: cobdep\n");
    world.add_with("cobtest", "2.0", "Depends: cobdep\n", Some("echo no disk >&2; exit 1"));
    let mut bench = Bench::new();
    let [old, new] = ["1.0", "2.0"].map(|v| bench.context(&package(), &world.content(&format!(r#","version":"{v}""#))));
    for (from, attempt) in [("absent", "first"), ("outdated", "second")] {
        let why = reason(bench.transition(&new, from, "present").await);
        assert!(why.contains("post-installation script") && why.contains("no disk"), "{attempt}: {why}");
        let (state, difference) = found(&mut bench, &new).await;
        assert!(state == "outdated" && difference.contains("failed half-way"), "{state}: {difference}");
        assert!(difference.contains("no disk"), "{difference}");
    }
    moved(&mut bench, &new, "outdated", "absent").await;
    assert_eq!(world.installed(), "rc cobdep 1.0\nrc cobtest 2.0\n");
    // A downgrade to the earlier version.
    moved(&mut bench, &old, "absent", "present").await;
    assert!(reason(bench.transition(&new, "outdated", "present").await).contains("no disk"));
    moved(&mut bench, &old, "outdated", "present").await;
    assert_eq!(world.installed(), "ii cobdep 1.0\nii cobtest 1.0\n");
    moved(&mut bench, &old, "present", "absent").await;
    // If a companion fails, both are removed.
    fs::write(world.root().join("no-port"), "").expect("written");
    let why = reason(bench.transition(&old, "absent", "present").await);
    assert!(why.contains("no port"), "{why}");
    moved(&mut bench, &old, "outdated", "absent").await;
    assert_eq!(world.installed(), "rc cobdep 1.0\nrc cobtest 1.0\n");
    // Other packages are half-done, too: an operator must repair them.
    fs::remove_file(world.root().join("no-port")).expect("removed");
    assert!(reason(bench.transition(&new, "absent", "present").await).contains("no disk"));
    world.add_with("other", "1", "", Some("echo no way >&2; exit 1"));
    world.dpkg(&["--install", world.repository().join("other_1_all.deb").to_str().expect("text")]);
    let why = reason(bench.transition(&new, "outdated", "absent").await);
    assert!(
        why.contains("can't be repaired") && why.contains("other (configured half-way)") && why.contains("no disk"),
        "{why}"
    );
}

#[tokio::test]
async fn packages_of_the_same_host_are_installed_one_after_another() {
    let Some(world) = World::new() else { return };
    let names = ["one", "two", "three", "four"];
    names.iter().for_each(|name| world.add(name, "1", ""));
    let mut bench = Bench::new();
    let mut jobs = Vec::new();
    for name in names {
        let mut context = bench.context(&package(), &world.content("").replace("\"cobtest\"", &format!("\"{name}\"")));
        let mut cob = (*context.cob).clone();
        cob.id = crate::kinds::testing::cob_id(&format!("n1/{name}"));
        context.cob = std::sync::Arc::new(cob);
        jobs.push(bench.begin(&context, "absent", "present"));
    }
    for _ in names {
        let ended = bench.ended().await;
        assert!(matches!(ended.end, crate::kinds::JobEnd::Moved(Outcome::Done { .. })), "{ended:?}");
    }
    assert_eq!(world.installed(), "ii four 1\nii one 1\nii three 1\nii two 1\n");
}

#[tokio::test]
async fn a_package_waits_for_its_turn_only_for_a_limited_time() {
    let Some(world) = World::filled() else { return };
    let mut bench = Bench::new();
    fs::create_dir_all(bench.path("cobs/n1+a+b")).expect("made");
    let _turn = Turn::wait(&bench.path("cobs/other"), TURN, std::time::Duration::ZERO).expect("free");
    let context = bench.context(&package(), &world.content(r#","lock_timeout":"50ms""#));
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("worked on packages for all of 50ms"), "{why}");
}

/// A lock of another program that works on packages, held by this process until it is dropped.
fn others_at_work(world: &World) -> fs::File {
    let path = world.root().join("var/lib/dpkg/lock-frontend");
    let lock = fs::File::create(path).expect("made");
    rustix::fs::fcntl_lock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("free");
    lock
}

#[tokio::test]
async fn the_work_of_another_package_program_is_waited_for() {
    let Some(world) = World::filled() else { return };
    let mut bench = Bench::new();
    let lock = others_at_work(&world);
    // The other program has unpacked a package, and is about to configure it.
    let root = format!("--root={}", world.root().display());
    let goes_on = |arguments: &[&str]| {
        let mut dpkg = Command::new("dpkg");
        let ran = dpkg.env("DPKG_FRONTEND_LOCKED", "1").arg(&root).args(arguments).output().expect("dpkg");
        assert!(ran.status.success(), "{ran:?}");
    };
    let deb = world.repository().join("cobdep_1.0_all.deb");
    goes_on(&["--unpack", deb.to_str().expect("text")]);
    let context = bench.context(&package(), &world.content(""));
    let (job, _handle) = bench.begin(&context, "absent", "present");
    let output = bench.path(&format!("jobs/{:016x}/output", job.0));
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !fs::read_to_string(&output).is_ok_and(|said| said.contains("waiting for")) {
        assert!(std::time::Instant::now() < limit, "it does not wait");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    goes_on(&["--configure", "cobdep"]);
    drop(lock);
    let ended = bench.ended().await;
    assert!(matches!(ended.end, crate::kinds::JobEnd::Moved(Outcome::Done { .. })), "{ended:?}");
    assert_eq!(world.installed(), "ii cobdep 1.0\nii cobtest 2.0\n");
}

#[tokio::test]
async fn another_package_program_is_waited_for_only_for_a_limited_time() {
    let Some(world) = World::filled() else { return };
    let mut bench = Bench::new();
    let _lock = others_at_work(&world);
    let context = bench.context(&package(), &world.content(r#","lock_timeout":"50ms""#));
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("lock-frontend") && why.contains("50ms"), "{why}");
    assert!(why.contains(&format!("process {}", std::process::id())), "{why}");
    // Our own killed transition is repaired only after the lock is free.
    fs::write(bench.path("cobs/n1+a+b").join(UNDER_WAY), "").expect("written");
    let why = reason(bench.transition(&context, "outdated", "present").await);
    assert!(why.contains("lock-frontend") && why.contains("50ms"), "{why}");
}

/// A change object of this name for this package.
pub(super) fn about(bench: &Bench, world: &World, id: &str, name: &str, keys: &str) -> Context {
    let mut context = bench.context(&package(), &world.content(keys).replace("\"cobtest\"", &format!("\"{name}\"")));
    std::sync::Arc::make_mut(&mut context.cob).id = crate::kinds::testing::cob_id(id);
    context
}

pub(super) fn leaving(context: &Context) -> Context {
    Context { leaving: true, ..context.clone() }
}

/// Announces the wanted change objects, as on the activation of a generation.
fn wanted(bench: &Bench, contexts: &[&Context]) {
    let mut bundle = cob_types::Bundle::empty(cob_types::HostName::new("n1").expect("a name"));
    for context in contexts {
        let mut cob = (*context.cob).clone();
        cob.preferred = state("present");
        bundle.kinds.insert(cob.kind.clone(), (*context.kind).clone());
        bundle.cobs.insert(cob.id.clone(), std::sync::Arc::new(cob));
    }
    let packed = cob_types::Packed::of(&bundle).expect("CBOR");
    bench.kinds.watch(&packed, &["package".to_owned()].into());
}

#[tokio::test]
async fn a_package_that_others_need_stays_until_the_last_of_them_goes() {
    let Some(world) = World::new() else { return };
    world.add("cclib", "1.0", "");
    world.add("cctool", "1.0", "Depends: cclib\n");
    let mut bench = Bench::new();
    let lib = about(&bench, &world, "n1/lib", "cclib", "");
    let tool = about(&bench, &world, "n1/tool", "cctool", "");
    // A package installed by a user is not removed as a side effect.
    moved(&mut bench, &lib, "absent", "present").await;
    world.dpkg(&["--install", world.repository().join("cctool_1.0_all.deb").to_str().expect("text")]);
    let why = reason(bench.transition(&lib, "present", "absent").await);
    assert!(why.contains("remove cctool; no package was changed"), "{why}");
    let (outcome, lines) = bench.transition_with_lines(&leaving(&lib), "present", "absent").await;
    assert!(matches!(outcome, Outcome::Done { .. }) && lines.contains("cclib stays"), "{outcome:?} {lines}");
    assert_eq!(world.installed(), "ii cclib 1.0\nii cctool 1.0\n");
    world.dpkg(&["--purge", "cctool", "cclib"]);
    // A package of another change object is not removed either; its departure removes the kept package, too.
    moved(&mut bench, &lib, "absent", "present").await;
    moved(&mut bench, &tool, "absent", "present").await;
    bench.transition(&leaving(&lib), "present", "absent").await;
    assert_eq!(world.installed(), "ii cclib 1.0\nii cctool 1.0\n");
    let allowed = about(&bench, &world, "n1/tool", "cctool", r#","purge":true"#);
    bench.transition(&leaving(&allowed), "present", "absent").await;
    assert_eq!(world.installed(), "");
    // The content names the packages that may be removed.
    moved(&mut bench, &lib, "absent", "present").await;
    moved(&mut bench, &tool, "absent", "present").await;
    let harsh = about(&bench, &world, "n1/lib", "cclib", r#","may_remove":["cctool"],"purge":true"#);
    moved(&mut bench, &harsh, "present", "absent").await;
    assert!(!world.installed().contains("ii "), "{}", world.installed());
}

#[tokio::test]
async fn the_second_of_two_conflicting_packages_fails() {
    let Some(world) = World::new() else { return };
    for name in ["mta-a", "mta-b"] {
        world.add(name, "1.0", "Provides: mta\nConflicts: mta\n");
    }
    let mut bench = Bench::new();
    let [a, b] = ["a", "b"].map(|end| about(&bench, &world, &format!("n1/{end}"), &format!("mta-{end}"), ""));
    wanted(&bench, &[&a, &b]);
    moved(&mut bench, &a, "absent", "present").await;
    let why = reason(bench.transition(&b, "absent", "present").await);
    assert!(why.contains("remove mta-a (which n1/a wants); no package was changed"), "{why}");
    assert_eq!(world.installed(), "ii mta-a 1.0\n");
    // With permission the transaction runs, and the other change object is checked again.
    let mut drifts = bench.kinds.take_drifts().expect("it is there once");
    let b = about(&bench, &world, "n1/b", "mta-b", r#","may_remove":["mta-a"]"#);
    moved(&mut bench, &b, "absent", "present").await;
    assert!(world.installed().contains("ii mta-b 1.0\n"), "{}", world.installed());
    assert_eq!(drifts.try_recv().expect("told"), a.cob.id);
    assert!(drifts.try_recv().is_err());
    assert_eq!(found(&mut bench, &a).await.0, "absent");
}

#[tokio::test]
async fn an_upgrade_does_not_remove_other_packages() {
    let Some(world) = World::new() else { return };
    world.add("libx", "1.0", "");
    world.add("old", "1.0", "Depends: libx (= 1.0)\n");
    let mut bench = Bench::new();
    let old = about(&bench, &world, "n1/old", "old", "");
    moved(&mut bench, &old, "absent", "present").await;
    world.add("libx", "2.0", "");
    let new = about(&bench, &world, "n1/libx", "libx", r#","version":"2.0""#);
    let why = reason(bench.transition(&new, "outdated", "present").await);
    assert!(why.contains("to install libx 2.0, the package manager would remove old; no package was changed"), "{why}");
    assert_eq!(world.installed(), "ii libx 1.0\nii old 1.0\n");
    // A package on hold does not change either.
    world.hold("libx");
    world.add("new", "1.0", "Depends: libx (= 2.0)\n");
    let new = about(&bench, &world, "n1/new", "new", r#","may_remove":["old"]"#);
    reason(bench.transition(&new, "absent", "present").await);
    assert_eq!(world.installed(), "hi libx 1.0\nii old 1.0\n");
}

#[tokio::test]
async fn a_package_installed_before_stays_as_it_was() {
    let Some(world) = World::filled() else { return };
    let mut bench = Bench::new();
    world.dpkg(&["--install", world.repository().join("cobdep_1.0_all.deb").to_str().expect("text")]);
    world.dpkg(&["--install", world.repository().join("cobtest_1.0_all.deb").to_str().expect("text")]);
    world.hold("cobtest");
    let there = "ii cobdep 1.0\nhi cobtest 1.0\n";
    // No work is needed, and the departure does no work.
    let plain = bench.context(&package(), &world.content(""));
    assert_eq!(found(&mut bench, &plain).await, ("present".to_owned(), String::new()));
    bench.transition(&leaving(&plain), "present", "absent").await;
    assert_eq!(world.installed(), there);
    // A changed package stays after the departure, and is on hold again.
    let newer = bench.context(&package(), &world.content(r#","version":"2.0","override_hold":true,"purge":true"#));
    moved(&mut bench, &newer, "outdated", "present").await;
    assert_eq!(world.installed(), "ii cobdep 1.0\nii cobtest 2.0\n");
    bench.transition(&leaving(&newer), "present", "absent").await;
    assert_eq!(world.installed(), "ii cobdep 1.0\nhi cobtest 2.0\n");
    assert_eq!(fs::read_dir(bench.path("cobs/n1+a+b")).expect("there").count(), 0, "nothing of ours is left");
    // If the model wants it absent, it is removed, unless it is on hold.
    assert!(reason(bench.transition(&plain, "present", "absent").await).contains("on hold"));
    assert_eq!(world.installed(), "ii cobdep 1.0\nhi cobtest 2.0\n");
}

#[tokio::test]
async fn a_dependency_that_another_change_object_wants_is_handed_over() {
    let Some(world) = World::filled() else { return };
    let mut bench = Bench::new();
    let (test, dep) = (about(&bench, &world, "n1/test", "cobtest", ""), about(&bench, &world, "n1/dep", "cobdep", ""));
    moved(&mut bench, &test, "absent", "present").await;
    wanted(&bench, &[&dep]);
    assert_eq!(found(&mut bench, &dep).await.0, "present");
    let purged = about(&bench, &world, "n1/test", "cobtest", r#","purge":true"#);
    bench.transition(&leaving(&purged), "present", "absent").await;
    assert_eq!(world.installed(), "ii cobdep 1.0\n");
    let purged = about(&bench, &world, "n1/dep", "cobdep", r#","purge":true"#);
    bench.transition(&leaving(&purged), "present", "absent").await;
    assert_eq!(world.installed(), "");
}

#[tokio::test]
async fn a_dependency_that_others_only_suggest_is_removed() {
    let Some(world) = World::filled() else { return };
    world.add("fan", "1.0", "Suggests: cobdep\n");
    let mut bench = Bench::new();
    world.dpkg(&["--install", world.repository().join("fan_1.0_all.deb").to_str().expect("text")]);
    let test = bench.context(&package(), &world.content(r#","purge":true"#));
    moved(&mut bench, &test, "absent", "present").await;
    moved(&mut bench, &leaving(&test), "present", "absent").await;
    assert_eq!(world.installed(), "ii fan 1.0\n");
}

#[tokio::test]
async fn a_name_that_apt_could_read_as_a_pattern_means_only_its_package() {
    let Some(world) = World::new() else { return };
    for (name, version) in [("cobold", "1.0"), ("cob++", "1.0"), ("cob.end", "1.0+")] {
        world.add(name, version, "");
    }
    let mut bench = Bench::new();
    for name in ["cobold+", "cobold-", "c.bold"] {
        let context = about(&bench, &world, "n1/a/b", name, "");
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(name), "{name}: {why}");
        assert_eq!(world.installed(), "", "{name}");
    }
    for (name, version) in [("cob++", "1.0"), ("cob.end", "1.0+")] {
        let context = about(&bench, &world, "n1/a/b", name, r#","purge":true"#);
        moved(&mut bench, &context, "absent", "present").await;
        assert_eq!(world.installed(), format!("ii {name} {version}\n"));
        moved(&mut bench, &leaving(&context), "present", "absent").await;
    }
}

#[tokio::test]
async fn a_purge_leaves_the_data_that_the_model_keeps() {
    let Some(world) = World::new() else { return };
    world.has_a_shell();
    for (name, script) in [
        ("strict", "postrm: set -e; [ \"$1\" != purge ] || rm -rf /var/lib/data"),
        ("lenient", "postrm: [ \"$1\" != purge ] || rm -rf /var/lib/data/* || true"),
    ] {
        world.add_with(name, "1", "", Some(script));
        let mut bench = Bench::new();
        let data = world.root().join("var/lib/data");
        fs::create_dir_all(data.join("main")).expect("made");
        fs::write(data.join("main/kept"), "kept").expect("written");
        fs::write(data.join("else"), "goes").expect("written");
        fs::write(data.join("file"), "kept").expect("written");
        fs::create_dir_all(data.join("stays")).expect("made");
        fs::write(data.join("stays/user"), "kept").expect("written");
        // One change object has departed and its files stay; the other folder's change object is in the model.
        let tree = |files: serde_json::Value| {
            let kind = crate::kinds::testing::plain_kind("file-tree");
            Case::new(kind, &serde_json::json!({ "files": files }).to_string()).cob
        };
        let (main, file, stays) = (data.join("main"), data.join("file"), data.join("stays"));
        let left = tree(
            serde_json::json!({main.to_str().expect("text"): {"folder": true}, file.to_str().expect("text"): {"content": "kept"}}),
        );
        let stays = tree(serde_json::json!({stays.to_str().expect("text"): {"folder": true}}));
        let left = cob_types::Cob { keep: true, ..left };
        let note = |cobs: &[&cob_types::Cob]| {
            crate::kinds::kept::note(&bench.path("cobs"), cobs.iter().map(|cob| std::sync::Arc::new((*cob).clone())))
        };
        note(&[&left, &stays]).expect("noted");
        note(&[&stays]).expect("noted");
        let context = about(&bench, &world, "n1/a/b", name, r#","purge":true"#);
        moved(&mut bench, &context, "absent", "present").await;
        moved(&mut bench, &leaving(&context), "present", "absent").await;
        assert_eq!(world.installed(), "", "{name}");
        for kept in ["main/kept", "file", "stays/user"] {
            assert_eq!(fs::read_to_string(data.join(kept)).ok().as_deref(), Some("kept"), "{name}: {kept}");
        }
        assert!(!data.join("else").exists(), "{name}");
        assert!(!world.root().join("etc").join(name).join("conf").exists(), "{name}");
    }
}

#[tokio::test]
async fn another_package_in_the_same_change_object_replaces_the_first() {
    let Some(world) = World::filled() else { return };
    world.add("other", "1.0", "");
    let mut bench = Bench::new();
    let first = bench.context(&package(), &world.content(r#","purge":true"#));
    moved(&mut bench, &first, "absent", "present").await;
    let second = about(&bench, &world, "n1/a/b", "other", r#","purge":true"#);
    let (state, difference) = found(&mut bench, &second).await;
    assert_eq!(state, "outdated", "{difference}");
    assert!(difference.contains("wanted other, and cobtest is installed for this change object"), "{difference}");
    moved(&mut bench, &second, "outdated", "present").await;
    assert_eq!(world.installed(), "ii other 1.0\n");
}

#[tokio::test]
async fn a_package_of_another_architecture_is_another_package() {
    let Some(world) = World::new() else { return };
    world.add("cobtest", "1.0", "");
    let own = Command::new("dpkg").arg("--print-architecture").output().expect("dpkg");
    let own = String::from_utf8_lossy(&own.stdout).trim().to_owned();
    let foreign = if own == "i386" { "amd64" } else { "i386" };
    let deb = world.foreign("cobtest", foreign);
    world.dpkg(&["--add-architecture", foreign]);
    world.dpkg(&["--install", deb.to_str().expect("text")]);
    assert_eq!(world.installed(), "ii cobtest 0.9\n");
    let mut bench = Bench::new();
    let plain = bench.context(&package(), &world.content(""));
    assert_eq!(found(&mut bench, &plain).await.0, "absent");
    let exact = about(&bench, &world, "n1/exact", &format!("cobtest:{foreign}"), "");
    assert_eq!(found(&mut bench, &exact).await.0, "present");
    // It is another name of the same package.
    let named = about(&bench, &world, "n1/named", &format!("cobtest:{own}"), "");
    assert_eq!(found(&mut bench, &named).await.0, "absent");
}
