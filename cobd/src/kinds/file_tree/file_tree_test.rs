//! The kind as the daemon uses it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use cob_types::Kind;

use crate::kinds::backend::{Backend, CheckOutcome, Context, Outcome, Tools, TransitionAttempt, Work};
use crate::kinds::contract::tests::holds;
use crate::kinds::contract::{Case, Rule, run};
use crate::kinds::file_tree::{FileTree, missing_store};
use crate::kinds::queries::FilesQuery;
use crate::kinds::testing::{Bench, kind, reason, state};

fn file_tree() -> Kind {
    let template = kind("file-tree", &["down", "up"], |_, _| None).transitions[0].clone();
    let mut kind = kind("file-tree", &["absent", "outdated", "present", "conflict"], |_, _| None);
    let moves = [("absent", "present"), ("outdated", "present"), ("present", "absent"), ("outdated", "absent")];
    kind.transitions = moves
        .iter()
        .map(|(from, to)| cob_types::Transition { from: state(from), to: state(to), ..template.clone() })
        .collect();
    kind.preferred = state("present");
    kind.pre_remove = state("absent");
    kind
}

fn content(bench: &Bench, text: &str) -> String {
    let path = bench.path("host/x.conf");
    serde_json::json!({"files": {path.to_str().expect("text"): {"content": text}}}).to_string()
}

#[tokio::test]
async fn a_tree_goes_through_its_states() {
    let mut bench = Bench::new();
    let (first, second) = (content(&bench, "one\n"), content(&bench, "two\n"));
    let (first, second) = (bench.context(&file_tree(), &first), bench.context(&file_tree(), &second));
    assert_eq!(bench.state(&first).await, "absent");
    assert_eq!(bench.transition(&first, "absent", "present").await, Outcome::done());
    assert_eq!(bench.state(&first).await, "present");
    assert_eq!(bench.state(&second).await, "outdated");
    let found = bench.check(&second).await;
    assert!(found.difference.contains("-one\n+two\n"), "{}", found.difference);
    assert_eq!(bench.transition(&second, "outdated", "present").await, Outcome::done());
    assert_eq!(fs::read_to_string(bench.path("host/x.conf")).expect("read"), "two\n");
    bench.return_of_the_daemon();
    assert_eq!(bench.state(&second).await, "present");
    assert_eq!(bench.transition(&second, "present", "absent").await, Outcome::done());
    assert_eq!(bench.state(&second).await, "absent");
    assert!(!bench.path("host").exists());
}

/// The command of `validate` sees a file of the same name with the whole new text, in a private folder.
#[tokio::test]
async fn a_text_that_its_command_refuses_is_never_written() {
    let mut bench = Bench::new();
    let (path, seen) = (bench.path("host/x.conf"), bench.path("seen"));
    let (path, seen) = (path.to_str().expect("text"), seen.to_str().expect("text"));
    let validated = |text: &str| {
        let private = "ls -ld \"$(dirname %)\" | grep -q '^drwx------'";
        let command = format!("cp % {seen} && {private} && ! grep -n wrong %");
        let files = serde_json::json!({path: {"content": text, "validate": command}});
        serde_json::json!({"files": files}).to_string()
    };
    let (good, bad) = (validated("right\n"), validated("right\nwrong\n"));
    let (good, bad) = (bench.context(&file_tree(), &good), bench.context(&file_tree(), &bad));
    let why = reason(bench.transition(&bad, "absent", "present").await);
    assert!(why.contains("x.conf is refused by `cp ") && why.contains("2:wrong"), "{why}");
    assert!(why.ends_with("no file was changed"), "{why}");
    assert!(!Path::new(path).exists());
    assert_eq!(bench.state(&bad).await, "absent");
    assert_eq!(fs::read_to_string(seen).expect("the command has run"), "right\nwrong\n");

    assert_eq!(bench.transition(&good, "absent", "present").await, Outcome::done());
    let why = reason(bench.transition(&bad, "outdated", "present").await);
    assert!(why.contains("2:wrong"), "{why}");
    assert_eq!(fs::read_to_string(path).expect("still there"), "right\n");
    let left: Vec<_> = fs::read_dir(bench.path("state/validate")).into_iter().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_folder_in_the_place_of_a_file_is_named() {
    let mut bench = Bench::new();
    fs::create_dir_all(bench.path("host/x.conf")).expect("made");
    let content = content(&bench, "one\n");
    let context = bench.context(&file_tree(), &content);
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("is a folder, but the model wants a file"), "{why}");
}

