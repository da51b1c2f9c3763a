//! Answers in a real database in a folder, and a real package that asks for the answers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use super::super::tests::{content, host, moved, read, setting};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::has_program;
use crate::kinds::testing::{Bench, reason};

const DESCRIPTION: &str = include_str!("debconf.conf");
const FILES: [&str; 3] = ["config.dat", "passwords.dat", "templates.dat"];

/// A host with a database, in which an administrator has answered two questions. Returns `None` without debconf.
fn answered() -> Option<tempfile::TempDir> {
    if !has_program("debconf-communicate") || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it takes debconf and root");
        return None;
    }
    let host = host(&[("etc/debconf.conf", DESCRIPTION), ("var/cache/debconf/config.dat", "")]);
    select(
        host.path(),
        "app app/mode select fast\nother app/mode select fast\napp app/old-password password earlier\n",
    );
    Some(host)
}

fn run(root: &Path, program: &str, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(program);
    command.args(arguments).env("DPKG_ROOT", root).env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8");
    crate::kinds::native::run_bounded(&mut command, input.as_bytes()).expect("run").out
}

fn select(root: &Path, lines: &str) {
    run(root, MAKE, &[], lines);
}

const MAKE: &str = "debconf-set-selections";

/// The answer as a package gets it.
fn answer(root: &Path, question: &str) -> String {
    run(root, "debconf-communicate", &[], &format!("GET {question}\n")).trim_end().to_owned()
}

fn files(root: &Path) -> Vec<String> {
    FILES.iter().map(|file| read(root.join("var/cache/debconf").join(file))).collect()
}

