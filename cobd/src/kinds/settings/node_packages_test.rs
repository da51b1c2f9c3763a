//! Packages of npm from small tar files, below a folder of its own. No test needs a registry.

use std::fs;

use super::super::tests::{host, moved, setting};
use super::super::web_test::{Page, Web};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::has_program;
use crate::kinds::testing::{Bench, reason};

/// Whether the tests can run.
fn has_npm() -> bool {
    let has = has_program("npm");
    if !has {
        eprintln!("skipped: npm is not installed");
    }
    has
}

/// A package with a program that prints its version.
fn packed(name: &str, version: &str, more: &str) -> Vec<u8> {
    let manifest = format!(r#"{{"name":"{name}","version":"{version}","bin":{{"{name}":"run.js"}}{more}}}"#);
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let program = format!("#!/usr/bin/env node\nconsole.log('{version}');\n");
    for (path, text) in [("package/package.json", manifest), ("package/run.js", program)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(1_000_000_000);
        tar.append_data(&mut header, path, text.as_bytes()).expect("written");
    }
    tar.into_inner().and_then(flate2::write::GzEncoder::finish).expect("written")
}

/// A host with packages.
fn with_packages(files: &[(&str, &str)]) -> tempfile::TempDir {
    let host = host(files);
    let folder = host.path().join("srv");
    fs::create_dir_all(&folder).expect("made");
    for (name, version) in [("one", "1.0.0"), ("one", "2.0.0"), ("more", "1.0.0")] {
        fs::write(folder.join(format!("{name}-{version}.tgz")), packed(name, version, "")).expect("written");
    }
    fs::create_dir_all(host.path().join("opt")).expect("made");
    host
}

fn content(root: &Path, keys: &str) -> String {
    let root = root.display().to_string();
    format!(r#"{{"path":"{root}/opt/app",{}}}"#, keys.replace("ROOT", &root))
}

/// The output of a program of a package.
fn output(place: &Path, name: &str) -> String {
    let out = Command::new(place.join("node_modules/.bin").join(name)).output().expect("it starts");
    String::from_utf8(out.stdout).expect("text").trim().to_owned()
}

#[tokio::test]
async fn folders_with_packages_keep_the_contract() {
    if !has_npm() {
        return;
    }
    for files in [&[][..], &[("opt/app/theirs", "theirs")]] {
        let host = with_packages(files);
        let [own, other] = ["one-1.0.0", "one-2.0.0"]
            .map(|name| content(host.path(), &format!(r#""packages":{{"one":"file:ROOT/srv/{name}.tgz"}}"#)));
        let case = Case::new(setting("node-packages"), &own).other(&other).watching(host.path().join("opt")).kills(3);
        holds(&case, &[]).await;
        assert_eq!(fs::read_dir(host.path().join("opt")).expect("listed").count(), files.len());
    }
}

#[tokio::test]
async fn changes_of_packages_are_repaired() {
    if !has_npm() {
        return;
    }
    let host = with_packages(&[("opt/app/theirs", "theirs")]);
    let place = host.path().join("opt/app");
    let changed = host.path().join("opt/.app.cob-changed");
    let keys = r#""packages":{"one":"file:ROOT/srv/one-1.0.0.tgz"}"#;
    let mut bench = Bench::new();
    let context = bench.context(&setting("node-packages"), &content(host.path(), keys));
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(output(&place, "one"), "1.0.0");
    assert!(!place.join(".cob-tmp").exists());
    // A package that a user adds is drift only with `exact`.
    fs::create_dir_all(place.join("node_modules/@a/b")).expect("made");
    fs::write(place.join("node_modules/@a/b/package.json"), r#"{"version":"1.0.0"}"#).expect("written");
    fs::create_dir_all(place.join("node_modules/.cache/x")).expect("made");
    assert_eq!(bench.state(&context).await, "present");
    let exact = bench.context(&setting("node-packages"), &content(host.path(), &format!(r#"{keys},"exact":true"#)));
    let found = bench.check(&exact).await;
    assert!(found.difference.contains("node_modules/@a/b is new"), "{}", found.difference);
    moved(&mut bench, &exact, "outdated", "present").await;
    assert!(!place.join("node_modules/@a").exists() && changed.join("node_modules/@a/b").exists());
    fs::remove_dir_all(&changed).expect("removed");
    // Another version, a package without its description, and a program that is gone.
    type Edit<'a> = &'a dyn Fn();
    let manifest = place.join("node_modules/one/package.json");
    let edits: [(Edit<'_>, &str); 3] = [
        (&|| fs::write(&manifest, r#"{"version":"1.0.1"}"#).expect("written"), "node_modules/one is changed"),
        (&|| fs::remove_file(&manifest).expect("removed"), "node_modules/one is missing"),
        (
            &|| fs::remove_file(place.join("node_modules/.bin/one")).expect("removed"),
            "node_modules/.bin/one is missing",
        ),
    ];
    for (edit, words) in edits {
        edit();
        let found = bench.check(&context).await;
        assert!(found.difference.contains(words), "{words}: {}", found.difference);
        moved(&mut bench, &context, "outdated", "present").await;
        assert_eq!(output(&place, "one"), "1.0.0", "{words}");
    }
    fs::remove_dir_all(&changed).expect("removed");
    // A new file at the same path.
    fs::write(host.path().join("srv/one-1.0.0.tgz"), packed("one", "1.0.1", "")).expect("written");
    moved(&mut bench, &context, "outdated", "present").await;
    assert_eq!(output(&place, "one"), "1.0.1");
    assert!(!changed.exists(), "an unchanged folder is not kept");
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(packages::names(&host.path().join("opt")).expect("listed"), ["app"]);
    assert_eq!(fs::read_to_string(place.join("theirs")).expect("read"), "theirs");
}

#[tokio::test]
async fn a_lock_file_decides_about_versions() {
    if !has_npm() {
        return;
    }
    let web = Web::new(&[
        ("/one-1.0.0.tgz", Page::File(packed("one", "1.0.0", ""))),
        ("/one-2.0.0.tgz", Page::File(packed("one", "2.0.0", ""))),
        ("/tool-1.0.0.tgz", Page::File(packed("tool", "1.0.0", ""))),
    ]);
    let host = with_packages(&[("srv/app/package.json", "")]);
    let place = host.path().join("opt/app");
    let locked = |version: &str| {
        let (one, tool) = (web.url(&format!("/one-{version}.tgz")), web.url("/tool-1.0.0.tgz"));
        let needs = json!({ "name": "app", "version": "1.0.0", "dependencies": { "one": version },
            "devDependencies": { "tool": "1.0.0" } });
        let lock = json!({ "name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": {
            "": needs,
            "node_modules/one": { "version": version, "resolved": one, "bin": { "one": "run.js" } },
            "node_modules/tool": { "version": "1.0.0", "resolved": tool, "dev": true, "bin": { "tool": "run.js" } },
        } });
        let mut manifest = needs;
        manifest["scripts"] = json!({ "postinstall": "exit 1" });
        for (name, value) in [(MANIFEST, manifest), (LOCK, lock)] {
            fs::write(host.path().join("srv/app").join(name), value.to_string()).expect("written");
        }
    };
    locked("1.0.0");
    let mut bench = Bench::new();
    let keys = r#""lock":"ROOT/srv/app/package-lock.json""#;
    let context = bench.context(&setting("node-packages"), &content(host.path(), keys));
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(output(&place, "one"), "1.0.0");
    assert!(!place.join("node_modules/tool").exists(), "packages for development are left out");
    locked("2.0.0");
    moved(&mut bench, &context, "outdated", "present").await;
    assert_eq!(output(&place, "one"), "2.0.0");
    let dev = bench.context(&setting("node-packages"), &content(host.path(), &format!(r#"{keys},"dev":true"#)));
    moved(&mut bench, &dev, "outdated", "present").await;
    assert_eq!(output(&place, "tool"), "1.0.0");
    moved(&mut bench, &dev, "present", "absent").await;
    assert!(!place.exists());
}

#[tokio::test]
async fn scripts_of_packages_run_unless_ignored() {
    if !has_npm() {
        return;
    }
    let host = with_packages(&[]);
    let script = r#","scripts":{"postinstall":"echo made > made"}"#;
    fs::write(host.path().join("srv/one-1.0.0.tgz"), packed("one", "1.0.0", script)).expect("written");
    for (more, runs) in [("", true), (r#","ignore_scripts":true"#, false)] {
        let mut bench = Bench::new();
        let keys = format!(r#""packages":{{"one":"file:ROOT/srv/one-1.0.0.tgz"}}{more}"#);
        let context = bench.context(&setting("node-packages"), &content(host.path(), &keys));
        moved(&mut bench, &context, "absent", "present").await;
        assert_eq!(host.path().join("opt/app/node_modules/one/made").exists(), runs, "{more}");
        moved(&mut bench, &context, "present", "absent").await;
    }
}

#[tokio::test]
async fn failures_leave_the_earlier_folder() {
    if !has_npm() {
        return;
    }
    let web = Web::new(&[]);
    let host = with_packages(&[("opt/app/theirs", "theirs"), ("srv/bad.tgz", "no archive")]);
    let script = r#","scripts":{"postinstall":"echo no compiler >&2; exit 3"}"#;
    fs::write(host.path().join("srv/fails.tgz"), packed("one", "1.0.0", script)).expect("written");
    let missing = format!(r#""packages":{{"no-such-package":"1.0.0"}},"registry":"{}""#, web.url("/npm"));
    for (keys, words) in [
        (missing.as_str(), "npm: E404: "),
        (r#""packages":{"one":"file:ROOT/srv/bad.tgz"}"#, "npm: TAR_BAD_ARCHIVE: "),
        (r#""packages":{"one":"file:ROOT/srv/fails.tgz"}"#, "; no compiler"),
        (r#""packages":{"one":"file:ROOT/srv/none.tgz"}"#, "let it come `after` the object that makes the file"),
        (r#""lock":"ROOT/srv/package-lock.json""#, "let it come `after` the object that makes the file"),
    ] {
        let mut bench = Bench::new();
        let context = bench.context(&setting("node-packages"), &content(host.path(), keys));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(words), "{keys}: {why}");
        assert_eq!(fs::read_to_string(host.path().join("opt/app/theirs")).expect("read"), "theirs");
        bench.transition(&context, "outdated", "absent").await;
        assert_eq!(packages::names(&host.path().join("opt")).expect("listed"), ["app"], "{keys}");
    }
}