#[tokio::test]
async fn a_tree_that_could_never_be_written_departs_all_the_same() {
    let mut bench = Bench::new();
    fs::create_dir_all(bench.path("real")).expect("made");
    std::os::unix::fs::symlink("real", bench.path("host")).expect("a link");
    let text = content(&bench, "one\n");
    let mut context = bench.context(&file_tree(), &text);
    let why = bench.check(&context).await.state.expect_err("unknown");
    assert!(why.contains("follows no link"), "{why}");
    context.leaving = true;
    assert_eq!(bench.state(&context).await, "absent");
}

/// `on_remove: keep`: files that stay belong to no change object.
#[tokio::test]
async fn a_kept_file_stays_when_a_change_object_of_the_same_name_departs() {
    let mut bench = Bench::new();
    let tree = |name: &str| {
        let path = bench.path(name);
        serde_json::json!({"files": {path.to_str().expect("text"): {"content": "ours\n"}}}).to_string()
    };
    let (first, second) = (tree("kp/f"), tree("kq/f"));
    let (first, second) = (bench.context(&file_tree(), &first), bench.context(&file_tree(), &second));
    assert_eq!(bench.transition(&first, "absent", "present").await, Outcome::done());
    bench.kinds.forget_kept(&first.cob.id);
    assert_eq!(bench.state(&second).await, "absent");
    assert_eq!(bench.transition(&second, "absent", "present").await, Outcome::done());
    assert!(bench.path("kp/f").exists() && bench.path("kq/f").exists());
    assert_eq!(bench.transition(&second, "present", "absent").await, Outcome::done());
    assert!(bench.path("kp/f").exists() && !bench.path("kq").exists());
    // The file stays as if it had existed before.
    assert_eq!(bench.transition(&first, "absent", "present").await, Outcome::done());
    assert_eq!(bench.transition(&first, "present", "absent").await, Outcome::done());
    assert!(bench.path("kp/f").exists());
}

#[tokio::test]
async fn a_patch_is_removed_with_its_tree() {
    let mut bench = Bench::new();
    let path = bench.path("host/x.conf");
    let text = serde_json::json!({"on_drift": "adopt", "files": {path.to_str().expect("text"): {"content": "one\n"}}});
    let context = bench.context(&file_tree(), &text.to_string());
    assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
    fs::write(&path, "mine\n").expect("edited");
    assert_eq!(bench.state(&context).await, "present");
    let patch = bench.path("files/patches/n1+a+b.patch");
    assert!(patch.exists());
    // A user who undoes the change leaves no patch.
    fs::write(&path, "one\n").expect("edited");
    assert_eq!(bench.transition(&context, "present", "absent").await, Outcome::done());
    assert!(!patch.exists() && !path.exists());
}

#[tokio::test]
async fn a_user_s_line_returns_with_its_tree_and_blocks_a_removal_for_good() {
    let mut bench = Bench::new();
    let path = bench.path("host/x.conf");
    let text = serde_json::json!({"manage": "merge", "files": {path.to_str().expect("text"): {"content": "one\n"}}});
    let mut context = bench.context(&file_tree(), &text.to_string());
    assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
    fs::write(&path, "one\nmine\n").expect("edited");
    assert_eq!(bench.transition(&context, "present", "absent").await, Outcome::done());
    assert_eq!(bench.state(&context).await, "absent");
    bench.return_of_the_daemon();
    assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
    assert_eq!(fs::read_to_string(&path).expect("read"), "one\nmine\n");
    // The files go for good if the change object departs or the model wants it absent.
    for leaving in [true, false] {
        context.leaving = leaving;
        let mut cob = (*context.cob).clone();
        cob.preferred = state(if leaving { "present" } else { "absent" });
        context.cob = Arc::new(cob);
        let why = reason(bench.transition(&context, "present", "absent").await);
        assert!(why.contains("a user has changed it, and the model removes it"), "{why}");
    }
}

