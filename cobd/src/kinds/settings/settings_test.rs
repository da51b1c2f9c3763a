//! Settings in a folder that stands for a host.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cob_types::Kind;

use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, cob_id, reason};
use crate::kinds::{Context, Outcome};

use super::{Entry, Setting, Spec};

/// A folder with these files.
pub(super) fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("below")).expect("made");
        fs::write(path, text).expect("written");
    }
    folder
}

/// The specification in a content.
pub(super) fn spec_in(setting: &impl Setting, content: &str, cob: &str) -> Result<Box<dyn Spec>, String> {
    setting.spec(Entry::read(content, cob, Path::new(""), Duration::ZERO)?)
}

pub(in crate::kinds) fn setting(backend: &str) -> Kind {
    let mut kind = cob_kinds::find(backend).expect("a kind").kind.kind();
    kind.check.timeout_ms = 300_000;
    kind.transitions.iter_mut().for_each(|transition| transition.timeout_ms = 300_000);
    kind
}

/// A content with the host's folder.
pub(super) fn content(host: &Path, keys: &str) -> String {
    format!(r#"{{"root":"{}",{keys}}}"#, host.display())
}

pub(super) async fn moved(bench: &mut Bench, context: &Context, from: &str, to: &str) {
    assert_eq!(bench.transition(context, from, to).await, Outcome::done(), "{from} -> {to}");
    assert_eq!(bench.state(context).await, to);
}

pub(super) fn read(path: PathBuf) -> String {
    fs::read_to_string(path).expect("read")
}

/// The texts of `etc/conf` after an edit and after its restore, each made twice.
pub(super) fn there_and_back(root: &Path, spec: &dyn Spec, text: &[u8]) -> [Vec<u8>; 2] {
    let file = root.join("etc/conf");
    fs::write(&file, text).expect("written");
    let before = spec.before().expect("seen");
    [true, false].map(|apply| {
        for _ in 0..2 {
            if apply { spec.apply(before.as_ref()) } else { spec.restore(before.as_ref()) }.expect("done");
        }
        if apply {
            assert_eq!(
                spec.look(before.as_ref()).expect("seen"),
                Some(spec.wanted()),
                "{}",
                String::from_utf8_lossy(text)
            );
        }
        fs::read(&file).expect("read")
    })
}

#[tokio::test]
async fn a_parameter_is_set_for_later_and_put_back() {
    let host = host(&[("etc/sysctl.d/60-cob-kernel.pid_max.conf", "# theirs\n")]);
    let file = |key: &str| host.path().join(format!("etc/sysctl.d/60-cob-{key}.conf"));
    let (first, second) = (file("net.core.somaxconn"), file("kernel.pid_max"));
    let mut bench = Bench::new();
    let context =
        bench.context(&setting("sysctl"), &content(host.path(), r#""key":"net.core.somaxconn","value":1024"#));
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(read(first.clone()), "# Written by cobd.\nnet.core.somaxconn = 1024\n");
    fs::write(&first, "net.core.somaxconn = 512\n").expect("written");
    let found = bench.check(&context).await;
    assert!(
        found.state.is_ok_and(|s| s == *"outdated") && found.difference.contains("somaxconn = 512"),
        "{}",
        found.difference
    );
    moved(&mut bench, &context, "outdated", "present").await;
    // Another parameter in the same change object: the first parameter is restored.
    let other = bench.context(&setting("sysctl"), &content(host.path(), r#""key":"kernel.pid_max","value":"10""#));
    assert_eq!(bench.state(&other).await, "outdated");
    moved(&mut bench, &other, "outdated", "present").await;
    assert_eq!((first.exists(), read(second.clone()).as_str()), (false, "# Written by cobd.\nkernel.pid_max = 10\n"));
    moved(&mut bench, &other, "present", "absent").await;
    assert_eq!(read(second), "# theirs\n");
}

#[tokio::test]
async fn an_observed_setting_is_present_whoever_wrote_it() {
    let theirs = "# Written by cobd.\nkernel.pid_max = 9\n";
    let host = host(&[("etc/sysctl.d/60-cob-kernel.pid_max.conf", theirs)]);
    let mut bench = Bench::new();
    let mut context = bench.context(&setting("sysctl"), &content(host.path(), r#""key":"kernel.pid_max","value":"9""#));
    assert_eq!(bench.state(&context).await, "absent", "nothing is ours");
    std::sync::Arc::make_mut(&mut context.cob).observe = true;
    assert_eq!(bench.state(&context).await, "present");
    fs::write(host.path().join("etc/sysctl.d/60-cob-kernel.pid_max.conf"), "x").expect("written");
    let found = bench.check(&context).await;
    assert!(found.state.is_ok_and(|s| s == *"absent"));
    assert!(found.difference.contains(r#"found {"file":"x"}"#), "{}", found.difference);
}

#[tokio::test]
async fn a_host_entry_comes_before_other_entries_with_its_names() {
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
    // Lines of others stay, and a line that others insert before ours is noticed.
    fs::write(&file, format!("10.1.1.1 DB\n{}10.2.2.2 new\n", read(file.clone()))).expect("written");
    assert_eq!(bench.state(&other).await, "outdated");
    moved(&mut bench, &other, "outdated", "present").await;
    moved(&mut bench, &other, "present", "absent").await;
    assert_eq!(read(file), format!("10.1.1.1 DB\n{before}10.2.2.2 new\n"));
}

/// A context for the change object with this id.
fn named(mut context: Context, id: &str) -> Context {
    std::sync::Arc::make_mut(&mut context.cob).id = cob_id(id);
    context
}

#[tokio::test]
async fn host_entries_of_the_same_name_stay_side_by_side() {
    let before = "127.0.0.1 localhost\n10.0.0.9 db\nfd00::9 db\n";
    let host = host(&[("etc/hosts", before)]);
    let file = host.path().join("etc/hosts");
    let mut bench = Bench::new();
    let entry = |id: &str, address: &str| {
        let keys = format!(r#""address":"{address}","names":["db"]"#);
        named(bench.context(&setting("host-entry"), &content(host.path(), &keys)), id)
    };
    let entries = [entry("n1/db4", "10.0.0.1"), entry("n1/db6", "fd00::1"), entry("n1/db/other", "10.0.0.2")];
    for entry in &entries {
        moved(&mut bench, entry, "absent", "present").await;
    }
    // A query for an address family gets no answer of the other family.
    assert_eq!(
        read(file.clone()),
        "127.0.0.1 localhost\n10.0.0.1 db # cob n1/db4\n10.0.0.2 db # cob n1/db/other\n10.0.0.9 db\n\
         fd00::1 db # cob n1/db6\nfd00::9 db\n"
    );
    for entry in &entries {
        assert_eq!(bench.state(entry).await, "present");
    }
    // A line of others before ours counts for its address family; `::1` counts for both families.
    let stands = read(file.clone());
    for (line, states) in [
        ("10.0.0.8 db", ["outdated", "present", "outdated"]),
        ("fd00::8 db", ["present", "outdated", "present"]),
        ("::1 db", ["outdated", "outdated", "outdated"]),
        ("10.0.0.8 db # cob", ["outdated", "present", "outdated"]),
        ("10.0.0.8 db # cob n2/db", ["outdated", "present", "outdated"]),
    ] {
        fs::write(&file, format!("{line}\n{stands}")).expect("written");
        for (entry, state) in entries.iter().zip(states) {
            assert_eq!(bench.state(entry).await, state, "{line}");
        }
    }
    fs::write(&file, stands).expect("written");
    for entry in &entries {
        moved(&mut bench, entry, "present", "absent").await;
    }
    assert_eq!(read(file), before);
}

#[tokio::test]
async fn a_too_long_file_is_not_truncated() {
    let host = host(&[("etc/hosts", "")]);
    let file = fs::OpenOptions::new().write(true).open(host.path().join("etc/hosts")).expect("open");
    let mut bench = Bench::new();
    let context =
        bench.context(&setting("host-entry"), &content(host.path(), r#""address":"10.0.0.1","names":["db"]"#));
    // Too long by itself, and too long with our line.
    for length in [(16 << 20) + 1, 16 << 20] {
        file.set_len(length).expect("longer");
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains("etc/hosts: it is longer than 16777216 bytes"), "{why}");
        assert_eq!(file.metadata().expect("there").len(), length);
    }
    file.set_len((16 << 20) - 4096).expect("cut");
    moved(&mut bench, &context, "absent", "present").await;
}

#[tokio::test]
async fn a_cron_file_is_written_and_the_earlier_file_is_restored() {
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
async fn a_cron_file_that_cron_would_skip_is_not_present() {
    let host = host(&[("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nold:x:500:500::/:/bin/sh\n")]);
    let file = host.path().join("etc/cron.d/cob-n1-a-b");
    let mut bench = Bench::new();
    let keys = |schedule: &str, user: &str| {
        content(host.path(), &format!(r#""schedule":"{schedule}","user":"{user}","command":"true""#))
    };
    for (schedule, user, word) in [
        ("61 25 32 13 8", "old", "the minute \"61\" is not from 0 to 59"),
        ("* * * *", "old", "is not a schedule"),
        ("@never", "old", "is not a schedule"),
        ("99 * * * *", "old", "the minute \"99\" is not from 0 to 59"),
        ("a b c d e", "old", "is not a schedule"),
        ("@daily", "nosuchuser", "no user nosuchuser"),
    ] {
        let context = bench.context(&setting("cron"), &keys(schedule, user));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(word) && !file.exists(), "{why}");
        assert_eq!(bench.state(&context).await, "absent");
    }
    // The account is removed after the file was written.
    let context = bench.context(&setting("cron"), &keys("@daily", "old"));
    moved(&mut bench, &context, "absent", "present").await;
    fs::write(host.path().join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").expect("written");
    let found = bench.check(&context).await;
    assert!(found.state.is_ok_and(|s| s == *"outdated") && found.difference.contains("no user old"));
    moved(&mut bench, &context, "outdated", "absent").await;
    assert!(!file.exists());
}

/// A previous version of the daemon may have written it.
#[tokio::test]
async fn an_invalid_schedule_of_an_earlier_version_is_shown_and_removed() {
    let host = host(&[]);
    let mut bench = Bench::new();
    let good = bench.context(&setting("cron"), &content(host.path(), r#""schedule":"@daily","command":"true""#));
    moved(&mut bench, &good, "absent", "present").await;
    let bad = content(host.path(), r#""schedule":"99 * * * *","command":"true""#);
    let back = bench.context(&setting("cron"), &bad);
    let found = bench.check(&back).await;
    assert!(found.state.is_ok_and(|s| s == *"outdated") && found.difference.contains("the minute \"99\""));
    assert!(reason(bench.transition(&back, "outdated", "present").await).contains("the minute \"99\""));
    let note = bench.path("cobs/n1+a+b/before.json");
    let text = read(note.clone())
        .replace(&serde_json::json!(good.cob.content).to_string(), &serde_json::json!(bad).to_string());
    fs::write(note, text).expect("written");
    fs::write(host.path().join("etc/cron.d/cob-n1-a-b"), "# Written by cobd for n1/a/b.\n99 * * * * root true\n")
        .expect("written");
    let kept = bench.context(&setting("cron"), &bad);
    let found = bench.check(&kept).await;
    assert!(found.state.is_ok_and(|s| s == *"outdated") && found.difference.contains("the minute \"99\""));
    moved(&mut bench, &kept, "outdated", "absent").await;
    assert!(!host.path().join("etc/cron.d/cob-n1-a-b").exists());
}

#[tokio::test]
async fn a_setting_moved_to_another_root_restores_the_first_root() {
    let (first, second) = (host(&[("etc/cron.d/x", "# first\n")]), host(&[("etc/cron.d/x", "# second\n")]));
    let [one, other] = [&first, &second].map(|host| host.path().join("etc/cron.d/x"));
    let keys = r#""name":"x","schedule":"@daily","command":"true""#;
    let mut bench = Bench::new();
    let here = bench.context(&setting("cron"), &content(first.path(), keys));
    moved(&mut bench, &here, "absent", "present").await;
    let there = bench.context(&setting("cron"), &content(second.path(), keys));
    let found = bench.check(&there).await;
    assert!(found.state.is_ok_and(|s| s == *"outdated"));
    assert!(found.difference.contains(&format!("below {}", first.path().display())), "{}", found.difference);
    moved(&mut bench, &there, "outdated", "present").await;
    assert_eq!(read(one), "# first\n");
    assert_eq!(read(other.clone()), "# Written by cobd for n1/a/b.\n@daily root true\n");
    moved(&mut bench, &there, "present", "absent").await;
    assert_eq!(read(other), "# second\n");
}

#[tokio::test]
async fn settings_keep_the_contract() {
    let host = host(&[
        ("proc/sys/net/ipv4/ip_forward", "0\n"),
        ("etc/hosts", "127.0.0.1 localhost\n10.0.0.9 db\n"),
        ("etc/sysctl.d/10-others.conf", "x = 1\n"),
        ("etc/fstab", "/dev/sda1 / ext4 defaults 0 1\n/dev/sdz /srv/x xfs noauto 0 0\n"),
        ("etc/modules-load.d/others.conf", "x\n"),
        ("etc/modprobe.d/cob-dummy_x.conf", "# of somebody else\n"),
        ("etc/cron.d/others", "5 * * * * root true\n"),
    ]);
    for (backend, own, other) in [
        ("sysctl", r#""key":"net.ipv4.ip_forward","value":1"#, r#""key":"net.ipv4.ip_forward","value":2"#),
        ("kernel-module", r#""name":"dummy-x","options":{"n":1}"#, r#""name":"dummy-x","options":{"n":2}"#),
        ("kernel-module", r#""name":"dummy-x""#, r#""name":"other","blacklist":true"#),
        (
            "mount",
            r#""path":"/srv/x","source":"/dev/sdb","type":"ext4","options":["ro"]"#,
            r#""path":"/srv/x","source":"/dev/sdb","type":"ext4""#,
        ),
        ("host-entry", r#""address":"10.0.0.1","names":["db"]"#, r#""address":"10.0.0.2","names":["db"]"#),
        ("cron", r#""schedule":"@daily","command":"true""#, r#""schedule":"@hourly","command":"true""#),
    ] {
        let case = Case::new(setting(backend), &content(host.path(), own)).other(&content(host.path(), other));
        holds(&case.watching(host.path()).kills(4), &[]).await;
    }
}

#[test]
fn dangerous_contents_are_refused() {
    for (backend, keys, word) in [
        ("sysctl", r#""key":"../../etc/passwd","value":1"#, "is not a parameter"),
        ("sysctl", r#""key":"a//b","value":1"#, "is not a parameter"),
        ("sysctl", r#""key":"a.b","value":"1\u0007""#, "characters"),
        ("sysctl", r#""key":"a.b","value":"""#, "empty"),
        ("host-entry", r#""address":"10.0.0","names":["a"]"#, "address"),
        ("host-entry", r#""address":"10.0.0.1","names":[]"#, "empty"),
        ("host-entry", r#""address":"10.0.0.1","names":["a b"]"#, "is not the name of a host"),
        ("user", r#""name":"A b""#, "is not the name of a user"),
        ("user", r#""name":"a","groups":["x y"]"#, "is not the name of a group"),
        ("user", r#""name":"a","shell":"sh""#, "absolute path"),
        ("user", r#""name":"a","home":"/x:/y""#, "has a colon"),
        ("user", r#""name":"a","comment":"x:y""#, "colon"),
        ("group", r#""name":"-x""#, "is not the name of a group"),
        ("cron", r#""schedule":"* * * *","command":"x""#, "is not a schedule"),
        ("cron", r#""schedule":"@never","command":"x""#, "is not a schedule"),
        ("cron", r#""schedule":"99 * * * *","command":"x""#, "the minute \"99\" is not from 0 to 59"),
        ("cron", r#""schedule":"a b c d e","command":"x""#, "is not a schedule"),
        ("cron", r#""schedule":"@daily","command":"x\ny""#, "has several lines"),
        ("cron", r#""schedule":"@daily","command":"x","user":"a b""#, "is not a user"),
        ("cron", r#""schedule":"@daily","command":"x","name":"../x""#, "cron ignores a file"),
        ("cron", r#""schedule":"@daily","command":"x","env":{"A":"1\n2"}"#, "can't be set"),
    ] {
        let native = crate::kinds::registry::native(backend).expect("known");
        let error = native.accept(&content(Path::new("/x"), keys)).expect_err(keys);
        assert!(error.contains(word), "{keys}: {error}");
    }
    let native = crate::kinds::registry::native("cron").expect("known");
    assert!(native.accept(r#"{"root":"x","schedule":"@daily","command":"x"}"#).is_err());
}

/// Runs a test of this program again in separate namespaces of mounts and of the host name. `None`: this is the run in the namespace.
pub(super) fn in_a_namespace(test: &str) -> Option<bool> {
    in_namespaces(test, &[])
}

/// The same with further namespaces.
pub(in crate::kinds) fn in_namespaces(test: &str, more: &[&str]) -> Option<bool> {
    if std::env::var_os("COB_TEST_NAMESPACE").is_some() {
        return None;
    }
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/findmnt").exists() {
        eprintln!("skipped: it takes root and util-linux");
        return Some(true);
    }
    let program = std::env::current_exe().expect("this program");
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--uts", "--propagation", "private"]).args(more).arg("--").arg(program);
    command.args(["--exact", test, "--nocapture"]).env("COB_TEST_NAMESPACE", "1");
    let ran = command.output().expect("run");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    if said.contains("unshare failed") {
        eprintln!("skipped: {said}");
        return Some(true);
    }
    assert!(ran.status.success(), "{}\n{said}", String::from_utf8_lossy(&ran.stdout));
    assert!(String::from_utf8_lossy(&ran.stdout).contains("1 passed"), "the test was run");
    Some(true)
}

/// Runs a program, which must succeed, and returns its output.
pub(in crate::kinds) fn run(line: &str) -> String {
    let ran = std::process::Command::new("sh").args(["-c", line]).output().expect("run");
    assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).trim().to_owned()
}

/// In the own namespace, replaces `/etc` by a copy with this table.
pub(super) fn own_fstab(folder: &Path, table: &str) {
    let copy = folder.join("etc");
    run(&format!("cp -a /etc {copy} && mount --bind {copy} /etc", copy = copy.display()));
    fs::write("/etc/fstab", table).expect("written");
}

pub(super) fn mount(path: &Path, source: &str, keys: &str) -> String {
    format!(r#"{{"path":{path:?},"source":{source:?},{keys}}}"#)
}

fn flags(path: &Path) -> String {
    run(&format!("findmnt -n -o OPTIONS --mountpoint {}", path.display()))
}

pub(super) fn is_mounted(path: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").expect("read").contains(&format!(" {} ", path.display()))
}

#[tokio::test]
async fn a_file_system_is_mounted_remounted_and_unmounted() {
    if in_a_namespace("kinds::settings::tests::a_file_system_is_mounted_remounted_and_unmounted").is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new/place");
    let before = format!(
        "/dev/sdz / ext4 defaults 0 1\n/dev/sdy {} xfs noauto 0 0\nproc /proc proc defaults 0 0\n",
        path.display()
    );
    own_fstab(folder.path(), &before);
    let mut bench = Bench::new();
    let first =
        bench.context(&setting("mount"), &mount(&path, "scratch", r#""type":"tmpfs","options":["size=1m","noexec"]"#));
    assert_eq!(bench.state(&first).await, "absent");
    moved(&mut bench, &first, "absent", "present").await;
    assert!(flags(&path).contains("noexec") && flags(&path).contains("size=1024k"), "{}", flags(&path));
    let line = format!("# cob n1/a/b\nscratch {} tmpfs size=1m,noexec 0 0\n", path.display());
    assert_eq!(
        read("/etc/fstab".into()),
        before.replace(&format!("/dev/sdy {} xfs noauto 0 0\n", path.display()), &line)
    );
    fs::write(path.join("kept"), "x").expect("written");

    // Other options, without unmounting.
    let second =
        bench.context(&setting("mount"), &mount(&path, "scratch", r#""type":"tmpfs","options":["size=2m","nodev"]"#));
    assert_eq!(bench.state(&second).await, "outdated");
    moved(&mut bench, &second, "outdated", "present").await;
    assert!(flags(&path).contains("nodev") && !flags(&path).contains("noexec"), "{}", flags(&path));
    assert!(flags(&path).contains("size=2048k") && path.join("kept").exists(), "{}", flags(&path));
    // A change by a user is reverted.
    run(&format!("mount -o remount,ro,nodev {}", path.display()));
    assert_eq!(bench.state(&second).await, "outdated");
    moved(&mut bench, &second, "outdated", "present").await;
    run(&format!("umount {}", path.display()));
    assert_eq!(bench.state(&second).await, "outdated");
    moved(&mut bench, &second, "outdated", "present").await;

    // A mount in use stays, with an error.
    let user = fs::File::create(path.join("open")).expect("made");
    let why = reason(bench.transition(&second, "present", "absent").await);
    assert!(why.contains("can't be unmounted") && why.contains("busy") && why.contains("fuser"), "{why}");
    assert!(is_mounted(&path));
    drop(user);
    moved(&mut bench, &second, "outdated", "absent").await;
    assert!(!is_mounted(&path) && !folder.path().join("new").exists());
    assert_eq!(read("/etc/fstab".into()), before);
}

#[tokio::test]
async fn a_mount_for_users_stays_without_set_user_ids_and_devices() {
    if in_a_namespace("kinds::settings::tests::a_mount_for_users_stays_without_set_user_ids_and_devices").is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    own_fstab(folder.path(), "");
    let path = folder.path().join("place");
    let mut bench = Bench::new();
    let with = |options: &str| {
        bench.context(&setting("mount"), &mount(&path, "scratch", &format!(r#""type":"tmpfs","options":[{options}]"#)))
    };
    let (first, larger) = (with(r#""users","size=1m""#), with(r#""users","size=2m""#));
    let (executable, owned) = (with(r#""users","exec","size=2m""#), with(r#""owner","suid","size=2m""#));
    let of = |flag: &str| flags(&path).split(',').any(|f| f == flag);
    moved(&mut bench, &first, "absent", "present").await;
    moved(&mut bench, &larger, "outdated", "present").await;
    assert!(of("noexec") && of("nosuid") && of("nodev") && of("size=2048k"), "{}", flags(&path));
    // Flags that a user removed come back.
    run(&format!("mount -o remount,size=2m,exec,suid,dev scratch {}", path.display()));
    assert_eq!(bench.state(&larger).await, "outdated");
    moved(&mut bench, &larger, "outdated", "present").await;
    assert!(of("noexec") && of("nosuid") && of("nodev"), "{}", flags(&path));
    // Named flags override implied flags.
    moved(&mut bench, &executable, "outdated", "present").await;
    assert!(!of("noexec") && of("nosuid") && of("nodev"), "{}", flags(&path));
    moved(&mut bench, &owned, "outdated", "present").await;
    assert!(!of("noexec") && !of("nosuid") && of("nodev"), "{}", flags(&path));
    moved(&mut bench, &owned, "present", "absent").await;
    assert!(!is_mounted(&path));
}

#[tokio::test]
async fn mounts_of_others_are_left_alone() {
    if in_a_namespace("kinds::settings::tests::mounts_of_others_are_left_alone").is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    own_fstab(folder.path(), "");
    let (data, path) = (folder.path().join("the data"), folder.path().join("place"));
    for made in [&data, &path] {
        fs::create_dir(made).expect("made");
    }
    fs::write(data.join("file"), "x").expect("written");
    let mut bench = Bench::new();
    // With another mount on the path: it is neither unmounted nor covered.
    run(&format!("mount -t tmpfs others {}", path.display()));
    let bind = bench
        .context(&setting("mount"), &mount(&path, &data.display().to_string(), r#""type":"bind","options":["ro"]"#));
    let why = reason(bench.transition(&bind, "absent", "present").await);
    assert!(why.contains("is already mounted from others (tmpfs)"), "{why}");
    moved(&mut bench, &bind, "outdated", "absent").await;
    assert!(is_mounted(&path));
    run(&format!("umount {}", path.display()));

    // A read-only bind mount with a blank in its name.
    moved(&mut bench, &bind, "absent", "present").await;
    assert!(path.join("file").exists() && fs::write(path.join("new"), "x").is_err());
    assert!(read("/etc/fstab".into()).contains("the\\040data"));
    moved(&mut bench, &bind, "present", "absent").await;
    assert!(!is_mounted(&path) && path.exists(), "the folder was there before");

    // With the same mount already: it stays after the departure, with its original flags.
    run(&format!("mount --bind '{}' {}", data.display(), path.display()));
    moved(&mut bench, &bind, "absent", "present").await;
    assert!(fs::write(path.join("new"), "x").is_err());
    moved(&mut bench, &bind, "present", "absent").await;
    assert!(is_mounted(&path) && fs::write(path.join("new"), "x").is_ok());
    assert_eq!(read("/etc/fstab".into()), "");
    // From another source: the old mount is removed first.
    run(&format!("umount {}", path.display()));
    moved(&mut bench, &bind, "absent", "present").await;
    let other = bench.context(&setting("mount"), &mount(&path, "t", r#""type":"tmpfs""#));
    assert_eq!(bench.state(&other).await, "outdated");
    moved(&mut bench, &other, "outdated", "present").await;
    assert!(!path.join("file").exists());
    moved(&mut bench, &other, "present", "absent").await;
    assert!(!is_mounted(&path) && path.exists());
}

#[tokio::test]
async fn mounts_keep_the_contract() {
    if in_a_namespace("kinds::settings::tests::mounts_keep_the_contract").is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    own_fstab(folder.path(), "/dev/sdz / ext4 defaults 0 1\n");
    let path = folder.path().join("a/place");
    let case = Case::new(setting("mount"), &mount(&path, "scratch", r#""type":"tmpfs","options":["size=1m"]"#));
    let case = case.other(&mount(&path, "scratch", r#""type":"tmpfs","options":["size=2m","ro"]"#));
    holds(&case.watching(Path::new("/etc/fstab")).watching(folder.path().join("a")).kills(6), &[]).await;
}