fn answers(root: &Path, answers: &str) -> String {
    content(root, &format!(r#""package":"app","answers":[{answers}]"#))
}

const NAME: &str = r#"{"question":"app/name","type":"string","value":"a  \\ Zürich"}"#;
const PASSWORD: &str = r#"{"question":"app/password","type":"password","value":"pencil-4711"}"#;
const MODE: &str = r#"{"question":"app/mode","type":"select","value":"slow"}"#;

#[tokio::test]
async fn answers_are_set_and_the_earlier_answers_come_back() {
    let Some(host) = answered() else { return };
    let (root, mut bench, kind) = (host.path(), Bench::new(), setting("debconf"));
    let before = files(root);
    let flag = r#"{"question":"app/flag","type":"boolean","value":true}"#;
    let context = bench.context(&kind, &answers(root, &[NAME, PASSWORD, MODE, flag].join(",")));
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "absent", "present").await;
    let all = ["name", "password", "mode", "flag"].map(|name| answer(root, &format!("app/{name}")));
    assert_eq!(all, ["0 a  \\ Zürich", "0 pencil-4711", "0 slow", "0 true"]);
    let passwords = fs::metadata(root.join("var/cache/debconf/passwords.dat")).expect("there");
    assert_eq!(passwords.permissions().mode() & 0o777, 0o600);
    assert!(!files(root)[0].contains("pencil"), "the answers that all users may read have no password");
    // Drift, of an answer, of a password, and of a question.
    for (change, word) in [
        ("SET app/name x", r#""value":"x""#),
        ("SET app/password brush-4711", ANOTHER),
        ("UNREGISTER app/flag", "app/flag"),
    ] {
        run(root, "debconf-communicate", &["app"], &format!("{change}\n"));
        let found = bench.check(&context).await;
        assert_eq!(found.state.expect("known").as_str(), "outdated", "{change}");
        assert!(found.difference.contains(word) && !found.difference.contains("4711"), "{}", found.difference);
        moved(&mut bench, &context, "outdated", "present").await;
    }
    // An answer that the content names no more is as it was, and then belongs to users.
    let fewer = bench.context(&kind, &answers(root, &[NAME, PASSWORD].join(",")));
    moved(&mut bench, &fewer, "outdated", "present").await;
    assert_eq!(
        (answer(root, "app/mode"), answer(root, "app/flag")),
        ("0 fast".into(), "10 app/flag doesn't exist".into())
    );
    run(root, "debconf-communicate", &["app"], "SET app/mode theirs\n");
    assert_eq!(bench.state(&fewer).await, "present");
    moved(&mut bench, &context, "outdated", "present").await;
    assert_eq!(answer(root, "app/mode"), "0 slow");
    run(root, "debconf-communicate", &["app"], "SET app/mode fast\n");
    moved(&mut bench, &context, "outdated", "present").await;
    let noted = Command::new("grep").args(["-raE", "pencil|brush"]).arg(bench.path("cobs")).output().expect("run");
    assert_eq!(String::from_utf8_lossy(&noted.stdout), "", "no record has the password");
    moved(&mut bench, &fewer, "outdated", "present").await;
    run(root, "debconf-communicate", &["app"], "SET app/mode fast\n");
    moved(&mut bench, &fewer, "present", "absent").await;
    assert_eq!(files(root), before);
}

#[tokio::test]
async fn a_package_gets_the_answers_and_its_own_questions_stay() {
    let Some(host) = answered() else { return };
    if !has_program("dpkg-deb") {
        eprintln!("skipped: it takes dpkg-deb");
        return;
    }
    let (root, mut bench, kind) = (host.path(), Bench::new(), setting("debconf"));
    let context = bench.context(&kind, &answers(root, &[NAME, PASSWORD].join(",")));
    moved(&mut bench, &context, "absent", "present").await;
    install_package(root);
    assert_eq!(read(root.join("etc/app")), "a  \\ Zürich pencil-4711\n");
    // The package has described the question: the departure leaves the question with its default.
    assert_eq!(bench.state(&context).await, "present");
    assert_eq!(answer(root, "app/name"), "0 a  \\ Zürich");
    let wrong = NAME.replace("string", "password");
    let wrong = bench.context(&kind, &answers(root, &[wrong.as_str(), PASSWORD].join(",")));
    let why = reason(bench.transition(&wrong, "outdated", "present").await);
    assert!(why.contains("app/name has the type string; write `type: string`"), "{why}");
    moved(&mut bench, &context, "outdated", "absent").await;
    assert_eq!(["name", "password"].map(|name| answer(root, &format!("app/{name}"))), ["0 plain", "0"]);
    assert!(files(root)[2].contains("The name of the application"), "the description of the package stays");
}

/// Installs a package that writes its answers to a file, as dpkg does for a folder that becomes a host.
fn install_package(root: &Path) {
    let tree = host(&[
        ("DEBIAN/control", "Package: app\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: an app\n"),
        (
            "DEBIAN/templates",
            "Template: app/name\nType: string\nDefault: plain\nDescription: The name of the application\n\n\
             Template: app/password\nType: password\nDescription: The password\n",
        ),
        (
            "DEBIAN/config",
            "#!/bin/sh\nset -e\n. /usr/share/debconf/confmodule\ndb_input high app/name || true\n\
             db_input high app/password || true\ndb_go || true\n",
        ),
        (
            "DEBIAN/postinst",
            "#!/bin/sh\nset -e\n. /usr/share/debconf/confmodule\ndb_get app/name\nname=$RET\ndb_get app/password\n\
             printf '%s %s\\n' \"$name\" \"$RET\" >\"$DPKG_ROOT/etc/app\"\n",
        ),
    ]);
    for script in ["config", "postinst"] {
        let script = tree.path().join("DEBIAN").join(script);
        fs::set_permissions(script, fs::Permissions::from_mode(0o755)).expect("set");
    }
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(folder)).expect("made");
    }
    fs::write(root.join("var/lib/dpkg/status"), "").expect("written");
    let file = root.join("app.deb");
    let built = Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).args([tree.path(), &file]).output();
    assert!(built.expect("run").status.success());
    let mut install = Command::new("dpkg");
    install.arg("--root").arg(root).args(["--force-script-chrootless", "--log=/dev/null", "--install"]).arg(&file);
    let installed = install.env("DEBIAN_FRONTEND", "noninteractive").output().expect("run");
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
}