/// The journal survives the loss of the store's folder.
#[tokio::test]
async fn a_lost_store_folder_is_reported_and_not_recreated() {
    let mut bench = Bench::new();
    fs::create_dir(bench.path("journal")).expect("made");
    let path = bench.path("host/x.conf");
    let text = serde_json::json!({"manage": "merge", "files": {path.to_str().expect("text"): {"content": "one\n"}}});
    let context = bench.context(&file_tree(), &text.to_string());
    assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
    fs::write(&path, "one\nmine\n").expect("edited");
    bench.return_of_the_daemon();
    fs::remove_dir_all(bench.path("files")).expect("lost");
    assert!(missing_store(bench.folder.path()).is_some_and(|what| what.contains("it is gone")));
    let why = bench.check(&context).await.state.expect_err("nothing is known without it");
    assert!(why.contains("restore") && why.contains("from a copy"), "{why}");
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("from a copy"), "{why}");
    assert_eq!(fs::read_to_string(&path).expect("there"), "one\nmine\n");
    assert!(!bench.path("files/store.git").exists());
    // An operator decided to continue without the store.
    fs::remove_file(bench.path("journal/file-store")).expect("removed");
    assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
}

#[tokio::test]
async fn a_secret_is_only_in_its_file() {
    let mut bench = Bench::new();
    let key = cob_trust::SecretKey::from_seed(&[7; 32]);
    bench.with_key(&key);
    let (value, before) = ("correct horse battery staple", "an older secret of this file");
    let id = cob_types::secret::SecretId([3; 16]);
    let sealed = cob_trust::seal::seal_for_bundle(&[9; 32], &[key.public()], id, value.as_bytes()).expect("sealed");
    let text = content(&bench, &format!("user=app\npassword={}\n", id.mark()));
    let mut context = bench.context(&file_tree(), &text);
    context.secrets.insert(id, sealed);
    let path = bench.path("host/x.conf");
    fs::create_dir_all(bench.path("host")).expect("made");
    fs::write(&path, before).expect("written");
    assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
    assert_eq!(fs::read_to_string(&path).expect("read"), format!("user=app\npassword={value}\n"));
    // Text written by a user may be a secret, too.
    fs::write(&path, "found secret of somebody").expect("written");
    let found = bench.check(&context).await;
    assert_eq!(found.state, Ok(state("outdated")));
    assert!(
        found.difference.contains("holds a secret") && !found.difference.contains("somebody"),
        "{}",
        found.difference
    );
    assert_eq!(bench.transition(&context, "outdated", "present").await, Outcome::done());
    assert_eq!(bench.state(&context).await, "present");

    let waits = fs::read_dir(bench.path("files/store.git/log")).expect("listed").flatten();
    let waits: u64 = waits.map(|entry| entry.metadata().expect("there").len()).sum();
    assert!(waits > 100, "something waits in the log");
    assert_nowhere(&bench, &context, &[value, before, "found secret"]).await;
    assert_eq!(bench.transition(&context, "present", "absent").await, Outcome::done());
    assert_eq!(fs::read_to_string(&path).expect("back"), before);
}

/// Asserts that no value is in the log or an object of the store.
async fn assert_nowhere(bench: &Bench, context: &Context, values: &[&str]) {
    let waits = fs::read_dir(bench.path("files/store.git/log")).expect("listed").flatten();
    let waits: Vec<u8> = waits.flat_map(|entry| fs::read(entry.path()).expect("read")).collect();
    let waits = String::from_utf8_lossy(&waits);
    assert!(!values.iter().any(|secret| waits.contains(secret)), "{waits}");
    bench.ask(context, FilesQuery::Log).await.expect("told");
    let store = git2::Repository::open_bare(bench.path("files/store.git")).expect("a store");
    let mut objects = 0;
    let odb = store.odb().expect("objects");
    odb.foreach(|object| {
        objects += 1;
        let bytes = odb.read(*object).expect("read").data().to_vec();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!values.iter().any(|secret| text.contains(secret)), "{text}");
        true
    })
    .expect("walked");
    assert!(objects > 10);
}

