//! Settings in a folder that stands for a host.

use std::fs;
use std::path::{Path, PathBuf};

use cob_types::Kind;

use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, kind, reason, state};
use crate::kinds::{Context, Outcome};

/// A folder with these files.
fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("below")).expect("made");
        fs::write(path, text).expect("written");
    }
    folder
}

fn setting(backend: &str) -> Kind {
    let mut kind = kind(backend, &["absent", "present", "outdated"], |_, _| None);
    let plain = crate::kinds::testing::plain_kind(backend).transitions.remove(0);
    let moves = [("absent", "present"), ("outdated", "present"), ("present", "absent"), ("outdated", "absent")];
    let make = |(from, to): &(&str, &str)| cob_types::Transition { from: state(from), to: state(to), ..plain.clone() };
    kind.transitions = moves.iter().map(make).collect();
    (kind.preferred, kind.pre_remove) = (state("present"), state("absent"));
    kind
}

/// A content with the host's folder in it.
fn content(host: &Path, keys: &str) -> String {
    format!(r#"{{"root":"{}",{keys}}}"#, host.display())
}

async fn moved(bench: &mut Bench, context: &Context, from: &str, to: &str) {
    assert_eq!(bench.transition(context, from, to).await, Outcome::done(), "{from} -> {to}");
    assert_eq!(bench.state(context).await, to);
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(path).expect("read")
}

#[tokio::test]
async fn a_parameter_is_set_for_now_and_later_and_put_back() {
    let host = host(&[("proc/sys/net/core/somaxconn", "128\n"), ("proc/sys/kernel/pid_max", "9\n")]);
    let (live, file) = (
        host.path().join("proc/sys/net/core/somaxconn"),
        host.path().join("etc/sysctl.d/60-cob-net.core.somaxconn.conf"),
    );
    let mut bench = Bench::new();
    let context =
        bench.context(&setting("sysctl"), &content(host.path(), r#""key":"net.core.somaxconn","value":1024"#));
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(
        (read(live.clone()).as_str(), read(file.clone()).as_str()),
        ("1024\n", "# Written by cobd.\nnet.core.somaxconn = 1024\n")
    );
    fs::write(&live, "512\n").expect("written");
    let found = bench.check(&context).await;
    assert!(
        found.state.is_ok_and(|s| s == *"outdated") && found.difference.contains(r#""value":"512""#),
        "{}",
        found.difference
    );
    moved(&mut bench, &context, "outdated", "present").await;
    // Another parameter in the same change object: the first one is put back.
    let other = bench
        .context(&setting("sysctl"), &content(host.path(), r#""key":"kernel.pid_max","value":"10","persist":false"#));
    assert_eq!(bench.state(&other).await, "outdated");
    moved(&mut bench, &other, "outdated", "present").await;
    assert_eq!((read(live).as_str(), file.exists()), ("128\n", false));
    moved(&mut bench, &other, "present", "absent").await;
    assert_eq!(read(host.path().join("proc/sys/kernel/pid_max")), "9\n");
    let missing = bench.context(&setting("sysctl"), &content(host.path(), r#""key":"net.x.y","value":1"#));
    let why = reason(bench.transition(&missing, "absent", "present").await);
    assert!(why.contains("no parameter net.x.y; does a module have to be loaded"), "{why}");
}

#[tokio::test]
async fn a_host_entry_goes_before_others_that_have_its_names() {
    let before = "127.0.0.1 localhost\n# comment db\n10.0.0.9 db old\n";
    let host = host(&[("etc/hosts", before)]);
    let file = host.path().join("etc/hosts");
    let mut bench = Bench::new();
    let context =
        bench.context(&setting("host-entry"), &content(host.path(), r#""address":"10.0.0.1","names":["db","db.x"]"#));
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(
        read(file.clone()),
        "127.0.0.1 localhost\n# comment db\n10.0.0.1 db db.x # cob n1/a/b\n10.0.0.9 db old\n"
    );
    let other = bench.context(&setting("host-entry"), &content(host.path(), r#""address":"::1","names":["db"]"#));
    assert_eq!(bench.state(&other).await, "outdated");
    moved(&mut bench, &other, "outdated", "present").await;
    // What others write stays, and what they put before ours is noticed.
    fs::write(&file, format!("10.1.1.1 DB\n{}10.2.2.2 new\n", read(file.clone()))).expect("written");
    assert_eq!(bench.state(&other).await, "outdated");
    moved(&mut bench, &other, "outdated", "present").await;
    moved(&mut bench, &other, "present", "absent").await;
    assert_eq!(read(file), format!("10.1.1.1 DB\n{before}10.2.2.2 new\n"));
}

#[tokio::test]
async fn a_cron_file_is_written_and_what_was_there_put_back() {
    let host = host(&[("etc/cron.d/mine", "5 * * * * root true\n")]);
    let file = host.path().join("etc/cron.d/mine");
    let mut bench = Bench::new();
    let keys = r#""schedule":"30 4 * * 1-5","command":"/usr/bin/backup --all","env":{"MAILTO":"ops"}"#;
    let named =
        bench.context(&setting("cron"), &content(host.path(), &format!(r#"{keys},"name":"mine","user":"backup""#)));
    moved(&mut bench, &named, "absent", "present").await;
    assert_eq!(
        read(file.clone()),
        "# Written by cobd for n1/a/b.\nMAILTO=ops\n30 4 * * 1-5 backup /usr/bin/backup --all\n"
    );
    moved(&mut bench, &named, "present", "absent").await;
    assert_eq!(read(file), "5 * * * * root true\n");
    let own = bench.context(&setting("cron"), &content(host.path(), keys));
    moved(&mut bench, &own, "absent", "present").await;
    let file = host.path().join("etc/cron.d/cob-n1-a-b");
    assert!(read(file.clone()).contains(" root /usr/bin/backup"));
    moved(&mut bench, &own, "present", "absent").await;
    assert!(!file.exists());
}

#[tokio::test]
async fn they_keep_the_contract() {
    let host = host(&[
        ("proc/sys/net/ipv4/ip_forward", "0\n"),
        ("etc/hosts", "127.0.0.1 localhost\n10.0.0.9 db\n"),
        ("etc/sysctl.d/10-others.conf", "x = 1\n"),
        ("etc/cron.d/others", "5 * * * * root true\n"),
    ]);
    for (backend, own, other) in [
        ("sysctl", r#""key":"net.ipv4.ip_forward","value":1"#, r#""key":"net.ipv4.ip_forward","value":2"#),
        ("host-entry", r#""address":"10.0.0.1","names":["db"]"#, r#""address":"10.0.0.2","names":["db"]"#),
        ("cron", r#""schedule":"@daily","command":"true""#, r#""schedule":"@hourly","command":"true""#),
    ] {
        let case = Case::new(setting(backend), &content(host.path(), own)).other(&content(host.path(), other));
        holds(&case.watching(host.path()).kills(4), &[]).await;
    }
}

#[test]
fn contents_that_would_do_harm_are_refused() {
    for (backend, keys, word) in [
        ("sysctl", r#""key":"../../etc/passwd","value":1"#, "no parameter"),
        ("sysctl", r#""key":"a//b","value":1"#, "no parameter"),
        ("sysctl", r#""key":"a.b","value":"1\u0007""#, "characters"),
        ("sysctl", r#""key":"a.b","value":"""#, "empty"),
        ("host-entry", r#""address":"10.0.0","names":["a"]"#, "address"),
        ("host-entry", r#""address":"10.0.0.1","names":[]"#, "empty"),
        ("host-entry", r#""address":"10.0.0.1","names":["a b"]"#, "no name of a host"),
        ("cron", r#""schedule":"* * * *","command":"x""#, "no schedule"),
        ("cron", r#""schedule":"@never","command":"x""#, "no schedule"),
        ("cron", r#""schedule":"@daily","command":"x\ny""#, "more than one line"),
        ("cron", r#""schedule":"@daily","command":"x","user":"a b""#, "no user"),
        ("cron", r#""schedule":"@daily","command":"x","name":"../x""#, "cron reads no file"),
        ("cron", r#""schedule":"@daily","command":"x","env":{"A":"1\n2"}"#, "can't be set"),
    ] {
        let native = crate::kinds::registry::native(backend).expect("known");
        let error = native.accept(&content(Path::new("/x"), keys)).expect_err(keys);
        assert!(error.contains(word), "{keys}: {error}");
    }
    let native = crate::kinds::registry::native("cron").expect("known");
    assert!(native.accept(r#"{"root":"x","schedule":"@daily","command":"x"}"#).is_err());
}
