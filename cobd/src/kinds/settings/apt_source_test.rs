//! Sources of apt in a folder that stands for a host, with a signed repository in another folder.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use super::super::tests::{content, host, moved, read, setting};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

/// A host, a repository that a key signs, and the key.
struct World {
    host: tempfile::TempDir,
    repository: tempfile::TempDir,
    key: String,
}

impl World {
    /// Returns `None` without the programs or root.
    fn new() -> Option<Self> {
        let there = ["apt-get", "gpg", "gpgv"].iter().all(|program| Path::new("/usr/bin").join(program).exists());
        if !there || !rustix::process::geteuid().is_root() {
            eprintln!("skipped: it takes apt, gpg and root");
            return None;
        }
        let host = host(&[
            ("var/lib/dpkg/status", ""),
            ("var/lib/apt/lists/partial/others", ""),
            ("var/cache/apt/archives/partial/others", ""),
            ("etc/apt/apt.conf.d/others", ""),
            ("etc/apt/preferences.d/others", ""),
            ("etc/apt/sources.list.d/others.sources", "Types: deb\nURIs: file:/gone\nSuites: ./\n"),
        ]);
        let repository = tempfile::tempdir().expect("a folder");
        let mut world = Self { host, repository, key: String::new() };
        world.sign();
        Some(world)
    }

    fn gpg(&self, arguments: &[&str]) -> String {
        let home = self.repository.path().join("gpg");
        fs::create_dir_all(&home).expect("made");
        let mut command = Command::new("gpg");
        let ran =
            command.env("GNUPGHOME", &home).args(["--batch", "--yes", "--quiet", "--passphrase", ""]).args(arguments);
        let ran = ran.output().expect("run");
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).expect("text")
    }

    /// Makes an empty repository, signed by a new key.
    fn sign(&mut self) {
        let path = |name: &str| self.repository.path().join(name);
        fs::write(path("Packages"), "").expect("written");
        let release = "Origin: test\nSuite: ./\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n \
                       e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 Packages\n";
        fs::write(path("Release"), release).expect("written");
        self.gpg(&["--quick-generate-key", "test@example.org", "ed25519", "sign", "never"]);
        let [release, signed] = ["Release", "InRelease"].map(|name| path(name).display().to_string());
        self.gpg(&["--output", &signed, "--clearsign", &release]);
        self.key = self.gpg(&["--export", "--armor"]);
        Command::new("gpgconf").env("GNUPGHOME", path("gpg")).args(["--kill", "all"]).status().expect("run");
    }

    fn keys(&self, uri: &Path, more: &str) -> String {
        let key = serde_json::to_string(&self.key).expect("a text");
        content(
            self.host.path(),
            &format!(r#""name":"test","uris":["file:{}"],"suites":["./"],"key":{key}{more}"#, uri.display()),
        )
    }

    fn path(&self, file: &str) -> PathBuf {
        self.host.path().join(file)
    }

    /// The fetched lists of the repository.
    fn lists(&self) -> usize {
        let lists = fs::read_dir(self.path("var/lib/apt/lists")).expect("list").flatten();
        lists.filter(|entry| entry.file_name().to_string_lossy().contains("Release")).count()
    }
}

#[tokio::test]
async fn a_source_is_fetched_written_and_removed() {
    let Some(world) = World::new() else { return };
    let (source, key) = (world.path("etc/apt/sources.list.d/test.sources"), world.path("etc/apt/keyrings/test.asc"));
    let mut bench = Bench::new();
    let context = bench.context(&setting("apt-source"), &world.keys(world.repository.path(), ""));
    moved(&mut bench, &context, "absent", "present").await;
    let text = format!(
        "# Written by cobd.\nTypes: deb\nURIs: file:{}\nSuites: ./\nSigned-By: /etc/apt/keyrings/test.asc\n",
        world.repository.path().display()
    );
    assert_eq!((read(source.clone()), read(key.clone())), (text.clone(), world.key.clone()));
    assert!(world.lists() > 0);
    for left in ["new.sources", "new.asc", "apt.conf"] {
        assert!(!bench.path("cobs/n1+a+b").join(left).exists(), "{left}");
    }
    // A change by a user is found.
    fs::write(&source, format!("{text}Enabled: no\n")).expect("written");
    assert_eq!(bench.state(&context).await, "outdated");
    moved(&mut bench, &context, "outdated", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
    assert!(!source.exists() && !key.exists() && !world.path("etc/apt/keyrings").exists());
    assert!(world.path("etc/apt/sources.list.d/others.sources").exists());
}

#[tokio::test]
async fn a_source_that_apt_cannot_read_changes_no_file() {
    let Some(mut world) = World::new() else { return };
    let (source, key) = (world.path("etc/apt/sources.list.d/test.sources"), world.path("etc/apt/keyrings/test.asc"));
    let theirs = "# theirs\r\nTypes: deb\r\nURIs: file:/gone J\u{fc}rgen";
    fs::write(&source, theirs).expect("written");
    let mut bench = Bench::new();
    let gone = bench.context(&setting("apt-source"), &world.keys(Path::new("/no/such/folder"), ""));
    let why = reason(bench.transition(&gone, "absent", "present").await);
    assert!(
        why.contains("apt can't read the source test, which was not written: ") && why.contains("/no/such"),
        "{why}"
    );
    assert_eq!((read(source.clone()).as_str(), key.exists()), (theirs, false));
    // The repository has another key.
    let good = bench.context(&setting("apt-source"), &world.keys(world.repository.path(), ""));
    let right = world.key.clone();
    fs::remove_dir_all(world.repository.path().join("gpg")).expect("removed");
    let signed = fs::read(world.repository.path().join("InRelease")).expect("read");
    world.sign();
    fs::write(world.repository.path().join("InRelease"), signed).expect("written");
    assert_ne!(world.key, right);
    let wrong = bench.context(&setting("apt-source"), &world.keys(world.repository.path(), ""));
    let why = reason(bench.transition(&wrong, "outdated", "present").await);
    assert!(why.contains("which was not written") && (why.contains("NO_PUBKEY") || why.contains("signature")), "{why}");
    assert_eq!((read(source.clone()).as_str(), key.exists()), (theirs, false));
    // A good source, then a source that fails: the good source stays, and the earlier file is there in the end.
    moved(&mut bench, &good, "outdated", "present").await;
    let text = read(source.clone());
    reason(bench.transition(&gone, "outdated", "present").await);
    assert_eq!((read(source.clone()), read(key.clone())), (text, right));
    moved(&mut bench, &gone, "outdated", "absent").await;
    assert_eq!((read(source).as_str(), key.exists()), (theirs, false));
}

#[tokio::test]
async fn a_host_without_apt_is_named() {
    let host = host(&[("etc/others", "")]);
    let mut bench = Bench::new();
    let keys = r#""name":"test","uris":["file:/x"],"suites":["./"]"#;
    let context = bench.context(&setting("apt-source"), &content(host.path(), keys));
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("the host has no apt"), "{why}");
    assert!(!host.path().join("etc/apt").exists());
}

#[tokio::test]
async fn apt_sources_keep_the_contract() {
    let Some(world) = World::new() else { return };
    let [own, other] = ["", r#","architectures":["amd64"]"#].map(|more| world.keys(world.repository.path(), more));
    holds(&Case::new(setting("apt-source"), &own).other(&other).watching(world.path("etc")).kills(4), &[]).await;
}