/// An administrator copies a file with a secret, an editor leaves a backup, and a user writes the value into a shared
/// file.
#[tokio::test]
async fn a_copied_secret_is_stored_for_this_host_only_and_never_shown() {
    const VALUE: &str = "correct horse battery staple";
    let mut bench = Bench::new();
    let key = cob_trust::SecretKey::from_seed(&[7; 32]);
    bench.with_key(&key);
    let id = cob_types::secret::SecretId([3; 16]);
    let sealed = cob_trust::seal::seal_for_bundle(&[9; 32], &[key.public()], id, VALUE.as_bytes()).expect("sealed");
    let mut bundle = cob_types::Bundle::empty(cob_types::HostName::new("n1").expect("a name"));
    bundle.secrets.insert(id, sealed.clone().into());
    let known = cob_types::Packed::of(&bundle).expect("packed");
    bench.kinds.watch(&known, &["file-tree".to_owned()].into());
    let path = |name: &str| bench.path("host").join(name).display().to_string();
    let tree = |port: u32| {
        serde_json::json!({"files": {
            (path("app.conf")): {"content": format!("password={}\n", id.mark()), "mode": "0640"},
            (path("d")): {"folder": true, "whole": true},
            (path("d/x.conf")): {"content": "x\n"},
            (path("shared.conf")): {"content": format!("a\nport {port}\nb\n"), "manage": "merge"},
        }})
        .to_string()
    };
    let (first, second) = (tree(1), tree(2));
    fs::create_dir_all(bench.path("host/d")).expect("made");
    fs::write(bench.path("host/d/before.bak"), format!("before {VALUE}\n")).expect("written");
    fs::write(bench.path("host/d/large.bak"), format!("{VALUE}{}", "x".repeat(900 << 10))).expect("written");
    let mut context = bench.context(&file_tree(), &first);
    context.secrets.insert(id, sealed.clone());
    assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
    let mut told = Vec::new();
    fs::copy(bench.path("host/app.conf"), bench.path("host/d/app.conf.bak")).expect("copied");
    fs::write(bench.path("host/d/x.conf"), format!("x\n# {VALUE}\n")).expect("edited");
    let found = bench.check(&context).await;
    assert_eq!(found.state, Ok(state("outdated")));
    assert!(found.difference.contains("app.conf.bak") && found.difference.contains("contains the value of a secret"));
    told.push(found.difference);
    assert_eq!(bench.transition(&context, "outdated", "present").await, Outcome::done());
    assert!(!bench.path("host/d/app.conf.bak").exists());

    // In a shared file the value is merged and never shown; a conflict is resolved without it.
    fs::write(bench.path("host/shared.conf"), format!("a\nport {VALUE}\nb\nmine {VALUE}\n")).expect("edited");
    told.push(bench.check(&context).await.difference);
    let mut next = bench.context(&file_tree(), &second);
    next.secrets.insert(id, sealed);
    let conflict = bench.check(&next).await;
    assert_eq!(conflict.state, Ok(state("conflict")));
    told.push(conflict.difference);
    let diff = bench.ask(&next, FilesQuery::Diff { retire: false, written: true }).await.expect("told");
    told.push(format!("{diff:?}"));
    let why = bench.ask(&next, FilesQuery::Hunks { path: None, retire: false }).await.expect_err("refused");
    assert!(why.contains("that text contains the value of a secret"), "{why}");
    let decision = |choice| FilesQuery::Resolve { path: None, conflict: None, choice, retire: false };
    let edited = cob_files::Choice::Edited(format!("a {VALUE}\n").into_bytes());
    told.push(bench.ask(&next, decision(edited)).await.expect_err("it would be kept"));
    bench.ask(&next, decision(cob_files::Choice::Theirs)).await.expect("decided");
    assert_eq!(bench.transition(&next, "outdated", "present").await, Outcome::done());
    let text = fs::read_to_string(bench.path("host/shared.conf")).expect("read");
    assert_eq!(text, format!("a\nport 2\nb\nmine {VALUE}\n"), "the user's own line stays");

    // Off and on again: the tree was set aside, and comes back.
    assert_eq!(bench.transition(&next, "present", "absent").await, Outcome::done());
    // A new daemon on this host.
    fs::remove_file(bench.path("identity.key")).expect("removed");
    bench.with_key(&key);
    bench.kinds.watch(&known, &["file-tree".to_owned()].into());
    assert_eq!(bench.transition(&next, "absent", "present").await, Outcome::done());
    assert_eq!(fs::read_to_string(bench.path("host/shared.conf")).expect("read"), text);

    for version in bench.ask(&next, FilesQuery::Log).await.expect("told").versions {
        for path in [None, Some("d/app.conf.bak"), Some("d/before.bak"), Some("shared.conf"), Some("d/x.conf")] {
            let path = path.map(|name| bench.path("host").join(name).display().to_string());
            let shown = bench.ask(&next, FilesQuery::Show { version: version.id.clone(), path }).await;
            told.push(shown.map_or_else(|why| why, |shown| shown.text));
        }
    }
    assert!(told.iter().all(|text| !text.contains(VALUE)), "{told:?}");
    assert_nowhere(&bench, &next, &[VALUE]).await;
    for entry in fs::read_dir(bench.path("files/choices")).into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path()).expect("read");
        let hex: String = VALUE.bytes().map(|b| format!("{b:02x}")).collect();
        assert!(!text.contains(&hex), "{text}");
    }
}