#[tokio::test]
async fn a_killed_writer_leaves_no_empty_database() {
    let Some(host) = answered() else { return };
    let (root, mut bench, kind) = (host.path(), Bench::new(), setting("debconf"));
    let context = bench.context(&kind, &answers(root, &[NAME, PASSWORD].join(",")));
    moved(&mut bench, &context, "absent", "present").await;
    let file = |name: &str| root.join("var/cache/debconf").join(name);
    // Killed between the two moves of a file.
    fs::copy(file("config.dat"), file("config.dat-new")).expect("copied");
    fs::rename(file("config.dat"), file("config.dat-old")).expect("moved");
    assert_eq!(bench.state(&context).await, "present");
    assert_eq!(answer(root, "app/mode"), "0 fast");
    // Killed after the answers, before the descriptions: the questions have no type.
    let templates = read(file("templates.dat"));
    let (kept, _) = templates.split_once("Name: app/name").expect("a question");
    fs::write(file("templates.dat"), kept).expect("written");
    assert_eq!(bench.state(&context).await, "outdated");
    moved(&mut bench, &context, "outdated", "present").await;
    // Killed after a removal of the answers: the descriptions are left.
    let templates = read(file("templates.dat"));
    moved(&mut bench, &context, "present", "absent").await;
    let end = files(root);
    fs::write(file("templates.dat"), templates).expect("written");
    moved(&mut bench, &context, "absent", "present").await;
    let descriptions = read(file("templates.dat"));
    run(root, "debconf-communicate", &["app"], "UNREGISTER app/name\nUNREGISTER app/password\n");
    fs::write(file("templates.dat"), descriptions).expect("written");
    moved(&mut bench, &context, "outdated", "absent").await;
    assert_eq!(files(root), end);
    // Another type of an own question: the password does not get to the file of other answers.
    moved(&mut bench, &context, "absent", "present").await;
    let secret = NAME.replace("string", "password");
    let secret = bench.context(&kind, &answers(root, &[secret.as_str(), PASSWORD].join(",")));
    moved(&mut bench, &secret, "outdated", "present").await;
    assert!(!files(root)[0].contains("Zürich") && files(root)[1].contains("Zürich"));
    moved(&mut bench, &secret, "present", "absent").await;
    assert_eq!(files(root), end);
}

#[tokio::test]
async fn a_writer_waits_for_the_lock_and_a_reader_does_not() {
    let Some(host) = answered() else { return };
    let (root, mut bench) = (host.path(), Bench::new());
    let context = bench.context(&setting("debconf"), &answers(root, NAME));
    let locked = fs::File::open(root.join("var/cache/debconf/config.dat")).expect("opened");
    locked.lock().expect("locked");
    assert_eq!(bench.state(&context).await, "absent");
    let mut short = context.clone();
    let kind = std::sync::Arc::make_mut(&mut short.kind);
    kind.transitions.iter_mut().for_each(|transition| transition.timeout_ms = 20_000);
    let why = reason(bench.transition(&short, "absent", "present").await);
    assert!(why.contains("another program has used debconf for all of 10s"), "{why}");
    drop(locked);
    moved(&mut bench, &context, "outdated", "present").await;
    // A host without debconf.
    let none = super::super::tests::host(&[("etc/x", "")]);
    let context = bench.context(&setting("debconf"), &answers(none.path(), NAME));
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("etc/debconf.conf: not found; install the package debconf there"), "{why}");
}

#[tokio::test]
async fn answers_keep_the_contract() {
    let Some(host) = answered() else { return };
    let own = answers(host.path(), &[NAME, PASSWORD, MODE].join(","));
    let other = answers(host.path(), &[NAME.replace("Zürich", "Bern"), PASSWORD.to_owned()].join(","));
    let mut case = Case::new(setting("debconf"), &own).other(&other).kills(4);
    for file in FILES {
        case = case.watching(host.path().join("var/cache/debconf").join(file));
    }
    holds(&case, &[]).await;
}