/// A tree with a file, a link and a folder, and without obstacles on disk.
fn case(host: &Path) -> Case {
    let tree = |text: &str, link: &str| {
        let path = |name: &str| host.join(name).display().to_string();
        let files = serde_json::json!({
            (path("a/x.conf")): {"content": text, "mode": "0640"},
            (path("a/current")): {"link": link},
            (path("whole")): {"folder": true, "whole": true},
            (path("whole/y.conf")): {"content": "y\n"},
        });
        serde_json::json!({ "files": files }).to_string()
    };
    fs::create_dir_all(host.join("whole")).expect("made");
    fs::write(host.join("whole/before"), "before\n").expect("written");
    Case::new(file_tree(), &tree("one\n", "x.conf")).other(&tree("two\n", "y.conf")).watching(host)
}

#[tokio::test]
async fn the_file_tree_kind_keeps_the_contract() {
    let host = tempfile::tempdir().expect("a folder");
    holds(&case(host.path()), &[]).await;
}

/// A file tree that breaks one rule.
struct Planted {
    real: FileTree,
    fault: Fault,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// It reports a removal that did not happen.
    NotTakenBack,
    /// A check writes.
    ALookWrites,
    /// A second transition writes the same content again.
    WritesAgain,
}

impl Backend for Planted {
    fn name(&self) -> &'static str {
        self.real.name()
    }

    fn durable(&self) -> bool {
        self.real.durable()
    }

    fn accept(&self, kind: &Kind) -> Result<(), String> {
        self.real.accept(kind)
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        self.real.accept_content(content)
    }

    fn check(&self, tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        if self.fault == Fault::ALookWrites {
            let content: serde_json::Value = serde_json::from_str(&context.cob.content).expect("a content");
            let path = content["files"].as_object().and_then(|files| files.keys().next()).expect("a path").clone();
            let path = Path::new(&path);
            let _ = fs::read(path).map(|bytes| fs::write(path, bytes).expect("written"));
        }
        self.real.check(tools, context)
    }

    fn transition(&self, tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        match self.fault {
            Fault::NotTakenBack if attempt.to == *"absent" => Work::known(Outcome::done()),
            Fault::WritesAgain if attempt.to == *"present" => {
                let stray = context.folder.join("stray");
                let count = fs::read_to_string(&stray).map_or(0, |text| text.len());
                fs::write(&stray, "x".repeat(count + 1)).expect("written");
                self.real.transition(tools, context, attempt)
            }
            Fault::NotTakenBack | Fault::WritesAgain | Fault::ALookWrites => {
                self.real.transition(tools, context, attempt)
            }
        }
    }
}

#[tokio::test]
async fn a_file_tree_that_breaks_the_contract_is_found() {
    for (fault, rule) in
        [(Fault::NotTakenBack, Rule::Move), (Fault::ALookWrites, Rule::Check), (Fault::WritesAgain, Rule::Twice)]
    {
        let (host, scratch) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let mut case = case(host.path()).kills(0);
        case.backend = Some(Arc::new(Planted { real: FileTree::default(), fault }));
        let report = run(&case, &crate::run::testing::program(), scratch.path()).await.expect("tried");
        assert!(!report.holds, "{:#?}", report.trials);
        assert_eq!(report.broken().next().expect("broken").rule, rule, "{:#?}", report.trials);
    }
}

/// A content with a policy for drift.
fn with(policy: &str, bench: &Bench, text: &str) -> String {
    let content: serde_json::Value = serde_json::from_str(&content(bench, text)).expect("a content");
    let mut content = content.as_object().expect("an object").clone();
    content.insert("on_drift".to_owned(), policy.into());
    serde_json::Value::Object(content).to_string()
}

#[tokio::test]
async fn a_change_by_others_is_reported_until_it_is_gone() {
    for policy in ["report", "adopt"] {
        let mut bench = Bench::new();
        let wanted = with(policy, &bench, "one\ntwo\n");
        let context = bench.context(&file_tree(), &wanted);
        assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
        let id = context.cob.id.clone();
        assert_eq!(bench.check(&context).await.exports["drift"], "[]");
        assert_eq!(bench.kinds.drift(&id), Vec::new());
        let path = bench.path("host/x.conf");
        fs::write(&path, "one\ntwo\nmine\n").expect("edited");
        let found = bench.check(&context).await;
        assert_eq!(found.state, Ok(state("present")));
        assert!(found.exports["drift"].contains("host/x.conf"), "{:?}", found.exports);
        assert!(found.difference.contains("x.conf: it belongs to "), "{}", found.difference);
        let drift = bench.kinds.drift(&id);
        assert_eq!(drift.len(), 1);
        assert!(drift[0].path.ends_with("host/x.conf") && drift[0].owner.is_some() && drift[0].changed_s.is_some());

        let patch = bench.ask(&context, FilesQuery::Patch).await.expect("told");
        assert!(patch.text.ends_with(" one\n two\n+mine\n"), "{}", patch.text);
        let kept = bench.path("files/patches/n1+a+b.patch");
        assert_eq!(patch.path.is_some(), policy == "adopt");
        assert_eq!(fs::read_to_string(&kept).ok(), (policy == "adopt").then_some(patch.text));

        fs::write(&path, "one\ntwo\n").expect("edited");
        assert_eq!(bench.check(&context).await.exports["drift"], "[]");
        assert_eq!(bench.kinds.drift(&id), Vec::new());
        assert!(!kept.exists());
    }
}

/// Waits for a hint that a tree may have changed.
async fn hint(drifts: &mut tokio::sync::mpsc::Receiver<cob_types::CobId>) {
    let word = tokio::time::timeout(std::time::Duration::from_secs(120), drifts.recv()).await;
    assert!(word.expect("somebody noticed").is_some());
}

#[tokio::test]
async fn each_later_change_in_a_large_tree_is_found_by_its_path() {
    let mut bench = Bench::new();
    let mut drifts = bench.kinds.take_drifts().expect("it is there once");
    let path = |n: usize| bench.path(&format!("host/f{n:03}"));
    let paths: Vec<_> = (0..100).map(path).collect();
    let text = |n: usize| format!("file {n}\n");
    let files: serde_json::Map<_, _> = (0..100)
        .map(|n| (paths[n].to_str().expect("text").to_owned(), serde_json::json!({"content": text(n)})))
        .collect();
    let context = bench.context(&file_tree(), &serde_json::json!({ "files": files }).to_string());
    assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
    for n in [7, 8] {
        fs::write(&paths[n], "by somebody\n").expect("written");
        // A hint about the previous change may still be pending.
        let found = loop {
            hint(&mut drifts).await;
            let found = bench.check(&context).await;
            if found.state == Ok(state("outdated")) {
                break found;
            }
        };
        assert!(found.difference.contains(&format!("f00{n}")), "{}", found.difference);
        assert_eq!(bench.transition(&context, "outdated", "present").await, Outcome::done());
        assert_eq!(fs::read_to_string(&paths[n]).expect("read"), text(n));
    }
    while drifts.try_recv().is_ok() {}
    // A user writes the same content. The tree is as desired, and a complete check follows.
    fs::write(&paths[9], text(9)).expect("written");
    hint(&mut drifts).await;
    assert_eq!(bench.state(&context).await, "present");
    hint(&mut drifts).await;
    fs::remove_file(&paths[99]).expect("removed");
    hint(&mut drifts).await;
    assert_eq!(bench.state(&context).await, "outdated");
    // Without new hints, the check reads the whole tree.
    fs::write(&paths[99], text(99)).expect("written");
    assert_eq!(bench.state(&context).await, "present");
}

/// Reads pending hints about earlier changes.
async fn until_quiet(drifts: &mut tokio::sync::mpsc::Receiver<cob_types::CobId>) {
    let quiet = std::time::Duration::from_millis(200);
    while tokio::time::timeout(quiet, drifts.recv()).await.is_ok() {}
}

#[tokio::test]
async fn a_recreated_folder_is_watched_again() {
    let mut bench = Bench::new();
    let mut drifts = bench.kinds.take_drifts().expect("it is there once");
    let text = content(&bench, "one\n");
    let context = bench.context(&file_tree(), &text);
    assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
    for _ in 0..2 {
        assert_eq!(bench.state(&context).await, "present");
        until_quiet(&mut drifts).await;
        fs::remove_dir_all(bench.path("host")).expect("removed");
        hint(&mut drifts).await;
        assert_eq!(bench.state(&context).await, "outdated");
        assert_eq!(bench.transition(&context, "outdated", "present").await, Outcome::done());
    }
    // Replaces the folder by another folder of the same name.
    assert_eq!(bench.state(&context).await, "present");
    fs::rename(bench.path("host"), bench.path("elsewhere")).expect("moved");
    fs::create_dir(bench.path("host")).expect("made");
    hint(&mut drifts).await;
    assert_eq!(bench.state(&context).await, "outdated");
    assert_eq!(bench.transition(&context, "outdated", "present").await, Outcome::done());
    assert_eq!(bench.state(&context).await, "present");
    until_quiet(&mut drifts).await;
    fs::write(bench.path("host/x.conf"), "of somebody").expect("written");
    hint(&mut drifts).await;
    assert_eq!(bench.state(&context).await, "outdated");
}

#[tokio::test]
async fn a_trial_order_reports_its_outcome_and_changes_no_file() {
    let mut bench = Bench::new();
    let text = content(&bench, "one\n");
    let context = bench.context(&file_tree(), &text);
    fs::create_dir_all(bench.path("host")).expect("made");
    assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
    let path = bench.path("host/x.conf");
    fs::write(&path, "two\n").expect("written");
    let version = bench.ask(&context, FilesQuery::Log).await.expect("told").versions[0].id.clone();
    let would = |order| FilesQuery::Would(Box::new(order));
    let restore = |version: &str, path: &Path| {
        would(FilesQuery::Restore { version: version.to_owned(), path: path.to_str().expect("text").to_owned() })
    };
    bench.ask(&context, restore(&version, &path)).await.expect("it would");
    assert_eq!(fs::read_to_string(&path).expect("read"), "two\n");
    let why = bench.ask(&context, restore(&version, &bench.path("host/none"))).await.expect_err("not there");
    assert!(why.contains("is not managed"), "{why}");
    bench.ask(&context, restore("ffffffff", &path)).await.expect_err("no such version");
    let decide =
        would(FilesQuery::Resolve { path: None, conflict: None, choice: cob_files::Choice::Ours, retire: false });
    let why = bench.ask(&context, decide).await.expect_err("no conflict");
    assert!(why.contains("no conflict"), "{why}");
}

#[tokio::test]
async fn a_restored_version_comes_with_a_warning_where_it_cannot_stay() {
    let mut bench = Bench::new();
    fs::create_dir_all(bench.path("host")).expect("made");
    let path = bench.path("host/x.conf").to_str().expect("text").to_owned();
    for (more, stays) in [("{}", false), (r#"{"manage":"merge"}"#, true), (r#"{"on_drift":"report"}"#, true)] {
        let mut content: serde_json::Value = serde_json::from_str(more).expect("JSON");
        content["files"] = serde_json::json!({ &path: {"content": "one\n"} });
        let context = bench.context(&file_tree(), &content.to_string());
        assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
        fs::write(&path, "two\n").expect("written");
        let version = bench.ask(&context, FilesQuery::Log).await.expect("told").versions[0].id.clone();
        let restore = FilesQuery::Restore { version, path: path.clone() };
        let said = bench.ask(&context, restore).await.expect("put back").text;
        assert_eq!(!said.contains("put back at once"), stays, "{more}: {said}");
        assert_eq!(fs::read_to_string(&path).expect("read"), "one\n");
        assert_eq!(bench.transition(&context, "present", "absent").await, Outcome::done());
    }
}
